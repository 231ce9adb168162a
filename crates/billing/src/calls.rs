//! Calls of our own gateway. Each call is charged once: by the gateway at the end of the call, or by its last
//! progress if the gateway was interrupted (docs/contract/gateway.md#what-a-killed-server-costs).

use std::sync::Arc;

use crate::Billing;
use crate::books::CallCost;
use crate::rules::call_rest::{CallRest, call_rest};
use crate::store::call_progress::InterruptedCall;
use crate::store::usage::recording::{self, Payer, StoredEvent};
use crate::usage::{self, Caller, CostedEvent, Event, GATEWAY_SOURCE, Outcome, RestOfCall, Usage};
use call_log::entries::Course;
use catalog::{Component, ComponentPrices, EventParts, Kind, ServiceTier, Tokens};
use kernel::error::Error;
use kernel::ids::{CallerId, ModelCallId};
use kernel::money::Pico;
use tenants::access::ProjectScope;

/// The charge of a call.
#[derive(Debug)]
pub enum Charge {
    /// The event with the id of the call.
    Event(Outcome),
    /// The outcome of each event for the rest of the call, which was interrupted and already charged for its
    /// last progress.
    Rest(Vec<Outcome>),
}

/// The route that served a call, if its costs are known.
#[derive(Clone, Debug)]
pub struct CostedRoute {
    /// The id of the upstream.
    pub upstream: Arc<str>,
    pub costs: Arc<ComponentPrices>,
}

/// Charges a call of the gateway by its usage event. If its reservation has expired and its last progress was
/// charged, charges the rest.
///
/// This may be repeated with the same event: everything counts once. The amount charged under the id of the
/// call never changes, so the rest is the same each time. The operator's cost of the whole call on its route
/// is recorded with the first new event, and the course of the call is logged with it.
///
/// # Errors
/// The errors of [`usage::record`].
pub async fn charge(
    billing: &Billing,
    event: Event,
    route: Option<&CostedRoute>,
    course: Course,
) -> Result<Charge, Error> {
    let cost = route.and_then(|route| cost_of(billing, &event, route));
    let whole = CostedEvent { event: event.clone(), cost: cost.clone(), course: Some(Box::new(course)) };
    let outcomes = usage::record_uncounted(billing, std::iter::once(whole)).await?;
    let outcome = outcomes.into_iter().next().ok_or_else(|| Error::internal("an event has no outcome"))?;
    if outcome == Outcome::Conflict
        && let Some(charged) = interrupted_charge(billing, &event).await?
    {
        let rest = rest_of(&event, rest_of_charge(billing, &event, &charged));
        let mut cost = cost;
        let rest = rest.into_iter().map(|event| CostedEvent { cost: cost.take(), ..event.into() }).collect();
        return Ok(Charge::Rest(usage::record_with_costs(billing, rest).await?));
    }
    usage::count_outcome(billing, &event.source, &outcome);
    Ok(Charge::Event(outcome))
}

/// Returns the operator's cost of a whole call. Logs an ERROR and returns `None` if it is too large to
/// record.
fn cost_of(billing: &Billing, event: &Event, route: &CostedRoute) -> Option<Box<CallCost>> {
    let upstream = Arc::clone(&route.upstream);
    let Some(found) = usage::price_and_cost(&billing.catalog.now(), event, &route.costs) else {
        let (call_id, upstream) = (&*event.id, &*upstream);
        tracing::error!(
            call_id,
            upstream,
            "the cost of a call can't be computed: the margins don't include it"
        );
        return None;
    };
    Some(Box::new(CallCost {
        upstream,
        prompt_tokens: event.usage.prompt_tokens,
        completion_tokens: event.usage.completion_tokens,
        amount: found.price,
        cost: found.cost,
    }))
}

/// Returns the stored event with this event's id, if it is for the same call.
async fn interrupted_charge(billing: &Billing, event: &Event) -> Result<Option<StoredEvent>, Error> {
    let Ok(payer) = usage::payer(billing, &event.usage.caller).await? else { return Ok(None) };
    let key = (payer.organization_id, &*event.source, &*event.id);
    let stored = recording::stored(&mut billing.db().read().await?, key).await?;
    let used = &event.usage;
    Ok(stored.filter(|stored| {
        stored.occurred_at == event.time
            && stored.caller == used.caller.id()
            && stored.project_id == payer.project_id
            && *stored.model == *used.model
            && stored.kind == used.kind.as_str()
            && !stored.is_correction
    }))
}

