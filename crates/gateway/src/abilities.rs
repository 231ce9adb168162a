//! The fields that an upstream accepts, among those added to streams so that it counts tokens.
//!
//! If an upstream refuses a field, the gateway sends it a small request of its own, and remembers only the answer
//! to that. A tenant chooses the content of its requests, and so influences what the upstream answers to them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use kernel::clock::Clock;
use tokio::time::timeout;

use crate::answer::is_error;
use crate::counters::Counters;
use crate::dialect::Dialect;
use crate::gateway::Gateway;
use crate::json::Object;
use crate::opening::MAX_ERROR_BYTES;
use crate::operation::Operation;
use crate::request::{InjectedField, Injection, ModelRequest, Target, TargetOptions, refused_field};
use crate::sse::Framer;
use crate::transport::{Transport, Transports, request_headers};
use catalog::Route;

/// The time for which a refused field isn't sent.
const REMEMBERED_MS: i64 = 10 * 60 * 1_000;
/// The minimum time between two probes with the same operation and model.
const PROBE_INTERVAL_MS: i64 = 60 * 1_000;
/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of tokens that a probe generates. Some upstreams accept no smaller limit.
const PROBE_TOKENS: i64 = 16;

/// The known abilities of an upstream.
#[derive(Default)]
pub(crate) struct Abilities {
    /// The operations and models that were probed recently: rarely more than zero, and never more than the catalog
    /// has.
    known: Mutex<Vec<Ability>>,
    /// Only one probe runs at a time.
    probing: tokio::sync::Mutex<()>,
}

/// The known ability of the streams of one operation of a model.
struct Ability {
    operation: Operation,
    /// The model's name at the upstream.
    model: String,
    injection: Injection,
    /// The time until which this is remembered, on the steady clock.
    until_ms: i64,
    /// The earliest time of the next probe.
    next_probe_ms: i64,
}

impl Abilities {
    /// Returns the fields that may be added to a stream.
    pub(crate) fn injection(&self, operation: Operation, model: &str, now_ms: i64) -> Injection {
        let known = self.known();
        let ability = known.iter().find(|known| known.is_of(operation, model) && now_ms < known.until_ms);
        ability.map_or_else(Injection::default, |known| known.injection)
    }

    fn may_probe(&self, operation: Operation, model: &str, now_ms: i64) -> bool {
        !self.known().iter().any(|known| known.is_of(operation, model) && now_ms < known.next_probe_ms)
    }

    /// Remembers the outcome of a probe. A failed probe changes nothing: the earlier outcome stays, and the next
    /// probe waits for the same interval. By default all fields may be added.
    fn remember(&self, operation: Operation, model: &str, learned: Option<Injection>, now_ms: i64) {
        let mut known = self.known();
        let is_valid = |known: &&Ability| known.is_of(operation, model) && now_ms < known.until_ms;
        let before = known.iter().find(is_valid).map(|known| (known.injection, known.until_ms));
        let learned = learned.map(|injection| (injection, now_ms + REMEMBERED_MS));
        let (injection, until_ms) = learned.or(before).unwrap_or((Injection::default(), now_ms));
        known.retain(|known| !known.is_of(operation, model) && !known.is_over(now_ms));
        known.push(Ability {
            operation,
            model: model.to_owned(),
            injection,
            until_ms,
            next_probe_ms: now_ms + PROBE_INTERVAL_MS,
        });
    }

