//! POST /service/v1/usage: a batch of usage events, each counted exactly once.
//!
//! Events succeed or fail one by one, and results are in the order of the events. The reply is sent once the
//! accepted events are durable (docs/contract/service.md#usage-events). Events may also be CloudEvents,
//! selected by the content type.

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
use billing::rules::events::{self, Reason};
use billing::usage::{self, Event, Outcome};
use input::fields::{self, Field, Fields, Location, Problems, Record};
use input::json::{self, Json};
use kernel::error::{Code, Detail, Error};
use web::input::{Body, Description, Input};
use web::reply::Bare;

use event::EventRecord;

/// The events of a batch; each is read on its own.
#[derive(Debug)]
pub struct Batch(Vec<BatchItem>);

/// An event and its id; the id is known even for some events that are invalid otherwise.
type BatchItem = (Option<Arc<str>>, Result<Event, Box<Error>>);

impl Batch {
    /// Reads a plain batch (not CloudEvents) with the general reader, which reports all mistakes.
    ///
    /// # Errors
    /// The body isn't a list of events. Mistakes of single events are in their items.
    pub fn parse(api: &Api, bytes: &[u8]) -> Result<Self, Error> {
        let EventsBody(events) = web::input::parse_record(api, bytes)?;
        Ok(Self(events.into_iter().map(|event| batch_item(event::read(api, event))).collect()))
    }

    /// Returns each item as text, so that the fuzz targets can compare the readers.
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

/// The body, with its events still unread.
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
                        let item = |event: Event| (Some(Arc::clone(&event.id)), Ok(event));
                        Ok(Self(events.into_iter().map(item).collect()))
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

/// The most events of a batch.
const MAX_EVENTS: usize = 1_000;
/// The most field errors in the reply to a batch; further invalid events have only code and message.
const MAX_BATCH_DETAILS: usize = 2 * MAX_EVENTS;

#[derive(Debug)]
struct EventList(Vec<Json>);

impl Field for EventList {
    fn read(value: Json, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
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

/// The results of a batch, one per event and in their order.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Results {
    results: Vec<EventResult>,
}

/// The result of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventResult {
    /// The event's id, if it could be read.
    id: Option<Arc<str>>,
    status: EventStatus,
    /// The code of a refusal.
    code: Option<&'static str>,
    /// The message of a refusal.
    message: Option<String>,
    /// `true` if a refused event may be accepted when it is sent again unchanged.
    retryable: bool,
    /// The field errors of an invalid event.
    details: Vec<DetailText>,
}

/// The status of a reported event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventStatus {
    /// It was counted now.
    Accepted,
    /// It was counted before.
    Duplicate,
    /// It isn't counted. Sending it again won't help, unless `retryable` is true.
    Refused,
}

/// A field error of an event.
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
                // The outcome comes from the books.
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