/// Returns the tokens that still have to be charged for a call, and those to refund. If the price of the
/// answer differs from the price known at the time of the charge, all charged tokens are refunded.
fn rest_of_charge(billing: &Billing, event: &Event, charged: &StoredEvent) -> CallRest {
    let catalog = billing.catalog.now();
    let price = catalog.find_any(&event.usage.model).and_then(|model| usage::price_of(model, event));
    // If the model no longer has a price, the charged price still applies.
    let other = price.filter(|price| price.version != charged.price_version);
    let requests = match other {
        Some(price) => i64::from(price.has(Component::Request)),
        None => charged.tokens.parts.get(Component::Request),
    };
    let total = event.usage.tokens();
    let total = Tokens { parts: total.parts.with(Component::Request, requests), ..total };
    call_rest(total, charged.tokens, other.is_none())
}

/// Returns the events that complete the charge of a call: `….2` with the tokens to charge, and `….3`, a
/// correction, with the tokens to refund.
fn rest_of(event: &Event, rest: CallRest) -> Vec<Event> {
    let part = |number: u8, tokens: Tokens, corrects: Option<Arc<str>>| {
        let cached = Some(tokens.cached_prompt).filter(|cached| *cached != 0);
        let usage = Usage {
            prompt_tokens: tokens.prompt,
            completion_tokens: tokens.completion,
            cached_prompt_tokens: cached,
            parts: tokens.parts.into(),
            rest: Some(RestOfCall { prompt_tokens: event.usage.prompt_tokens }),
            reservation_id: None,
            corrects,
            ..event.usage.clone()
        };
        Event { id: format!("{}.{number}", event.id).into(), usage, ..event.clone() }
    };
    let more = (rest.to_charge != Tokens::default()).then(|| part(2, rest.to_charge, None));
    let less =
        (rest.to_refund != Tokens::default()).then(|| part(3, rest.to_refund, Some(Arc::clone(&event.id))));
    more.into_iter().chain(less).collect()
}

/// The billable usage of a call of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallUsage {
    pub tokens: Tokens,
    /// `true` if the counts are estimates.
    pub is_estimated: bool,
    /// The list price.
    pub amount: Pico,
}

/// Returns the charged usage of a call of this project; `None` if the call cost nothing or hasn't ended.
///
/// # Errors
/// The database fails.
pub async fn used(
    billing: &Billing,
    scope: &ProjectScope,
    call_id: ModelCallId,
) -> Result<Option<CallUsage>, Error> {
    let payer = Payer { organization_id: scope.organization_id(), project_id: scope.project_id() };
    let ids = ["", ".2", ".3"].map(|part| format!("{call_id}{part}"));
    let mut tx = billing.db().read().await?;
    let events = recording::of_call(&mut tx, payer, GATEWAY_SOURCE, &ids).await?;
    let add = |sum: CallUsage, event: &recording::CallEvent| {
        Some(CallUsage {
            tokens: sum.tokens.checked_add(event.tokens)?,
            is_estimated: sum.is_estimated || event.is_estimated,
            amount: sum.amount.checked_add(event.amount)?,
        })
    };
    if events.is_empty() {
        return Ok(None);
    }
    let sum = events.iter().try_fold(CallUsage::default(), add);
    Ok(Some(sum.ok_or_else(|| Error::internal("the usage of a call is too large"))?))
}

/// Returns the usage event of an interrupted call: the event that its gateway would have recorded if the call
/// had ended then. Returns `None` if the reservation wasn't made by the gateway.
pub(crate) fn interrupted_event(billing: &Billing, call: &InterruptedCall) -> Option<Event> {
    let id = call.request_id.as_deref()?;
    let caller = match call.caller? {
        CallerId::ApiKey(id) => Caller::ApiKey(id),
        CallerId::User(id) => Caller::user(call.project_id, id),
    };
    let kind = billing.catalog.now().get_any(&call.model).map_or(Kind::Chat, |model| model.kind);
    Some(Event {
        // The id contains the time at which the call was admitted.
        time: ModelCallId::parse(id)?.created_at(),
        id: id.into(),
        source: GATEWAY_SOURCE.into(),
        usage: Usage {
            caller,
            model: call.model.as_str().into(),
            kind,
            prompt_tokens: call.progress.prompt_tokens,
            completion_tokens: call.progress.completion_tokens,
            cached_prompt_tokens: call.progress.cached_prompt_tokens,
            parts: EventParts::default(),
            service_tier: ServiceTier::default(),
            is_estimated: call.progress.is_estimated,
            rest: None,
            reservation_id: Some(call.reservation_id),
            corrects: None,
        },
    })
}