    /// Returns the names of models, each with a counting field that they aren't sent.
    pub(crate) fn refused(&self, now_ms: i64) -> Vec<(String, InjectedField)> {
        let known = self.known();
        let valid = known.iter().filter(|known| now_ms < known.until_ms);
        let refused = valid.flat_map(|known| {
            let counting = InjectedField::ALL.into_iter().filter(|field| field.is_for_counting());
            let fields = counting.filter(|field| known.injection.is_without(*field));
            fields.map(|field| (known.model.clone(), field))
        });
        refused.collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<Ability>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ability {
    fn is_of(&self, operation: Operation, model: &str) -> bool {
        self.operation == operation && self.model == model
    }

    fn is_over(&self, now_ms: i64) -> bool {
        self.until_ms <= now_ms && self.next_probe_ms <= now_ms
    }
}

/// Publishes the fields that aren't sent in the metrics.
pub(crate) fn publish(transports: &Transports, counters: &Counters, clock: &Clock) {
    let now_ms = clock.steady_ms();
    let refused = transports.all().into_iter().flat_map(|transport| {
        let refused = transport.abilities().refused(now_ms).into_iter();
        refused.map(move |(model, field)| (transport.id().to_owned(), model, field)).collect::<Vec<_>>()
    });
    counters.set_refused_fields(refused);
}

/// Finds out whether an upstream refuses fields, unless that was tried within the last minute, and returns the
/// fields that may be added from now on. It continues even if the call that started it ends.
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

/// Returns the fields with which to resend a call after a field was refused; `None` if it isn't resent. `sent` were
/// added to the call, and `learned` are those that the upstream is known to accept.
pub(crate) fn after_refusal(
    field: InjectedField,
    sent: Injection,
    learned: Injection,
    dialect: &Dialect,
) -> Option<Injection> {
    let limit = InjectedField::MaxTokens;
    // The client didn't send this field, and has a limit without it, so the call doesn't need it.
    let is_left_out = field == limit || sent.is_without(limit);
    let next = if is_left_out { learned.without(limit) } else { learned };
    (!next.adds(field, dialect)).then_some(next)
}

/// A request that finds out which fields an upstream accepts.
struct Probe {
    gateway: Gateway,
    transport: Arc<Transport>,
    model: String,
    operation: Operation,
}

impl Probe {
    async fn run(self) -> Injection {
        let abilities = self.transport.abilities();
        let _only = abilities.probing.lock().await;
        let now_ms = self.gateway.clock.steady_ms();
        if abilities.may_probe(self.operation, &self.model, now_ms) {
            let answer = timeout(PROBE_TIMEOUT, self.ask()).await.ok().flatten();
            abilities.remember(self.operation, &self.model, answer, now_ms);
            publish(self.gateway.transports(), self.gateway.counters(), &self.gateway.clock);
        }
        abilities.injection(self.operation, &self.model, now_ms)
    }

    /// Returns the fields with which the upstream accepts a small request; `None` if its answer doesn't show that.
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
                    "an upstream refuses a field that makes it count, which isn't sent for ten minutes: tokens of its streams \
                     may be estimated. A newer version or another kind of upstream in the catalog may help"
                );
            } else {
                tracing::info!(
                    upstream,
                    model,
                    field = field_name,
                    "an upstream takes one limit of tokens only, so it isn't sent this one for ten minutes"
                );
            }
        }
    }
}

/// Returns the error at the start of a stream: vLLM sends status 200 before it checks some fields.
fn error_at_the_start(stream: Bytes) -> Option<Bytes> {
    let mut framer = Framer::new();
    framer.push(stream);
    let first = std::iter::from_fn(|| framer.next_event().ok()?).find_map(|frame| frame.data)?;
    let object = Object::read(first.clone(), &["error", "object"]).ok()?;
    is_error(&object).then_some(first)
}

/// Returns a small request for a stream. `None` for operations whose streams get no fields.
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
    const CHAT: Operation = Operation::ChatCompletions;

    #[test]
    fn failed_probe_changes_nothing_but_the_time_of_the_next() {
        let abilities = Abilities::default();
        abilities.remember(CHAT, "m", None, 0);
        assert_eq!(abilities.injection(CHAT, "m", 1), Injection::default());
        assert!(!abilities.may_probe(CHAT, "m", PROBE_INTERVAL_MS - 1));
        assert!(abilities.may_probe(CHAT, "m", PROBE_INTERVAL_MS));
        let learned = Injection::default().without(IncludeUsage);
        abilities.remember(CHAT, "m", Some(learned), 100);
        abilities.remember(CHAT, "m", None, 200);
        assert_eq!(abilities.injection(CHAT, "m", 201), learned);
        // Until the entry expires.
        assert_eq!(abilities.injection(CHAT, "m", 100 + REMEMBERED_MS), Injection::default());
        assert!(!abilities.may_probe(CHAT, "m", 199 + PROBE_INTERVAL_MS));
    }

    #[test]
    fn metrics_show_fields_by_which_an_upstream_counts() {
        let abilities = Abilities::default();
        let learned = Injection::default().without(IncludeUsage).without(MaxTokens);
        abilities.remember(CHAT, "m", Some(learned), 0);
        assert_eq!(abilities.refused(1), [("m".to_owned(), IncludeUsage)]);
    }

    /// A probe may fail; the client didn't send the second limit.
    #[test]
    fn call_whose_second_limit_is_refused_is_sent_without_it() {
        let all = Injection::default();
        let without = all.without(MaxTokens);
        assert_eq!(after_refusal(MaxTokens, all, all, OPENAI), Some(without));
        assert_eq!(after_refusal(MaxTokens, all, without, OPENAI), Some(without));
        // The refused field stays out when another field is refused later.
        let learned = all.without(IncludeUsage);
        assert_eq!(after_refusal(IncludeUsage, without, learned, OPENAI), Some(learned.without(MaxTokens)));
        // Other fields are left out only if the upstream also refuses them without the client's request.
        assert_eq!(after_refusal(IncludeUsage, all, all, OPENAI), None);
        assert_eq!(after_refusal(TimingsPerToken, all, all, LLAMACPP), None);
        assert_eq!(
            after_refusal(TimingsPerToken, all, learned.without(TimingsPerToken), LLAMACPP),
            Some(learned.without(TimingsPerToken))
        );
    }
}
