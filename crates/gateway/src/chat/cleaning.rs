//! An upstream's answer as the client gets it: byte for byte the same, except for the model's name and for
//! what was asked of the upstream only to count.

use std::borrow::Cow;

use hyper::body::Bytes;

use super::chunk::Chunk;
use super::request::ChatRequest;
use super::rewriting::{InjectedField, Upstreaming, json_string};
use crate::count::{self, Settled, StreamCounter, Usage};
use crate::errors;
use crate::json::Edit;
use crate::sse::Frame;
use catalog::UpstreamKind;

/// The optional parts of an answer that a client asked for.
#[derive(Clone, Debug)]
struct Wishes {
    /// The name by which the client knows the model, as JSON.
    model: Vec<u8>,
    has_usage: bool,
    has_continuous_usage: bool,
    has_timings: bool,
}

impl Wishes {
    fn of(request: &ChatRequest) -> Self {
        Self {
            model: json_string(&request.model),
            has_usage: request.include_usage,
            has_continuous_usage: request.include_usage && request.continuous_usage,
            has_timings: request.timings_per_token,
        }
    }

    /// Edits what a streamed and a plain answer have in common.
    fn edit<'a>(&'a self, chunk: &'a Chunk) -> Edit<'a> {
        let mut edit = chunk.object.edit();
        if chunk.object.get("model").is_some_and(|model| model != b"null" && model != self.model) {
            edit.set("model", self.model.as_slice());
        }
        if !self.has_timings && chunk.object.get("timings").is_some() {
            edit.remove("timings");
        }
        edit
    }
}

/// The action for a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cleaned {
    /// The client gets these bytes.
    Forward(Bytes),
    /// The client gets nothing.
    Drop,
    /// The upstream reports an error, which ends the answer.
    ErrorEvent {
        /// The message that the client may see.
        message: Option<String>,
    },
    /// The upstream's `[DONE]`, which the client gets when the call is settled.
    Done,
    /// The frame isn't an object of JSON: the upstream has failed.
    Invalid,
}

/// Counts the frames of a stream, and takes out what the client didn't ask for.
#[derive(Debug)]
pub struct StreamCleaner {
    wishes: Wishes,
    kind: UpstreamKind,
    /// The upstream was asked for a usage on every chunk.
    has_injected_usage: bool,
    /// The texts that tell the upstream's address.
    secrets: Vec<String>,
    counter: StreamCounter,
    has_ended: bool,
}

impl StreamCleaner {
    /// Returns a cleaner for the answer to this request, as it was written for the upstream. `secrets` are the
    /// texts that no message may contain (see [`errors::message`]).
    pub fn new(request: &ChatRequest, upstream: &Upstreaming<'_>, secrets: Vec<String>) -> Self {
        Self {
            wishes: Wishes::of(request),
            kind: upstream.kind,
            has_injected_usage: upstream.inject.adds(InjectedField::ContinuousUsage, upstream.kind),
            secrets,
            counter: StreamCounter::new(request.n, request.estimated_prompt_tokens()),
            has_ended: false,
        }
    }

    /// Counts the next frame, and says what to do about it. After the end every frame is dropped.
    pub fn clean(&mut self, frame: &Frame) -> Cleaned {
        if self.has_ended {
            return Cleaned::Drop;
        }
        let Some(data) = &frame.data else {
            return Cleaned::Forward(frame.bytes.clone());
        };
        match data.trim_ascii() {
            b"" => return Cleaned::Drop,
            b"[DONE]" => {
                self.has_ended = true;
                self.counter.mark_done();
                return Cleaned::Done;
            }
            _ => {}
        }
        let Ok(chunk) = Chunk::read(data) else {
            self.has_ended = true;
            return Cleaned::Invalid;
        };
        self.counter.add(&chunk.counts);
        if frame.event.as_deref() == Some(b"error") || is_error(&chunk) {
            self.has_ended = true;
            return Cleaned::ErrorEvent { message: errors::message(data, &self.secrets) };
        }
        self.forward(frame, &chunk)
    }

