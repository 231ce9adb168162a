//! Which request the work at hand belongs to, and traces and log lines for a collector (OpenTelemetry, off by default).
//!
//! The request's id is known wherever its future is polled, so that every log line and every mail can name it. A trace is kept
//! for a sampled request only: while tracing is off, everything here costs one look at a flag.

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
pub use logs::ForCollector;
pub use outlet::Load;
pub use settings::{Header, Settings};
pub use trace::{Ending, Open, Trace, Waiting};

use kernel::clock::Time;
use kernel::ids::{OrganizationId, RequestId};
use kernel::random::Random;
use logs::LogLine;
use outlet::Outlet;
use trace::Parent;

/// Whether anybody in this process traces; it never goes back.
static ON: AtomicBool = AtomicBool::new(false);

/// Chooses requests to be traced, and passes their traces on.
pub struct Tracer {
    /// A request is chosen when its number, drawn over all 64 bits, is below this.
    below: u64,
    /// Whether all are.
    all: bool,
    traces: Outlet<Arc<Trace>>,
    /// None where the configuration doesn't want them to be told.
    logs: Option<Outlet<LogLine>>,
    /// Tells this process from its siblings.
    instance: String,
}

impl Tracer {
    /// None when the configuration names no collector.
    ///
    /// # Errors
    /// A sentence for the operator: the system's certificates can't be read.
    pub fn new(settings: &Settings, random: &Random) -> Result<Option<Self>, String> {
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let ppm = u128::try_from(settings.sample_ratio.units()).unwrap_or_default();
        let tracer = Self {
            below: u64::try_from(u128::from(u64::MAX) * ppm / 1_000_000).unwrap_or(u64::MAX),
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
            logs::tell(lines);
        }
        ON.store(true, Ordering::Relaxed);
        Ok(Some(tracer))
    }

    /// Begins the trace of a request, if it is one to be traced. Whoever may use the service listener decides about that
    /// by the flag in `traceparent`; what the public says is taken up, but only we choose.
    pub fn begin(
        &self,
        headers: &HeaderMap,
        believed: bool,
        request_id: RequestId,
        now: Time,
    ) -> Option<Arc<Trace>> {
        let parent = Parent::of(headers);
        let wanted = parent.as_ref().filter(|_| believed).map(|parent| parent.sampled);
        let chosen = wanted.unwrap_or_else(|| self.all || trace::spread(request_id) < self.below);
        chosen.then(|| Arc::new(Trace::new(parent, request_id, now, &self.traces.queue, &self.traces.lost)))
    }

    /// The queues of traces and of log lines, and what became of what left them.
    pub fn load(&self) -> impl Iterator<Item = (&'static str, Load)> {
        let logs = self.logs.as_ref().map(|lines| ("log_lines", lines.load()));
        [("traces", self.traces.load())].into_iter().chain(logs)
    }
}

/// Begins a part of the request at hand; it ends when this is dropped. None unless the request is traced.
#[inline]
pub fn span(name: &'static str) -> Option<Box<Open>> {
    if ON.load(Ordering::Relaxed) { current::trace().map(|trace| Open::begin(trace, name)) } else { None }
}

/// The request at hand begins to wait for work that somebody else does for many. None unless it is traced.
#[inline]
pub fn waiting() -> Option<Box<Waiting>> {
    if ON.load(Ordering::Relaxed) { current::trace().map(Waiting::begin) } else { None }
}

/// Notes whose request it is that is at hand.
#[inline]
pub fn note_organization(id: OrganizationId) {
    if ON.load(Ordering::Relaxed)
        && let Some(trace) = current::trace()
    {
        trace.note_organization(id);
    }
}
