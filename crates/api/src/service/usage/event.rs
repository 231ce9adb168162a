//! The fields of a usage event.

use std::sync::Arc;

use serde_json::{Value, json};
use strum::VariantArray;

use billing::usage::{Caller, Event, Usage};
use catalog::{Kind, ServiceTier};
use input::fields::{self, Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::{Integer, one_of};
use kernel::error::{Detail, Error};
use kernel::ids::{ApiKeyId, ProjectId, UserId};

use super::parts::{PartsField, Tokens, check_parts};

/// An event, read from its fields.
#[derive(Debug)]
pub(super) struct EventRecord(pub(super) Event);

impl From<EventRecord> for Event {
    fn from(EventRecord(event): EventRecord) -> Self {
        event
    }
}

/// The usage of an event, read from its fields.
#[derive(Debug)]
pub(super) struct UsageRecord(pub(super) Usage);

/// Reads the caller: a key, or a user in a project.
fn caller(fields: &mut Fields<'_, ()>) -> Option<Caller> {
    let api_key_id = fields.described("The id of the API key.").optional::<ApiKeyId>("api_key_id");
    let project_id = fields.described("The id of the project.").optional::<ProjectId>("project_id");
    let user_id = fields.described("The id of the user.").optional::<UserId>("user_id");
    let forms = "either `api_key_id`, or `project_id` and `user_id`";
    match (api_key_id?, project_id?, user_id?) {
        (Some(id), None, None) => Some(Caller::ApiKey(id)),
        (None, Some(project_id), Some(user_id)) => Some(Caller::user(project_id, user_id)),
        (Some(_), project_id, _) => {
            let name = if project_id.is_some() { "project_id" } else { "user_id" };
            let message =
                format!("`{name}` can't be combined with `api_key_id`: an event must have {forms}.");
            fields.problem(name, "mutually_exclusive", message)
        }
        (None, project_id, user_id) => {
            let name = match (project_id, user_id) {
                (Some(_), _) => "user_id",
                (None, Some(_)) => "project_id",
                (None, None) => "api_key_id",
            };
            fields.problem(name, "required", format!("`{name}` is required: an event must have {forms}."))
        }
    }
}

impl Record<()> for EventRecord {
    fn read(fields: &mut Fields<'_, ()>) -> Option<Self> {
        let id: Option<EventText> = fields.described("The id.").required("id");
        let source: Option<EventText> = fields
            .described("The server that reports the event. Ids are unique within it.")
            .required("source");
        let time = fields.described("The time of the event.").required("time");
        let usage = UsageRecord::read(fields);
        Some(Self(Event { id: id?.0, source: source?.0, time: time?, usage: usage?.0 }))
    }
}

impl Record<()> for UsageRecord {
    fn read(fields: &mut Fields<'_, ()>) -> Option<Self> {
        let caller = caller(fields);
        let model: Option<EventText> = fields.described("The id of the model.").required("model");
        let kind: Option<KindField> = fields.described("The kind of usage.").required("kind");
        let prompt_tokens = fields.described("The tokens of the prompt.").required::<Tokens>("prompt_tokens");
        let completion_tokens =
            fields.described("The tokens of the answer.").or::<Tokens>("completion_tokens", Integer(0));
        let cached_prompt_tokens = fields
            .described("The part of `prompt_tokens` that came from a prefix cache; null if unknown.")
            .optional::<Tokens>("cached_prompt_tokens");
        let parts = fields
            .described("The usage in addition to these tokens, or as a part of them, by component.")
            .optional::<PartsField>("parts");
        let service_tier =
            fields.described("The tier in the answer.").or("service_tier", TierField::default());
        let is_estimated = fields.described("`true` if the counts are estimates.").or("estimated", false);
        let reservation_id = fields.described("The id of the reservation.").optional("reservation_id");
        let corrects: Option<Option<EventText>> =
            fields.described("The id of the event that this one corrects.").optional("corrects");
        for (name, tokens) in [
            ("prompt_tokens", prompt_tokens),
            ("completion_tokens", completion_tokens),
            ("cached_prompt_tokens", cached_prompt_tokens.flatten()),
        ] {
            if matches!((tokens, &corrects), (Some(Integer(..0)), Some(None))) {
                let message = format!(
                    "`{name}` must be 0 or more. Only an event that `corrects` another one can take tokens back."
                );
                fields.problem::<()>(name, "out_of_range", message);
            }
        }
        if let (Some(Integer(prompt)), Some(Some(Integer(cached))), Some(None)) =
            (prompt_tokens, cached_prompt_tokens, &corrects)
            && cached > prompt.max(0)
        {
            let message =
                "`cached_prompt_tokens` must be at most `prompt_tokens`, because it is a part of them.";
            fields.problem::<()>("cached_prompt_tokens", "out_of_range", message.to_owned());
        }
        let whole = prompt_tokens.zip(completion_tokens);
        if let (Some((Integer(prompt), Integer(completion))), Some(Some(PartsField(parts))), Some(corrects)) =
            (whole, &parts, &corrects)
        {
            let cached = cached_prompt_tokens.flatten().map_or(0, |Integer(cached)| cached);
            check_parts(fields, parts.to_parts(), (prompt, cached, completion), corrects.is_some());
        }
        Some(Self(Usage {
            caller: caller?,
            model: model?.0,
            kind: kind?.0,
            prompt_tokens: prompt_tokens?.0,
            completion_tokens: completion_tokens?.0,
            cached_prompt_tokens: cached_prompt_tokens?.map(|tokens| tokens.0),
            parts: parts?.unwrap_or_default().0,
            service_tier: service_tier?.0,
            is_estimated: is_estimated?,
            rest: None,
            reservation_id: reservation_id?,
            corrects: corrects?.map(|text| text.0),
        }))
    }
}

/// Text of 1 to 256 printable characters.
#[derive(Debug)]
pub(super) struct EventText(pub(super) Arc<str>);

impl EventText {
    fn may_be(text: &str) -> bool {
        if text.is_ascii() {
            return (1..=256).contains(&text.len()) && !text.bytes().any(|byte| byte.is_ascii_control());
        }
        (1..=256).contains(&text.chars().count()) && !text.chars().any(char::is_control)
    }
}

impl Field for EventText {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
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

/// The tier of an answer.
#[derive(Debug, Default)]
struct TierField(ServiceTier);

impl Field for TierField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, ServiceTier::ALL).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "ServiceTier", "enum": ["default", "flex", "priority", "batch"],
            "examples": ["flex"]})
    }
}

