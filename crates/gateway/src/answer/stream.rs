//! An upstream's stream, prepared for the client. The bytes stay the same, except for the model's name and
//! for data that was requested from the upstream only to count tokens.

use std::borrow::Cow;

use hyper::body::Bytes;

use super::chunk::Chunk;
use crate::count::{ChoiceText, ChunkCounts, MessageUsage, StreamCounter, TextTokens};
use crate::errors::UpstreamError;
use crate::json::{Edit, JsonError, Object, last_of_each_member};
use crate::operation::Operation;
use crate::prefix_cache::{hidden_usage, hide_beside_usage, without_usage_of_choices};
use crate::request::{InjectedField, ModelRequest, Target, json_string};
use crate::sse::Frame;

/// The last event of a stream of chunks, for upstreams that don't send one.
const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");
/// The last event of a message, for upstreams that don't send one.
const MESSAGE_STOP: Bytes = Bytes::from_static(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");

/// The client's options for an answer.
#[derive(Clone, Debug)]
pub(super) struct AnswerOptions {
    /// The client's name of the model, as JSON.
    pub(super) model: Vec<u8>,
    has_usage: bool,
    has_continuous_usage: bool,
    has_timings: bool,
    /// `true` if cached tokens are hidden from the client.
    pub(super) hides_cached: bool,
}

impl AnswerOptions {
    pub(super) fn of(request: &ModelRequest) -> Self {
        Self {
            model: json_string(&request.model),
            has_usage: request.include_usage,
            has_continuous_usage: request.include_usage && request.continuous_usage,
            has_timings: request.timings_per_token,
            hides_cached: false,
        }
    }

    /// Edits the parts that streamed and plain answers have in common.
    pub(super) fn edit<'a>(&'a self, object: &'a Object) -> Edit<'a> {
        let mut edit = object.edit();
        if object.get("model").is_some_and(|model| model != b"null" && model != self.model) {
            edit.set("model", self.model.as_slice());
        }
        if !self.has_timings && object.get("timings").is_some() {
            edit.remove("timings");
        }
        if self.hides_cached {
            hide_beside_usage(object, &mut edit, self.has_timings);
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
    Error(UpstreamError),
    /// The last event, which the client gets once the call is settled.
    Last(Bytes),
    /// The data isn't JSON, so no client can read it: the upstream has failed.
    Invalid,
}

/// A cleaner, which counts the events of a stream, and removes data that the client didn't request.
#[derive(Debug)]
pub struct StreamCleaner {
    operation: Operation,
    pub(super) options: AnswerOptions,
    /// `true` if the upstream was asked for a `usage` object on every chunk only to count tokens.
    has_injected_usage: bool,
    /// The model's name at the upstream, and its name for the client.
    model_there: String,
    model: String,
    /// The strings that reveal the upstream's address.
    secrets: Vec<String>,
    pub(super) counter: StreamCounter,
    /// The usage of a message so far.
    pub(super) message_usage: MessageUsage,
    /// `true` once a `usage` object has reported the tokens of the answer so far.
    pub(super) is_message_counted: bool,
    has_ended: bool,
}

impl StreamCleaner {
    /// Returns a cleaner for this upstream's answer to this request. `secrets` are the strings that no
    /// message may contain (see [`errors::message`](crate::errors::message)).
    pub fn new(request: &ModelRequest, upstream: &Target<'_>, secrets: Vec<String>) -> Self {
        let estimated_prompt_tokens = request.estimated_prompt_tokens();
        Self {
            operation: request.operation,
            options: AnswerOptions {
                hides_cached: upstream.options.hides_cached_tokens,
                ..AnswerOptions::of(request)
            },
            has_injected_usage: upstream.inject.adds(InjectedField::ContinuousUsage, upstream.dialect),
            model_there: upstream.model.to_owned(),
            model: request.model.clone(),
            secrets,
            counter: StreamCounter::new(request.choices, request.prompts, estimated_prompt_tokens),
            message_usage: MessageUsage::default(),
            is_message_counted: false,
            has_ended: false,
        }
    }

    /// Counts the next frame, and returns what to do with it. After the end, every frame is dropped.
    pub fn clean(&mut self, frame: &Frame) -> Cleaned {
        if self.has_ended {
            return Cleaned::Drop;
        }
        let Some(data) = &frame.data else {
            return Cleaned::Forward(frame.bytes.clone());
        };
        match data.trim_ascii() {
            b"" => return Cleaned::Drop,
            b"[DONE]" => return self.done(frame),
            _ => {}
        }
        let cleaned = self.clean_event(frame, data);
        match cleaned {
            Cleaned::Forward(_) | Cleaned::Drop => {}
            Cleaned::Error(_) | Cleaned::Invalid => self.has_ended = true,
            Cleaned::Last(_) => {
                self.has_ended = true;
                self.counter.mark_done();
            }
        }
        cleaned
    }

    fn clean_event(&mut self, frame: &Frame, data: &Bytes) -> Cleaned {
        match self.operation {
            Operation::ChatCompletions | Operation::Completions | Operation::Embeddings => {
                self.clean_chunk(frame, data)
            }
            Operation::Responses => self.clean_response_event(frame, data),
            Operation::Messages => self.clean_message_event(frame, data),
        }
    }

    /// Handles `[DONE]`, which ends streams of chunks and has no meaning in other streams.
    fn done(&mut self, frame: &Frame) -> Cleaned {
        if !self.operation.has_chunks() {
            return Cleaned::Drop;
        }
        self.has_ended = true;
        self.counter.mark_done();
        Cleaned::Last(frame.bytes.clone())
    }

    fn clean_chunk(&mut self, frame: &Frame, data: &Bytes) -> Cleaned {
        let chunk = match Chunk::read(data) {
            Ok(chunk) => chunk,
            Err(error) => return self.pass_unread(frame, data, &error),
        };
        self.counter.add(&chunk.counts);
        if frame.event.as_deref() == Some(b"error") || is_error(&chunk.object) {
            return self.error_event(data);
        }
        let mut edit = self.options.edit(&chunk.object);
        let has_choices = !chunk.counts.choices.is_empty();
        if let Some(usage) = chunk.object.get("usage") {
            let is_null = usage == b"null";
            if !self.options.has_usage {
                if !has_choices && !is_null {
                    return Cleaned::Drop;
                }
                edit.remove("usage");
            } else if has_choices && !is_null && self.has_injected_usage && !self.options.has_continuous_usage
            {
                // With only `include_usage`, every chunk except the last has `null`.
                edit.set("usage", b"null".as_slice());
            } else if self.options.hides_cached && !is_null {
                edit.set("usage", hidden_usage(usage));
            }
        }
        let bytes = edited(frame, &edit);
        if self.options.hides_cached && chunk.counts.choices.iter().any(|one| one.usage.is_some()) {
            let without = without_usage_of_choices(&edit.to_bytes());
            return without.map_or(Cleaned::Drop, |data| Cleaned::Forward(frame.with_data(&data)));
        }
        Cleaned::Forward(bytes)
    }

    /// Forwards an event that isn't an object (servers send `null` between two parts of an answer), that is
    /// deeply nested, or that has a member twice, because it may contain text of the answer.
    pub(super) fn pass_unread(&mut self, frame: &Frame, data: &Bytes, error: &JsonError) -> Cleaned {
        match error {
            JsonError::NotUtf8 { .. } | JsonError::Invalid(_) => return Cleaned::Invalid,
            JsonError::NotAnObject => {}
            // Either of the two members may reveal how much was cached, so only one of them is forwarded.
            JsonError::Duplicate(_) if self.options.hides_cached => {
                let once = last_of_each_member(data).and_then(|data| Frame::of(frame.with_data(&data)));
                let Some((once, data)) = once.and_then(|once| Some((once.clone(), once.data?))) else {
                    return Cleaned::Drop;
                };
                return self.clean_event(&once, &data);
            }
            JsonError::TooDeep if self.options.hides_cached => return Cleaned::Drop,
            JsonError::TooDeep | JsonError::Duplicate(_) => {
                let text = TextTokens::of(&String::from_utf8_lossy(data));
                let choices = vec![ChoiceText { text, ..ChoiceText::default() }];
                self.counter.add(&ChunkCounts { choices, ..ChunkCounts::default() });
            }
        }
        Cleaned::Forward(frame.bytes.clone())
    }

    /// Returns the reason why an object within an event couldn't be read, if that could reveal how much was
    /// cached.
    pub(super) fn may_reveal<T>(&self, inner: Option<&Result<T, JsonError>>) -> Option<JsonError> {
        let error = inner?.as_ref().err().filter(|_| self.options.hides_cached)?;
        matches!(error, JsonError::Duplicate(_) | JsonError::TooDeep).then(|| error.clone())
    }

    /// Returns the action for an event with an error.
    pub(super) fn error_event(&self, data: &Bytes) -> Cleaned {
        let error = UpstreamError::read(data, &self.secrets);
        Cleaned::Error(error.renamed(&self.model_there, &self.model))
    }

    /// Notes that the body ended without a connection error. Returns the last event if every answer is
    /// finished, because some servers end their streams without it.
    pub fn end_of_body(&mut self) -> Option<Bytes> {
        if !self.has_ended {
            self.counter.mark_end_of_body();
        }
        self.has_ended = true;
        let last = match self.operation {
            Operation::ChatCompletions | Operation::Completions | Operation::Embeddings => DONE,
            Operation::Messages => MESSAGE_STOP,
            // The event that finishes a response is already the last one.
            Operation::Responses => return None,
        };
        self.counter.is_complete().then_some(last)
    }

    /// Returns `true` if the upstream's counts cover everything received, so that no further event is needed
    /// for the charge.
    pub fn is_counted(&self) -> bool {
        // The usage at the start of a message counts only its prompt.
        self.counter.is_counted() && (self.operation != Operation::Messages || self.is_message_counted)
    }

    /// Notes that the client has left.
    pub fn mark_left(&mut self) {
        self.counter.mark_left();
    }

    /// Returns the counts so far.
    pub fn counter(&self) -> &StreamCounter {
        &self.counter
    }
}

/// Returns the bytes of a frame with its data edited, without a copy if nothing changes.
pub(super) fn edited(frame: &Frame, edit: &Edit<'_>) -> Bytes {
    if edit.is_empty() {
        return frame.bytes.clone();
    }
    frame.with_data(&one_line(&edit.to_bytes()))
}

/// Returns `true` if a chunk or a whole answer is an error. Either its member `error` is truthy in Python,
/// which is the test of OpenAI's SDK, or it has the flat form of older vLLM.
pub(crate) fn is_error(object: &Object) -> bool {
    let is_true = |value: &[u8]| match value {
        b"null" | b"false" | b"\"\"" | b"0" => false,
        [b'{', inside @ .., b'}'] | [b'[', inside @ .., b']'] => !inside.trim_ascii().is_empty(),
        _ => true,
    };
    object.get("error").is_some_and(is_true) || object.get("object") == Some(b"\"error\"")
}

/// Returns JSON with its line ends replaced by spaces. In valid JSON, line ends are always white space.
fn one_line(json: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', json).is_none() {
        return Cow::Borrowed(json);
    }
    json.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests;
