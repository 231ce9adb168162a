//! Privacy of an upstream's prompt cache: it must not reveal one organization's prompts to another.
//!
//! The number of cached tokens of a prompt reveals whether someone has sent the same beginning before, token
//! by token. vLLM and SGLang separate their caches by `cache_salt`, which the gateway derives from the
//! organization. For other upstreams, and for operations without a salt, the exact numbers appear only in the
//! books: the client gets zero, and other members that would reveal them are removed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::body::Bytes;
use serde_json::{Map, Value};

use crate::answer::chunk::Chunk;
use crate::count::MessageUsage;
use crate::dialect::Dialect;
use crate::json::{Edit, JsonError, Object, last_of_each_member, read_lax_value};
use crate::operation::Operation;
use crate::revealing_names::with_revealing_names;
use catalog::Upstream;
use kernel::ids::OrganizationId;
use kernel::secrets::sealing::DerivedKey;

/// Members of answers outside the `usage` object that reveal cached tokens.
const REVEALING: &[&str] = with_revealing_names![];

/// Returns the salt for an organization's requests to an upstream, if the upstream separates its cache by a
/// salt.
pub(crate) fn salt(
    upstream: &Upstream,
    operation: Operation,
    key: &DerivedKey,
    organization: OrganizationId,
) -> Option<String> {
    let is_salted = !upstream.shared_prefix_cache && Dialect::of(upstream.kind).has_salt(operation);
    is_salted.then(|| URL_SAFE_NO_PAD.encode(key.tag(organization.to_string().as_bytes())))
}

/// Returns `true` if the cached tokens of an upstream must be hidden from clients.
pub(crate) fn hides(upstream: &Upstream, operation: Operation) -> bool {
    let dialect = Dialect::of(upstream.kind);
    !upstream.shared_prefix_cache && !dialect.is_demo && !dialect.has_salt(operation)
}

/// Removes the fields that reveal the cache from an answer or an event, except its `usage` object.
pub(crate) fn hide_beside_usage(object: &Object, edit: &mut Edit<'_>, keeps_timings: bool) {
    for name in REVEALING.iter().filter(|name| object.get(name).is_some()) {
        edit.remove(name);
    }
    if let Some(timings) = object.get("timings").filter(|_| keeps_timings) {
        edit.set("timings", hidden_timings(timings));
    }
}

/// Returns whether a choice of an answer has its own `usage` object.
fn has_usage_in_choice(body: &Bytes, has_usage: bool) -> bool {
    // Most answers have a single `usage` object, next to the choices.
    let found = memchr::memmem::find_iter(body, b"\"usage\"").take(2).count();
    let is_there = || match Chunk::read(body) {
        Ok(chunk) => chunk.counts.choices.iter().any(|choice| choice.usage.is_some()),
        // Another member of the object occurs twice.
        Err(_) => true,
    };
    found > usize::from(has_usage) && is_there()
}

/// Returns an answer without the `usage` objects of its choices, which Kimi sends; `None` if the answer can't
/// be rewritten.
pub(crate) fn without_usage_of_choices(text: &[u8]) -> Option<Vec<u8>> {
    let Value::Object(mut members) = read_lax_value(text)? else { return None };
    let choices = members.get_mut("choices").and_then(Value::as_array_mut);
    for choice in choices.into_iter().flatten().filter_map(Value::as_object_mut) {
        choice.remove("usage");
    }
    Some(Value::Object(members).to_string().into_bytes())
}

/// Returns llama.cpp's `timings` without the members about the prompt, because the number of processed tokens
/// reveals the number of cached tokens.
fn hidden_timings(timings: &[u8]) -> Vec<u8> {
    rewritten(timings, |mut members| {
        members.retain(|name, _| name.starts_with("predicted_") || name.starts_with("draft_"));
        members
    })
}

/// Returns a `usage` object in one of OpenAI's forms as if nothing had been cached.
pub(crate) fn hidden_usage(usage: &[u8]) -> Vec<u8> {
    const KEPT: [&str; 10] = [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "prompt_tokens_details",
        "input_tokens_details",
        "completion_tokens_details",
        "output_tokens_details",
        "reasoning_tokens",
    ];
    const KEPT_DETAILS: [&str; 4] = ["audio_tokens", "image_tokens", "text_tokens", "video_tokens"];
    rewritten(usage, |mut members| {
        members.retain(|name, _| KEPT.contains(&name.as_str()));
        for name in ["prompt_tokens_details", "input_tokens_details"] {
            let Some(Value::Object(details)) = members.get_mut(name) else { continue };
            details.retain(|name, _| KEPT_DETAILS.contains(&name.as_str()) || name == "cached_tokens");
            zero(details, "cached_tokens");
        }
        members
    })
}

/// Returns a `usage` object of a message as if nothing had been cached. `prompt_tokens` is the total of the
/// prompt.
pub(crate) fn hidden_message_usage(usage: &[u8], prompt_tokens: Option<i64>) -> Vec<u8> {
    const CACHED: [&str; 2] = ["cache_read_input_tokens", "cache_creation_input_tokens"];
    const KEPT: [&str; 5] =
        ["input_tokens", "output_tokens", "output_tokens_details", "server_tool_use", "service_tier"];
    rewritten(usage, |mut members| {
        members.retain(|name, _| KEPT.contains(&name.as_str()) || CACHED.contains(&name.as_str()));
        let has_input =
            members.contains_key("input_tokens") || CACHED.iter().any(|name| members.contains_key(*name));
        if let Some(tokens) = prompt_tokens.filter(|_| has_input) {
            members.insert("input_tokens".to_owned(), tokens.into());
        }
        CACHED.into_iter().for_each(|name| zero(&mut members, name));
        members
    })
}

