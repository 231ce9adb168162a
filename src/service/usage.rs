//! POST /service/v1/usage: a batch of usage events, each counted exactly once.
//!
//! Events succeed or fail one by one, results come in the order of the events, and the answer is sent only after what it
//! says is durable (decisions, sections 5 and 8). They may come as CloudEvents, which the content type says.

mod cloud_events;
mod event;
mod quick;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::{Call, ServiceScope};
use crate::app::App;
use crate::catalog::Catalog;
use crate::clock::Time;
use crate::error::{Code, Detail, Error};
use crate::input::fields::{At, Field, Problems};
use crate::input::json::{self, Json};
use crate::input::{self, Body, Description, Fields, Input, Record, fields};
use crate::live::books::{Answer, Outcome, UsageEvent, Work};
use crate::metrics::UsageEvents;
use crate::money::Pico;
use crate::reply::Bare;
use crate::rules::events::{self, Reason, Refusal};
use crate::rules::rating;
use crate::store::usage::recording::{self, Payer, RatedEvent};

use event::{Caller, Event};

/// Events as they came; each is looked at on its own.
#[derive(Debug)]
pub struct Batch(Given);

/// How events came.
#[derive(Debug)]
enum Given {
    /// Each to be read by itself.
    Plain(Vec<Json>),
    /// The same as `CloudEvents`.
    CloudEvents(Vec<Json>),
    /// All of them are good.
    Read(Vec<Event>),
}

/// An event and its id; the id also of one that can't be read otherwise.
type Told = (Option<Arc<str>>, Result<Event, Box<Error>>);

impl Batch {
    fn read(self, app: &App) -> Vec<Told> {
        let shared = |(id, event): (Option<String>, Result<Event, Error>)| {
            (id.map(Arc::from), event.map_err(Box::new))
        };
        match self.0 {
            Given::Plain(events) => events.into_iter().map(|event| shared(event::read(app, event))).collect(),
            Given::CloudEvents(events) => {
                events.into_iter().map(|event| shared(cloud_events::read(app, event))).collect()
            }
            Given::Read(events) => {
                events.into_iter().map(|event| (Some(Arc::clone(&event.id.0)), Ok(event))).collect()
            }
        }
    }

    /// What each event is read as, in words: the fuzz targets hold the readers against each other.
    pub fn in_words(self, app: &App) -> Vec<String> {
        let events = self.read(app).into_iter();
        let words = events.map(|(id, event)| match event {
            Ok(event) => format!("read {id:?} {event:?} {:?}", event.payload_hash()),
            Err(error) => format!("refused {id:?} {:?}", error.details),
        });
        words.collect()
    }
}

impl Record for Batch {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let events = fields.required::<EventList>("events");
        Some(Self(Given::Plain(events?.0)))
    }
}

impl Input for Batch {
    async fn read(app: &App, call: &mut Call) -> Result<Self, Error> {
        let form = input::essence(&call.headers);
        let bytes = input::read_json(app, call).await?;
        let events = match form.as_str() {
            cloud_events::SINGLE => vec![json::parse(&bytes)?],
            cloud_events::BATCH => match json::parse(&bytes)? {
                Json::Array(events) if (1..=MAX_EVENTS).contains(&events.len()) => events,
                _ => {
                    let message = format!("The body must be an array of 1 to {MAX_EVENTS} CloudEvents.");
                    return Err(Error::new(Code::InvalidRequest).param("body").message(message));
                }
            },
            _ => {
                return match quick::read(&bytes) {
                    Some(events) => Ok(Self(Given::Read(events))),
                    None => input::parse_record(app, &bytes),
                };
            }
        };
        Ok(Self(Given::CloudEvents(events)))
    }

    fn describe() -> Description {
        Body::<Self>::describe()
    }
}

/// The most events of one batch.
const MAX_EVENTS: usize = 1_000;
/// The most bad fields that the answer to a batch names; further events have code and message alone.
const MAX_BATCH_DETAILS: usize = 2 * MAX_EVENTS;

#[derive(Debug)]
struct EventList(Vec<Json>);

impl Field for EventList {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Array(events) if (1..=MAX_EVENTS).contains(&events.len()) => Some(Self(events)),
            Json::Array(events) => {
                let code = if events.is_empty() { "empty" } else { "too_many" };
                problems.add(at, code, format!("`{}` must hold 1 to {MAX_EVENTS} events.", at.path))
            }
            other => problems.wrong_type(at, "an array", &other),
        }
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": fields::describe::<Event>().to_value(),
               "examples": [[{"id": "call-1", "source": "vllm-1", "time": "2026-01-31T09:30:00Z",
                              "api_key_id": "key_01kfz3v9xee8tb2m6h0q5w7r4n", "model": "svc-1", "kind": "chat",
                              "prompt_tokens": 12, "completion_tokens": 34}]]})
    }
}

