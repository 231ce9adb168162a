//! The fields of a usage event.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::Api;
use billing::usage::{Caller, Event, Usage};
use catalog::Kind;
use input::fields::{self, Entry, Field, Fields, Location, Origin, Problems, Record};
use input::json::Json;
use input::types::{Integer, one_of};
use kernel::error::{Detail, Error};
use kernel::ids::{ApiKeyId, ProjectId, UserId};

/// Tokens of an event; negative in a correction.
pub(super) type Tokens = Integer<-1_000_000_000, 1_000_000_000>;

/// An event, read from its fields.
#[derive(Debug)]
pub(super) struct EventRecord(pub(super) Event);

/// The usage of an event, read from its fields.
#[derive(Debug)]
pub(super) struct UsageRecord(pub(super) Usage);

/// Reads the caller: a key, or a user in a project.
fn caller(fields: &mut Fields<'_, Api>) -> Option<Caller> {
    let api_key_id = fields.optional::<ApiKeyId>("api_key_id");
    let project_id = fields.optional::<ProjectId>("project_id");
    let user_id = fields.optional::<UserId>("user_id");
    let forms = "a call with an API key by `api_key_id`, a person's by `project_id` and `user_id`";
    match (api_key_id?, project_id?, user_id?) {
        (Some(id), None, None) => Some(Caller::ApiKey(id)),
        (None, Some(project_id), Some(user_id)) => Some(Caller::user(project_id, user_id)),
        (Some(_), project_id, _) => {
            let name = if project_id.is_some() { "project_id" } else { "user_id" };
            let message = format!("`{name}` can't stand beside `api_key_id`: an event names {forms}.");
            fields.problem(name, "not_both", message)
        }
        (None, project_id, user_id) => {
            let name = match (project_id, user_id) {
                (Some(_), _) => "user_id",
                (None, Some(_)) => "project_id",
                (None, None) => "api_key_id",
            };
            fields.problem(name, "required", format!("`{name}` is required: an event names {forms}."))
        }
    }
}

impl Record<Api> for EventRecord {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let id: Option<EventText> = fields.required("id");
        let source: Option<EventText> = fields.required("source");
        let time = fields.required("time");
        let usage = UsageRecord::read(fields);
        Some(Self(Event { id: id?.0, source: source?.0, time: time?, usage: usage?.0 }))
    }
}

impl Record<Api> for UsageRecord {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let caller = caller(fields);
        let model: Option<EventText> = fields.required("model");
        let kind: Option<KindField> = fields.required("kind");
        let prompt_tokens = fields.required::<Tokens>("prompt_tokens");
        let completion_tokens = fields.or::<Tokens>("completion_tokens", Integer(0));
        let reservation_id = fields.optional("reservation_id");
        let corrects: Option<Option<EventText>> = fields.optional("corrects");
        for (name, tokens) in [("prompt_tokens", prompt_tokens), ("completion_tokens", completion_tokens)] {
            if matches!((tokens, &corrects), (Some(Integer(..0)), Some(None))) {
                let message = format!(
                    "`{name}` must be 0 or more: only an event that `corrects` another takes tokens back."
                );
                fields.problem::<()>(name, "out_of_range", message);
            }
        }
        Some(Self(Usage {
            caller: caller?,
            model: model?.0,
            kind: kind?.0,
            prompt_tokens: prompt_tokens?.0,
            completion_tokens: completion_tokens?.0,
            reservation_id: reservation_id?,
            corrects: corrects?.map(|text| text.0),
        }))
    }
}

/// A text of 1 to 256 printable characters.
#[derive(Debug)]
pub(super) struct EventText(pub(super) Arc<str>);

impl EventText {
    /// Returns the text, if it is valid.
    pub(super) fn accept(text: &str) -> Option<Arc<str>> {
        Self::may_be(text).then(|| text.into())
    }

    /// Returns the text, if it is valid; shares the memory of an equal text of another event.
    pub(super) fn accept_like(text: &str, other: Option<&Arc<str>>) -> Option<Arc<str>> {
        match other {
            Some(other) if **other == *text => Some(Arc::clone(other)),
            _ => Self::accept(text),
        }
    }

