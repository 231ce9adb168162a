//! Counters of model calls, for `/metrics`. The operator configures the models and upstreams, so the number
//! of series is bounded.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::count::Settled;
use crate::request::InjectedField;
use crate::transport::complaints::Complaints;
use kernel::error::Code;
use metrics::{Gauge, GaugeVec, HistogramVec, IntCounterVec, Registered};

/// The outcome of a call that had reserved money.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The answer was complete.
    Completed,
    /// The upstream ended its answer too early, or the server stopped.
    Cut,
    ClientLeft,
    /// No upstream answered.
    Failed,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cut => "cut",
            Self::ClientLeft => "client_left",
            Self::Failed => "failed",
        }
    }
}

/// The memory shared by calls.
#[derive(Debug)]
struct MemoryCounters {
    bytes: GaugeVec,
    refused: IntCounterVec,
}

impl MemoryCounters {
    fn new(registered: &Registered) -> Self {
        Self {
            bytes: registered.gauges(
                "tollkeeper_gateway_memory_bytes",
                "Bytes of requests and answers in memory.",
                &[],
            ),
            refused: registered.counters(
                "tollkeeper_gateway_memory_refused_total",
                "Calls refused because other calls, or calls of the same organization, use too much memory.",
                &[],
            ),
        }
    }
}

/// Counters of the quality of upstreams' counts.
#[derive(Debug)]
struct CountCounters {
    estimates: IntCounterVec,
    upstream_tokens: IntCounterVec,
    /// The upstreams that have sent a successful answer without complete counts.
    estimated: Mutex<BTreeSet<Box<str>>>,
    /// Upstreams that reported parts larger than their whole.
    misfits: Complaints,
    above_limit: IntCounterVec,
    excesses: IntCounterVec,
}

impl CountCounters {
    fn new(registered: &Registered) -> Self {
        let counters = |name: &str, help: &str, labels: &[&str]| registered.counters(name, help, labels);
        Self {
            estimates: counters(
                "tollkeeper_gateway_estimates_total",
                "Captured calls whose tokens are estimated.",
                &["model", "upstream"],
            ),
            upstream_tokens: counters(
                "tollkeeper_gateway_upstream_tokens_total",
                "Tokens of captured calls by the upstream, and by whether it counted them: `counted` or `estimated`.",
                &["upstream", "source"],
            ),
            estimated: Mutex::default(),
            misfits: Complaints::default(),
            above_limit: counters(
                "tollkeeper_gateway_answers_above_limit_total",
                "Answers that had more tokens than the upstream was allowed to generate.",
                &["model", "upstream"],
            ),
            excesses: counters(
                "tollkeeper_gateway_prompts_above_reservation_total",
                "Captured calls whose upstream counted more tokens of the prompt than were reserved.",
                &["model", "upstream"],
            ),
        }
    }
}

/// The counters of this process.
#[derive(Debug)]
pub(crate) struct Counters {
    calls: IntCounterVec,
    attempts: IntCounterVec,
    open: GaugeVec,
    waiting: GaugeVec,
    up: GaugeVec,
    tokens: IntCounterVec,
    counts: CountCounters,
    memory: MemoryCounters,
    refused_fields: GaugeVec,
    first_events: HistogramVec,
}

impl Counters {
    /// Registers the counters.
    pub(crate) fn new(registered: &Registered) -> Self {
        let counters = |name: &str, help: &str, labels: &[&str]| registered.counters(name, help, labels);
        Self {
            calls: counters(
                "tollkeeper_gateway_calls_total",
                "Admitted model calls, by their end.",
                &["model", "outcome"],
            ),
            attempts: counters(
                "tollkeeper_gateway_attempts_total",
                "Requests to upstreams: `answered`, or the code of the failure.",
                &["upstream", "code"],
            ),
            open: registered.gauges(
                "tollkeeper_gateway_calls_open",
                "Model calls that aren't settled yet.",
                &[],
            ),
            waiting: registered.gauges(
                "tollkeeper_gateway_calls_waiting",
                "Model calls waiting for a slot at an upstream.",
                &["upstream"],
            ),
            up: registered.gauges(
                "tollkeeper_gateway_upstream_up",
                "1 for an upstream that works, according to the last checks; 0 for an upstream that is \
                 down.",
                &["upstream"],
            ),
            tokens: counters(
                "tollkeeper_gateway_tokens_total",
                "Tokens of captured calls; cached ones are part of the prompt.",
                &["model", "kind"],
            ),
            counts: CountCounters::new(registered),
            memory: MemoryCounters::new(registered),
            refused_fields: registered.gauges(
                "tollkeeper_gateway_upstream_field_refused",
                "1 while a field that requests token counts isn't sent, because the upstream refused it.",
                &["upstream", "model", "field"],
            ),
            first_events: registered.durations(
                "tollkeeper_gateway_first_event_seconds",
                "From the request to an upstream to the first event of its stream.",
                &["upstream"],
            ),
        }
    }

