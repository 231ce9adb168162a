//! The beginning of an answer: an upstream is chosen and asked, until the first event of its stream or the
//! whole of its plain answer has arrived. Only until then another upstream may be tried.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use tokio::time::{Instant, timeout_at};

use crate::abilities;
use crate::answer::{PlainAnswer, PlainError, StreamCleaner, usage_at_the_end};
use crate::body::{UpstreamBody, Whole, holding};
use crate::call::Admitted;
use crate::count::Settled;
use crate::errors::UpstreamError;
use crate::gateway::Gateway;
use crate::media::Loaded;
use crate::queue::Place;
use crate::record::CallRecord;
use crate::request::{
    InjectedField, Injection, ModelRequest, Target, TargetOptions, named_field, refused_field,
};
use crate::routing::{self, Candidate};
use crate::streaming::{BeginFailure, Relay};
use crate::transport::{SendError, Transport, request_headers};
use crate::{demo, errors, prefix_cache};
use catalog::{Affinity, MediaUrls, OnDisconnect, Route, Upstream, UpstreamKind};
use kernel::error::{Code, Error};

/// The most upstreams that one call asks.
const MAX_ATTEMPTS: usize = 3;
/// The most bytes of an answer that isn't streamed.
const MAX_PLAIN_BYTES: usize = 64 << 20;
/// The most bytes of an upstream's error that are read.
pub(crate) const MAX_ERROR_BYTES: usize = 64 << 10;

/// An answer that has begun.
pub(crate) enum Opened {
    Whole {
        body: Bytes,
        used: Settled,
        is_demo: bool,
    },
    /// It has too many bytes to be passed on.
    TooLong {
        used: Settled,
    },
    /// `first_event` is the time from the request to the first event.
    Stream {
        relay: Box<Relay>,
        first_event: Duration,
        is_demo: bool,
    },
}

/// A failed attempt.
struct Failure {
    error: Error,
    /// `true` if another upstream may be asked.
    may_move_on: bool,
    verdict: Verdict,
}

/// The state of an upstream, as far as a failed attempt tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It works: the request is wrong.
    Works,
    /// It can't be reached, is overloaded, or takes too long.
    Fails,
    /// Nothing: the request may be what it fails on, or it wasn't asked.
    Unknown,
}

impl Failure {
    fn last(error: impl Into<Error>) -> Self {
        Self { error: error.into(), may_move_on: false, verdict: Verdict::Unknown }
    }
    fn moving_on(code: Code) -> Self {
        Self { error: code.into(), may_move_on: true, verdict: Verdict::Unknown }
    }
    fn with(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }
}

/// Asks upstreams until one answers.
///
/// # Errors
/// The failure of the last one.
pub(crate) async fn open(
    gateway: &Gateway,
    call: &Admitted,
    record: &mut CallRecord,
) -> Result<Opened, Error> {
    let routes = &call.model.routes;
    if routes.is_empty() {
        let message = format!("No server behind this gateway serves the model `{}`.", call.model.id);
        return Err(Error::new(Code::ModelNotServed).message(message));
    }
    let transport = |route: &Route| gateway.transports().get(&route.upstream).map_err(Error::internal);
    let transports = routes.iter().map(transport).collect::<Result<Vec<_>, _>>()?;
    let affinity = (call.model.affinity == Affinity::Prefix).then(|| call.affinity_key());
    let (mut tried, mut failure) = (Vec::new(), Error::new(Code::ModelOverloaded));
    let mut loaded = None;
    while tried.len() < MAX_ATTEMPTS {
        let candidates: Vec<_> = routes
            .iter()
            .zip(&transports)
            .enumerate()
            .map(|(at, (route, transport))| {
                let is_usable = transport.is_usable(gateway.clock.steady_ms());
                candidate(route, transport, is_usable, tried.contains(&at))
            })
            .collect();
        let random = u64::from_le_bytes(gateway.random.bytes());
        let chosen = routing::choose(&candidates, affinity, random);
        let Some((at, route, transport)) =
            chosen.and_then(|at| Some((at, routes.get(at)?, transports.get(at)?)))
        else {
            break;
        };
        if !transport.admits_call(!tried.is_empty()) {
            tracing::warn!(
                upstream = route.upstream.id,
                "too many calls have failed elsewhere: this one isn't retried"
            );
            break;
        }
        tried.push(at);
        record.begin_attempt(route);
        match attempt(gateway, call, route, transport, &mut loaded).await {
            Ok(opened) => {
                if let Opened::Stream { first_event, .. } = &opened {
                    record.note_first_event(*first_event);
                }
                gateway.counters().note_answer(&route.upstream.id);
                return Ok(opened);
            }
            Err(failed) => {
                gateway.counters().note_failure(&route.upstream.id, failed.error.code);
                record.fail_attempt(failed.error.code);
                failure = failed.error;
                if !failed.may_move_on || call.stage.has_left() {
                    break;
                }
            }
        }
    }
    Err(failure)
}

