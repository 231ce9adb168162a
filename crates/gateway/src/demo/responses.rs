//! Responses, whole or as events.

use std::collections::VecDeque;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{DemoAnswer, Reply, named_event};

/// Returns the answer, which has a single message.
pub(super) fn answer(reply: &Reply) -> DemoAnswer {
    let status = if reply.is_cut { "incomplete" } else { "completed" };
    let whole = response(reply, status, &json!([message(&reply.text(), "completed")]), &usage(reply));
    if reply.is_stream {
        DemoAnswer { chunks: events(reply, status, &whole) }
    } else {
        DemoAnswer::whole(&whole)
    }
}

fn events(reply: &Reply, status: &str, whole: &Value) -> VecDeque<Bytes> {
    let mut events = Events::default();
    let begun = response(reply, "in_progress", &json!([]), &Value::Null);
    let text = reply.text();
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let of_part = |name: &str, value: Value| json!({"item_id": "msg_demo", "output_index": 0, "content_index": 0, name: value});
    events.push("response.created", json!({"response": begun}));
    events.push("response.in_progress", json!({"response": begun}));
    let mut empty = message("", "in_progress");
    if let Some(content) = empty.get_mut("content") {
        *content = json!([]);
    }
    events.push("response.output_item.added", json!({"output_index": 0, "item": empty}));
    events.push("response.content_part.added", of_part("part", part("")));
    for word in reply.pieces() {
        let mut delta = of_part("delta", word.into());
        if let Some(members) = delta.as_object_mut() {
            members.insert("logprobs".to_owned(), json!([]));
        }
        events.push("response.output_text.delta", delta);
    }
    let mut done = of_part("text", text.as_str().into());
    if let Some(members) = done.as_object_mut() {
        members.insert("logprobs".to_owned(), json!([]));
    }
    events.push("response.output_text.done", done);
    events.push("response.content_part.done", of_part("part", part(&text)));
    let item = message(&text, "completed");
    events.push("response.output_item.done", json!({"output_index": 0, "item": item}));
    events.push(&format!("response.{status}"), json!({"response": whole}));
    events.0
}

/// The events of a stream, which are numbered.
#[derive(Default)]
struct Events(VecDeque<Bytes>);

impl Events {
    fn push(&mut self, name: &str, mut data: Value) {
        if let Some(members) = data.as_object_mut() {
            members.insert("type".to_owned(), name.into());
            members.insert("sequence_number".to_owned(), self.0.len().into());
        }
        self.0.push_back(named_event(name, &data));
    }
}

fn message(text: &str, status: &str) -> Value {
    json!({
        "id": "msg_demo",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    })
}

fn response(reply: &Reply, status: &str, output: &Value, usage: &Value) -> Value {
    let reason = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
    json!({
        "id": "resp_demo",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": null,
        "incomplete_details": reason,
        "instructions": null,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    })
}

fn usage(reply: &Reply) -> Value {
    let (input, output) = (reply.prompt_tokens, reply.words.len());
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output,
    })
}