/// One result an event, in their order.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Results {
    results: Vec<EventResult>,
}

/// What became of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventResult {
    /// The event's id, when it could be read.
    id: Option<Arc<str>>,
    status: EventStatus,
    /// Why it was refused.
    code: Option<&'static str>,
    /// Why it was refused, in words.
    message: Option<String>,
    /// Whether a refused event may count when it is sent again later, as it is.
    retryable: bool,
    /// One entry a bad field.
    details: Vec<DetailText>,
}

/// Whether an event counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventStatus {
    /// It counts, from now on.
    Accepted,
    /// It counted already.
    Duplicate,
    /// It doesn't count. The same event won't either, unless `retryable` says so.
    Refused,
}

/// A bad field of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DetailText {
    param: String,
    code: &'static str,
    message: String,
}

/// What is known of an event before it is recorded.
enum Known {
    Unreadable(Box<Error>),
    Decided(Outcome),
    /// It is on its way to the books.
    Sent,
}

/// Records the events.
pub async fn usage(app: App, _: ServiceScope, batch: Batch) -> Result<Bare<Results>, Error> {
    // By a wrong time events would be refused for good.
    app.clock_guard.require()?;
    let (now, catalog) = (app.clock.now(), Arc::clone(&app.catalog.now()));
    let events = batch.read(&app);
    let mut known = Vec::with_capacity(events.len());
    let mut sent = Vec::with_capacity(events.len());
    for (id, event) in events {
        let what = match event {
            Err(error) => Known::Unreadable(error),
            Ok(event) => match rate(&app, &catalog, &event, now).await? {
                Ok(rated) => {
                    sent.push(as_recorded(event, rated));
                    Known::Sent
                }
                Err(outcome) => Known::Decided(outcome),
            },
        };
        known.push((id, what));
    }
    let mut recorded = record(&app, sent).await?.into_iter();
    let mut results = Vec::with_capacity(known.len());
    let (mut details_left, counts) = (MAX_BATCH_DETAILS, &app.metrics.usage_events);
    for (id, what) in known {
        results.push(match what {
            Known::Unreadable(error) => {
                counts.refused(Reason::InvalidEvent.as_str());
                unreadable(id, *error, &mut details_left)
            }
            Known::Decided(outcome) => result(counts, id, outcome),
            Known::Sent => {
                let outcome = recorded.next().ok_or_else(|| Error::internal("an event has no outcome"))?;
                result(counts, id, outcome)
            }
        });
    }
    Ok(Bare(Results { results }))
}

async fn record(app: &App, events: Vec<UsageEvent>) -> Result<Vec<Outcome>, Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    match app.books.submit(app, Work::Record(events)).await? {
        Answer::Recorded(outcomes) => Ok(outcomes),
        other => Err(Error::internal(format!("usage was answered by {other:?}"))),
    }
}

/// Who pays for an event, and how much.
struct Rated {
    payer: Payer,
    payload_hash: [u8; 32],
    priced: Priced,
}

/// What the books have to know of an event, or what is to be said of it without them.
async fn rate(
    app: &App,
    catalog: &Catalog,
    event: &Event,
    now: Time,
) -> Result<Result<Rated, Outcome>, Error> {
    let payer = match payer(app, &event.use_.caller).await? {
        Ok(payer) => payer,
        Err(refusal) => return Ok(Err(Outcome::Refused(refusal))),
    };
    let payload_hash = event.payload_hash();
    match price(catalog, event, now) {
        Ok(priced) => Ok(Ok(Rated { payer, payload_hash, priced })),
        Err(refusal) => {
            let is_unknown = refusal.reason == Reason::UnknownModel;
            let outcome = look_again(app, event, payer, payload_hash, refusal).await?;
            if is_unknown && app.catalog.is_outdated() && matches!(outcome, Outcome::Refused(_)) {
                // The catalog in force may have it.
                let message = "This server's catalog is out of date, and doesn't have every model of this batch: nothing was done, \
                               send it again to another server.";
                return Err(Error::new(Code::NotReady).message(message));
            }
            Ok(Err(outcome))
        }
    }
}