/// A kind of models.
struct KindField(Kind);

impl Field for KindField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Kind::VARIANTS).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "UsageKind", "enum": ["chat", "embeddings"], "examples": ["chat"]})
    }
}

/// An event that can't be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The event's id, if it could be read.
    pub(super) id: Option<Arc<str>>,
    pub(super) error: Box<Error>,
}

/// Reads the events of a list, each separately. Members whose names `is_read` rejects are ignored.
pub(super) fn read_all<T>(
    events: Vec<Json<'_>>,
    is_read: impl Fn(&str) -> bool + Copy,
) -> Vec<Result<Event, Unreadable>>
where
    T: Record<()> + Into<Event>,
{
    let mut all: Vec<Result<Event, Unreadable>> = Vec::with_capacity(events.len());
    for event in events {
        let mut item = read::<T>(event, is_read);
        if let (Ok(event), Some(Ok(before))) = (&mut item, all.last()) {
            share(&mut event.source, &before.source);
            share(&mut event.usage.model, &before.usage.model);
        }
        all.push(item);
    }
    all
}

/// Shares a string with the previous event if both are equal, because a batch often repeats strings.
fn share(text: &mut Arc<str>, before: &Arc<str>) {
    if text == before {
        *text = Arc::clone(before);
    }
}

fn read<T: Record<()> + Into<Event>>(
    event: Json<'_>,
    is_read: impl Fn(&str) -> bool,
) -> Result<Event, Unreadable> {
    let Json::Object(mut members) = event else {
        let message = format!("An event must be an object, not {}.", event.type_name());
        let detail = Detail { param: String::new(), code: "wrong_type", message };
        return Err(Unreadable { id: None, error: Box::new(Error::invalid(vec![detail])) });
    };
    members.retain(|(name, _)| is_read(name));
    let id = members.iter().find_map(|(name, value)| match value {
        Json::Text(id) if name == "id" && id.len() <= 1_024 => Some(id.clone()),
        _ => None,
    });
    let event = fields::read::<(), T>(&(), members);
    event.map(T::into).map_err(|error| Unreadable { id: id.map(Arc::from), error: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use super::super::Batch;
    use super::*;
    use input::fields::read_without_state;
    use kernel::clock::Time;
    use kernel::secrets::sha256;

    const GOOD: &str = r#""id":"e","source":"s","time":"2026-03-09T10:00:00+01:00","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41","model":"svc-1","kind":"chat""#;
    const PERSON: &str = r#""id":"e","source":"s","time":"2026-03-09T10:00:00Z","project_id":"proj_01h2xcejqtf2nbrexx3vqjhp41","user_id":"user_01h2xcejqtf2nbrexx3vqjhp41","model":"m","kind":"chat""#;
    const EMBEDDINGS: &str = r#""id":"ü","source":"s/1","time":"2026-03-09T10:00:00Z","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41","model":"m","kind":"embeddings""#;

    /// The other fields of an event, and `true` if they are valid.
    const RESTS: &[(&str, bool)] = &[
        (r#","prompt_tokens":1,"completion_tokens":2"#, true),
        (r#","prompt_tokens":0"#, true),
        (r#","prompt_tokens":1000000000,"reservation_id":null,"corrects":null"#, true),
        (r#","prompt_tokens":1,"reservation_id":"res_01h2xcejqtf2nbrexx3vqjhp41""#, true),
        (r#","prompt_tokens":-1,"completion_tokens":-1000000000,"corrects":"other""#, true),
        (r#","prompt_tokens":5,"cached_prompt_tokens":5,"estimated":true"#, true),
        (r#","prompt_tokens":0,"cached_prompt_tokens":0,"estimated":false"#, true),
        (r#","prompt_tokens":-5,"cached_prompt_tokens":-5,"corrects":"other""#, true),
        // Uncommon, but valid.
        (r#","prompt_tokens":1,"cached_prompt_tokens":null,"estimated":null"#, true),
        (r#","prompt_tokens":1.0"#, true),
        (r#","prompt_tokens":1,"corrects":"a\u0062""#, true),
        (r#","prompt_tokens":1,"completion_tokens":null"#, true),
        // Invalid.
        ("", false),
        (r#","prompt_tokens":-1"#, false),
        (r#","prompt_tokens":1000000001"#, false),
        (r#","prompt_tokens":"1""#, false),
        (r#","prompt_tokens":5,"cached_prompt_tokens":6"#, false),
        (r#","prompt_tokens":5,"cached_prompt_tokens":-1"#, false),
        (r#","prompt_tokens":5,"cached_prompt_tokens":"1""#, false),
        (r#","prompt_tokens":5,"estimated":1"#, false),
        (r#","prompt_tokens":1,"prompt_tokens":1"#, false),
        (r#","prompt_tokens":1,"tokens":1"#, false),
        (r#","prompt_tokens":1,"corrects":"""#, false),
        (r#","prompt_tokens":1,"reservation_id":"res_x""#, false),
    ];

    fn batch(body: &str) -> Option<Batch> {
        read_without_state(body.as_bytes())
    }

    /// Reads a batch of valid events.
    fn events(body: &str) -> Option<Vec<Event>> {
        batch(body)?.events.0.into_iter().map(Result::ok).collect()
    }

    #[test]
    fn valid_events_are_read() {
        for (rest, valid) in RESTS {
            for start in [GOOD, EMBEDDINGS, PERSON] {
                let one = format!("{{{start}{rest}}}");
                let read = events(&format!(r#" {{"events":[{one},{one}]}}"#));
                assert_eq!(read.is_some(), *valid, "{one}");
                let Some(read) = read else { continue };
                let single: Event = read_without_state::<(), EventRecord>(one.as_bytes()).unwrap().into();
                assert_eq!(read.len(), 2);
                assert!(Arc::ptr_eq(&read[0].source, &read[1].source));
                assert!(Arc::ptr_eq(&read[0].usage.model, &read[1].usage.model));
                for event in read {
                    assert_eq!(format!("{event:?}"), format!("{single:?}"));
                    assert_eq!(event.payload_hash(), single.payload_hash());
                }
            }
        }
        for wrong in [
            r#""api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41""#,
            r#""project_id":"proj_01h2xcejqtf2nbrexx3vqjhp41""#,
            r#""user_id":null"#,
            r#""user_id":"proj_01h2xcejqtf2nbrexx3vqjhp41""#,
        ] {
            let start = PERSON.replace(r#""user_id":"user_01h2xcejqtf2nbrexx3vqjhp41""#, wrong);
            let one = format!(r#"{{{start},"prompt_tokens":1}}"#);
            assert!(events(&format!(r#"{{"events":[{one}]}}"#)).is_none(), "{one}");
            assert!(read_without_state::<(), EventRecord>(one.as_bytes()).is_none(), "{one}");
        }
    }

    #[test]
    fn every_field_of_an_event_is_read() {
        let body = format!(
            r#"{{"events":[{{{GOOD},"prompt_tokens":3,"completion_tokens":4.0,"cached_prompt_tokens":2,
                "estimated":true,"reservation_id":"res_01h2xcejqtf2nbrexx3vqjhp41","corrects":"a\u0062"}}]}}"#
        );
        let event = events(&body).unwrap().remove(0);
        assert_eq!((&*event.id, &*event.source), ("e", "s"));
        assert_eq!(event.time, Time::parse("2026-03-09T09:00:00Z").unwrap());
        let usage = event.usage;
        assert!(
            matches!(usage.caller, Caller::ApiKey(id) if id.to_string() == "key_01h2xcejqtf2nbrexx3vqjhp41")
        );
        assert_eq!((&*usage.model, usage.kind), ("svc-1", Kind::Chat));
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3, 4));
        assert_eq!((usage.cached_prompt_tokens, usage.is_estimated), (Some(2), true));
        assert_eq!(usage.reservation_id.unwrap().to_string(), "res_01h2xcejqtf2nbrexx3vqjhp41");
        assert_eq!(usage.corrects.as_deref(), Some("ab"));
    }

    #[test]
    fn batches_are_refused_or_only_their_bad_events() {
        let one = format!(r#"{{{GOOD},"prompt_tokens":1}}"#);
        let positions = r#"["e","s","2026-03-09T10:00:00Z","key_01h2xcejqtf2nbrexx3vqjhp41","svc-1","chat",1,2,null,null]"#;
        for body in [
            format!("[[{one}]]"),
            format!(r#"{{"events":[{one}]}} x"#),
            format!(r#"{{"events":[{one}],"more":1}}"#),
            r#"{"events":[]}"#.to_owned(),
            format!(r#"{{"events":[{}]}}"#, vec![one.as_str(); 1_001].join(",")),
            one.clone(),
        ] {
            assert!(batch(&body).is_none(), "{body:.300}");
        }
        for bad in ["1", positions] {
            let read = batch(&format!(r#"{{"events":[{one},{bad}]}}"#)).unwrap().events.0;
            assert!(matches!(&*read, [Ok(_), Err(Unreadable { id: None, .. })]), "{bad}: {read:?}");
        }
    }

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
        let rests = [
            r#","corrects":"a""#,
            r#","corrects":"ab""#,
            &format!(r#"{reservation},"corrects":"a""#),
            r#","corrects":"a","cached_prompt_tokens":0"#,
            r#","corrects":"a","cached_prompt_tokens":-1"#,
            r#","corrects":"a","estimated":true"#,
            r#","corrects":"a","cached_prompt_tokens":0,"estimated":true"#,
        ];
        let hashes: std::collections::HashSet<_> = rests.into_iter().map(hash).collect();
        assert_eq!(hashes.len(), 7);
        let defaults = r#","corrects":"a","cached_prompt_tokens":null,"estimated":false"#;
        assert_eq!(hash(defaults), hash(rests[0]));
    }

    #[test]
    fn hash_covers_project_and_user() {
        let hash = |whose: &str| {
            let body = format!(
                r#"{{"id":"e","source":"s","time":"2026-03-09T10:00:00Z",{whose},"model":"svc-1","kind":"chat","prompt_tokens":1}}"#
            );
            read_without_state::<(), EventRecord>(body.as_bytes())
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
        let hex: String = event.payload_hash().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "efbc40dcb132c871222dfd26882486c3cfc46341fb63e4ce4e15a82cc3b81d84");
    }
}