    pub(crate) fn begin_call(&self) {
        self.open.with_label_values::<&str>(&[]).inc();
    }

    pub(crate) fn end_call(&self) {
        self.open.with_label_values::<&str>(&[]).dec();
    }

    /// Counts a call that waits for a slot, until the result is dropped.
    pub(crate) fn begin_wait(&self, upstream: &str) -> Waiting {
        let gauge = self.waiting.with_label_values(&[upstream]);
        gauge.inc();
        Waiting(gauge)
    }

    pub(crate) fn note_health(&self, upstream: &str, is_up: bool) {
        self.up.with_label_values(&[upstream]).set(f64::from(u8::from(is_up)));
    }

    pub(crate) fn set_memory(&self, bytes: usize) {
        // Gauges are floating-point numbers, which represent integers of this size exactly.
        self.memory
            .bytes
            .with_label_values::<&str>(&[])
            .set(u32::try_from(bytes).map_or(f64::MAX, f64::from));
    }

    /// Counts a call that was refused for lack of memory.
    pub(crate) fn note_memory_refused(&self) {
        self.memory.refused.with_label_values::<&str>(&[]).inc();
    }

    /// Counts a call whose prompt has more tokens than were reserved.
    pub(crate) fn note_excess(&self, model: &str, upstream: &str) {
        self.counts.excesses.with_label_values(&[model, upstream]).inc();
    }

    /// Replaces the list of fields that aren't sent, each with its upstream and model.
    pub(crate) fn set_refused_fields(&self, refused: impl Iterator<Item = (String, String, InjectedField)>) {
        self.refused_fields.reset();
        for (upstream, model, field) in refused {
            self.refused_fields.with_label_values(&[&upstream, &model, field.as_str()]).set(1.0);
        }
    }

    pub(crate) fn note_outcome(&self, model: &str, outcome: Outcome) {
        self.calls.with_label_values(&[model, outcome.as_str()]).inc();
    }

    pub(crate) fn note_answer(&self, upstream: &str) {
        self.attempts.with_label_values(&[upstream, "answered"]).inc();
    }

    pub(crate) fn note_failure(&self, upstream: &str, code: Code) {
        self.attempts.with_label_values(&[upstream, code.as_str()]).inc();
    }

    pub(crate) fn note_first_event(&self, upstream: &str, took: Duration) {
        self.first_events.with_label_values(&[upstream]).observe(took.as_secs_f64());
    }

    pub(crate) fn note_tokens(&self, model: &str, upstream: &str, settled: Settled) {
        let kinds = [
            ("prompt", settled.prompt_tokens),
            ("cached_prompt", settled.cached_prompt_tokens.unwrap_or_default()),
            ("completion", settled.completion_tokens),
        ];
        for (kind, tokens) in kinds {
            self.tokens.with_label_values(&[model, kind]).inc_by(u64::try_from(tokens).unwrap_or_default());
        }
        let source = if settled.estimated { "estimated" } else { "counted" };
        let tokens = settled.prompt_tokens.saturating_add(settled.completion_tokens);
        let counter = self.counts.upstream_tokens.with_label_values(&[upstream, source]);
        counter.inc_by(u64::try_from(tokens).unwrap_or_default());
        if settled.estimated {
            self.counts.estimates.with_label_values(&[model, upstream]).inc();
        }
    }

    /// Notes that the usage of a successful answer had to be estimated. Returns `true` for the upstream's
    /// first such answer since the start.
    pub(crate) fn is_first_estimate(&self, upstream: &str) -> bool {
        self.counts.estimated.lock().unwrap_or_else(PoisonError::into_inner).insert(upstream.into())
    }

    /// Returns `true` if it is time to log that an upstream's parts exceed their total.
    pub(crate) fn is_misfit_due(&self, upstream: &str, now_ms: i64) -> bool {
        self.counts.misfits.is_due(upstream, "parts", now_ms)
    }

    /// Counts an answer with more tokens than the upstream was allowed to generate.
    pub(crate) fn note_above_limit(&self, model: &str, upstream: &str) {
        self.counts.above_limit.with_label_values(&[model, upstream]).inc();
    }
}

/// A call that waits for a slot.
pub(crate) struct Waiting(Gauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}