/// The payer of a caller's use, or why there is none.
async fn payer(app: &App, caller: &Caller) -> Result<Result<Payer, Refusal>, Error> {
    match caller {
        Caller::ApiKey(id) => {
            Ok(app.books.payer(app, *id).await?.ok_or_else(|| events::unknown_api_key(*id)))
        }
        Caller::Person(person) => app.books.person_payer(app, person.project_id, person.user_id).await,
    }
}

/// What can't be rated now may have counted long ago, when its model was still there: then it is a duplicate.
async fn look_again(
    app: &App,
    event: &Event,
    payer: Payer,
    payload_hash: [u8; 32],
    refusal: Refusal,
) -> Result<Outcome, Error> {
    let key = (payer.organization_id, &*event.source.0, &*event.id.0);
    let stored = recording::stored_hashes(&mut app.db.read().await?, &[key]).await?;
    Ok(match stored.first().copied().flatten() {
        Some(hash) if hash == payload_hash => Outcome::Duplicate,
        Some(_) => Outcome::Conflict,
        None => Outcome::Refused(refusal),
    })
}

/// The version of the price that holds for an event, and what it costs.
#[derive(Clone, Copy, Default)]
struct Priced {
    version: i64,
    amount: Pico,
}

fn price(catalog: &Catalog, event: &Event, now: Time) -> Result<Priced, Refusal> {
    let used = &event.use_;
    events::check_time(event.time, now)?;
    events::check_caller(used.caller.id(), event.time)?;
    events::check_tokens(used.corrects.is_some(), used.prompt_tokens, used.completion_tokens)?;
    if used.corrects.is_some() {
        // At the price of what it corrects, which the books look up.
        return Ok(Priced::default());
    }
    // It may have been retired since its use, or its answer took until after that: the use was real, and has a price.
    let model = catalog.get_even_retired(&used.model.0);
    let model = model.ok_or_else(|| events::unknown_model(&used.model.0))?;
    events::check_kind(model, used.kind, used.completion_tokens)?;
    let price = model.price_at(event.time).ok_or_else(|| events::no_price(&model.id))?;
    let amount = rating::rate(price, used.prompt_tokens, used.completion_tokens)
        .filter(|amount| *amount <= events::MOST_EXPENSIVE)
        .ok_or_else(events::too_expensive)?;
    Ok(Priced { version: price.effective_at.unix_ms(), amount })
}

fn as_recorded(event: Event, rated: Rated) -> UsageEvent {
    let (used, Rated { payer, payload_hash, priced }) = (event.use_, rated);
    UsageEvent {
        event: RatedEvent {
            payer,
            source: event.source.0,
            event_id: event.id.0,
            payload_hash,
            caller: used.caller.id(),
            model: used.model.0,
            kind: used.kind,
            occurred_at: event.time,
            prompt_tokens: used.prompt_tokens,
            completion_tokens: used.completion_tokens,
            price_version: priced.version,
            amount: priced.amount,
            corrects: used.corrects.map(|text| text.0),
        },
        reservation_id: used.reservation_id,
    }
}

fn good(id: Option<Arc<str>>, status: EventStatus) -> EventResult {
    EventResult { id, status, code: None, message: None, retryable: false, details: Vec::new() }
}

fn unreadable(id: Option<Arc<str>>, mut error: Error, details_left: &mut usize) -> EventResult {
    error.details.truncate(*details_left);
    *details_left -= error.details.len();
    let detail = |d: Detail| DetailText { param: d.param, code: d.code, message: d.message };
    EventResult {
        code: Some(Reason::InvalidEvent.as_str()),
        message: Some(error.public_message().to_owned()),
        details: error.details.into_iter().map(detail).collect(),
        ..good(id, EventStatus::Refused)
    }
}

fn result(counts: &UsageEvents, id: Option<Arc<str>>, outcome: Outcome) -> EventResult {
    let refusal = match outcome {
        Outcome::New => {
            counts.accepted();
            return good(id, EventStatus::Accepted);
        }
        Outcome::Duplicate => {
            counts.duplicate();
            return good(id, EventStatus::Duplicate);
        }
        Outcome::Conflict => events::conflict(),
        Outcome::Refused(refusal) => refusal,
    };
    counts.refused(refusal.reason.as_str());
    EventResult {
        code: Some(refusal.reason.as_str()),
        message: Some(refusal.message),
        retryable: refusal.reason.is_retryable(),
        ..good(id, EventStatus::Refused)
    }
}
