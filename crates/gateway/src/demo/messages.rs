//! Messages of Anthropic's API, whole or as events.

use std::collections::VecDeque;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{DemoAnswer, Reply, named_event};

/// Returns the answer, which has a single text block.
pub(super) fn answer(reply: &Reply) -> DemoAnswer {
    if reply.is_stream {
        return DemoAnswer { chunks: events(reply) };
    }
    let content = json!([{"type": "text", "text": reply.text()}]);
    DemoAnswer::whole(&message(reply, &content, Some(stop_reason(reply)), reply.words.len()))
}

fn events(reply: &Reply) -> VecDeque<Bytes> {
    let event =
        |data: Value| named_event(data.get("type").and_then(Value::as_str).unwrap_or_default(), &data);
    let mut events = VecDeque::from([
        event(json!({"type": "message_start", "message": message(reply, &json!([]), None, 0)})),
        event(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
    ]);
    events.extend(reply.pieces().map(|word| {
        let delta = json!({"type": "text_delta", "text": word});
        event(json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    }));
    let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    events.extend([
        event(json!({"type": "content_block_stop", "index": 0})),
        event(
            json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": reply.words.len()}}),
        ),
        event(json!({"type": "message_stop"})),
    ]);
    events
}

fn stop_reason(reply: &Reply) -> &'static str {
    if reply.is_cut { "max_tokens" } else { "end_turn" }
}

fn message(reply: &Reply, content: &Value, stop_reason: Option<&str>, output_tokens: usize) -> Value {
    json!({
        "id": "msg_demo",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": {"input_tokens": reply.prompt_tokens, "output_tokens": output_tokens},
    })
}
