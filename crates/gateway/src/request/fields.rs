//! The members of requests that the gateway uses, for each operation.

use input::fields::{Field, Location, Problems, Sent, read};
use input::json::{Json, Members};
use input::types::{Integer, Text};
use kernel::error::Error;
use serde_json::{Value, json};

use crate::count::MAX_TOKENS;
use crate::operation::Operation;

/// The maximum number of inputs in a request.
const MAX_TEXTS: i64 = 2_048;

type Tokens = Integer<1, MAX_TOKENS>;
/// A limit of 0 requests no answer, for example to get the prompt's log probabilities or to cache the prompt.
type TokensOrNone = Integer<0, MAX_TOKENS>;
type Choices = Integer<1, 128>;

/// The members of any operation. Members that an operation doesn't have are absent.
pub(super) struct Fields {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    pub(super) timings_per_token: bool,
    /// The member named by [`Operation::limit`].
    pub(super) max_tokens: Option<i64>,
    pub(super) max_completion_tokens: Option<i64>,
    pub(super) n: i64,
    pub(super) best_of: i64,
}

impl Fields {
    /// Returns the names of the members that an operation reads in addition to its contents.
    pub(super) const fn names(operation: Operation) -> &'static [&'static str] {
        match operation {
            Operation::ChatCompletions => &[
                "model",
                "stream",
                "stream_options",
                "max_tokens",
                "max_completion_tokens",
                "n",
                "timings_per_token",
            ],
            Operation::Completions => {
                &["model", "stream", "stream_options", "max_tokens", "n", "best_of", "timings_per_token"]
            }
            Operation::Embeddings => &["model"],
            Operation::Responses => &["model", "stream", "max_output_tokens", "timings_per_token"],
            Operation::Messages => &["model", "stream", "max_tokens"],
        }
    }

    /// Reads the members of an operation.
    ///
    /// # Errors
    /// 400 with every problem.
    pub(super) fn read(operation: Operation, members: Members<'_>) -> Result<Self, Error> {
        let sent = Sent::from(members);
        Ok(match operation {
            Operation::ChatCompletions => read::<(), ChatFields>(&(), sent)?.into(),
            Operation::Completions => read::<(), CompletionFields>(&(), sent)?.into(),
            Operation::Embeddings => read::<(), EmbeddingFields>(&(), sent)?.into(),
            Operation::Responses => read::<(), ResponseFields>(&(), sent)?.into(),
            Operation::Messages => read::<(), MessageFields>(&(), sent)?.into(),
        })
    }

    fn of_model(model: Text<256>) -> Self {
        Self {
            model: model.0,
            stream: false,
            include_usage: false,
            continuous_usage: false,
            timings_per_token: false,
            max_tokens: None,
            max_completion_tokens: None,
            n: 1,
            best_of: 1,
        }
    }
}

input::record! {
    /// The members of `stream_options`.
    struct StreamOptions in () {
        include_usage: bool = or(false),
        continuous_usage_stats: bool = or(false),
    }
}

input::record! {
    struct ChatFields in () {
        model: Text<256> = required,
        messages: MessageList = required,
        stream: bool = or(false),
        stream_options: StreamOptions = object,
        max_tokens: Option<Tokens> = optional,
        max_completion_tokens: Option<Tokens> = optional,
        n: Choices = or(Integer(1)),
        timings_per_token: bool = or(false),
    }
}

input::record! {
    struct CompletionFields in () {
        model: Text<256> = required,
        prompt: Texts = required,
        stream: bool = or(false),
        stream_options: StreamOptions = object,
        max_tokens: Option<TokensOrNone> = optional,
        n: Choices = or(Integer(1)),
        best_of: Choices = or(Integer(1)),
        timings_per_token: bool = or(false),
    }
}

input::record! {
    struct EmbeddingFields in () {
        model: Text<256> = required,
        input: Texts = required,
    }
}

input::record! {
    struct ResponseFields in () {
        model: Text<256> = required,
        input: Texts = required,
        stream: bool = or(false),
        max_output_tokens: Option<Tokens> = optional,
        timings_per_token: bool = or(false),
    }
}

input::record! {
    struct MessageFields in () {
        model: Text<256> = required,
        messages: MessageList = required,
        stream: bool = or(false),
        max_tokens: Option<TokensOrNone> = optional,
    }
}

impl From<ChatFields> for Fields {
    fn from(fields: ChatFields) -> Self {
        Self {
            stream: fields.stream,
            include_usage: fields.stream_options.include_usage,
            continuous_usage: fields.stream_options.continuous_usage_stats,
            timings_per_token: fields.timings_per_token,
            max_tokens: fields.max_tokens.map(|tokens| tokens.0),
            max_completion_tokens: fields.max_completion_tokens.map(|tokens| tokens.0),
            n: fields.n.0,
            ..Self::of_model(fields.model)
        }
    }
}

impl From<CompletionFields> for Fields {
    fn from(fields: CompletionFields) -> Self {
        Self {
            stream: fields.stream,
            include_usage: fields.stream_options.include_usage,
            continuous_usage: fields.stream_options.continuous_usage_stats,
            timings_per_token: fields.timings_per_token,
            max_tokens: fields.max_tokens.map(|tokens| tokens.0),
            n: fields.n.0,
            best_of: fields.best_of.0,
            ..Self::of_model(fields.model)
        }
    }
}

impl From<EmbeddingFields> for Fields {
    fn from(fields: EmbeddingFields) -> Self {
        Self::of_model(fields.model)
    }
}

impl From<ResponseFields> for Fields {
    fn from(fields: ResponseFields) -> Self {
        Self {
            stream: fields.stream,
            timings_per_token: fields.timings_per_token,
            max_tokens: fields.max_output_tokens.map(|tokens| tokens.0),
            ..Self::of_model(fields.model)
        }
    }
}

impl From<MessageFields> for Fields {
    fn from(fields: MessageFields) -> Self {
        Self {
            stream: fields.stream,
            max_tokens: fields.max_tokens.map(|tokens| tokens.0),
            ..Self::of_model(fields.model)
        }
    }
}

/// An array of messages, with at least one.
struct MessageList;

impl Field for MessageList {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Array(items) if items.is_empty() => {
                problems.add(at, "empty", format!("`{}` must have at least one message.", at.path))
            }
            Json::Array(_) => Some(Self),
            other => problems.wrong_type(at, "an array", &other),
        }
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1})
    }
}

/// A string, or an array with at least one string or other item.
struct Texts;

impl Field for Texts {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Array(items) if items.is_empty() => {
                problems.add(at, "empty", format!("`{}` must have at least one entry.", at.path))
            }
            // The array's only item is the number of its entries.
            Json::Array(items) if matches!(items.as_slice(), [Json::Integer(count)] if *count > MAX_TEXTS) => {
                problems.add(at, "too_many", format!("`{}` may have at most {MAX_TEXTS} entries.", at.path))
            }
            Json::Array(_) | Json::Text(_) => Some(Self),
            other => problems.wrong_type(at, "a string or an array", &other),
        }
    }
    fn schema() -> Value {
        json!({"type": ["string", "array"]})
    }
}
