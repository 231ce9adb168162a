//! Answers of an inference server, in the format of each operation. They have 11 prompt tokens, 4 of which
//! were cached, and three words with 9 tokens.

use serde_json::{Value, json};

use super::Operation;
use support::upstream::{Received, Step, end_of_body, piece};

/// The words of a valid answer. They have 27 bytes, and may be split within a character.
pub const WORDS: [&str; 3] = ["Hé", "llo", " Wörld, how are you?"];
/// The total number of tokens that are generated up to each word.
const GENERATED: [i64; 3] = [2, 4, 9];
/// The upstream's own name for the model.
const MODEL: &str = "org/engine-model";

/// Texts that no client may see, in addition to the upstream's address: its headers, pages and messages, and
/// its name for the model.
pub const SECRETS: [&str; 5] = ["x-engine", "engine/1", "<html", "CUDA", MODEL];

/// A call that the upstream receives.
pub struct Request<'a> {
    pub operation: Operation,
    pub received: &'a Received,
    /// The upstream's address.
    pub address: &'a str,
}

/// The events of a chat or completion stream that have token counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// Every event, and the end.
    Running,
    AtTheEnd,
    Never,
}

fn usage(generated: i64) -> Value {
    json!({"prompt_tokens": 11, "completion_tokens": generated, "total_tokens": 11 + generated,
        "prompt_tokens_details": {"cached_tokens": 4}})
}

impl Request<'_> {
    /// Returns the counts that the request asks for with vLLM's options.
    pub fn asked_counts(&self) -> Counts {
        let options = &self.received.body["stream_options"];
        match (&options["include_usage"], &options["continuous_usage_stats"]) {
            (Value::Bool(true), Value::Bool(true)) => Counts::Running,
            (Value::Bool(true), _) => Counts::AtTheEnd,
            _ => Counts::Never,
        }
    }

    /// Returns the head of a response, with headers that clients must not see.
    pub fn head(&self, status: u16, content_type: &str, framing: &str) -> String {
        format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\nserver: engine/1\r\nx-engine: {}\r\n{framing}\r\n\r\n",
            self.address
        )
    }

    /// Returns a response that isn't a stream.
    pub fn respond(&self, status: u16, content_type: &str, body: &str) -> Vec<Step> {
        let length = format!("content-length: {}", body.len());
        vec![Step::Send((self.head(status, content_type, &length) + body).into_bytes())]
    }

    pub fn respond_json(&self, status: u16, body: &Value) -> Vec<Step> {
        self.respond(status, "application/json", &body.to_string())
    }

    /// Returns an error page of a proxy in front of the upstream.
    pub fn respond_page(&self, status: u16) -> Vec<Step> {
        self.respond(status, "text/html", &format!("<html><h1>engine/1 at {}</h1></html>", self.address))
    }

    pub fn stream_head(&self) -> Step {
        Step::Send(self.head(200, "text/event-stream", "transfer-encoding: chunked").into_bytes())
    }

    /// Returns the head of a stream, and these events.
    pub fn begin_stream(&self, events: &[String]) -> Vec<Step> {
        let mut steps = vec![self.stream_head()];
        steps.extend(events.iter().map(|event| piece(event)));
        steps
    }

    /// Returns a complete stream with these events.
    pub fn stream(&self, events: &[String]) -> Vec<Step> {
        let mut steps = self.begin_stream(events);
        steps.push(end_of_body());
        steps
    }

    /// Returns a stream up to its second word.
    pub fn two_words(&self, counts: Counts) -> Vec<Step> {
        let events = self.events(counts);
        let second = events.iter().position(|event| event.contains(WORDS[1])).unwrap();
        self.begin_stream(&events[..=second])
    }

    /// Returns the events of a valid stream.
    pub fn events(&self, counts: Counts) -> Vec<String> {
        match self.operation {
            Operation::Chat | Operation::Completions => self.chunks(counts),
            Operation::Responses => response_events(),
            Operation::Messages => message_events(),
        }
    }

    fn chunks(&self, counts: Counts) -> Vec<String> {
        let is_chat = self.operation == Operation::Chat;
        let chunk = |choices: Value, usage: Value| {
            let object = if is_chat { "chat.completion.chunk" } else { "text_completion" };
            json!({"id": "1", "object": object, "created": 1, "model": MODEL, "choices": choices, "usage": usage})
        };
        let said = |text: &str, finish: Value, generated: i64| {
            let (name, text) =
                if is_chat { ("delta", json!({"content": text})) } else { ("text", json!(text)) };
            let choice = json!({"index": 0, (name): text, "logprobs": null, "finish_reason": finish});
            chunk(json!([choice]), if counts == Counts::Running { usage(generated) } else { Value::Null })
        };
        let mut chunks = Vec::new();
        if is_chat {
            let mut role = said("", Value::Null, 0);
            role["choices"][0]["delta"]["role"] = json!("assistant");
            chunks.push(role);
        }
        chunks
            .extend(WORDS.iter().zip(GENERATED).map(|(word, generated)| said(word, Value::Null, generated)));
        chunks.push(said("", json!("stop"), 9));
        if counts != Counts::Never {
            chunks.push(chunk(json!([]), usage(9)));
        }
        let mut events: Vec<_> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    /// Returns a valid answer that isn't a stream.
    pub fn whole(&self) -> Value {
        let text = WORDS.concat();
        match self.operation {
            Operation::Chat => json!({"id": "1", "object": "chat.completion", "created": 1, "model": MODEL,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": null,
                    "finish_reason": "stop"}],
                "usage": usage(9)}),
            Operation::Completions => {
                json!({"id": "1", "object": "text_completion", "created": 1, "model": MODEL,
                "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": "stop"}],
                "usage": usage(9)})
            }
            Operation::Responses => response("completed"),
            Operation::Messages => {
                let mut message = message();
                message["content"] = json!([{"type": "text", "text": text}]);
                message["stop_reason"] = json!("end_turn");
                message["usage"]["output_tokens"] = json!(9);
                message
            }
        }
    }

    /// Returns the event with which an upstream reports an error in a stream.
    pub fn error_event(&self) -> String {
        let message = format!("CUDA out of memory at {}", self.address);
        match self.operation {
            Operation::Chat | Operation::Completions => {
                let error =
                    json!({"error": {"message": message, "type": "InternalServerError", "code": 500}});
                format!("data: {error}\n\n")
            }
            Operation::Responses => {
                let mut response = response("failed");
                response["error"] = json!({"code": "server_error", "message": message});
                named(&json!({"type": "response.failed", "sequence_number": 9, "response": response}))
            }
            Operation::Messages => {
                named(&json!({"type": "error", "error": {"type": "api_error", "message": message}}))
            }
        }
    }
}

