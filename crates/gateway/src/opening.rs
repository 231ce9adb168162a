//! The beginning of an answer: chooses and calls an upstream, and waits for the first event of its stream or
//! for its whole plain answer. Until then, another upstream may be tried.

mod attempt;
mod failure;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::time::{Instant, timeout_at};

use crate::admission::Admitted;
use crate::count::Settled;
use crate::dialect::Dialect;
use crate::gateway::Gateway;
use crate::media::Loaded;
use crate::prefix_cache;
use crate::record::CallRecord;
use crate::request::ModelRequest;
use crate::routing::{self, Candidate};
use crate::streaming::Relay;
use crate::transport::Transport;
use attempt::{Attempt, Times};
use catalog::{Affinity, MediaUrls, Route, Upstream};
use failure::{Failure, Verdict};
use kernel::error::{Code, Error};

#[cfg(test)]
pub(crate) use attempt::MAX_PLAIN_BYTES;
pub(crate) use attempt::too_long_error;

/// The maximum number of upstreams that a call tries.
const MAX_ATTEMPTS: usize = 3;

/// An answer that has begun.
pub(crate) enum Opened {
    Whole {
        body: Bytes,
        used: Settled,
        is_demo: bool,
    },
    /// The answer has too many bytes to be forwarded.
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

/// Calls upstreams until one answers.
///
/// # Errors
/// The failure of the last upstream.
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
                "too many calls have failed at other upstreams: this call isn't retried"
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
    // Upstreams of a different kind may support it.
    let unsupported = |error| Failure { may_move_on: true, ..Failure::last(error) };
    call.request.check_dialect(transport.dialect()).map_err(unsupported)?;
    call.request.check_fields(upstream).map_err(unsupported)?;
    let outgoing = with_media(gateway, call, upstream, loaded).await.map_err(Failure::last)?;
    // If the upstream has no free slot, the call waits for one.
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
    if let Err(failure) = &opened {
        attempt.log(failure);
    }
    match opened.as_ref().map_or_else(|failure| failure.verdict, |_| Verdict::Works) {
        Verdict::Works => trial.succeed(),
        Verdict::Fails => trial.fail(gateway.clock.steady_ms()),
        Verdict::Unknown => drop(trial),
    }
    opened
}

/// Returns the request for an upstream. If the upstream mustn't load web URLs itself, their content is
/// inlined. Each call loads the content only once, after the call was admitted.
async fn with_media<'a>(
    gateway: &Gateway,
    call: &'a Admitted,
    upstream: &Upstream,
    loaded: &'a mut Option<Loaded>,
) -> Result<&'a ModelRequest, Error> {
    let is_loaded_here = upstream.media_urls == MediaUrls::Fetch && !Dialect::of(upstream.kind).is_demo;
    if !is_loaded_here || call.request.web_media().next().is_none() {
        return Ok(&call.request);
    }
    let found = match loaded.take() {
        Some(found) => found,
        None => gateway.media.load(&call.request, call.holder, gateway.memory()).await?,
    };
    Ok(&loaded.insert(found).request)
}