    fn forward(&self, frame: &Frame, chunk: &Chunk) -> Cleaned {
        let mut edit = self.wishes.edit(chunk);
        let has_choices = !chunk.counts.choices.is_empty();
        if let Some(usage) = chunk.object.get("usage") {
            let is_null = usage == b"null";
            if !self.wishes.has_usage {
                if !has_choices && !is_null {
                    return Cleaned::Drop;
                }
                edit.remove("usage");
            } else if has_choices && !is_null && self.has_injected_usage && !self.wishes.has_continuous_usage
            {
                // With `include_usage` alone every chunk but the last has null.
                edit.set("usage", b"null".as_slice());
            }
        }
        if edit.is_empty() {
            return Cleaned::Forward(frame.bytes.clone());
        }
        Cleaned::Forward(frame.with_data(&one_line(&edit.to_bytes())))
    }

    /// Notes that the body ended without an error of the connection.
    pub fn end_of_body(&mut self) {
        if !self.has_ended {
            self.counter.mark_end_of_body(self.kind);
        }
        self.has_ended = true;
    }

    /// Returns the counts so far.
    pub fn counter(&self) -> &StreamCounter {
        &self.counter
    }
}

/// Returns whether a chunk, or a whole answer, is an error: a member `error` that is true in Python, as
/// OpenAI's SDK reads it, or the flat form of older vLLM.
fn is_error(chunk: &Chunk) -> bool {
    let is_true = |value: &[u8]| match value {
        b"null" | b"false" | b"\"\"" | b"0" => false,
        [b'{', inside @ .., b'}'] | [b'[', inside @ .., b']'] => !inside.trim_ascii().is_empty(),
        _ => true,
    };
    chunk.object.get("error").is_some_and(is_true) || chunk.object.get("object") == Some(b"\"error\"")
}

/// Returns JSON without line ends, which can only be white space in it.
fn one_line(json: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', json).is_none() {
        return Cow::Borrowed(json);
    }
    json.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect()
}

/// An answer that isn't a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainAnswer {
    /// The body for the client.
    pub body: Bytes,
    /// The usage; `None` if there is none.
    pub usage: Option<Usage>,
    /// The usage by the texts of the request and the answer.
    estimate: Usage,
}

/// An answer with a good status that is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlainError {
    /// The body isn't an object of JSON.
    Invalid,
    /// The body is an error.
    Error {
        /// The message that the client may see.
        message: Option<String>,
    },
}

impl PlainAnswer {
    /// Reads the body of an answer. `secrets` are the texts that no message may contain (see
    /// [`errors::message`]).
    pub fn read<S: AsRef<str>>(
        body: &Bytes,
        request: &ChatRequest,
        secrets: &[S],
    ) -> Result<Self, PlainError> {
        let chunk = Chunk::read(body).map_err(|_| PlainError::Invalid)?;
        if is_error(&chunk) {
            return Err(PlainError::Error { message: errors::message(body, secrets) });
        }
        let text_bytes =
            chunk.counts.choices.iter().fold(0, |sum: i64, choice| sum.saturating_add(choice.text_bytes));
        let body = Wishes::of(request).edit(&chunk).to_bytes();
        let estimate = Usage {
            prompt_tokens: request.estimated_prompt_tokens(),
            completion_tokens: count::estimate_tokens(text_bytes),
            cached_prompt_tokens: None,
        };
        Ok(Self { body, usage: chunk.counts.usage, estimate })
    }

    /// Returns what is charged: the usage, or else an estimate by the text; at most what was reserved.
    pub fn settle(&self, reserved_prompt: i64, reserved_completion: i64) -> Settled {
        let settled = self.usage.unwrap_or(self.estimate).settle(reserved_prompt, reserved_completion);
        Settled { estimated: self.usage.is_none(), ..settled }
    }
}

#[cfg(test)]
mod tests;
