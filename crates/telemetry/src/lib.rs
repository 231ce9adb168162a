//! The current request, and export of traces and log lines to an OpenTelemetry collector (off by default).
//!
//! The id of a request is available wherever its future is polled, so that every log line and mail can name
//! it. Only sampled requests have a trace: while tracing is off, all functions here cost a load of a flag.

mod client;
mod current;
mod export;
mod logs;
mod otlp;
mod outlet;
mod settings;
mod trace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;

pub use current::{InRequest, request_id};
pub use export::run;
pub use logs::CollectorLayer;
pub use outlet::Load;
pub use settings::{Header, Settings};
pub use trace::{Ending, QueueSpan, Span, Trace};

use kernel::clock::Time;
use kernel::ids::{OrganizationId, RequestId};
use kernel::random::Random;
use logs::LogLine;
use outlet::Outlet;
use trace::Parent;

/// Set by the first [`Tracer`] of the process, and never reset.
static ON: AtomicBool = AtomicBool::new(false);

/// Samples requests, and queues traces and log lines for export.
pub struct Tracer {
    /// A request is sampled if its id, hashed to 64 bits, is below this.
    threshold: u64,
    /// All requests are sampled.
    all: bool,
    traces: Outlet<Arc<Trace>>,
    /// `None` unless the configuration asks for them.
    logs: Option<Outlet<LogLine>>,
    /// `service.instance.id`: random, for this process.
    instance: String,
}

impl Tracer {
    /// Creates a tracer; `None` if the configuration names no collector.
    ///
    /// # Errors
    /// A sentence for the operator: the certificates of the system can't be read.
    pub fn new(settings: &Settings, random: &Random) -> Result<Option<Self>, String> {
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let ppm = u128::try_from(settings.sample_ratio.units()).unwrap_or_default();
        let tracer = Self {
            threshold: u64::try_from(u128::from(u64::MAX) * ppm / 1_000_000).unwrap_or(u64::MAX),
            all: ppm >= 1_000_000,
            traces: Outlet::new("traces", client::Target::new(endpoint, &settings.headers, "/v1/traces")?),
            logs: match settings.logs {
                true => {
                    let target = client::Target::new(endpoint, &settings.headers, "/v1/logs")?;
                    Some(Outlet::new("log lines", target))
                }
                false => None,
            },
            instance: format!("{:032x}", u128::from_be_bytes(random.bytes())),
        };
        if let Some(lines) = &tracer.logs {
            logs::export_to(lines);
        }
        ON.store(true, Ordering::Relaxed);
        Ok(Some(tracer))
    }

    /// Begins the trace of a request, if it is sampled. A `trusted` caller (of the service listener) decides
    /// about that by the flag in `traceparent`. For others the trace continues theirs, but the flag is
    /// ignored.
    pub fn begin(
        &self,
        headers: &HeaderMap,
        trusted: bool,
        request_id: RequestId,
        now: Time,
    ) -> Option<Arc<Trace>> {
        let parent = Parent::of(headers);
        let flag = parent.as_ref().filter(|_| trusted).map(|parent| parent.sampled);
        let sampled = flag.unwrap_or_else(|| self.all || trace::hash(request_id) < self.threshold);
        sampled.then(|| Arc::new(Trace::new(parent, request_id, now, &self.traces.queue, &self.traces.lost)))
    }

    /// The queues of traces and of log lines, by name.
    pub fn load(&self) -> impl Iterator<Item = (&'static str, Load)> {
        let logs = self.logs.as_ref().map(|lines| ("log_lines", lines.load()));
        [("traces", self.traces.load())].into_iter().chain(logs)
    }
}

/// Begins a span of the current request, which ends when it is dropped; `None` unless the request is traced.
#[inline]
pub fn span(name: &'static str) -> Option<Box<Span>> {
    if ON.load(Ordering::Relaxed) { current::trace().map(|trace| Span::begin(trace, name)) } else { None }
}

/// Begins a span of the current request for work in a queue that another task does for many; `None` unless
/// the request is traced.
#[inline]
pub fn queue_span() -> Option<Box<QueueSpan>> {
    if ON.load(Ordering::Relaxed) { current::trace().map(QueueSpan::begin) } else { None }
}

/// Adds the organization to the trace of the current request.
#[inline]
pub fn note_organization(id: OrganizationId) {
    if ON.load(Ordering::Relaxed)
        && let Some(trace) = current::trace()
    {
        trace.note_organization(id);
    }
}