/// Returns an event whose name is its type.
fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// Returns a `response` object. It has text and counts only if it is completed.
fn response(status: &str) -> Value {
    let mut response = json!({"id": "resp_1", "object": "response", "created_at": 1, "model": MODEL, "status": status,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "output": [], "tools": [],
        "parallel_tool_calls": true, "tool_choice": "auto", "temperature": 0, "top_p": 1, "usage": null});
    if status == "completed" {
        response["output"] = json!([{"id": "msg_1", "type": "message", "role": "assistant", "status": status,
            "content": [{"type": "output_text", "text": WORDS.concat(), "annotations": []}]}]);
        response["usage"] = json!({"input_tokens": 11, "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20});
    }
    response
}

fn response_events() -> Vec<String> {
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []});
    let part = json!({"type": "output_text", "text": "", "annotations": []});
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress")}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 0, "content_index": 0,
            "part": part}),
    ];
    let said = |name: &str, member: &str, text: &str| {
        json!({"type": name, "item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": [],
            (member): text})
    };
    events.extend(WORDS.iter().map(|word| said("response.output_text.delta", "delta", word)));
    events.push(said("response.output_text.done", "text", &WORDS.concat()));
    events.push(json!({"type": "response.completed", "response": response("completed")}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events.iter().map(named).collect()
}

/// Returns a message that has just begun.
fn message() -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": null,
        "stop_sequence": null, "usage": {"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 1}})
}

fn message_events() -> Vec<String> {
    let mut events = vec![
        json!({"type": "message_start", "message": message()}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
    ];
    let said = |word| {
        let delta = json!({"type": "text_delta", "text": word});
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    };
    events.extend(WORDS.map(said));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ]);
    events.iter().map(named).collect()
}
