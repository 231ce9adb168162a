//! The buffer between the requests that log and the thread that writes.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::settings::Format;
use kernel::clock::Clock;

/// How long a line may wait.
const FLUSH_AFTER: Duration = Duration::from_millis(50);
/// A buffer of this size is written at once.
const FLUSH_FROM: usize = 64 * 1024;
/// Lines past this size are dropped; as much again may be on its way out.
pub const MAX_PENDING: usize = 4 * 1024 * 1024;
/// The longest that [`Buffer::flush`] waits for a blocked stderr.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// Lines that wait to be written.
pub struct Buffer {
    state: Mutex<State>,
    /// Tells the writing thread that there is something to do.
    wake: Condvar,
    /// Tells those who flush that something was written.
    written: Condvar,
    format: Format,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    urgent: bool,
    /// The thread has taken lines and not yet written them.
    writing: bool,
    dropped: u64,
    /// Since the start.
    dropped_in_all: u64,
    /// The system gave us no thread: slow lines are better than none.
    without_thread: bool,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").finish_non_exhaustive()
    }
}

impl Buffer {
    /// A buffer and its thread, which lives as long as the process.
    pub fn start(out: Box<dyn Write + Send>, format: Format) -> Arc<Self> {
        let buffer =
            Arc::new(Self { state: Mutex::default(), wake: Condvar::new(), written: Condvar::new(), format });
        let shared = Arc::clone(&buffer);
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.run(out));
        if thread.is_err() {
            buffer.lock().without_thread = true;
        }
        buffer
    }

    /// How its lines look.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes that wait, and lines that were dropped since the start.
    pub fn load(&self) -> (usize, u64) {
        let state = self.lock();
        (state.pending.len(), state.dropped_in_all)
    }

    /// Appends a line, or counts it as dropped when too many wait.
    pub fn push(&self, line: &[u8], urgent: bool) {
        let mut state = self.lock();
        if state.without_thread {
            std::io::stderr().write_all(line).unwrap_or_default();
            return;
        }
        if state.pending.len() + line.len() > MAX_PENDING {
            state.dropped += 1;
            state.dropped_in_all += 1;
            return;
        }
        let was_empty = state.pending.is_empty();
        append(&mut state.pending, line);
        let now_urgent = urgent || state.pending.len() >= FLUSH_FROM;
        let wake = was_empty || (now_urgent && !state.urgent);
        state.urgent |= now_urgent;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Waits until everything that was pushed so far is written, or a second has passed.
    pub fn flush(&self) {
        let mut state = self.lock();
        if state.pending.is_empty() && !state.writing {
            return;
        }
        state.urgent = true;
        self.wake.notify_one();
        let busy = |state: &mut State| !state.pending.is_empty() || state.writing;
        drop(
            self.written.wait_timeout_while(state, FLUSH_WAIT, busy).unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn run(&self, mut out: Box<dyn Write + Send>) {
        let mut taken = Vec::new();
        loop {
            let dropped = self.take(&mut taken);
            if dropped > 0 {
                append(&mut taken, self.dropped_line(dropped).as_bytes());
            }
            // There is nowhere to report that the log itself can't be written.
            out.write_all(&taken).and_then(|()| out.flush()).unwrap_or_default();
            taken.clear();
            self.lock().writing = false;
            self.written.notify_all();
        }
    }

    /// Waits for lines, takes them all, and says how many were dropped meanwhile.
    fn take(&self, taken: &mut Vec<u8>) -> u64 {
        let idle = |state: &mut State| state.pending.is_empty() && state.dropped == 0;
        let state = self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let patient = |state: &mut State| !state.urgent;
        let waited = self.wake.wait_timeout_while(state, FLUSH_AFTER, patient);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.pending, taken);
        // After a flood the large buffer goes back to the system.
        state.pending.shrink_to(FLUSH_FROM * 2);
        state.urgent = false;
        state.writing = true;
        std::mem::take(&mut state.dropped)
    }

    fn dropped_line(&self, dropped: u64) -> String {
        let time = Clock::System.now();
        let message = "log lines were dropped because stderr did not take them";
        match self.format {
            Format::Text => format!("{time}  WARN tollkeeper::log: {message} dropped={dropped}\n"),
            Format::Json => {
                format!(
                    r#"{{"timestamp":"{time}","level":"WARN","message":"{message}","dropped":{dropped},"target":"tollkeeper::log"}}"#
                ) + "\n"
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends one line. A line break inside it is indented, so that no logged text can pass for a line of its own.
fn append(pending: &mut Vec<u8>, line: &[u8]) {
    let (inner, end) = match line.split_last() {
        Some((b'\n', inner)) => (inner, "\n"),
        _ => (line, ""),
    };
    for (index, part) in inner.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            pending.extend_from_slice(b"\n    ");
        }
        pending.extend_from_slice(part);
    }
    pending.extend_from_slice(end.as_bytes());
}
