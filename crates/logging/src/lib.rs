//! The log: text lines or JSON on stderr, cheap for the request that writes one.
//!
//! A request only appends its line to a buffer in memory. A thread of its own writes the buffer every 50 ms,
//! or sooner if it holds 64 KiB or a warning. While stderr is blocked, lines beyond 4 MiB are dropped and
//! counted, so that a blocked terminal never stops the service.
//!
//! [`init`] sets the log up, [`access()`] writes the line of a request, [`load`] is for metrics, and
//! [`settings`] is the table `log` of the configuration.

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
use request::WithRequestId;
use settings::{Format, Settings};
use telemetry::CollectorLayer;

static BUFFER: OnceLock<Arc<Buffer>> = OnceLock::new();

/// Flushes the log when it is dropped: `main` keeps it to its end.
#[must_use = "the log is flushed when this is dropped"]
#[derive(Debug)]
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        flush();
    }
}

/// Sets up the log of this process, and logs panics. A second call changes nothing.
pub fn init(settings: &Settings) -> Guard {
    let buffer = BUFFER.get_or_init(|| Buffer::start(Box::new(std::io::stderr()), settings.format));
    let subscriber = subscriber(settings, BufferWriter(Arc::clone(buffer)));
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    Guard(())
}

/// Writes everything that was logged so far; waits for stderr, but not longer than a second.
pub fn flush() {
    if let Some(buffer) = BUFFER.get() {
        buffer.flush();
    }
}

/// Returns the bytes that wait to be written, the most that may, and the lines dropped since the start;
/// `None` if the log wasn't set up.
pub fn load() -> Option<(usize, usize, u64)> {
    let (pending, dropped) = BUFFER.get()?.load();
    Some((pending, buffer::MAX_PENDING_BYTES, dropped))
}

/// Writes the line of one request, if the log's level includes it.
pub fn access(line: &Access<'_>) {
    if !tracing::enabled!(target: "tollkeeper::access", Level::INFO) {
        return;
    }
    match BUFFER.get() {
        Some(buffer) => line.write_to(buffer, Clock::System.now()),
        None => line.trace(),
    }
}

/// The writer of the formatter: it passes lines to the buffer.
#[derive(Clone)]
struct BufferWriter(Arc<Buffer>);

/// The writer of one line.
struct LineWriter<'a> {
    buffer: &'a Buffer,
    is_urgent: bool,
}

impl<'a> MakeWriter<'a> for BufferWriter {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter { buffer: &self.0, is_urgent: false }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LineWriter<'a> {
        LineWriter { buffer: &self.0, is_urgent: *metadata.level() <= Level::WARN }
    }
}

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.buffer.push(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Formats timestamps in RFC 3339, UTC, with milliseconds, as everywhere in the service.
struct Timestamp;

impl FormatTime for Timestamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", Clock::System.now())
    }
}

fn subscriber(settings: &Settings, lines: BufferWriter) -> Box<dyn Subscriber + Send + Sync> {
    // The configuration has checked the level; if it is invalid all the same, the log falls back to `info`.
    let filter = EnvFilter::builder().parse(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_timer(Timestamp)
        .with_writer(lines)
        .log_internal_errors(false);
    match settings.format {
        Format::Text => {
            Box::new(builder.compact().map_event_format(WithRequestId::text).finish().with(CollectorLayer))
        }
        Format::Json => {
            let json = builder.json().flatten_event(true).with_span_list(false);
            Box::new(json.map_event_format(WithRequestId::json).finish().with(CollectorLayer))
        }
    }
}

/// Logs a panic as one error line with its location and message, and with the backtrace if `RUST_BACKTRACE`
/// is set.
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
