//! An attempt of a call at one upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use tokio::time::{Instant, timeout_at};

use super::Opened;
use super::failure::{Failure, Verdict};
use crate::admission::Admitted;
use crate::answer::{PlainAnswer, PlainError, StreamCleaner, tier_at_the_end, usage_at_the_end};
use crate::body::{ReadError, UpstreamBody, Whole, holding};
use crate::count::Settled;
use crate::errors::MAX_ERROR_BYTES;
use crate::gateway::Gateway;
use crate::queue::Place;
use crate::request::{InjectedField, Injection, ModelRequest, Target, TargetOptions, named_field};
use crate::streaming::{BeginFailure, Relay};
use crate::transport::{SendError, Transport, request_headers};
use crate::{demo, learning, prefix_cache};
use catalog::{OnDisconnect, Route};
use kernel::error::{Code, Error};

/// The maximum number of bytes of an answer that isn't streamed. The memory of an API key is sufficient for
/// such an answer in addition to the largest request.
pub(crate) const MAX_PLAIN_BYTES: usize = 64 << 20;

/// An attempt of a call at one upstream.
pub(super) struct Attempt<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) call: &'a Admitted,
    /// The request to send: the request of the call, possibly with its media inlined.
    pub(super) outgoing: &'a ModelRequest,
    /// The salt that separates the upstream's cache by organization.
    pub(super) cache_salt: Option<String>,
    pub(super) route: &'a Route,
    pub(super) transport: &'a Arc<Transport>,
    pub(super) started: Instant,
}

/// The deadlines of an attempt.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The deadline for the first event of a stream. Comments and other signs of life extend it.
    pub(super) first_event: Instant,
    /// The deadline for the end of the answer.
    pub(super) total: Instant,
}

/// The beginning of a stream.
enum First {
    Event(Box<Relay>),
    /// An error about an injected field that the upstream doesn't accept, with the fields to inject next.
    FieldRefused(Place, Injection),
}

/// The response of an upstream.
pub(super) enum Response {
    Good(UpstreamBody),
    /// 400 with a message that names an injected field, which may be the reason. If it isn't, the client gets
    /// the failure.
    FieldRefused(InjectedField, Failure),
    /// The prompt and the injected limit exceed the context. With this limit, they fit.
    LimitTooLarge(i64, Failure),
}

