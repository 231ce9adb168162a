//! Usage events: each event is rated with the price at its time, and counted exactly once.

use std::fmt::Write;
use std::sync::Arc;

use crate::Billing;
use crate::books::{self, CallCost, Record, UsageEvent};
use crate::rules::call_cost::{self, PriceAndCost};
use crate::rules::events::{self, Reason};
use crate::rules::rating;
use crate::store::usage::recording::{self, Payer, RatedEvent};
use call_log::entries::Course;
use catalog::{
    CallFacts, Catalog, Component, ComponentPrices, EventParts, Kind, Model, Price, ServiceTier, Tokens,
};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, CallerId, ProjectId, ReservationId, UserId};
use kernel::money::Pico;
use kernel::places;
use kernel::secrets::sha256;

pub use crate::books::Outcome;
pub use crate::rules::events::{GATEWAY_SOURCE, Refusal};

/// A reported usage event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Unique within its source.
    pub id: Arc<str>,
    /// The name of the program that reported the event.
    pub source: Arc<str>,
    pub time: Time,
    pub usage: Usage,
}

/// An event with the operator's cost of its call.
#[derive(Debug)]
pub(crate) struct CostedEvent {
    pub(crate) event: Event,
    /// `None` if the cost isn't known, or if another event of the call has it.
    pub(crate) cost: Option<Box<CallCost>>,
    /// The course of the call, for the log; `None` if it isn't known.
    pub(crate) course: Option<Box<Course>>,
}

impl From<Event> for CostedEvent {
    fn from(event: Event) -> Self {
        Self { event, cost: None, course: None }
    }
}

/// A use of a model.
#[derive(Clone, Debug)]
pub struct Usage {
    pub caller: Caller,
    /// The id of the model.
    pub model: Arc<str>,
    /// The kind of the model, as the event reports it.
    pub kind: Kind,
    /// Input tokens; negative in a correction.
    pub prompt_tokens: i64,
    /// Output tokens; negative in a correction.
    pub completion_tokens: i64,
    /// The part of the input tokens that came from the upstream's cache; `None` if it isn't known.
    pub cached_prompt_tokens: Option<i64>,
    /// Other quantities; negative in a correction. The request itself isn't included, except in corrections.
    pub parts: EventParts,
    /// The tier of the answer, which may determine the price.
    pub service_tier: ServiceTier,
    /// `true` if the counts are estimates.
    pub is_estimated: bool,
    /// `Some` if the event completes the charge of a call that was charged in part.
    pub rest: Option<RestOfCall>,
    /// The reservation that the event captures.
    pub reservation_id: Option<ReservationId>,
    /// The id of the event that this event corrects.
    pub corrects: Option<Arc<str>>,
}

/// The call whose charge an event completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestOfCall {
    /// The tokens of the whole prompt, which may determine the price.
    pub prompt_tokens: i64,
}

impl Usage {
    pub(crate) fn tokens(&self) -> Tokens {
        Tokens {
            prompt: self.prompt_tokens,
            cached_prompt: self.cached_prompt_tokens.unwrap_or(0),
            completion: self.completion_tokens,
            parts: self.parts.to_parts(),
        }
    }
}

/// The caller of a model. The variant for users is boxed because it is rare and large.
#[derive(Clone, Debug)]
pub enum Caller {
    ApiKey(ApiKeyId),
    /// A user without an API key.
    User(Box<ProjectUser>),
}

/// A user, and the project that the call was for.
#[derive(Clone, Copy, Debug)]
pub struct ProjectUser {
    pub project_id: ProjectId,
    pub user_id: UserId,
}

impl Caller {
    pub fn user(project_id: ProjectId, user_id: UserId) -> Self {
        Self::User(Box::new(ProjectUser { project_id, user_id }))
    }

    /// Returns the id under which the usage is stored.
    pub fn id(&self) -> CallerId {
        match self {
            Self::ApiKey(id) => CallerId::ApiKey(*id),
            Self::User(user) => CallerId::User(user.user_id),
        }
    }
}