fn candidate<'a>(route: &'a Route, transport: &Transport, is_usable: bool, was_tried: bool) -> Candidate<'a> {
    Candidate {
        upstream: &route.upstream.id,
        tier: route.tier,
        weight: route.weight,
        calls: transport.calls(),
        first_event_us: transport.first_event_us(),
        is_usable,
        was_tried,
    }
}

async fn attempt(
    gateway: &Gateway,
    call: &Admitted,
    route: &Route,
    transport: &Arc<Transport>,
    loaded: &mut Option<Loaded>,
) -> Result<Opened, Failure> {
    let upstream = &route.upstream;
    // Upstreams of another kind may be able to do it.
    let unsupported = |error| Failure { may_move_on: true, ..Failure::last(error) };
    call.request.check_kind(upstream.kind).map_err(unsupported)?;
    call.request.check_fields(upstream).map_err(unsupported)?;
    let outgoing = with_media(gateway, call, upstream, loaded).await.map_err(Failure::last)?;
    // Without a place anywhere, the call waits for one here.
    let place = match transport.try_enter(call.organization_id) {
        Some(place) => Some(place),
        None => {
            let _waiting = gateway.counters().begin_wait(&upstream.id);
            transport.enter(call.organization_id).await
        }
    };
    let place = place.ok_or_else(|| Failure::moving_on(Code::ModelOverloaded))?;
    let started = Instant::now();
    let total = started + Duration::from_millis(upstream.total_ms);
    let first_event = started + Duration::from_millis(upstream.first_event_ms);
    let times = Times { first_event: first_event.min(total), total };
    let cache_salt =
        prefix_cache::salt(upstream, call.request.operation, &gateway.cache_salts, call.organization_id);
    let attempt = Attempt { gateway, call, outgoing, cache_salt, route, transport, started };
    let trial = transport.begin(gateway.clock.steady_ms());
    let opened =
        timeout_at(total, attempt.run(place, times)).await.unwrap_or_else(|_| Err(attempt.time_out()));
    match opened.as_ref().map_or_else(|failure| failure.verdict, |_| Verdict::Works) {
        Verdict::Works => trial.succeed(),
        Verdict::Fails => trial.fail(gateway.clock.steady_ms()),
        Verdict::Unknown => drop(trial),
    }
    opened
}

/// Returns the request for an upstream: with what it names by addresses inline, if the upstream isn't to load that. It is loaded once
/// for a call, whose caller was admitted.
async fn with_media<'a>(
    gateway: &Gateway,
    call: &'a Admitted,
    upstream: &Upstream,
    loaded: &'a mut Option<Loaded>,
) -> Result<&'a ModelRequest, Error> {
    let is_loaded_here = upstream.media_urls == MediaUrls::Fetch && upstream.kind != UpstreamKind::Demo;
    if !is_loaded_here || call.request.web_media().next().is_none() {
        return Ok(&call.request);
    }
    let found = match loaded.take() {
        Some(found) => found,
        None => gateway.media.load(&call.request, call.holder, gateway.memory()).await?,
    };
    Ok(&loaded.insert(found).request)
}

/// One upstream, asked for one call.
struct Attempt<'a> {
    gateway: &'a Gateway,
    call: &'a Admitted,
    /// The request that is sent: that of the call, or the same with its media inline.
    outgoing: &'a ModelRequest,
    /// Keeps what the upstream has cached apart by organization.
    cache_salt: Option<String>,
    route: &'a Route,
    transport: &'a Arc<Transport>,
    started: Instant,
}

