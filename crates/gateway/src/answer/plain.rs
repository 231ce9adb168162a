//! Answers that aren't streams.

use hyper::body::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::value::RawValue;

use super::chunk::Chunk;
use super::stream::{AnswerOptions, is_error};
use crate::count::reading::Text;
use crate::count::{
    Bounds, MessageUsage, Partial, ReportedParts, Searches, Settled, StreamCounter, TextTokens, Usage,
    service_tier, with_searches,
};
use crate::errors::UpstreamError;
use crate::json::{JsonError, Object, last_of_each_member};
use crate::lenient::Lenient;
use crate::operation::Operation;
use crate::prefix_cache::hidden_answer;
use crate::request::ModelRequest;
use catalog::ServiceTier;

/// The members of an answer without choices that are read.
const NAMES: &[&str] = &["model", "usage", "service_tier", "error", "object", "type", "status", "timings"];

/// An answer that isn't a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainAnswer {
    /// The body for the client.
    pub body: Bytes,
    /// The usage, if the answer has one.
    pub usage: Option<Usage>,
    /// The readable counts of a `usage` object that isn't valid as a whole.
    partial: Partial,
    /// The service tier named in the answer.
    service_tier: Option<ServiceTier>,
    /// The usage estimated from the text of the request and the answer.
    estimate: Usage,
}

/// A body that isn't an answer despite a successful status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlainError {
    /// The body isn't JSON.
    Invalid,
    /// The body is an error.
    Error(UpstreamError),
}

impl PlainAnswer {
    /// Reads the body of an answer. `secrets` are the strings that no message may contain (see
    /// [`errors::message`](crate::errors::message)).
    pub fn read<S: AsRef<str>>(
        body: &Bytes,
        request: &ModelRequest,
        secrets: &[S],
    ) -> Result<Self, PlainError> {
        let (mut parsed, mut has_twins) = (Parsed::read(body, request), false);
        if matches!(parsed, Err(JsonError::Duplicate(_))) {
            let once = last_of_each_member(body).ok_or(PlainError::Invalid)?;
            (parsed, has_twins) = (Parsed::read(&once, request), true);
        }
        let Parsed { object, usage, partial, service_tier, text } = match parsed {
            Ok(parsed) => parsed,
            // Clients that call an upstream directly accept such a body, so the gateway accepts it, too.
            Err(JsonError::NotAnObject | JsonError::TooDeep) => {
                let text = TextTokens::of(&String::from_utf8_lossy(body));
                let usage = usage_at_the_end(body, request.operation);
                let (partial, estimate) = (Partial::default(), estimate(request, text));
                let service_tier = tier_at_the_end(body);
                return Ok(Self { body: body.clone(), usage, partial, service_tier, estimate });
            }
            Err(_) => return Err(PlainError::Invalid),
        };
        let has_failed = object.get("status") == Some(b"\"failed\"");
        if is_error(&object) || has_failed || object.get("type") == Some(b"\"error\"") {
            return Err(PlainError::Error(UpstreamError::read(body, secrets)));
        }
        // Clients differ in which of two members with the same name they use, so such a body is forwarded
        // unchanged.
        let body = if has_twins { body.clone() } else { AnswerOptions::of(request).edit(&object).to_bytes() };
        Ok(Self { body, usage, partial, service_tier, estimate: estimate(request, text) })
    }

    /// Reads the body like [`read`](Self::read). `hides_cached_tokens`: cached tokens are hidden from the
    /// client.
    pub(crate) fn read_for<S: AsRef<str>>(
        body: &Bytes,
        request: &ModelRequest,
        secrets: &[S],
        hides_cached_tokens: bool,
    ) -> Result<Self, PlainError> {
        let answer = Self::read(body, request, secrets)?;
        if !hides_cached_tokens {
            return Ok(answer);
        }
        let body = hidden_answer(answer.body, request.operation).ok_or(PlainError::Invalid)?;
        Ok(Self { body, ..answer })
    }

    /// Returns the charged usage: the reported one, or its readable counts with an estimate from the text.
    pub fn settle(&self, bounds: Bounds) -> Settled {
        let settled = match self.usage {
            Some(usage) => usage.settle(bounds),
            None => self.partial.settle(self.estimate, bounds),
        };
        Settled { service_tier: self.service_tier.unwrap_or_default(), ..settled }
    }
}

