//! Messages of Anthropic's API, whole or as events.

use std::collections::VecDeque;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{DemoAnswer, Speech, named_event};

/// Answers with one text.
pub(super) fn answer(speech: &Speech) -> DemoAnswer {
    if speech.is_stream {
        return DemoAnswer { chunks: events(speech) };
    }
    let content = json!([{"type": "text", "text": speech.text()}]);
    DemoAnswer::whole(&message(speech, &content, Some(stop_reason(speech)), speech.words.len()))
}

fn events(speech: &Speech) -> VecDeque<Bytes> {
    let event =
        |data: Value| named_event(data.get("type").and_then(Value::as_str).unwrap_or_default(), &data);
    let mut events = VecDeque::from([
        event(json!({"type": "message_start", "message": message(speech, &json!([]), None, 0)})),
        event(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
    ]);
    events.extend(speech.pieces().map(|word| {
        let delta = json!({"type": "text_delta", "text": word});
        event(json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    }));
    let delta = json!({"stop_reason": stop_reason(speech), "stop_sequence": null});
    events.extend([
        event(json!({"type": "content_block_stop", "index": 0})),
        event(
            json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": speech.words.len()}}),
        ),
        event(json!({"type": "message_stop"})),
    ]);
    events
}

fn stop_reason(speech: &Speech) -> &'static str {
    if speech.is_cut { "max_tokens" } else { "end_turn" }
}

fn message(speech: &Speech, content: &Value, stop_reason: Option<&str>, output_tokens: usize) -> Value {
    json!({
        "id": "msg_demo",
        "type": "message",
        "role": "assistant",
        "model": speech.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": {"input_tokens": speech.prompt_tokens, "output_tokens": output_tokens},
    })
}