/// When an attempt must have come how far.
#[derive(Clone, Copy)]
struct Times {
    /// The beginning of a stream, unless there are signs of life.
    first_event: Instant,
    /// The end of the answer.
    total: Instant,
}

/// The beginning of a stream.
enum First {
    Event(Box<Relay>),
    /// An error that names a field that was added, and that the upstream doesn't take.
    FieldRefused(Place),
}

/// The response of an upstream.
enum Response {
    Good(UpstreamBody),
    /// 400, perhaps because of a field that we have added: its message names one. The failure is what the client
    /// gets otherwise.
    FieldRefused(InjectedField, Failure),
    /// The prompt and the limit that was written in have more tokens than the context: with this limit they haven't.
    LimitTooLarge(i64, Failure),
}

impl Attempt<'_> {
    async fn run(&self, place: Place, times: Times) -> Result<Opened, Failure> {
        let is_stream = self.call.request.is_stream;
        let until = if is_stream { times.first_event } else { times.total };
        let begin = |inject| async move {
            timeout_at(until, self.begin(inject)).await.unwrap_or_else(|_| Err(self.time_out()))
        };
        let (body, inject) = begin(self.known_injection()).await?;
        let is_demo = self.route.upstream.kind == UpstreamKind::Demo;
        if is_stream {
            let relay = match self.read_first(body, inject, place, times).await? {
                First::Event(relay) => relay,
                First::FieldRefused(place) => {
                    let (body, inject) = begin(self.known_injection()).await?;
                    match self.read_first(body, inject, place, times).await? {
                        First::Event(relay) => relay,
                        First::FieldRefused(_) => return Err(self.fail("it refuses a field that isn't sent")),
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
            Err(why) => return Err(self.fail(&why)),
        };
        let hides_cached_tokens = self.target(inject, None).options.hides_cached_tokens;
        let answer = self.read_plain(&body, hides_cached_tokens).await.map_err(|error| match error {
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

    /// Returns the fields that the upstream takes, as far as that is known.
    fn known_injection(&self) -> Injection {
        let (operation, now_ms) = (self.call.request.operation, self.gateway.clock.steady_ms());
        self.transport.abilities().injection(operation, &self.route.model, now_ms)
    }

    /// Asks until the response begins well. Returns its body, and what was added to the request.
    async fn begin(&self, mut inject: Injection) -> Result<(UpstreamBody, Injection), Failure> {
        let mut limit = None;
        loop {
            match self.ask(inject, limit).await? {
                Response::Good(body) => return Ok((body, inject)),
                Response::FieldRefused(field, failure) => {
                    inject = self.learn().await;
                    if inject.adds(field, self.route.upstream.kind) {
                        return Err(failure);
                    }
                }
                Response::LimitTooLarge(rest, failure) => {
                    if limit.replace(rest).is_some() {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Finds out which fields the upstream takes. The client chose the request, and so the message: what it says is found
    /// out without the client.
    async fn learn(&self) -> Injection {
        abilities::learn(self.gateway, self.transport, self.route, self.call.request.operation).await
    }

    /// Reads a stream to its first event, which may be an error.
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
            && !self.learn().await.adds(field, self.route.upstream.kind)
        {
            return Ok(First::FieldRefused(place));
        }
        Err(self.refused_with_200(error))
    }

    /// Reads an answer that isn't a stream.
    async fn read_plain(&self, body: &Bytes, hides_cached_tokens: bool) -> Result<PlainAnswer, PlainError> {
        let secrets = self.transport.secrets();
        let Some(turns) = self.gateway.turns_for(body) else {
            return PlainAnswer::read_for(body, &self.call.request, &secrets, hides_cached_tokens);
        };
        let (body, request) = (body.clone(), self.call.request.clone());
        let secrets: Vec<_> = secrets.into_iter().map(str::to_owned).collect();
        let read = move || PlainAnswer::read_for(&body, &request, &secrets, hides_cached_tokens);
        turns.run_aside(self.call.holder, read).await.unwrap_or_else(|| {
            tracing::error!(call_id = %self.call.call_id, "reading an answer has panicked: this is a defect");
            Err(PlainError::Invalid)
        })
    }

    /// Returns the end of an answer that has too many bytes: the upstream has made it, so it is charged.
    fn too_long(&self, tail: &[u8]) -> Opened {
        self.warn(&format!("its answer has more than {MAX_PLAIN_BYTES} bytes"));
        let request = &self.call.request;
        let used = match usage_at_the_end(tail, request.operation) {
            Some(usage) => usage.settle(self.call.bounds),
            None => self.call.estimated_prompt(),
        };
        Opened::TooLong { used }
    }

    /// Returns what the request is written for. `limit` takes the place of the model's.
    fn target(&self, inject: Injection, limit: Option<i64>) -> Target<'_> {
        let upstream = &self.route.upstream;
        let options = TargetOptions {
            drops_searches: self.call.request.drops_searches(upstream),
            cache_salt: self.cache_salt.as_deref(),
            hides_cached_tokens: prefix_cache::hides(upstream, self.call.request.operation),
        };
        let max_completion_tokens = limit.unwrap_or(self.call.max_tokens);
        Target { kind: upstream.kind, model: &self.route.model, max_completion_tokens, inject, options }
    }

    /// Sends the request, and reads the head of the response.
    async fn ask(&self, inject: Injection, limit: Option<i64>) -> Result<Response, Failure> {
        let body = self.outgoing.write_for(&self.target(inject, limit));
        if self.route.upstream.kind == UpstreamKind::Demo {
            let answer = demo::answer(self.call.request.operation, &body, self.gateway.clock.now());
            return answer
                .map(|answer| Response::Good(UpstreamBody::Demo(answer)))
                .ok_or_else(|| self.fail("no text"));
        }
        // The copy is kept until the response begins: if the connection was closed meanwhile, it is sent again.
        let _copy = self.gateway.take_memory(self.call.holder, body.len()).map_err(Failure::last)?;
        let headers = request_headers(telemetry::request_id(), self.call.request.is_stream);
        // An answer that isn't streamed is made to its end, whoever leaves.
        let is_awaited =
            !self.call.request.is_stream || self.route.upstream.on_disconnect != OnDisconnect::Cancel;
        self.call.stage.begin(is_awaited);
        let response = match self.transport.send(self.call.request.operation.path(), headers, body).await {
            Ok(response) => response,
            Err(SendError::Connect(why)) => {
                self.call.stage.abandon();
                self.warn(&format!("it can't be connected to: {why}"));
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
        Ok(Response::Good(UpstreamBody::Http(response.into_body())))
    }

    /// Translates a status that isn't 200.
    fn refused(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &Bytes,
        inject: Injection,
    ) -> Result<Response, Failure> {
        self.call.stage.abandon();
        let error = UpstreamError::read(body, &self.transport.secrets());
        let rest = self.rest_of_context(&error);
        let failure = self.failure(status.as_u16(), error, retry_after_s(headers));
        // Which status a server gives to a field that it doesn't know is its own choice.
        let may_be_field = !matches!(status.as_u16(), 401 | 403 | 408 | 429 | 502..);
        let field = refused_field(body).filter(|_| may_be_field);
        let is_added = |field: &InjectedField| self.target(inject, None).adds(*field, &self.call.request);
        match (rest, field.filter(is_added)) {
            (Some(limit), _) => Ok(Response::LimitTooLarge(limit, failure)),
            (None, Some(field)) => Ok(Response::FieldRefused(field, failure)),
            (None, None) => Err(failure),
        }
    }

    /// Returns the limit that an upstream leaves, if it refuses the one that was written in because the prompt is so long.
    fn rest_of_context(&self, error: &UpstreamError) -> Option<i64> {
        let is_written_in = self.call.request.asked_tokens().is_none();
        let context_length = self.call.model.context_length.filter(|_| is_written_in)?;
        rest_of_context(error.message.as_deref()?, context_length, self.call.max_tokens)
    }

    /// Translates an error with which a stream begins, or that is all of an answer: vLLM has answered 200 by then. Without a
    /// status it is a failure of the upstream.
    fn refused_with_200(&self, error: UpstreamError) -> Failure {
        errors::log(self.call.call_id, &self.route.upstream.id, error.message.as_deref());
        let is_context_length = error.is_context_length();
        let status = error.status().unwrap_or(if is_context_length { 400 } else { 500 });
        self.failure(status, error, None)
    }

    /// Returns the failure that a status stands for. The client is told of its own mistakes; those of the operator are
    /// logged.
    fn failure(&self, status: u16, error: UpstreamError, retry_after_s: Option<u64>) -> Failure {
        let overloaded = |verdict| {
            let error = Error { retry_after_s, ..Code::ModelOverloaded.into() };
            Failure { error, may_move_on: true, verdict }
        };
        // The client knows the model by another name.
        let error = error.renamed(&self.route.model, &self.call.request.model);
        let code = match status {
            400 | 422 => Some(Code::InvalidRequest),
            413 => Some(Code::PayloadTooLarge),
            _ => None,
        };
        if let Some(code) = code {
            let (call_id, upstream) = (self.call.call_id, &self.route.upstream.id);
            tracing::info!(%call_id, upstream, status, "an upstream refused a request: the client is told why");
            return Failure::last(error.of_client(code)).with(Verdict::Works);
        }
        self.warn(&format!("it answers {status}"));
        match status {
            // It has no such path, or no such model: the catalog says otherwise.
            404 | 405 | 410 | 501 => {
                let (upstream, model) = (&self.route.upstream.id, &self.route.model);
                let path = self.call.request.operation.path();
                tracing::error!(
                    upstream,
                    model,
                    path,
                    message = error.message,
                    "an upstream hasn't got what the catalog routes to it: `tollkeeper upstream check` compares both"
                );
                Failure::moving_on(Code::ModelNotServed).with(Verdict::Works)
            }
            408 | 504 | 522 | 524 => Failure::moving_on(Code::UpstreamTimeout).with(Verdict::Fails),
            429 => overloaded(Verdict::Works),
            503 | 529 => overloaded(Verdict::Fails),
            502 | 520 | 521 | 523 | 525..=527 | 530 => {
                Failure::moving_on(Code::UpstreamFailed).with(Verdict::Fails)
            }
            _ => Failure::last(Code::UpstreamFailed),
        }
    }

    fn time_out(&self) -> Failure {
        self.warn("it didn't answer in time");
        Failure::last(Code::UpstreamTimeout).with(Verdict::Fails)
    }

    /// Logs why the upstream failed; the client isn't told.
    fn fail(&self, why: &str) -> Failure {
        self.warn(why);
        Failure::last(Code::UpstreamFailed)
    }

    fn warn(&self, why: &str) {
        tracing::warn!(call_id = %self.call.call_id, upstream = self.route.upstream.id, "an upstream failed: {why}");
    }
}

/// Returns the error of an answer that has too many bytes.
pub(crate) fn too_long_error() -> Error {
    let message = format!(
        "The answer has more than {} MiB, which is too large to pass on, and is charged. Ask for less at once: fewer \
         inputs or answers, or no log probabilities.",
        MAX_PLAIN_BYTES >> 20
    );
    Error::new(Code::PayloadTooLarge).message(message)
}

/// Returns the tokens that are left of a context, by a message that names how many a prompt has: the number that is too
/// large only together with the limit.
fn rest_of_context(message: &str, context_length: i64, limit: i64) -> Option<i64> {
    let numbers =
        message.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<i64>().ok());
    let is_prompt = |tokens: &i64| {
        *tokens < context_length && *tokens != limit && tokens.saturating_add(limit) > context_length
    };
    // Others, such as the tokens that are left, are smaller.
    let prompt = numbers.filter(is_prompt).max()?;
    Some(context_length - prompt).filter(|rest| *rest < limit)
}

/// Returns the seconds that an upstream asks to wait, at most a minute: by then others may have room.
fn retry_after_s(headers: &HeaderMap) -> Option<u64> {
    const MAX_S: u64 = 60;
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds: f64 = value.parse().ok().filter(|seconds| *seconds >= 0.0)?;
    // A number that is too large is the largest one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is rounded, and not negative"
    )]
    let seconds = seconds.ceil() as u64;
    Some(seconds.min(MAX_S))
}

/// Returns `true` if a body is a stream of events.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}
