//! POST /service/v1/usage: a batch of usage events, each counted exactly once.
//!
//! Events succeed or fail one by one, results come in the order of the events, and the answer is sent only after what it
//! says is durable (docs/contract/service.md#usage-events). They may come as CloudEvents, which the content
//! type says.

mod cloud_events;
mod event;
mod quick;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Api;
use crate::gate::{Call, ServiceScope};
use billing::Billing;
use billing::rules::events;
use billing::rules::events::Reason;
use billing::usage;
use billing::usage::{Event, Outcome};
use input::fields;
use input::fields::{At, Field, Problems};
use input::fields::{Fields, Record};
use input::json;
use input::json::Json;
use kernel::error::{Code, Detail, Error};
use web::input::{Body, Description, Input};
use web::reply::Bare;

use event::EventRecord;

/// Events as they came; each is looked at on its own.
#[derive(Debug)]
pub struct Batch(Vec<BatchItem>);

/// An event and its id; the id also of one that can't be read otherwise.
type BatchItem = (Option<Arc<str>>, Result<Event, Box<Error>>);

impl Batch {
    /// Reads a body that is no `CloudEvent`, with the reader that finds every mistake.
    ///
    /// # Errors
    /// It isn't a list of events; what is wrong with one of them is told in its place.
    pub fn parse(api: &Api, bytes: &[u8]) -> Result<Self, Error> {
        let EventsBody(events) = web::input::parse_record(api, bytes)?;
        Ok(Self(events.into_iter().map(|event| batch_item(event::read(api, event))).collect()))
    }

    /// What each event is read as, in words: the fuzz targets hold the readers against each other.
    pub fn in_words(self) -> Vec<String> {
        let words = self.0.into_iter().map(|(id, event)| match event {
            Ok(event) => format!("read {id:?} {event:?} {:?}", event.payload_hash()),
            Err(error) => format!("refused {id:?} {:?}", error.details),
        });
        words.collect()
    }
}

fn batch_item((id, event): (Option<String>, Result<Event, Error>)) -> BatchItem {
    (id.map(Arc::from), event.map_err(Box::new))
}

/// The body, its events not read yet.
struct EventsBody(Vec<Json>);

impl Record<Api> for EventsBody {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let events = fields.required::<EventList>("events");
        Some(Self(events?.0))
    }
}

impl Input<Api> for Batch {
    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let form = web::input::essence(&call.headers);
        let bytes = web::input::read_json(api, call).await?;
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
                    Some(events) => {
                        let told = |event: Event| (Some(Arc::clone(&event.id)), Ok(event));
                        Ok(Self(events.into_iter().map(told).collect()))
                    }
                    None => Self::parse(api, &bytes),
                };
            }
        };
        Ok(Self(events.into_iter().map(|event| batch_item(cloud_events::read(api, event))).collect()))
    }

    fn describe() -> Description {
        Body::<EventsBody>::describe()
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
        json!({"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": fields::describe::<Api, EventRecord>().to_value(),
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

/// Record usage events.
///
/// Each event counts exactly once, by its source and id.
pub async fn usage(billing: Billing, _: ServiceScope, batch: Batch) -> Result<Bare<Results>, Error> {
    let Batch(events) = batch;
    let mut read = Vec::with_capacity(events.len());
    let mut sent = Vec::with_capacity(events.len());
    for (id, event) in events {
        match event {
            Ok(event) => {
                sent.push(event);
                // Its outcome is the books'.
                read.push((id, None));
            }
            Err(error) => read.push((id, Some(error))),
        }
    }
    let mut outcomes = usage::record(&billing, sent).await?.into_iter();
    let mut details_left = MAX_BATCH_DETAILS;
    let mut results = Vec::with_capacity(read.len());
    for (id, error) in read {
        results.push(match error {
            Some(error) => {
                usage::count_unreadable(&billing);
                unreadable(id, *error, &mut details_left)
            }
            None => {
                let outcome = outcomes.next().ok_or_else(|| Error::internal("an event has no outcome"))?;
                result(id, outcome)
            }
        });
    }
    Ok(Bare(Results { results }))
}

fn event_result(id: Option<Arc<str>>, status: EventStatus) -> EventResult {
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
        ..event_result(id, EventStatus::Refused)
    }
}

fn result(id: Option<Arc<str>>, outcome: Outcome) -> EventResult {
    let refusal = match outcome {
        Outcome::New => return event_result(id, EventStatus::Accepted),
        Outcome::Duplicate => return event_result(id, EventStatus::Duplicate),
        Outcome::Conflict => events::conflict(),
        Outcome::Refused(refusal) => refusal,
    };
    EventResult {
        code: Some(refusal.reason.as_str()),
        message: Some(refusal.message),
        retryable: refusal.reason.is_retryable(),
        ..event_result(id, EventStatus::Refused)
    }
}
