//! Probes, which determine which injected fields an upstream accepts. The gateway injects these fields into
//! requests so that the upstream reports token counts.
//!
//! If an upstream refuses a field, the gateway sends a small separate request, the probe, and remembers only
//! its outcome. Answers to tenants' requests aren't used for this purpose, because they depend on the content
//! of the requests.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use kernel::clock::Clock;
use tokio::time::timeout;

use crate::answer::is_error;
use crate::counters::Counters;
use crate::dialect::Dialect;
use crate::errors::MAX_ERROR_BYTES;
use crate::gateway::Gateway;
use crate::json::Object;
use crate::operation::Operation;
use crate::request::{InjectedField, Injection, ModelRequest, Target, TargetOptions, refused_field};
use crate::sse::Framer;
use crate::transport::{Transport, Transports, request_headers};
use catalog::Route;

/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of tokens that a probe generates. Some upstreams don't accept a smaller limit.
const PROBE_TOKENS: i64 = 16;

/// Publishes the fields that aren't sent in the metrics.
pub(crate) fn publish(transports: &Transports, counters: &Counters, clock: &Clock) {
    let now_ms = clock.steady_ms();
    let refused = transports.all().into_iter().flat_map(|transport| {
        let refused = transport.probe_outcomes().refused(now_ms).into_iter();
        refused.map(move |(model, field)| (transport.id().to_owned(), model, field)).collect::<Vec<_>>()
    });
    counters.set_refused_fields(refused);
}

/// Probes an upstream, unless it was probed within the last minute, and returns the fields that may be added
/// from now on. The probe continues even if the call that started it ends.
pub(crate) async fn learn(
    gateway: &Gateway,
    transport: &Arc<Transport>,
    route: &Route,
    operation: Operation,
) -> Injection {
    let probe = Probe {
        gateway: gateway.clone(),
        transport: Arc::clone(transport),
        model: route.model.clone(),
        operation,
    };
    tokio::spawn(probe.run()).await.unwrap_or_default()
}

/// Returns the fields with which to resend a call after a field was refused; `None` if the call isn't resent.
/// `sent` are the fields added to the call, and `learned` are the fields that the upstream is known to
/// accept.
pub(crate) fn after_refusal(
    field: InjectedField,
    sent: Injection,
    learned: Injection,
    dialect: &Dialect,
) -> Option<Injection> {
    let limit = InjectedField::MaxTokens;
    // The call doesn't need this field: the client didn't send it, and another field limits the answer.
    let is_left_out = field == limit || sent.is_without(limit);
    let next = if is_left_out { learned.without(limit) } else { learned };
    (!next.adds(field, dialect)).then_some(next)
}

/// A request that determines which fields an upstream accepts.
struct Probe {
    gateway: Gateway,
    transport: Arc<Transport>,
    model: String,
    operation: Operation,
}

impl Probe {
    async fn run(self) -> Injection {
        let probe_outcomes = self.transport.probe_outcomes();
        let _only = probe_outcomes.probing.lock().await;
        let now_ms = self.gateway.clock.steady_ms();
        if probe_outcomes.may_probe(self.operation, &self.model, now_ms) {
            let answer = timeout(PROBE_TIMEOUT, self.ask()).await.ok().flatten();
            probe_outcomes.remember(self.operation, &self.model, answer, now_ms);
            publish(self.gateway.transports(), self.gateway.counters(), &self.gateway.clock);
        }
        probe_outcomes.injection(self.operation, &self.model, now_ms)
    }

    /// Returns the fields with which the upstream accepts a small request; `None` if the outcome is unclear.
    async fn ask(&self) -> Option<Injection> {
        let body = Bytes::from_static(probe_body(self.operation)?);
        let request = ModelRequest::read(self.operation, &body).ok()?;
        let upstream = self.transport.id();
        let dialect = self.transport.dialect();
        let mut inject = Injection::default();
        loop {
            let options = TargetOptions::default();
            let target =
                Target { dialect, model: &self.model, max_completion_tokens: PROBE_TOKENS, inject, options };
            let body = request.write_for(&target);
            let sent = self.transport.send(self.operation.path(), request_headers(None, true), body);
            let response = sent.await.ok()?;
            let is_good = response.status() == StatusCode::OK;
            let answer = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await.ok()?.to_bytes();
            let field = match is_good {
                false => refused_field(&answer),
                true => error_at_the_start(answer).and_then(|error| refused_field(&error)),
            };
            let Some(field) = field else { return is_good.then_some(inject) };
            if !target.adds(field, &request) {
                return None;
            }
            inject = inject.without(field);
            let (model, field_name) = (&self.model, field.as_str());
            if field.is_for_counting() {
                tracing::warn!(
                    upstream,
                    model,
                    field = field_name,
                    "an upstream refuses a field that requests token counts. The field isn't sent for ten \
                     minutes, so the tokens of streams may be estimated. Upgrade the upstream, or check its \
                     `kind` in the catalog"
                );
            } else {
                tracing::info!(
                    upstream,
                    model,
                    field = field_name,
                    "an upstream accepts only one field for the token limit, so this field isn't sent for \
                     ten minutes"
                );
            }
        }
    }
}

/// Returns the error at the start of a stream, if it has one: vLLM sends status 200 before it checks some
/// fields.
fn error_at_the_start(stream: Bytes) -> Option<Bytes> {
    let mut framer = Framer::new();
    framer.push(stream);
    let first = std::iter::from_fn(|| framer.next_event().ok()?).find_map(|frame| frame.data)?;
    let object = Object::read(first.clone(), &["error", "object"]).ok()?;
    is_error(&object).then_some(first)
}

/// Returns a small request for a stream; `None` for operations without injected fields.
const fn probe_body(operation: Operation) -> Option<&'static [u8]> {
    match operation {
        Operation::ChatCompletions => {
            Some(br#"{"model":"-","messages":[{"role":"user","content":"Hello"}],"stream":true}"#)
        }
        Operation::Completions => Some(br#"{"model":"-","prompt":"Hello","stream":true}"#),
        Operation::Responses => Some(br#"{"model":"-","input":"Hello","stream":true}"#),
        Operation::Embeddings | Operation::Messages => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use InjectedField::{IncludeUsage, MaxTokens, TimingsPerToken};
    use catalog::UpstreamKind;

    const OPENAI: &Dialect = Dialect::of(UpstreamKind::Openai);
    const LLAMACPP: &Dialect = Dialect::of(UpstreamKind::Llamacpp);

    /// The second limit is omitted even if the probe fails, because the client didn't send it.
    #[test]
    fn call_whose_second_limit_is_refused_is_sent_without_it() {
        let all = Injection::default();
        let without = all.without(MaxTokens);
        assert_eq!(after_refusal(MaxTokens, all, all, OPENAI), Some(without));
        assert_eq!(after_refusal(MaxTokens, all, without, OPENAI), Some(without));
        // The refused field stays out when another field is refused later.
        let learned = all.without(IncludeUsage);
        assert_eq!(after_refusal(IncludeUsage, without, learned, OPENAI), Some(learned.without(MaxTokens)));
        // Other fields are omitted only if the upstream also refuses them in the probe.
        assert_eq!(after_refusal(IncludeUsage, all, all, OPENAI), None);
        assert_eq!(after_refusal(TimingsPerToken, all, all, LLAMACPP), None);
        assert_eq!(
            after_refusal(TimingsPerToken, all, learned.without(TimingsPerToken), LLAMACPP),
            Some(learned.without(TimingsPerToken))
        );
    }
}