/// Returns the body of an answer that isn't a stream as if nothing had been cached; `None` if it can't be
/// rewritten.
pub(crate) fn hidden_answer(body: Bytes, operation: Operation) -> Option<Bytes> {
    const NAMES: &[&str] = with_revealing_names!["usage", "timings"];
    let (body, answer) = match Object::read_lax(body.clone(), NAMES) {
        Ok(answer) => (body, answer),
        Err(JsonError::NotAnObject) => return Some(body),
        Err(_) => {
            let body = last_of_each_member(&body)?;
            (body.clone(), Object::read_lax(body, NAMES).ok()?)
        }
    };
    let answer = match has_usage_in_choice(&body, answer.get("usage").is_some()) {
        true => Object::read_lax(without_usage_of_choices(&body)?.into(), NAMES).ok()?,
        false => answer,
    };
    let mut edit = answer.edit();
    hide_beside_usage(&answer, &mut edit, true);
    if let Some(usage) = answer.get("usage") {
        let hidden = match operation {
            Operation::Messages => {
                let total = MessageUsage::read(usage).total();
                hidden_message_usage(usage, total.map(|total| total.prompt_tokens))
            }
            _ => hidden_usage(usage),
        };
        edit.set("usage", hidden);
    }
    Some(edit.to_bytes())
}

fn zero(members: &mut Map<String, Value>, name: &str) {
    if let Some(value) = members.get_mut(name).filter(|value| !value.is_null()) {
        *value = 0.into();
    }
}

/// Returns an object with its members changed. A value that isn't an object is replaced with `null`, so that
/// it reveals nothing.
fn rewritten(object: &[u8], change: impl FnOnce(Map<String, Value>) -> Map<String, Value>) -> Vec<u8> {
    match read_lax_value(object) {
        Some(Value::Object(members)) => Value::Object(change(members)).to_string().into_bytes(),
        _ => b"null".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(act: impl Fn(&[u8]) -> Vec<u8>, before: &str) -> Value {
        serde_json::from_slice(&act(before.as_bytes())).unwrap()
    }

    #[test]
    fn usages_reveal_nothing_of_a_cache() {
        let usage = r#"{"prompt_tokens":75,"completion_tokens":2,"total_tokens":77,"cost":0.1,"prompt_cache_hit_tokens":74,
            "prompt_tokens_details":{"cached_tokens":74,"created_cache_tokens":1,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":1}}"#;
        let expected = r#"{"prompt_tokens":75,"completion_tokens":2,"total_tokens":77,
            "prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":1}}"#;
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(hidden(hidden_usage, usage), expected);
        let response = r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cached_tokens_per_turn":[4]},"output_tokens":2,"total_tokens":11}"#;
        assert_eq!(
            hidden(hidden_usage, response),
            serde_json::json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2, "total_tokens": 11})
        );
        for (before, after) in [
            ("null", "null"),
            ("[74]", "null"),
            (r#"{"prompt_tokens_details":null}"#, r#"{"prompt_tokens_details":null}"#),
            (
                r#"{"prompt_tokens_details":{"cached_tokens":null}}"#,
                r#"{"prompt_tokens_details":{"cached_tokens":null}}"#,
            ),
        ] {
            assert_eq!(
                hidden(hidden_usage, before),
                serde_json::from_str::<Value>(after).unwrap(),
                "{before}"
            );
        }
    }

    #[test]
    fn messages_keep_the_sum_of_their_prompt() {
        let usage = r#"{"input_tokens":1,"cache_read_input_tokens":74,"cache_creation_input_tokens":5,"output_tokens":2,
            "cache_creation":{"ephemeral_5m_input_tokens":5}}"#;
        let total = MessageUsage::read(usage.as_bytes()).total().map(|total| total.prompt_tokens);
        assert_eq!(
            hidden(|usage| hidden_message_usage(usage, total), usage),
            serde_json::json!({"input_tokens": 80, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 2})
        );
        let later = r#"{"output_tokens":3}"#;
        assert_eq!(
            hidden(|usage| hidden_message_usage(usage, total), later),
            serde_json::json!({"output_tokens": 3})
        );
    }

    #[test]
    fn timings_of_a_prompt_are_left_out() {
        let answer = r#"{"timings":{"cache_n":74,"prompt_n":1,"prompt_ms":3.5,"predicted_n":2,"predicted_ms":9,"draft_n":1},"prompt_progress":{"cache":74},
            "usage":{"prompt_tokens":75,"prompt_tokens_details":{"cached_tokens":74}},"__verbose":{"tokens_cached":74},"x":1}"#;
        let hidden = hidden_answer(Bytes::from(answer), Operation::ChatCompletions).unwrap();
        let hidden: Value = serde_json::from_slice(&hidden).unwrap();
        assert_eq!(
            hidden,
            serde_json::json!({"timings": {"predicted_n": 2, "predicted_ms": 9, "draft_n": 1},
                "usage": {"prompt_tokens": 75, "prompt_tokens_details": {"cached_tokens": 0}}, "x": 1})
        );
    }
}
