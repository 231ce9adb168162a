//! The log: lines for people or JSON, on stderr, cheap for the request that writes one.
//!
//! A request only appends its line to a buffer in memory. A thread of its own writes the buffer out every 50 ms,
//! or sooner when it holds 64 KiB or a warning. When stderr takes nothing, lines past 4 MiB are dropped and
//! counted, so that a blocked terminal never stops the service.

mod access;
mod buffer;
mod request;
pub mod settings;

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;

pub use access::Access;
use buffer::Buffer;
use kernel::clock::Clock;
use request::WithRequest;
use settings::{Format, Settings};
use telemetry::CollectorLayer;

static BUFFER: OnceLock<Arc<Buffer>> = OnceLock::new();

/// Writes out the rest of the log when it is dropped: `main` keeps it to its end.
#[must_use = "the log is flushed when this is dropped"]
#[derive(Debug)]
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        flush();
    }
}

/// Sets the log up for this process, and logs panics. A second call changes nothing.
pub fn init(settings: &Settings) -> Guard {
    let buffer = BUFFER.get_or_init(|| Buffer::start(Box::new(std::io::stderr()), settings.format));
    let subscriber = subscriber(settings, Lines(Arc::clone(buffer)));
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    Guard(())
}

/// Writes out everything that was logged so far; waits for stderr, but not longer than a second.
pub fn flush() {
    if let Some(buffer) = BUFFER.get() {
        buffer.flush();
    }
}

/// Bytes that wait to be written, the most that may, and lines dropped since the start; none where the log isn't ours.
pub fn load() -> Option<(usize, usize, u64)> {
    let (pending, dropped) = BUFFER.get()?.load();
    Some((pending, buffer::MAX_PENDING, dropped))
}

/// Writes the line of one request, if the log's level lets it through.
pub fn access(line: &Access<'_>) {
    if !tracing::enabled!(target: "tollkeeper::access", Level::INFO) {
        return;
    }
    match BUFFER.get() {
        Some(buffer) => line.write_to(buffer, Clock::System.now()),
        None => line.trace(),
    }
}

/// Where the formatter leaves its lines.
#[derive(Clone)]
struct Lines(Arc<Buffer>);

/// One line on its way to the buffer.
struct Line<'a> {
    buffer: &'a Buffer,
    urgent: bool,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { buffer: &self.0, urgent: false }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { buffer: &self.0, urgent: *metadata.level() <= Level::WARN }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.buffer.push(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// RFC 3339 in UTC with milliseconds, as everywhere in the service.
struct Timestamp;

impl FormatTime for Timestamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", Clock::System.now())
    }
}

fn subscriber(settings: &Settings, lines: Lines) -> Box<dyn Subscriber + Send + Sync> {
    // The configuration has checked the level; were it wrong all the same, a log is better than none.
    let filter = EnvFilter::builder().parse(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_timer(Timestamp)
        .with_writer(lines)
        .log_internal_errors(false);
    match settings.format {
        Format::Text => {
            Box::new(builder.compact().map_event_format(WithRequest::text).finish().with(CollectorLayer))
        }
        Format::Json => {
            let json = builder.json().flatten_event(true).with_span_list(false);
            Box::new(json.map_event_format(WithRequest::json).finish().with(CollectorLayer))
        }
    }
}

/// A panic is one error line: where it happened and what it said. With `RUST_BACKTRACE` also the way there.
fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let payload = payload_text(info.payload());
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(location, payload, thread, %backtrace, "panic");
    } else {
        tracing::error!(location, payload, thread, "panic");
    }
    flush();
}

fn payload_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests;
