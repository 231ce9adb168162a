//! The fast reader of batches in their common form, in one pass without a tree of values.

use serde::Deserialize;

use super::MAX_EVENTS;
use super::event::{EventText, Tokens};
use billing::usage::{Caller, Event, Usage};
use catalog::Kind;
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, ProjectId, ReservationId, UserId};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    events: Vec<PlainEvent<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainEvent<'a> {
    id: &'a str,
    source: &'a str,
    time: &'a str,
    api_key_id: Option<&'a str>,
    project_id: Option<&'a str>,
    user_id: Option<&'a str>,
    model: &'a str,
    kind: &'a str,
    prompt_tokens: i64,
    #[serde(default)]
    completion_tokens: i64,
    reservation_id: Option<&'a str>,
    corrects: Option<&'a str>,
}

/// Reads a batch in its common form. `None` means only that the general reader has to read it: it reports
/// mistakes, and reads uncommon forms such as a text with an escape.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<Event>> {
    // The derived readers would also accept an array of the fields.
    if !bytes.trim_ascii_start().starts_with(b"{") || bytes.iter().filter(|byte| **byte == b'[').count() != 1
    {
        return None;
    }
    // The body is checked as UTF-8 once, so that its strings are not checked one by one.
    let batch: Batch<'_> = serde_json::from_str(std::str::from_utf8(bytes).ok()?).ok()?;
    if !(1..=MAX_EVENTS).contains(&batch.events.len()) {
        return None;
    }
    let mut events: Vec<Event> = Vec::with_capacity(batch.events.len());
    for plain in &batch.events {
        let event = event(plain, events.last())?;
        events.push(event);
    }
    Some(events)
}

fn event(plain: &PlainEvent<'_>, before: Option<&Event>) -> Option<Event> {
    let corrects = match plain.corrects {
        Some(id) => Some(EventText::accept(id)?),
        None => None,
    };
    let reservation_id = match plain.reservation_id {
        Some(id) => Some(ReservationId::parse(id)?),
        None => None,
    };
    let caller = match (plain.api_key_id, plain.project_id, plain.user_id) {
        (Some(id), None, None) => Caller::ApiKey(ApiKeyId::parse(id)?),
        (None, Some(project_id), Some(user_id)) => {
            Caller::user(ProjectId::parse(project_id)?, UserId::parse(user_id)?)
        }
        _ => return None,
    };
    let least = if corrects.is_some() { Tokens::MIN } else { 0 };
    let fits = |tokens: i64| (least..=Tokens::MAX).contains(&tokens).then_some(tokens);
    Some(Event {
        id: EventText::accept(plain.id)?,
        source: EventText::accept_like(plain.source, before.map(|event| &event.source))?,
        time: Time::parse(plain.time)?,
        usage: Usage {
            caller,
            model: EventText::accept_like(plain.model, before.map(|event| &event.usage.model))?,
            kind: Kind::parse(plain.kind)?,
            prompt_tokens: fits(plain.prompt_tokens)?,
            completion_tokens: fits(plain.completion_tokens)?,
            reservation_id,
            corrects,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::event::EventRecord;
    use super::*;
    use input::fields::read_without_state;

    const GOOD: &str = r#""id":"e","source":"s","time":"2026-03-09T10:00:00+01:00","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41","model":"svc-1","kind":"chat""#;
    const PERSON: &str = r#""id":"e","source":"s","time":"2026-03-09T10:00:00Z","project_id":"proj_01h2xcejqtf2nbrexx3vqjhp41","user_id":"user_01h2xcejqtf2nbrexx3vqjhp41","model":"m","kind":"chat""#;
    const EMBEDDINGS: &str = r#""id":"ü","source":"s/1","time":"2026-03-09T10:00:00Z","api_key_id":"key_01h2xcejqtf2nbrexx3vqjhp41","model":"m","kind":"embeddings""#;

    /// The rest of an event, and whether it is in the common form.
    const RESTS: &[(&str, bool)] = &[
        (r#","prompt_tokens":1,"completion_tokens":2"#, true),
        (r#","prompt_tokens":0"#, true),
        (r#","prompt_tokens":1000000000,"reservation_id":null,"corrects":null"#, true),
        (r#","prompt_tokens":1,"reservation_id":"res_01h2xcejqtf2nbrexx3vqjhp41""#, true),
        (r#","prompt_tokens":-1,"completion_tokens":-1000000000,"corrects":"other""#, true),
        // Valid, but not in the common form.
        (r#","prompt_tokens":1.0"#, false),
        (r#","prompt_tokens":1,"corrects":"a\u0062""#, false),
        // Invalid.
        ("", false),
        (r#","prompt_tokens":-1"#, false),
        (r#","prompt_tokens":1000000001"#, false),
        (r#","prompt_tokens":"1""#, false),
        (r#","prompt_tokens":1,"prompt_tokens":1"#, false),
        (r#","prompt_tokens":1,"tokens":1"#, false),
        (r#","prompt_tokens":1,"corrects":"""#, false),
        (r#","prompt_tokens":1,"completion_tokens":null"#, false),
        (r#","prompt_tokens":1,"reservation_id":"res_x""#, false),
    ];

    #[test]
    fn fast_reader_agrees_with_the_general_reader() {
        for (rest, plain) in RESTS {
            for start in [GOOD, EMBEDDINGS, PERSON] {
                let one = format!("{{{start}{rest}}}");
                let quick = read(format!(r#" {{"events":[{one},{one}]}}"#).as_bytes());
                assert_eq!(quick.is_some(), *plain, "{one}");
                let Some(quick) = quick else { continue };
                let EventRecord(general) = read_without_state(one.as_bytes()).unwrap();
                assert_eq!(quick.len(), 2);
                for event in quick {
                    assert_eq!(format!("{event:?}"), format!("{general:?}"));
                    assert_eq!(event.payload_hash(), general.payload_hash());
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
            assert!(read(format!(r#"{{"events":[{one}]}}"#).as_bytes()).is_none(), "{one}");
            assert!(read_without_state::<crate::Api, EventRecord>(one.as_bytes()).is_none(), "{one}");
        }
        let one = format!(r#"{{{GOOD},"prompt_tokens":1}}"#);
        let positions = r#"["e","s","2026-03-09T10:00:00Z","key_01h2xcejqtf2nbrexx3vqjhp41","svc-1","chat",1,2,null,null]"#;
        for body in [
            format!("[[{one}]]"),
            format!(r#"{{"events":[{one}]}} x"#),
            format!(r#"{{"events":[{one},1]}}"#),
            format!(r#"{{"events":[{positions}]}}"#),
            format!(r#"{{"events":[{one}],"more":1}}"#),
            r#"{"events":[]}"#.to_owned(),
            format!(r#"{{"events":[{}]}}"#, vec![one.as_str(); 1_001].join(",")),
            one.clone(),
        ] {
            assert!(read(body.as_bytes()).is_none(), "{body}");
        }
    }
}