    fn may_be(text: &str) -> bool {
        if text.is_ascii() {
            return (1..=256).contains(&text.len()) && !text.bytes().any(|byte| byte.is_ascii_control());
        }
        (1..=256).contains(&text.chars().count()) && !text.chars().any(char::is_control)
    }
}

impl Field for EventText {
    fn read(value: Json, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = input::types::string(value, at, problems)?;
        if !Self::may_be(&text) {
            let message = format!("`{}` must be 1 to 256 characters without control characters.", at.path);
            return problems.add(at, "invalid_text", message);
        }
        Some(Self(text.into()))
    }
    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 256, "examples": ["call-1"]})
    }
}

/// A kind of models.
struct KindField(Kind);

impl Field for KindField {
    fn read(value: Json, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Kind::Chat, Kind::Embeddings].map(Kind::as_str))
            .and_then(Kind::parse)
            .map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["chat", "embeddings"], "examples": ["chat"]})
    }
}

/// Reads an event and its id; the id is returned even for some invalid events.
pub(super) fn read(api: &Api, event: Json) -> (Option<String>, Result<Event, Error>) {
    match members(event) {
        Ok((id, entries)) => (id, fields::read(api, entries).map(|EventRecord(event)| event)),
        Err(error) => (None, Err(error)),
    }
}

/// Returns the members of an event, and its id if it has one.
pub(super) fn members(event: Json) -> Result<(Option<String>, Vec<Entry>), Error> {
    let Json::Object(members) = event else {
        let message = format!("An event must be an object, not {}.", event.type_name());
        let detail = Detail { param: String::new(), code: "wrong_type", message };
        return Err(Error::invalid(vec![detail]));
    };
    let id = members.iter().find_map(|(name, value)| match value {
        Json::Text(id) if name == "id" && id.len() <= 1_024 => Some(id.clone()),
        _ => None,
    });
    let entry = |(name, value)| Entry { name, value, origin: Origin::Body };
    Ok((id, members.into_iter().map(entry).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use input::fields::read_without_state;
    use kernel::secrets::sha256;

    fn hash(rest: &str) -> String {
        let body = format!(
            r#"{{"id":"e","source":"s","time":"2026-03-09T10:00:00Z","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41",
                "model":"svc-1","kind":"chat","prompt_tokens":-1{rest}}}"#
        );
        let EventRecord(event) = read_without_state(body.as_bytes()).unwrap();
        event.payload_hash().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hash_covers_every_field() {
        let reservation = r#","reservation_id":"res_01h2xcejqtf2nbrexx3vqjhp41""#;
        let rests =
            [r#","corrects":"a""#, r#","corrects":"ab""#, &format!(r#"{reservation},"corrects":"a""#)];
        let hashes: std::collections::HashSet<_> = rests.into_iter().map(hash).collect();
        assert_eq!(hashes.len(), 3);
    }

    #[test]
    fn hash_covers_project_and_user() {
        let hash = |whose: &str| {
            let body = format!(
                r#"{{"id":"e","source":"s","time":"2026-03-09T10:00:00Z",{whose},"model":"svc-1","kind":"chat","prompt_tokens":1}}"#
            );
            read_without_state::<Api, EventRecord>(body.as_bytes())
                .map(|EventRecord(event)| event.payload_hash())
        };
        let (one, two) = ("01h2xcejqtf2nbrexx3vqjhp41", "01h2xcejqtf2nbrexx3vqjhp42");
        let person =
            |project, user| hash(&format!(r#""project_id":"proj_{project}","user_id":"user_{user}""#));
        let hashes: std::collections::HashSet<_> = [
            person(one, one),
            person(one, two),
            person(two, one),
            hash(&format!(r#""api_key_id":"key_{one}""#)),
        ]
        .into_iter()
        .map(Option::unwrap)
        .collect();
        assert_eq!(hashes.len(), 4);
    }

    #[test]
    fn event_without_later_fields_keeps_its_hash() {
        let body = r#"{"id":"e","source":"s","time":"2026-03-09T10:00:00Z","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41",
            "model":"svc-1","kind":"chat","prompt_tokens":1}"#;
        let EventRecord(event) = read_without_state(body.as_bytes()).unwrap();
        let text = "1773050400000|key_01h2xcejqtf2nbrexx3vqjhp41|5:svc-1|chat|1|0";
        assert_eq!(event.payload_hash(), sha256(text.as_bytes()));
    }
}
