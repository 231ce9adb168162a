//! The queue between the threads that log and the thread that writes.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

use super::settings::Format;
use kernel::clock::Clock;

/// Maximum number of waiting lines; further lines are dropped.
pub const MAX_WAITING: usize = 16_384;
/// The pause of the thread after it has written all lines, so that not every line wakes it.
const PAUSE: Duration = Duration::from_millis(10);

/// The queue of lines. Writing to it never waits.
#[derive(Clone, Debug)]
pub struct Lines {
    pub format: Format,
    queue: NonBlocking,
    /// The number of lines passed to the queue, including dropped ones.
    pushed: Arc<AtomicUsize>,
    written: Arc<AtomicUsize>,
}

impl Lines {
    /// Starts the thread that writes to `out`. Waiting lines are written when the guard is dropped, which
    /// takes at most about a second if `out` is blocked.
    pub fn start(out: impl Write + Send + 'static, format: Format) -> (Self, WorkerGuard) {
        let (written, dropped) = (Arc::<AtomicUsize>::default(), Arc::<OnceLock<ErrorCounter>>::default());
        let out = BufWriter::with_capacity(64 * 1024, out);
        let batches =
            Batches { out, format, written: written.clone(), dropped: dropped.clone(), reported: 0 };
        let builder = NonBlockingBuilder::default().buffered_lines_limit(MAX_WAITING).thread_name("log");
        let (queue, guard) = builder.finish(batches);
        dropped.get_or_init(|| queue.error_counter());
        (Self { format, queue, pushed: Arc::default(), written }, guard)
    }

    /// Returns the number of waiting lines, and of lines dropped since the start.
    pub fn load(&self) -> (usize, usize) {
        let dropped = self.queue.error_counter().dropped_lines();
        let left = dropped + self.written.load(Ordering::Relaxed);
        (self.pushed.load(Ordering::Relaxed).saturating_sub(left), dropped)
    }
}

impl Write for Lines {
    /// Queues a line, or counts it as dropped if the queue is full.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        self.queue.write_all(&indented(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The output of the thread. It writes many lines at once and reports the number of dropped lines.
struct Batches<W: Write> {
    out: BufWriter<W>,
    format: Format,
    written: Arc<AtomicUsize>,
    /// Set right after the thread has started.
    dropped: Arc<OnceLock<ErrorCounter>>,
    /// The number of dropped lines in the last report.
    reported: usize,
}

impl<W: Write> Write for Batches<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.out.write_all(line)?;
        Ok(line.len())
    }

    /// Writes the collected lines. Called when no more lines are waiting.
    fn flush(&mut self) -> io::Result<()> {
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        if dropped > self.reported {
            writeln!(self.out, "{}", dropped_line(self.format, dropped - self.reported))?;
            self.reported = dropped;
        }
        self.out.flush()?;
        std::thread::sleep(PAUSE);
        Ok(())
    }
}

fn dropped_line(format: Format, dropped: usize) -> String {
    let time = Clock::System.now();
    let message = "log lines were dropped because stderr did not take them";
    match format {
        Format::Text => format!("{time}  WARN tollkeeper::log: {message} dropped={dropped}"),
        Format::Json => format!(
            r#"{{"timestamp":"{time}","level":"WARN","message":"{message}","dropped":{dropped},"target":"tollkeeper::log"}}"#
        ),
    }
}

/// Indents text after a line break inside a line, so that logged text can't look like a separate line.
fn indented(line: &[u8]) -> Cow<'_, [u8]> {
    let inner = line.strip_suffix(b"\n").unwrap_or(line);
    if !inner.contains(&b'\n') {
        return Cow::Borrowed(line);
    }
    let mut indented = inner.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(b"\n    ".as_slice());
    indented.push(b'\n');
    Cow::Owned(indented)
}
