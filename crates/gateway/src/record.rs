//! The record of a call: one line in the log at its end, and the spans of its trace.

use std::sync::Arc;
use std::time::Duration;

use crate::count::Settled;
use crate::counters::Outcome;
use crate::operation::Operation;
use billing::calls::CostedRoute;
use call_log::entries::{Client, Course, Ended};
use catalog::{ComponentPrices, Route, Upstream};
use kernel::error::Code;
use kernel::ids::{ModelCallId, OrganizationId};
use kernel::stopwatch::Stopwatch;
use telemetry::Span;

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    /// The error, if one occurred.
    pub(crate) code: Option<Code>,
    /// The HTTP status; `None` if the client left before its answer.
    pub(crate) status: Option<u16>,
}

impl End {
    /// Returns the end of a whole answer.
    pub(crate) fn whole(outcome: Outcome) -> Self {
        let status = (outcome != Outcome::ClientLeft).then_some(200);
        Self { outcome, code: None, status }
    }

    /// Returns the end of a stream, whose status was sent before.
    pub(crate) fn stream(outcome: Outcome, code: Option<Code>) -> Self {
        Self { outcome, code, status: Some(200) }
    }

    /// Returns the end of a call that is answered with an error.
    pub(crate) fn error(outcome: Outcome, code: Code) -> Self {
        let status = (outcome != Outcome::ClientLeft).then(|| code.status().as_u16());
        Self { outcome, code: status.map(|_| code), status }
    }

    /// Returns `true` if no upstream took the call: the log treats it like a refusal.
    pub(crate) fn is_refusal(self) -> bool {
        self.outcome == Outcome::Failed
            && matches!(self.code, Some(Code::ModelOverloaded | Code::ModelNotServed))
    }
}

/// The record of a call that has reserved money.
pub(crate) struct CallRecord {
    stopwatch: Stopwatch,
    call_id: ModelCallId,
    organization_id: OrganizationId,
    model: Box<str>,
    operation: Operation,
    is_stream: bool,
    /// The client, for the log of calls.
    client: Client,
    /// The upstream that was called last.
    upstream: Option<Arc<Upstream>>,
    /// The name of the model at that upstream.
    upstream_model: Option<Arc<str>>,
    /// The operator's costs of calls on the route that was called last.
    costs: Option<Arc<ComponentPrices>>,
    attempts: u32,
    first_event: Option<Duration>,
    /// The span of the attempt that was answered.
    span: Option<Box<Span>>,
}

impl CallRecord {
    /// Begins the record of a call.
    pub(crate) fn new(
        call_id: ModelCallId,
        organization_id: OrganizationId,
        model: &str,
        operation: Operation,
        is_stream: bool,
    ) -> Self {
        Self {
            stopwatch: Stopwatch::start(),
            call_id,
            organization_id,
            model: model.into(),
            operation,
            is_stream,
            client: Client::default(),
            upstream: None,
            upstream_model: None,
            costs: None,
            attempts: 0,
            first_event: None,
            span: None,
        }
    }

    /// Returns the record with its client.
    pub(crate) fn with_client(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// Notes that an upstream is called, and begins a span for the attempt.
    pub(crate) fn begin_attempt(&mut self, route: &Route) {
        self.upstream = Some(Arc::clone(&route.upstream));
        self.upstream_model = Some(route.model.as_str().into());
        self.costs.clone_from(&route.cost);
        self.attempts += 1;
        let operation = self.operation.telemetry_name();
        // The names are those of OpenTelemetry's conventions for generative AI.
        self.span = telemetry::client_span(|| format!("{operation} {}", route.model));
        if let Some(span) = &mut self.span {
            span.set_attribute("gen_ai.operation.name", operation);
            span.set_attribute("gen_ai.provider.name", route.upstream.kind.as_str());
            span.set_attribute("gen_ai.request.model", &route.model);
            span.set_attribute("tollkeeper.upstream", &route.upstream.id);
            span.set_attribute("tollkeeper.call_id", &self.call_id.to_string());
        }
    }

    /// Notes that the attempt has failed.
    pub(crate) fn fail_attempt(&mut self, code: Code) {
        if let Some(mut span) = self.span.take() {
            span.set_error(code.as_str());
        }
    }

    /// Notes the time from the request to the first event of a stream.
    pub(crate) fn note_first_event(&mut self, took: Duration) {
        self.first_event = Some(took);
    }

    /// Returns the id of the last called upstream; `-` if no upstream was called.
    pub(crate) fn upstream_id(&self) -> &str {
        self.upstream.as_ref().map_or("-", |upstream| upstream.id.as_str())
    }

    /// Returns the route that was called last, if the operator's costs for it are known.
    pub(crate) fn costed_route(&self) -> Option<CostedRoute> {
        let costs = Arc::clone(self.costs.as_ref()?);
        Some(CostedRoute { upstream: self.upstream_id().into(), costs })
    }

    /// Returns the course of the call, for the log of calls.
    pub(crate) fn course(&self, end: End) -> Course {
        let ms = |took: u128| i64::try_from(took).unwrap_or(i64::MAX);
        Course {
            operation: self.operation.logged(),
            request_id: telemetry::request_id(),
            upstream: self.upstream.as_ref().map(|upstream| upstream.id.as_str().into()),
            upstream_model: self.upstream_model.clone(),
            is_stream: self.is_stream,
            attempts: self.attempts,
            status: end.status,
            code: end.code.map(Code::as_str),
            ended: match end.outcome {
                Outcome::Completed => Ended::Completed,
                Outcome::Cut => Ended::Cut,
                Outcome::ClientLeft => Ended::ClientLeft,
                Outcome::Failed if end.is_refusal() => Ended::Refused,
                Outcome::Failed => Ended::Failed,
            },
            first_event_ms: self.first_event.map(|took| ms(took.as_millis())),
            duration_ms: Some(ms(u128::from(self.stopwatch.elapsed_ns() / 1_000_000))),
            client: self.client.clone(),
        }
    }

    /// Ends the record once the call is settled.
    pub(crate) fn end(mut self, outcome: Outcome, used: Option<Settled>) {
        if let Some(mut span) = self.span.take() {
            if let Some(used) = used {
                span.set_number("gen_ai.usage.input_tokens", used.prompt_tokens);
                span.set_number("gen_ai.usage.output_tokens", used.completion_tokens);
                if let Some(cached) = used.cached_prompt_tokens {
                    span.set_number("gen_ai.usage.cache_read.input_tokens", cached);
                }
            }
            if outcome != Outcome::Completed {
                span.set_error(outcome.as_str());
            }
        }
        let Self { call_id, organization_id, model, attempts, is_stream, .. } = &self;
        tracing::info!(
            target: "tollkeeper::calls",
            %call_id,
            %organization_id,
            model,
            operation = self.operation.path(),
            stream = is_stream,
            upstream = self.upstream_id(),
            attempts,
            first_event_ms = self.first_event.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            duration_ms = self.stopwatch.elapsed_ns() / 1_000_000,
            prompt_tokens = used.map_or(0, |used| used.prompt_tokens),
            cached_prompt_tokens = used.and_then(|used| used.cached_prompt_tokens),
            completion_tokens = used.map_or(0, |used| used.completion_tokens),
            estimated = used.is_some_and(|used| used.estimated),
            ended = outcome.as_str(),
            "model call"
        );
    }
}
