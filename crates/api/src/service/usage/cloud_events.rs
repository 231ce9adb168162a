//! Usage events as CloudEvents 1.0 in the structured JSON format, single or in batches.
//!
//! `id`, `source` and `time` are those of the CloudEvent; the rest is in `data`. Extension attributes are
//! ignored.

use serde_json::{Value, json};

use super::event::{EventText, UsageRecord};
use billing::usage::Event;
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::string;
use kernel::clock::Time;

/// The content type of a batch.
pub(super) const BATCH: &str = "application/cloudevents-batch+json";
/// The content type of a single event.
pub(super) const SINGLE: &str = "application/cloudevents+json";

/// The attributes that are read.
const ATTRIBUTES: [&str; 8] =
    ["specversion", "id", "source", "type", "time", "datacontenttype", "data", "data_base64"];

/// Returns `true` for the name of an attribute that is read.
pub(super) fn is_attribute(name: &str) -> bool {
    ATTRIBUTES.contains(&name)
}

/// An event, read from a CloudEvent.
pub(super) struct CloudEvent(Event);

impl From<CloudEvent> for Event {
    fn from(CloudEvent(event): CloudEvent) -> Self {
        event
    }
}

impl Record<()> for CloudEvent {
    fn read(fields: &mut Fields<'_, ()>) -> Option<Self> {
        let version = fields.required::<Version>("specversion");
        let kind = fields.required::<Type>("type");
        let id: Option<EventText> = fields.required("id");
        let source: Option<EventText> = fields.required("source");
        let time: Option<Time> = fields.required("time");
        let content = fields.optional::<JsonData>("datacontenttype");
        let data: Option<UsageRecord> = fields.object("data");
        version.and(kind).and(content)?;
        Some(Self(Event { id: id?.0, source: source?.0, time: time?, usage: data?.0 }))
    }
}

struct Version;

impl Field for Version {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        exactly(value, at, problems, "1.0").map(|()| Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["1.0"], "examples": ["1.0"]})
    }
}

struct Type;

impl Field for Type {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        exactly(value, at, problems, "tollkeeper.usage.v1").map(|()| Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["tollkeeper.usage.v1"], "examples": ["tollkeeper.usage.v1"]})
    }
}

struct JsonData;

impl Field for JsonData {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        let kind = text.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") {
            return Some(Self);
        }
        problems.add(at, "unknown_value", format!("`{}` must be `application/json`.", at.path))
    }
    fn schema() -> Value {
        json!({"type": "string", "examples": ["application/json"]})
    }
}

fn exactly(value: Json<'_>, at: &Location<'_>, problems: &mut Problems, due: &str) -> Option<()> {
    if string(value, at, problems)? == due {
        return Some(());
    }
    problems.add(at, "unknown_value", format!("`{}` must be `{due}`.", at.path))
}
