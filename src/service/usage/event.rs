//! One usage event, as it comes.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::app::App;
use crate::catalog::Kind;
use crate::clock::Time;
use crate::error::{Detail, Error};
use crate::ids::{ApiKeyId, CallerId, ProjectId, ReservationId, UserId};
use crate::input::fields::{At, Entry, Field, Origin, Problems};
use crate::input::json::Json;
use crate::input::types::{Integer, one_of};
use crate::input::{Fields, Record, fields};
use crate::secrets::sha256;

/// Tokens of an event, or as many taken back.
pub(super) type Tokens = Integer<-1_000_000_000, 1_000_000_000>;

/// One event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: EventText,
    pub(super) source: EventText,
    pub(super) time: Time,
    pub(super) use_: Use,
}

/// What an event says of a use.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) caller: Caller,
    pub(super) model: EventText,
    pub(super) kind: Kind,
    pub(super) prompt_tokens: i64,
    pub(super) completion_tokens: i64,
    pub(super) reservation_id: Option<ReservationId>,
    pub(super) corrects: Option<EventText>,
}

/// The caller of a model. People are few and their ids long, so theirs stand elsewhere.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    ApiKey(ApiKeyId),
    Person(Box<Person>),
}

/// A person, and the project that the call was for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Person {
    pub(super) project_id: ProjectId,
    pub(super) user_id: UserId,
}

impl Caller {
    pub(super) fn person(project_id: ProjectId, user_id: UserId) -> Self {
        Self::Person(Box::new(Person { project_id, user_id }))
    }

    /// The id that usage is kept by.
    pub(super) fn id(&self) -> CallerId {
        match self {
            Self::ApiKey(id) => CallerId::ApiKey(*id),
            Self::Person(person) => CallerId::User(person.user_id),
        }
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let api_key_id = fields.optional::<ApiKeyId>("api_key_id");
        let project_id = fields.optional::<ProjectId>("project_id");
        let user_id = fields.optional::<UserId>("user_id");
        let forms = "a call with an API key by `api_key_id`, a person's by `project_id` and `user_id`";
        match (api_key_id?, project_id?, user_id?) {
            (Some(id), None, None) => Some(Self::ApiKey(id)),
            (None, Some(project_id), Some(user_id)) => Some(Self::person(project_id, user_id)),
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
}

impl Record for Event {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required("id");
        let source = fields.required("source");
        let time = fields.required("time");
        let use_ = Use::read(fields);
        Some(Self { id: id?, source: source?, time: time?, use_: use_? })
    }
}

impl Record for Use {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let caller = Caller::read(fields);
        let model = fields.required("model");
        let kind = fields.required("kind");
        let prompt_tokens = fields.required::<Tokens>("prompt_tokens");
        let completion_tokens = fields.or::<Tokens>("completion_tokens", Integer(0));
        let reservation_id = fields.optional("reservation_id");
        let corrects = fields.optional("corrects");
        for (name, tokens) in [("prompt_tokens", prompt_tokens), ("completion_tokens", completion_tokens)] {
            if matches!((tokens, &corrects), (Some(Integer(..0)), Some(None))) {
                let message = format!(
                    "`{name}` must be 0 or more: only an event that `corrects` another takes tokens back."
                );
                fields.problem::<()>(name, "out_of_range", message);
            }
        }
        Some(Self {
            caller: caller?,
            model: model?,
            kind: kind?,
            prompt_tokens: prompt_tokens?.0,
            completion_tokens: completion_tokens?.0,
            reservation_id: reservation_id?,
            corrects: corrects?,
        })
    }
}

/// 1 to 256 printable characters.
#[derive(Debug)]
pub(super) struct EventText(pub(super) Arc<str>);

impl EventText {
    /// The text, if it may stand there.
    pub(super) fn accept(text: &str) -> Option<Self> {
        Self::may_be(text).then(|| Self(text.into()))
    }

    /// The same, in the memory of one that stands in the same place of another event when that says the same.
    pub(super) fn accept_like(text: &str, other: Option<&Self>) -> Option<Self> {
        match other {
            Some(Self(other)) if **other == *text => Some(Self(Arc::clone(other))),
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
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        let text = crate::input::types::string(value, at, problems)?;
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

impl Field for Kind {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Chat, Self::Embeddings], Self::as_str)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["chat", "embeddings"], "examples": ["chat"]})
    }
}