impl Event {
    /// Returns a hash of all fields that two events with the same id must agree on. Strings are preceded by
    /// their lengths, so that different contents can't result in the same input. Fields that were added to
    /// the format later are hashed only if they are present, so that older events keep their hash.
    pub fn payload_hash(&self) -> [u8; 32] {
        let used = &self.usage;
        let mut text = String::with_capacity(160);
        let mut digits = itoa::Buffer::new();
        text.push_str(digits.format(self.time.unix_ms()));
        text.push('|');
        if let Caller::User(user) = &used.caller {
            text.push_str(user.project_id.short_text().as_str());
            text.push('/');
        }
        text.push_str(used.caller.id().short_text().as_str());
        text.push('|');
        text.push_str(digits.format(used.model.len()));
        for part in [":", &*used.model, "|", used.kind.as_str(), "|"] {
            text.push_str(part);
        }
        text.push_str(digits.format(used.prompt_tokens));
        text.push('|');
        text.push_str(digits.format(used.completion_tokens));
        // Writing to a `String` can't fail.
        if let Some(id) = used.reservation_id {
            write!(text, "|reservation:{id}").ok();
        }
        if let Some(id) = &used.corrects {
            write!(text, "|corrects:{}:{id}", id.len()).ok();
        }
        if let Some(tokens) = used.cached_prompt_tokens {
            write!(text, "|cached:{tokens}").ok();
        }
        if used.is_estimated {
            text.push_str("|estimated");
        }
        if let Some(parts) = used.parts.to_text() {
            write!(text, "|parts:{parts}").ok();
        }
        if used.service_tier != ServiceTier::default() {
            write!(text, "|tier:{}", used.service_tier.as_str()).ok();
        }
        sha256(text.as_bytes())
    }
}

/// Records events, and returns their outcomes in order. The events are durable when this returns.
///
/// # Errors
/// 503 while the clock isn't trusted, while this server's catalog lacks a model that the catalog in force may
/// have, or if the database fails. The same events can be sent again.
pub async fn record(billing: &Billing, events: Vec<Event>) -> Result<Vec<Outcome>, Error> {
    let sources: Vec<_> = events.iter().map(|event| Arc::clone(&event.source)).collect();
    let outcomes = record_uncounted(billing, events.into_iter().map(CostedEvent::from)).await?;
    count_outcomes(billing, &sources, &outcomes);
    Ok(outcomes)
}

/// Records events like [`record`], with the operator's costs of the events' calls.
pub(crate) async fn record_with_costs(
    billing: &Billing,
    events: Vec<CostedEvent>,
) -> Result<Vec<Outcome>, Error> {
    let sources: Vec<_> = events.iter().map(|costed| Arc::clone(&costed.event.source)).collect();
    let outcomes = record_uncounted(billing, events.into_iter()).await?;
    count_outcomes(billing, &sources, &outcomes);
    Ok(outcomes)
}

fn count_outcomes(billing: &Billing, sources: &[Arc<str>], outcomes: &[Outcome]) {
    for (source, outcome) in sources.iter().zip(outcomes) {
        count_outcome(billing, source, outcome);
    }
}

/// Records events like [`record_with_costs`], but doesn't count them in the metrics.
pub(crate) async fn record_uncounted(
    billing: &Billing,
    events: impl ExactSizeIterator<Item = CostedEvent> + Send,
) -> Result<Vec<Outcome>, Error> {
    // With a wrong clock, events would be refused permanently.
    billing.clock_guard.require()?;
    let (now, catalog) = (billing.clock.now(), Arc::clone(&billing.catalog.now()));
    // The events that go through the write queue, and the outcomes of the others with their positions.
    let (mut sent, mut others) = (Vec::with_capacity(events.len()), Vec::new());
    let mut unpriced = Vec::new();
    for (place, CostedEvent { mut event, cost, course }) in events.enumerate() {
        match rate(billing, &catalog, &event, now).await? {
            Ok(rated) => {
                // The books contain the id of a model, even if the call used another name for it.
                let named = catalog.find_any(&event.usage.model);
                if let Some(model) = named.filter(|model| *model.id != *event.usage.model) {
                    event.usage.model = model.id.as_str().into();
                }
                sent.push(UsageEvent { course, ..usage_event(event, rated, cost) });
            }
            Err(Unrated::NoPayer(refusal)) => others.push((place, Outcome::Refused(refusal))),
            Err(Unrated::NoPrice(payer, payload_hash, refusal)) => {
                unpriced.push(UnpricedEvent { place, event, payer, payload_hash, refusal });
            }
        }
    }
    others.extend(unpriced_outcomes(billing, unpriced).await?);
    others.sort_unstable_by_key(|(place, _)| *place);
    let recorded = if sent.is_empty() { Vec::new() } else { books::submit(billing, Record(sent)).await? };
    Ok(places::merge(recorded, others))
}

