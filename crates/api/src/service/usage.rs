//! POST /service/v1/usage: a batch of usage events, each counted exactly once.
//!
//! Events succeed or fail one by one, and results are in the order of the events. The reply is sent once the
//! accepted events are durable (docs/contract/service.md#usage-events). Events may also be CloudEvents,
//! selected by the content type.

mod cloud_events;
mod event;
mod parts;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Api;
use crate::gate::{Call, ServiceScope};
use billing::Billing;
use billing::rules::events::{self, Reason};
use billing::usage::{self, Event, Outcome};
use input::fields::{self, Field, Location, Problems};
use input::json::{self, Json};
use input::record;
use kernel::error::{Code, Detail, Error};
use kernel::places;
use web::input::{Body, Description, Input};
use web::reply::Bare;
use web::route::Operation;

use cloud_events::CloudEvent;
use event::{EventRecord, Unreadable};

record! {
    /// The events of a batch.
    #[derive(Debug)]
    pub struct Batch in Api {
        /// 1 to 1,000 events. Each is accepted or refused separately.
        events: Events = required,
    }
}

impl Batch {
    /// Returns each event as text, so that the fuzz targets can compare readings.
    pub fn in_words(self) -> Vec<String> {
        let words = self.events.0.into_iter().map(|event| match event {
            Ok(event) => format!("read {event:?} {:?}", event.payload_hash()),
            Err(Unreadable { id, error }) => format!("refused {id:?} {:?}", error.details),
        });
        words.collect()
    }
}

/// Reads the events of a receipt, which contains a single event, the body of a batch, or a CloudEvent.
///
/// # Errors
/// 400 if the receipt can't be read, as for the operation.
pub fn read_receipt(text: &[u8]) -> Result<Vec<Event>, Error> {
    let value = json::parse(text)?;
    let has = |name: &str| matches!(&value, Json::Object(all) if all.iter().any(|(found, _)| found == name));
    let events = if has("events") {
        let Json::Object(members) = value else { return Ok(Vec::new()) };
        fields::read::<(), Receipts>(&(), members)?.events.0
    } else if has("specversion") {
        event::read_all::<CloudEvent>(vec![value], cloud_events::is_attribute)
    } else {
        event::read_all::<EventRecord>(vec![value], |_| true)
    };
    events.into_iter().map(|event| event.map_err(|unreadable| *unreadable.error)).collect()
}

record! {
    /// The body of a batch, read without the server's state.
    struct Receipts in () {
        events: Events = required,
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
            _ => return web::input::parse_record(api, &bytes),
        };
        Ok(Self { events: Events(event::read_all::<CloudEvent>(events, cloud_events::is_attribute)) })
    }

    fn describe() -> Description {
        Body::<Self>::describe()
    }
}

/// The maximum number of events in a batch.
const MAX_EVENTS: usize = 1_000;
/// The maximum number of field errors in the reply to a batch. Further invalid events have only a code and a
/// message.
const MAX_BATCH_DETAILS: usize = 2 * MAX_EVENTS;

/// Events, each read separately.
#[derive(Debug)]
struct Events(Vec<Result<Event, Unreadable>>);

impl Field for Events {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Array(events) if (1..=MAX_EVENTS).contains(&events.len()) => {
                Some(Self(event::read_all::<EventRecord>(events, |_| true)))
            }
            Json::Array(events) => {
                let code = if events.is_empty() { "empty" } else { "too_many" };
                problems.add(at, code, format!("`{}` must contain 1 to {MAX_EVENTS} events.", at.path))
            }
            other => problems.wrong_type(at, "an array", &other),
        }
    }
    fn schema() -> Value {
        let mut event = fields::describe::<(), EventRecord>().to_value();
        if let Some(event) = event.as_object_mut() {
            event.insert("title".into(), "UsageEvent".into());
        }
        json!({"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": event,
               "examples": [[{"id": "call-1", "source": "vllm-1", "time": "2026-01-31T09:30:00Z",
                              "api_key_id": "key_01kfz3v9xee8tb2m6h0q5w7r4n", "model": "svc-1", "kind": "chat",
                              "prompt_tokens": 12, "completion_tokens": 34}]]})
    }
}

/// The results of a batch, in the order of its events.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UsageResults")]
pub struct Results {
    /// A result for each event, in the order of the events.
    results: Vec<EventResult>,
}

/// The result of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventResult {
    /// The event's id, if it could be read.
    id: Option<Arc<str>>,
    /// The status of the event.
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
    /// The event is counted now.
    Accepted,
    /// The event was already counted.
    Duplicate,
    /// The event isn't counted. Sending it again won't help unless `retryable` is true.
    Refused,
}

/// A field error of an event.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EventDetail")]
pub struct DetailText {
    /// The path of the invalid field.
    param: String,
    /// A stable code for programs.
    code: &'static str,
    /// A human-readable message.
    message: String,
}

pub const USAGE: Operation = Operation {
    errors: &[Code::BooksQueueFull, Code::ClockNotTrusted],
    example: r#"{
  "events": [
    {
      "id": "call-1",
      "source": "vllm-1",
      "time": "2026-01-31T09:30:00Z",
      "model": "svc-1",
      "api_key_id": "key_01kfz3v9xee8tb2m6h0q5w7r4n",
      "kind": "chat",
      "prompt_tokens": 12,
      "completion_tokens": 34
    }
  ]
}"#,
    ..Operation::new("report_usage")
};

/// Record usage events.
///
/// Each event counts exactly once, identified by its source and id.
pub async fn usage(billing: Billing, _: ServiceScope, batch: Batch) -> Result<Bare<Results>, Error> {
    let Batch { events: Events(events) } = batch;
    let (mut read, mut refused) = (Vec::with_capacity(events.len()), Vec::new());
    let mut ids = Vec::with_capacity(events.len());
    for (place, event) in events.into_iter().enumerate() {
        match event {
            Ok(event) => {
                ids.push(Arc::clone(&event.id));
                read.push(event);
            }
            Err(unreadable) => refused.push((place, unreadable)),
        }
    }
    let outcomes = usage::record(&billing, read).await?;
    let recorded = ids.into_iter().zip(outcomes).map(|(id, outcome)| result(id, outcome)).collect();
    let mut details_left = MAX_BATCH_DETAILS;
    let refused = refused.into_iter().map(|(place, Unreadable { id, error })| {
        usage::count_unreadable(&billing);
        (place, unreadable(id, *error, &mut details_left))
    });
    Ok(Bare(Results { results: places::merge(recorded, refused.collect()) }))
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

fn result(id: Arc<str>, outcome: Outcome) -> EventResult {
    let id = Some(id);
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