impl Event {
    /// What two events with the same id must agree in. Lengths stand before texts, so that no two contents look alike; what
    /// came later to the format stands there only where it is used, so that older events keep their hash.
    pub(super) fn payload_hash(&self) -> [u8; 32] {
        use std::fmt::Write;
        let used = &self.use_;
        let mut text = String::with_capacity(160);
        push_number(&mut text, self.time.unix_ms());
        text.push('|');
        if let Caller::Person(person) = &used.caller {
            text.push_str(person.project_id.short_text().as_str());
            text.push('/');
        }
        text.push_str(used.caller.id().short_text().as_str());
        text.push('|');
        push_number(&mut text, i64::try_from(used.model.0.len()).unwrap_or(i64::MAX));
        for part in [":", &*used.model.0, "|", used.kind.as_str(), "|"] {
            text.push_str(part);
        }
        push_number(&mut text, used.prompt_tokens);
        text.push('|');
        push_number(&mut text, used.completion_tokens);
        // Writing to a string can't fail.
        if let Some(id) = used.reservation_id {
            write!(text, "|reservation:{id}").ok();
        }
        if let Some(EventText(id)) = &used.corrects {
            write!(text, "|corrects:{}:{id}", id.len()).ok();
        }
        sha256(text.as_bytes())
    }
}

/// The number in decimal, without the formatter's detour.
fn push_number(text: &mut String, number: i64) {
    let mut digits = [b'0'; 20];
    let (mut rest, mut length) = (number.unsigned_abs(), 0);
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        length += 1;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        text.push('-');
    }
    let digits = digits.get(digits.len() - length..).unwrap_or_default();
    text.push_str(std::str::from_utf8(digits).unwrap_or_default());
}

/// An event and its id; the id also of one that can't be read otherwise.
pub(super) fn read(app: &App, event: Json) -> (Option<String>, Result<Event, Error>) {
    match members(event) {
        Ok((id, entries)) => (id, fields::read(app, entries)),
        Err(error) => (None, Err(error)),
    }
}

/// The members of an event, and its id if it has one.
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
    use crate::input::fields::read_without_app;

    fn hash(rest: &str) -> String {
        let body = format!(
            r#"{{"id":"e","source":"s","time":"2026-03-09T10:00:00Z","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41",
                "model":"svc-1","kind":"chat","prompt_tokens":-1{rest}}}"#
        );
        let event: Event = read_without_app(body.as_bytes()).unwrap();
        event.payload_hash().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn what_two_events_agree_in_is_all_of_them() {
        let reservation = r#","reservation_id":"res_01h2xcejqtf2nbrexx3vqjhp41""#;
        let rests =
            [r#","corrects":"a""#, r#","corrects":"ab""#, &format!(r#"{reservation},"corrects":"a""#)];
        let hashes: std::collections::HashSet<_> = rests.into_iter().map(hash).collect();
        assert_eq!(hashes.len(), 3);
    }

    #[test]
    fn a_person_s_event_agrees_in_the_project_too() {
        let hash = |whose: &str| {
            let body = format!(
                r#"{{"id":"e","source":"s","time":"2026-03-09T10:00:00Z",{whose},"model":"svc-1","kind":"chat","prompt_tokens":1}}"#
            );
            read_without_app::<Event>(body.as_bytes()).map(|event| event.payload_hash())
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
    fn numbers_are_written_as_the_formatter_does() {
        for number in [0, 1, -1, 9, 10, -10, 1_773_050_400_000, i64::MAX, i64::MIN] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }

    #[test]
    fn an_event_without_the_later_fields_keeps_its_hash() {
        let body = r#"{"id":"e","source":"s","time":"2026-03-09T10:00:00Z","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41",
            "model":"svc-1","kind":"chat","prompt_tokens":1}"#;
        let event: Event = read_without_app(body.as_bytes()).unwrap();
        let text = "1773050400000|key_01h2xcejqtf2nbrexx3vqjhp41|5:svc-1|chat|1|0";
        assert_eq!(event.payload_hash(), sha256(text.as_bytes()));
    }
}