impl Attempt<'_> {
    pub(super) async fn run(&self, place: Place, times: Times) -> Result<Opened, Failure> {
        let is_stream = self.call.request.is_stream;
        let until = if is_stream { times.first_event } else { times.total };
        let begin = |inject| async move {
            timeout_at(until, self.begin(inject)).await.unwrap_or_else(|_| Err(self.time_out()))
        };
        let (mut body, mut inject) = begin(self.known_injection()).await?;
        let is_demo = self.transport.dialect().is_demo;
        if is_stream {
            let mut place = place;
            // The loop ends, because each request is sent before the deadline for the first event.
            let relay = loop {
                match self.read_first(body, inject, place, times).await? {
                    First::Event(relay) => break relay,
                    First::FieldRefused(freed, next) => {
                        place = freed;
                        (body, inject) = begin(next).await?;
                    }
                }
            };
            let took = self.started.elapsed();
            self.transport.note_first_event(took);
            self.gateway.counters().note_first_event(&self.route.upstream.id, took);
            return Ok(Opened::Stream { relay, first_event: took, is_demo });
        }
        let mut memory = self.gateway.memory_of(self.call.holder);
        let body = match body.read_all(MAX_PLAIN_BYTES, &mut memory, self.gateway.bodies()).await {
            Ok(Whole::Body(body)) => body,
            Ok(Whole::TooLong { tail }) => return Ok(self.too_long(&tail)),
            Err(ReadError::Cut(why)) => return Err(self.fail(&why)),
            Err(ReadError::NoMemory) => {
                self.gateway.counters().note_memory_refused();
                return Err(Failure::last(Code::ServerBusy));
            }
        };
        let hides_cached_tokens = self.target(inject, None).options.hides_cached_tokens;
        let answer = self.read_plain(body, hides_cached_tokens).await.map_err(|error| match error {
            PlainError::Invalid => self.fail("its answer isn't JSON"),
            PlainError::Error(error) => self.refused_with_200(error),
        })?;
        let used = answer.settle(self.call.bounds);
        if answer.usage.is_some_and(|usage| usage.completion_tokens > self.call.bounds.completion_tokens) {
            self.gateway.counters().note_above_limit(&self.call.model.id, &self.route.upstream.id);
            self.warn("its answer has more tokens than it was allowed to generate: only those are charged");
        }
        Ok(Opened::Whole { body: holding(answer.body, memory), used, is_demo })
    }

    /// Returns the fields that the upstream is known to accept.
    fn known_injection(&self) -> Injection {
        let (operation, now_ms) = (self.call.request.operation, self.gateway.clock.steady_ms());
        self.transport.probe_outcomes().injection(operation, &self.route.model, now_ms)
    }

    /// Sends the request, with adjusted fields if necessary, until a response begins successfully. Returns
    /// its body, and the fields added to the request.
    async fn begin(&self, mut inject: Injection) -> Result<(UpstreamBody, Injection), Failure> {
        let mut limit = None;
        loop {
            match self.ask(inject, limit).await? {
                Response::Good(body) => return Ok((body, inject)),
                Response::FieldRefused(field, failure) => {
                    inject = self.without(field, inject).await.ok_or(failure)?;
                }
                Response::LimitTooLarge(rest, failure) => {
                    if limit.replace(rest).is_some() {
                        return Err(failure);
                    }
                    self.call.left_max_tokens.store(rest, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns the fields to send after a field was refused; `None` if the client gets the refusal. The
    /// client's request can influence the upstream's message, so a probe verifies the refusal.
    async fn without(&self, field: InjectedField, sent: Injection) -> Option<Injection> {
        let operation = self.call.request.operation;
        let learned = learning::learn(self.gateway, self.transport, self.route, operation).await;
        learning::after_refusal(field, sent, learned, self.transport.dialect())
    }

    /// Reads a stream up to its first event, which may be an error.
    async fn read_first(
        &self,
        body: UpstreamBody,
        inject: Injection,
        place: Place,
        times: Times,
    ) -> Result<First, Failure> {
        let secrets = self.transport.secrets().into_iter().map(str::to_owned).collect();
        let target = self.target(inject, None);
        let cleaner = StreamCleaner::new(&self.call.request, &target, secrets);
        let relay = Relay::new(self.gateway, self.call, self.route, cleaner, body, place, times.total);
        let (error, place) = match relay.read_first(times.first_event).await {
            Ok(relay) => return Ok(First::Event(Box::new(relay))),
            Err(BeginFailure::Silent) => return Err(self.time_out()),
            Err(BeginFailure::Cut(why)) => return Err(self.fail(&why)),
            Err(BeginFailure::Error(error, place)) => (error, place),
        };
        let field = error.message.as_deref().and_then(named_field);
        if let Some(field) = field.filter(|field| target.adds(*field, &self.call.request))
            && let Some(inject) = self.without(field, inject).await
        {
            return Ok(First::FieldRefused(place, inject));
        }
        Err(self.refused_with_200(error))
    }

    /// Reads an answer that isn't a stream.
    async fn read_plain(&self, body: Bytes, hides_cached_tokens: bool) -> Result<PlainAnswer, PlainError> {
        let secrets = self.transport.secrets();
        let Some(turns) = self.gateway.turns_for(&body) else {
            return PlainAnswer::read_for(&body, &self.call.request, &secrets, hides_cached_tokens);
        };
        let request = self.call.request.clone();
        let secrets: Vec<_> = secrets.into_iter().map(str::to_owned).collect();
        let read = move || PlainAnswer::read_for(&body, &request, &secrets, hides_cached_tokens);
        turns.run_aside(self.call.holder, read).await.unwrap_or_else(|| {
            tracing::error!(call_id = %self.call.call_id, "reading an answer has panicked: this is a defect");
            Err(PlainError::Invalid)
        })
    }

    /// Returns the result for an answer with too many bytes. The upstream has generated it, so it is charged.
    fn too_long(&self, tail: &[u8]) -> Opened {
        self.warn(&format!("its answer has more than {MAX_PLAIN_BYTES} bytes"));
        let request = &self.call.request;
        let used = match usage_at_the_end(tail, request.operation) {
            Some(usage) => usage.settle(self.call.bounds),
            None => self.call.estimated_prompt(),
        };
        let service_tier = tier_at_the_end(tail).unwrap_or_default();
        Opened::TooLong { used: Settled { service_tier, ..used } }
    }

    /// Returns the target that the request is written for. `limit` replaces the model's limit.
    pub(super) fn target(&self, inject: Injection, limit: Option<i64>) -> Target<'_> {
        let upstream = &self.route.upstream;
        let options = TargetOptions {
            drops_searches: self.call.request.drops_searches(upstream),
            cache_salt: self.cache_salt.as_deref(),
            hides_cached_tokens: prefix_cache::hides(upstream, self.call.request.operation),
        };
        let max_completion_tokens = limit.unwrap_or(self.call.max_tokens);
        let dialect = self.transport.dialect();
        Target { dialect, model: &self.route.model, max_completion_tokens, inject, options }
    }

    /// Sends the request, and reads the head of the response.
    async fn ask(&self, inject: Injection, limit: Option<i64>) -> Result<Response, Failure> {
        let body = self.outgoing.write_for(&self.target(inject, limit));
        if self.transport.dialect().is_demo {
            let answer = demo::answer(
                self.call.request.operation,
                &body,
                self.call.model.dimension,
                self.gateway.clock.now(),
            );
            return answer
                .map(|answer| Response::Good(UpstreamBody::Demo(answer)))
                .ok_or_else(|| self.fail("no text"));
        }
        // The body is kept until the response begins, because it is sent again if the connection was closed
        // in the meantime.
        let _copy = self.gateway.take_memory(self.call.holder, body.len()).map_err(Failure::last)?;
        let mut headers = request_headers(telemetry::request_id(), self.call.request.is_stream);
        let query = self.call.anthropic.add_to(&mut headers, &self.route.upstream);
        let path = format!("{}{query}", self.call.request.operation.path());
        // An answer that isn't streamed is generated completely, even if the client leaves.
        let is_awaited =
            !self.call.request.is_stream || self.route.upstream.on_disconnect != OnDisconnect::Cancel;
        self.call.stage.begin(is_awaited);
        let response = match self.transport.send(&path, headers, body).await {
            Ok(response) => response,
            Err(SendError::Connect(why)) => {
                self.call.stage.abandon();
                self.warn(&format!("connecting to it failed: {why}"));
                return Err(Failure::moving_on(Code::UpstreamFailed).with(Verdict::Fails));
            }
            Err(SendError::Stale(why)) => {
                self.warn(&format!("it closed its connections: {why}"));
                return Err(Failure::moving_on(Code::UpstreamFailed).with(Verdict::Fails));
            }
            Err(SendError::Closed(why)) => return Err(self.fail(&why)),
        };
        let status = response.status();
        if status != StatusCode::OK {
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ERROR_BYTES).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            return self.refused(status, &head.headers, &body, inject);
        }
        let is_stream = is_event_stream(response.headers());
        if self.call.request.is_stream && !is_stream {
            return Err(self.fail("it answers a request for a stream with something else"));
        }
        Ok(Response::Good(UpstreamBody::of(response)))
    }
}

/// Returns the error for an answer with too many bytes.
pub(crate) fn too_long_error() -> Error {
    let message = format!(
        "The answer has more than {} MiB, which is too large to pass on. It is charged. Request less at \
         once: fewer inputs or answers, or no log probabilities.",
        MAX_PLAIN_BYTES >> 20
    );
    Error::new(Code::PayloadTooLarge).message(message)
}

/// Returns `true` if a body is a stream of events.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}