fn estimate(request: &ModelRequest, text: TextTokens) -> Usage {
    Usage {
        prompt_tokens: request.estimated_prompt_tokens(),
        completion_tokens: text.count(),
        cached_prompt_tokens: None,
        parts: ReportedParts::default(),
    }
}

/// Returns the usage at the end of an answer's body.
pub(crate) fn usage_at_the_end(tail: &[u8], operation: Operation) -> Option<Usage> {
    read_usage(last_member(tail, b"\"usage\"")?, operation)
}

/// Returns the service tier at the end of an answer's body.
pub(crate) fn tier_at_the_end(tail: &[u8]) -> Option<ServiceTier> {
    service_tier(last_member(tail, b"\"service_tier\"")?)
}

/// Returns the value of the last member with this name. A string can't contain a match, because its quotes
/// would be escaped.
fn last_member<'a>(tail: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::rfind(tail, name)? + name.len();
    let value = tail.get(at..)?.trim_ascii_start().strip_prefix(b":")?;
    let value: &RawValue = serde_json::Deserializer::from_slice(value).into_iter().next()?.ok()?;
    Some(value.get().as_bytes())
}

fn read_usage(value: &[u8], operation: Operation) -> Option<Usage> {
    let usage = match operation {
        Operation::ChatCompletions | Operation::Completions | Operation::Responses => Usage::read(value),
        Operation::Embeddings => Usage::read_embeddings(value),
        Operation::Messages => {
            let usage = MessageUsage::read(value);
            usage.total().filter(|_| usage.has_output())
        }
    };
    usage.filter(|usage| !usage.is_nothing())
}

/// Returns the readable counts of a `usage` object.
fn read_partial(value: &[u8], operation: Operation) -> Partial {
    match operation {
        Operation::Messages => MessageUsage::read(value).partial(),
        _ => Usage::read_partial(value),
    }
}

/// The parsed body of an answer.
struct Parsed {
    object: Object,
    usage: Option<Usage>,
    partial: Partial,
    service_tier: Option<ServiceTier>,
    /// The tokens of the generated text.
    text: TextTokens,
}

/// The text and searches of the items of a response, or of the content of a message.
#[derive(Default)]
struct Content {
    text: TextTokens,
    searches: i64,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = <&RawValue>::deserialize(deserializer)?.get();
        let text = serde_json::from_str::<Lenient<Text>>(value).map_err(D::Error::custom)?;
        Ok(Self { text: text.0.0, searches: Searches::read(value.as_bytes()).count() })
    }
}

impl Parsed {
    fn read(body: &Bytes, request: &ModelRequest) -> Result<Self, JsonError> {
        let operation = request.operation;
        if operation.has_chunks() {
            let Chunk { object, counts } = Chunk::read(body)?;
            let mut text = TextTokens::default();
            counts.choices.iter().for_each(|choice| text += choice.text);
            // Each choice may have its own usage, as in a stream.
            let mut counter = StreamCounter::new(request.choices, request.prompts, 0);
            counter.add(&counts);
            counter.mark_done();
            let (usage, partial) = (counter.usage(), counter.partial());
            return Ok(Self { object, usage, partial, service_tier: counter.service_tier(), text });
        }
        let name = match operation {
            Operation::Responses => "output",
            _ => "content",
        };
        let (object, content) = Object::read_lax_with::<Content>(body.clone(), NAMES, name)?;
        let Content { text, searches } = content.unwrap_or_default();
        let usage = object.get("usage").and_then(|usage| read_usage(usage, operation));
        let usage = usage.map(|usage| Usage { parts: with_searches(usage.parts, searches), ..usage });
        let partial = object.get("usage").map(|usage| read_partial(usage, operation)).unwrap_or_default();
        let partial = Partial { parts: with_searches(partial.parts, searches), ..partial };
        let named = match operation {
            Operation::Messages => MessageUsage::read(object.get("usage").unwrap_or_default()).service_tier(),
            _ => object.get("service_tier").and_then(service_tier),
        };
        Ok(Self { object, usage, partial, service_tier: named, text })
    }
}
