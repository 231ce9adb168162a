//! The upstream `demo`: a chat model in this process, for a first call on a machine without an inference server.
//!
//! It answers every chat with the same text, which says so. A word is a token, of the prompt and of the
//! answer, so the counts can be checked by hand. It speaks the protocol of vLLM: a usage with every chunk.

use std::collections::VecDeque;

use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use kernel::clock::Time;

const TEXT: &str = "This is the demo model inside tollkeeper. It answers every chat with these words, so that a \
    first call works on a machine without an inference server. Add an [[upstreams]] table to the catalog to get \
    the answers of a real model.";

/// The answer to a request: one body, or the events of a stream.
#[derive(Debug)]
pub(crate) struct DemoAnswer {
    chunks: VecDeque<Bytes>,
}

impl DemoAnswer {
    /// Returns the next piece of the body.
    pub(crate) fn next_chunk(&mut self) -> Option<Bytes> {
        self.chunks.pop_front()
    }
}

/// The parts of a request that the model reads.
#[derive(Deserialize)]
struct Request {
    model: String,
    messages: Vec<Value>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    n: Option<u64>,
}

/// Answers the body of a chat request. `None` if it can't be read.
pub(crate) fn answer(body: &[u8], now: Time) -> Option<DemoAnswer> {
    let request: Request = serde_json::from_slice(body).ok()?;
    let max_tokens = request.max_tokens.into_iter().chain(request.max_completion_tokens).min();
    let max_tokens = max_tokens.and_then(|tokens| usize::try_from(tokens).ok()).unwrap_or(usize::MAX);
    let words: Vec<_> = TEXT.split_inclusive(' ').take(max_tokens).collect();
    let is_cut = words.len() < TEXT.split_inclusive(' ').count();
    let chat = Chat {
        finish_reason: if is_cut { "length" } else { "stop" },
        prompt_tokens: request.messages.iter().map(words_in).sum(),
        choices: usize::try_from(request.n.unwrap_or(1)).unwrap_or(1),
        created: now.unix_ms().div_euclid(1_000),
        model: request.model,
        words,
    };
    let is_stream = request.stream.unwrap_or(false);
    let chunks = if is_stream { chat.events() } else { [Bytes::from(chat.whole().to_string())].into() };
    Some(DemoAnswer { chunks })
}

/// Counts the words of a message: of its text, or of its text parts.
fn words_in(message: &Value) -> usize {
    let count = |value: &Value| value.as_str().map_or(0, |text| text.split_whitespace().count());
    match message.get("content") {
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")).map(count).sum(),
        Some(content) => count(content),
        None => 0,
    }
}

/// An answer in the making.
struct Chat {
    model: String,
    created: i64,
    prompt_tokens: usize,
    choices: usize,
    words: Vec<&'static str>,
    finish_reason: &'static str,
}

impl Chat {
    fn whole(&self) -> Value {
        let content = self.words.concat();
        let choice = |index| {
            json!({
                "index": index,
                "message": {"role": "assistant", "content": content.trim_end()},
                "logprobs": null,
                "finish_reason": self.finish_reason,
            })
        };
        let choices: Vec<_> = (0..self.choices).map(choice).collect();
        let usage = self.usage(self.words.len() * self.choices);
        self.object("chat.completion", &choices.into(), &usage)
    }

    /// Returns the events of a stream: the choices take turns.
    fn events(&self) -> VecDeque<Bytes> {
        let mut events = VecDeque::new();
        let mut generated = 0;
        let mut push = |choice: Value, generated: usize| {
            let chunk = self.object("chat.completion.chunk", &json!([choice]), &self.usage(generated));
            events.push_back(Bytes::from(format!("data: {chunk}\n\n")));
        };
        let choice = |index: usize, delta: Value, finish_reason: Option<&str>| json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        for index in 0..self.choices {
            push(choice(index, json!({"role": "assistant", "content": ""}), None), generated);
        }
        for (at, word) in self.words.iter().enumerate() {
            let word = if at + 1 == self.words.len() { word.trim_end() } else { word };
            for index in 0..self.choices {
                generated += 1;
                push(choice(index, json!({"content": word}), None), generated);
            }
        }
        for index in 0..self.choices {
            push(choice(index, json!({}), Some(self.finish_reason)), generated);
        }
        let usage = self.object("chat.completion.chunk", &json!([]), &self.usage(generated));
        events.push_back(Bytes::from(format!("data: {usage}\n\n")));
        events.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn object(&self, object: &str, choices: &Value, usage: &Value) -> Value {
        json!({
            "id": "chatcmpl-demo",
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "usage": usage,
        })
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &Value) -> Vec<String> {
        let mut answer =
            answer(request.to_string().as_bytes(), Time::from_unix_ms(1_773_050_400_999)).unwrap();
        std::iter::from_fn(|| answer.next_chunk())
            .map(|chunk| String::from_utf8(chunk.into()).unwrap())
            .collect()
    }

    #[test]
    fn words_of_the_prompt_are_its_tokens() {
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": " one  two\nthree"}, {"type": "image_url"}]},
            {"role": "user"},
        ]);
        let chunks = ask(&json!({"model": "svc-1", "messages": messages, "max_tokens": 4, "n": 2}));
        let answer: Value = serde_json::from_str(&chunks[0]).unwrap();
        let usage = json!({"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13});
        assert_eq!((chunks.len(), &answer["usage"]), (1, &usage));
        let choice = &answer["choices"][1];
        assert_eq!(choice["message"]["content"], "This is the demo");
        assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(1), &json!("length")));
        assert_eq!((&answer["model"], &answer["created"]), (&json!("svc-1"), &json!(1_773_050_400)));
    }

    #[test]
    fn stream_holds_the_same_text_and_counts() {
        let request = json!({"model": "svc-1", "messages": [{"content": "hi"}], "stream": true});
        let chunks = ask(&request);
        assert_eq!(chunks.last().unwrap(), "data: [DONE]\n\n");
        let read =
            |chunk: &String| serde_json::from_str::<Value>(chunk.strip_prefix("data: ").unwrap()).unwrap();
        let events: Vec<_> = chunks[..chunks.len() - 1].iter().map(read).collect();
        let text: String =
            events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect();
        assert_eq!(text, TEXT);
        let words = TEXT.split(' ').count();
        let usage = json!({"prompt_tokens": 1, "completion_tokens": words, "total_tokens": words + 1});
        assert_eq!(events.last().unwrap()["usage"], usage);
        assert_eq!(events.last().unwrap()["choices"], json!([]));
        assert_eq!(events[events.len() - 2].pointer("/choices/0/finish_reason").unwrap(), "stop");
        assert_eq!(events[5]["usage"]["completion_tokens"], 5);
    }

    #[test]
    fn body_that_cannot_be_read_has_no_answer() {
        assert!(answer(b"{\"messages\": 1}", Time::from_unix_ms(0)).is_none());
    }
}
