//! The log: text lines or JSON on stderr. It adds little time to a request.
//!
//! A request only appends its line to a queue in memory, which a separate thread writes. While stderr is
//! blocked, lines beyond a maximum are dropped and counted, so that a blocked terminal never stops the
//! service.
//!
//! [`init`] sets up the log, [`access()`] writes the line of a request, [`load`] is for metrics, and
//! [`settings`] is the table `log` of the configuration.

mod access;
mod lines;
mod request;
pub mod settings;

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use tracing::{Level, Subscriber};
pub use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;

pub use access::Access;
use kernel::clock::Clock;
use lines::Lines;
use request::WithRequestId;
use settings::{Format, Settings};
use telemetry::CollectorLayer;

static LINES: OnceLock<Lines> = OnceLock::new();

/// Sets up the log of this process, and logs panics. A second call has no effect. Waiting lines are written
/// when the guard is dropped, so `main` keeps the guard until it ends.
pub fn init(settings: &Settings) -> WorkerGuard {
    let (lines, guard) = Lines::start(std::io::stderr(), settings.format);
    if tracing::subscriber::set_global_default(subscriber(settings, lines.clone())).is_ok() {
        LINES.get_or_init(|| lines);
        std::panic::set_hook(Box::new(log_panic));
    }
    guard
}

/// Returns the number of lines that wait to be written, the maximum of this number, and the number of lines
/// dropped since the start; `None` if the log wasn't set up.
pub fn load() -> Option<(usize, usize, usize)> {
    let (waiting, dropped) = LINES.get()?.load();
    Some((waiting, lines::MAX_WAITING, dropped))
}

/// Writes the line of one request, if the log's level includes it.
pub fn access(line: &Access<'_>) {
    if !tracing::enabled!(target: "tollkeeper::access", Level::INFO) {
        return;
    }
    match LINES.get() {
        Some(lines) => line.write_to(lines.clone(), Clock::System.now()),
        None => line.trace(),
    }
}

/// Formats timestamps in RFC 3339, in UTC, with milliseconds, like everywhere in the service.
struct Timestamp;

impl FormatTime for Timestamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", Clock::System.now())
    }
}

/// Targets that are off by default. Crates whose names begin with this log an error for each client response
/// that they can't parse, so any client could fill the log.
const QUIET: &str = "webauthn_rs=off";

fn subscriber(settings: &Settings, lines: Lines) -> Box<dyn Subscriber + Send + Sync> {
    // The configuration has already checked the level. If it is invalid anyway, the log falls back to `info`.
    let level = format!("{QUIET},{}", settings.level);
    let filter = EnvFilter::builder().parse(level).unwrap_or_else(|_| EnvFilter::new("info"));
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
}

fn payload_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests;
