//! Forty calls with `usage` objects that eight providers and servers document, each with its price. Sums are
//! computed by hand, in millionths of the currency.

mod anthropic;
mod openai;
mod others;
mod servers;

use serde_json::{Value, json};

use super::golden_counts::last;
use super::{Scene, with_catalog};
use support::Database;
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, stream, stream_head};

/// Prices in millionths: a prompt token costs 2, a token read from a cache 0.2, a token written to a cache
/// 2.5, or 4 for an hour, an audio token of the prompt 40, and an image token 3; an answer token costs 8, a
/// reasoning token 10, and an audio token of the answer 80; a call costs 50, and a search 10,000.
///
/// Flex costs half as much per token. Priority costs twice as much for prompt, cache, answer and reasoning,
/// and has no other prices.
const MODELS: &str = r#"
[[models]]
id = "m"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 8000
context_length = 131072
max_requests_per_min = 6000
max_concurrent_requests = 50
routes = [{ upstream = "engine" }]

[[models.prices]]
effective_at = "2020-01-01T00:00:00Z"
prompt_tokens = "0.000002"
cached_prompt_tokens = "0.0000002"
completion_tokens = "0.000008"
components = { cache_write_5m = "0.0000025", cache_write_1h = "0.000004", audio_prompt = "0.00004", image_prompt = "0.000003", reasoning = "0.00001", audio_completion = "0.00008", request = "0.00005", search = "0.01" }

[[models.prices]]
effective_at = "2020-01-01T00:00:00Z"
service_tier = "flex"
prompt_tokens = "0.000001"
cached_prompt_tokens = "0.0000001"
completion_tokens = "0.000004"
components = { cache_write_5m = "0.00000125", cache_write_1h = "0.000002", audio_prompt = "0.00002", image_prompt = "0.0000015", reasoning = "0.000005", audio_completion = "0.00004", request = "0.00005", search = "0.01" }

[[models.prices]]
effective_at = "2020-01-01T00:00:00Z"
service_tier = "priority"
prompt_tokens = "0.000004"
cached_prompt_tokens = "0.0000004"
completion_tokens = "0.000016"
components = { reasoning = "0.00002", request = "0.00005", search = "0.01" }
"#;

/// A call and its cost.
struct Golden {
    about: &'static str,
    path: &'static str,
    is_stream: bool,
    answer: Vec<Step>,
    /// The tokens of the prompt and of the answer.
    tokens: (i64, i64),
    price: &'static str,
}

impl Golden {
    /// Returns a chat that isn't streamed.
    fn chat(about: &'static str, usage: &Value, tokens: (i64, i64), price: &'static str) -> Self {
        Self::chat_of_tier(about, usage, &Value::Null, tokens, price)
    }

    /// Returns a chat that isn't streamed, and whose answer contains a tier.
    fn chat_of_tier(
        about: &'static str,
        usage: &Value,
        tier: &Value,
        tokens: (i64, i64),
        price: &'static str,
    ) -> Self {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": "Blue."}, "finish_reason": "stop"});
        let answer = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
            "usage": usage, "service_tier": tier});
        let answer = json_answer(200, &answer);
        Self { about, path: "/v1/chat/completions", is_stream: false, answer, tokens, price }
    }

    /// Returns a chat that is streamed in these chunks.
    fn chunks(about: &'static str, chunks: &[Value], tokens: (i64, i64), price: &'static str) -> Self {
        let answer = stream(chunks);
        Self { about, path: "/v1/chat/completions", is_stream: true, answer, tokens, price }
    }

    /// Returns a response or a message that isn't streamed.
    fn plain(
        about: &'static str,
        path: &'static str,
        answer: &Value,
        tokens: (i64, i64),
        price: &'static str,
    ) -> Self {
        Self { about, path, is_stream: false, answer: json_answer(200, answer), tokens, price }
    }

    /// Returns a response or a message that is streamed in these events.
    fn events(
        about: &'static str,
        path: &'static str,
        events: &[Value],
        tokens: (i64, i64),
        price: &'static str,
    ) -> Self {
        let mut answer = vec![stream_head()];
        answer.extend(events.iter().map(event));
        answer.push(end_of_body());
        Self { about, path, is_stream: true, answer, tokens, price }
    }
}

/// Returns a chunk with text and more members.
fn text_chunk(more: &Value) -> Value {
    let mut chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": "Blue."}, "finish_reason": null}]});
    chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chunk
}

/// Returns a chunk with the finish reason and more members.
fn last_chunk(more: &Value) -> Value {
    let mut chunk = text_chunk(more);
    chunk["choices"] = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    chunk
}

/// Returns a chunk with only a `usage` object.
fn usage_chunk(usage: &Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage})
}

/// Makes these calls on a database, with an upstream of this kind.
fn check(database: Database, kind: &'static str, calls: fn() -> Vec<Golden>) {
    let describe = |upstream: &Upstream| {
        let url = upstream.url();
        let engine = format!(
            "[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\nshared_prefix_cache = true\n"
        );
        ("routes = [{ upstream = \"engine\" }]".to_owned(), engine + MODELS)
    };
    with_catalog(database, describe, async |scene: &Scene| {
        let calls = calls();
        assert_eq!(calls.len(), 5);
        for Golden { about, path, is_stream, answer, tokens: (prompt, completion), price } in calls {
            scene.upstream.script([answer]);
            let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": is_stream,
                "max_tokens": 4_000});
            let response = json!({"model": "m", "input": "hi", "store": false, "stream": is_stream});
            let body = if path == "/v1/responses" { response } else { body };
            let answer = scene.call(path, &body).send().await;
            assert_eq!(answer.status, 200, "{about}: {}", answer.text);
            let charged = last(scene).await;
            assert_eq!(charged, (price.to_owned(), prompt, completion, false), "{about}");
        }
    });
}