/// Counts an event that can't be read, for the metrics and the operator's webhooks.
pub fn count_unreadable(billing: &Billing) {
    count_refused(billing, Reason::InvalidEvent, None);
}

/// Counts an event of this source, for the metrics and the operator's webhooks.
pub(crate) fn count_outcome(billing: &Billing, source: &Arc<str>, outcome: &Outcome) {
    let counts = &billing.metrics.usage_events;
    match outcome {
        Outcome::New => counts.accepted(),
        Outcome::Duplicate => counts.duplicate(),
        Outcome::Conflict => count_refused(billing, Reason::EventConflict, Some(source)),
        Outcome::Refused(refusal) => count_refused(billing, refusal.reason, Some(source)),
    }
}

fn count_refused(billing: &Billing, reason: Reason, source: Option<&Arc<str>>) {
    billing.metrics.usage_events.refused(reason);
    billing.refusals.note(reason, source, billing.clock.now());
}

/// An event's payer and price.
struct RatedUsage {
    payer: Payer,
    payload_hash: [u8; 32],
    priced: EventPrice,
}

/// The reason why an event can't be rated.
enum Unrated {
    NoPayer(Refusal),
    /// The event's payer, and the hash of its payload.
    NoPrice(Payer, [u8; 32], Refusal),
}

/// Rates an event.
async fn rate(
    billing: &Billing,
    catalog: &Catalog,
    event: &Event,
    now: Time,
) -> Result<Result<RatedUsage, Unrated>, Error> {
    let payer = match payer(billing, &event.usage.caller).await? {
        Ok(payer) => payer,
        Err(refusal) => return Ok(Err(Unrated::NoPayer(refusal))),
    };
    let payload_hash = event.payload_hash();
    let priced = price(catalog, event, now);
    Ok(priced
        .map(|priced| RatedUsage { payer, payload_hash, priced })
        .map_err(|refusal| Unrated::NoPrice(payer, payload_hash, refusal)))
}

/// Returns the payer of a caller's usage, or the reason why the caller has none.
pub(crate) async fn payer(billing: &Billing, caller: &Caller) -> Result<Result<Payer, Refusal>, Error> {
    match caller {
        Caller::ApiKey(id) => {
            Ok(books::payer(billing, *id).await?.ok_or_else(|| events::unknown_api_key(*id)))
        }
        Caller::User(user) => books::user_payer(billing, user.project_id, user.user_id).await,
    }
}

/// An event that has a payer but no price.
struct UnpricedEvent {
    place: usize,
    event: Event,
    payer: Payer,
    payload_hash: [u8; 32],
    refusal: Refusal,
}

