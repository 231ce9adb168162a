//! The upstream `demo`: models in this process, for a first call on a machine without an inference server.
//!
//! Every request gets the same text, which states that it comes from a demo, and every input of an embeddings
//! call gets a vector computed from its bytes. Each word of the prompt and of the answer is a token, so the
//! counts can be checked by hand. The demo speaks the protocol of vLLM, with a `usage` object in every chunk.

mod chunks;
mod embeddings;
mod messages;
mod responses;

use std::collections::VecDeque;

use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::operation::Operation;
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

    fn whole(body: &Value) -> Self {
        Self { chunks: [Bytes::from(body.to_string())].into() }
    }
}

/// The parts of a request that the demo uses.
#[derive(Deserialize)]
struct Request {
    model: String,
    #[serde(default)]
    messages: Vec<Value>,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    prompt: Value,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    max_output_tokens: Option<u64>,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    dimensions: Option<u64>,
    #[serde(default)]
    encoding_format: Option<String>,
}

/// Returns the answer to the body of a request. Vectors have the dimension of the model, unless the request
/// sets another one. Returns `None` if the body can't be read.
pub(crate) fn answer(
    operation: Operation,
    body: &[u8],
    dimension: Option<i64>,
    now: Time,
) -> Option<DemoAnswer> {
    let request: Request = serde_json::from_slice(body).ok()?;
    let limits = [request.max_tokens, request.max_completion_tokens, request.max_output_tokens];
    let max_tokens = limits.into_iter().flatten().min();
    let max_tokens = max_tokens.and_then(|tokens| usize::try_from(tokens).ok()).unwrap_or(usize::MAX);
    let words: Vec<_> = TEXT.split_inclusive(' ').take(max_tokens).collect();
    let reply = Reply {
        is_cut: words.len() < TEXT.split_inclusive(' ').count(),
        prompt_tokens: match operation {
            Operation::ChatCompletions | Operation::Messages => request.messages.iter().map(words_in).sum(),
            Operation::Completions => words_in(&request.prompt),
            Operation::Embeddings | Operation::Responses => words_in(&request.input),
        },
        created: now.unix_ms().div_euclid(1_000),
        is_stream: request.stream.unwrap_or(false),
        model: request.model.clone(),
        words,
    };
    let choices = usize::try_from(request.n.unwrap_or(1)).unwrap_or(1);
    Some(match operation {
        Operation::ChatCompletions => chunks::answer(&reply, chunks::Form::Chat, choices),
        Operation::Completions => {
            let prompts = request.prompt.as_array().map_or(1, |items| items.len().max(1));
            let prompts = if has_tokens(&request.prompt) { 1 } else { prompts };
            chunks::answer(&reply, chunks::Form::Text, choices.saturating_mul(prompts))
        }
        Operation::Embeddings => embeddings::answer(&reply, &request, dimension),
        Operation::Responses => responses::answer(&reply),
        Operation::Messages => messages::answer(&reply),
    })
}

/// The content of an answer, independent of the API's format.
struct Reply {
    model: String,
    created: i64,
    prompt_tokens: usize,
    words: Vec<&'static str>,
    is_stream: bool,
    /// `true` if the text was cut off at the token limit.
    is_cut: bool,
}

impl Reply {
    fn text(&self) -> String {
        self.words.concat().trim_end().to_owned()
    }

    /// Returns the words, each with its trailing space except the last.
    fn pieces(&self) -> impl Iterator<Item = &'static str> {
        let last = self.words.len().saturating_sub(1);
        self.words.iter().enumerate().map(move |(at, word)| if at == last { word.trim_end() } else { word })
    }
}

/// Counts the words of a string, a message, or an array of either. Each token in an array of numbers counts
/// as a word.
fn words_in(value: &Value) -> usize {
    match value {
        Value::String(text) => text.split_whitespace().count(),
        Value::Array(items) => items.iter().map(words_in).sum(),
        Value::Object(members) => {
            ["content", "text"].iter().filter_map(|name| members.get(*name)).map(words_in).sum()
        }
        Value::Number(_) => 1,
        Value::Null | Value::Bool(_) => 0,
    }
}

/// Returns `true` for an array of tokens, which represents a single input.
fn has_tokens(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().any(Value::is_number))
}

/// Returns a server-sent event with a name.
fn named_event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests;