/// Returns the outcomes of events that have no price now, with their positions. An event that was counted
/// earlier, when its model still existed, is a duplicate.
async fn unpriced_outcomes(
    billing: &Billing,
    unpriced: Vec<UnpricedEvent>,
) -> Result<Vec<(usize, Outcome)>, Error> {
    if unpriced.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<_> = unpriced
        .iter()
        .map(|UnpricedEvent { payer, event, .. }| (payer.organization_id, &*event.source, &*event.id))
        .collect();
    let stored = recording::stored_hashes(&mut billing.db().read().await?, &keys).await?;
    let mut outcomes = Vec::with_capacity(unpriced.len());
    for (one, stored) in unpriced.into_iter().zip(stored) {
        let outcome = match stored {
            Some(hash) if hash == one.payload_hash => Outcome::Duplicate,
            Some(_) => Outcome::Conflict,
            None if one.refusal.reason == Reason::UnknownModel && billing.catalog.is_outdated() => {
                // The catalog in force may have the model.
                let message = "This server's catalog is out of date and lacks a model in this batch. Nothing \
                               was recorded; send the batch again, to another server if possible.";
                return Err(Error::new(Code::NotReady).message(message));
            }
            None => Outcome::Refused(one.refusal),
        };
        outcomes.push((one.place, outcome));
    }
    Ok(outcomes)
}

/// The price version of an event, and its price.
#[derive(Default)]
struct EventPrice {
    version: i64,
    amount: Pico,
    /// The parts of the event, including its request if the price has a component for requests.
    parts: EventParts,
}

fn price(catalog: &Catalog, event: &Event, now: Time) -> Result<EventPrice, Refusal> {
    let used = &event.usage;
    events::check_time(event.time, now)?;
    events::check_caller(used.caller.id(), event.time)?;
    let mut tokens = used.tokens();
    events::check_tokens(used.corrects.is_some(), tokens)?;
    if used.corrects.is_some() {
        // A correction has the price of the event that it corrects, which is looked up when it is recorded.
        return Ok(EventPrice { parts: used.parts.clone(), ..EventPrice::default() });
    }
    // The model may have been retired since its use, or during the call; the usage still has a price.
    let model = catalog.find_any(&used.model);
    let model = model.ok_or_else(|| events::unknown_model(&used.model))?;
    events::check_kind(model, used.kind, tokens)?;
    let price = price_of(model, event).ok_or_else(|| events::no_price(&model.id))?;
    let is_charged = price.has(Component::Request) && used.rest.is_none();
    if is_charged {
        tokens.parts.set(Component::Request, 1);
    }
    let amount = rating::rate(price, tokens)
        .filter(|amount| *amount <= events::MAX_CALL_PRICE)
        .ok_or_else(events::too_expensive)?;
    Ok(EventPrice { version: price.version, amount, parts: tokens.parts.into() })
}

/// Returns the list price of the whole call of an event, and its cost to the operator at these costs. Returns
/// `None` if the event is refused, or if the cost can't be recorded.
pub(crate) fn price_and_cost(
    catalog: &Catalog,
    event: &Event,
    costs: &ComponentPrices,
) -> Option<PriceAndCost> {
    let price = price_of(catalog.find_any(&event.usage.model)?, event)?;
    call_cost::price_and_cost(price, costs, event.usage.tokens())
}

/// Returns the price of an event's model at its time, under the conditions of its call.
pub(crate) fn price_of<'a>(model: &'a Model, event: &Event) -> Option<&'a Price> {
    let used = &event.usage;
    model.price_of(&CallFacts {
        time: event.time,
        prompt_tokens: used.rest.map_or(used.prompt_tokens, |rest| rest.prompt_tokens),
        service_tier: used.service_tier,
    })
}

fn usage_event(event: Event, rated: RatedUsage, cost: Option<Box<CallCost>>) -> UsageEvent {
    let (used, RatedUsage { payer, payload_hash, priced }) = (event.usage, rated);
    UsageEvent {
        event: RatedEvent {
            payer,
            source: event.source,
            event_id: event.id,
            payload_hash,
            caller: used.caller.id(),
            model: used.model,
            kind: used.kind,
            occurred_at: event.time,
            prompt_tokens: used.prompt_tokens,
            completion_tokens: used.completion_tokens,
            cached_prompt_tokens: used.cached_prompt_tokens,
            parts: priced.parts,
            is_estimated: used.is_estimated,
            price_version: priced.version,
            amount: priced.amount,
            corrects: used.corrects,
        },
        reservation_id: used.reservation_id,
        cost,
        course: None,
    }
}
