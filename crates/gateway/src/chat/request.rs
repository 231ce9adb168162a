//! A client's request.

use hyper::body::Bytes;
use input::fields::{Sent, read};
use input::json::{Json, Members};
use input::types::{Integer, Text};
use kernel::error::{Code, Error};

use super::messages::{MessageList, Messages, MessagesValue};
use crate::count::MAX_TOKENS;
use crate::count::estimate_tokens;
use crate::json::{JsonError, MAX_DEPTH, Object, check_depth};
use catalog::UpstreamKind;

/// Tokens that a chat template adds to a call: a system prompt of its own, and how to use tools.
pub const TEMPLATE_TOKENS: i64 = 512;
/// Tokens that a chat template adds to a message: its marks and its role.
pub const MESSAGE_TEMPLATE_TOKENS: i64 = 16;
/// The tokens assumed for an image, on top of its bytes: a small file may hold a large picture, and a remote
/// one has no bytes here. At 28 × 28 pixels a token that is a picture of 1,792 × 1,792.
pub const IMAGE_TOKENS: i64 = 4_096;
/// The tokens assumed for audio, a video or a file, on top of its bytes.
pub const MEDIA_TOKENS: i64 = 16_384;

/// The members that are read, besides `messages`.
const FIELDS: [&str; 7] =
    ["model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "timings_per_token"];
/// Those, and what one kind of upstream takes in addition: `n_predict` and `n_cmpl` are llama.cpp's own names
/// for `max_tokens` and `n`, and come first there.
const NAMES: &[&str] = &[
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "timings_per_token",
    "best_of",
    "n_predict",
    "n_cmpl",
];
const STREAM_OPTIONS: &[&str] = &["include_usage", "continuous_usage_stats"];

type Tokens = Integer<1, MAX_TOKENS>;
type Choices = Integer<1, 128>;

input::record! {
    /// The members of a request that matter here.
    struct Fields in () {
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
    /// The members of `stream_options` that matter here.
    struct StreamOptions in () {
        include_usage: bool = or(false),
        continuous_usage_stats: bool = or(false),
    }
}

/// A request for a chat completion. What isn't read here is left to the upstream.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    pub(super) object: Object,
    /// The model that the client asks for.
    pub model: String,
    /// The answer is to be a stream.
    pub is_stream: bool,
    /// The client asked for the usage at the end of a stream.
    pub include_usage: bool,
    /// The client asked for the usage on every chunk of a stream.
    pub continuous_usage: bool,
    /// The client asked for llama.cpp's `timings`.
    pub timings_per_token: bool,
    /// `max_tokens`, as it was sent.
    pub max_tokens: Option<i64>,
    /// `max_completion_tokens`, as it was sent.
    pub max_completion_tokens: Option<i64>,
    /// The number of answers, each of which may have as many tokens as are allowed.
    pub n: i64,
    /// The counts of the messages.
    pub messages: Messages,
}

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 with every problem. Unknown members are none.
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        let (object, messages) =
            Object::read_with::<MessagesValue>(body.clone(), NAMES, "messages").map_err(refuse)?;
        check_depth(body).map_err(refuse)?;
        let mut members = Members::with_capacity(FIELDS.len() + 1);
        for name in FIELDS {
            let Some(value) = object.get(name) else { continue };
            let mut value = json(value)?;
            if let (Json::Object(options), "stream_options") = (&mut value, name) {
                options.retain(|(option, _)| STREAM_OPTIONS.contains(&option.as_ref()));
            }
            members.push((name.into(), value));
        }
        let counted = messages.as_ref().map_or_else(Messages::default, |value| value.messages);
        members.extend(messages.map(|value| ("messages".into(), value.stand_in)));
        let fields: Fields = read(&(), Sent::from(members))?;
        Ok(Self {
            model: fields.model.0,
            is_stream: fields.stream,
            include_usage: fields.stream_options.include_usage,
            continuous_usage: fields.stream_options.continuous_usage_stats,
            timings_per_token: fields.timings_per_token,
            max_tokens: fields.max_tokens.map(|tokens| tokens.0),
            max_completion_tokens: fields.max_completion_tokens.map(|tokens| tokens.0),
            n: fields.n.0,
            messages: counted,
            object,
        })
    }

    /// Returns how many tokens each answer may have, by the request: the smaller of both limits.
    pub fn asked_tokens(&self) -> Option<i64> {
        [self.max_tokens, self.max_completion_tokens].into_iter().flatten().min()
    }

    /// Returns how many tokens the prompt has at most, before its context length is considered. A token of
    /// text is at least a byte of the body; the chat template and what isn't text come on top.
    pub fn prompt_tokens_bound(&self) -> i64 {
        let bytes = i64::try_from(self.object.text().len()).unwrap_or(i64::MAX);
        let Messages { count, parts } = self.messages;
        let template = TEMPLATE_TOKENS + count.saturating_mul(MESSAGE_TEMPLATE_TOKENS);
        let media = (parts.audios + parts.videos + parts.files).saturating_mul(MEDIA_TOKENS);
        bytes
            .saturating_add(template)
            .saturating_add(media)
            .saturating_add(parts.images.saturating_mul(IMAGE_TOKENS))
    }

    /// Returns about how many tokens the prompt has: for upstreams that don't count them.
    pub fn estimated_prompt_tokens(&self) -> i64 {
        estimate_tokens(i64::try_from(self.object.text().len()).unwrap_or(i64::MAX))
    }

    /// Returns the beginning of the messages as they were sent: calls that share it share a prefix of their
    /// prompts, which an upstream may have cached.
    pub fn beginning(&self) -> &[u8] {
        const MAX_BYTES: usize = 4096;
        let text = self.object.text();
        let start = memchr::memmem::find(text, b"\"messages\"").unwrap_or_default();
        let rest = text.get(start..).unwrap_or_default();
        rest.get(..MAX_BYTES).unwrap_or(rest)
    }

    /// Fails if an upstream of this kind would answer with a wrong count of tokens: llama.cpp counts one of
    /// several answers only.
    ///
    /// # Errors
    /// 400 `unsupported_parameter`.
    pub fn check_kind(&self, kind: UpstreamKind) -> Result<(), Error> {
        if kind != UpstreamKind::Llamacpp {
            return Ok(());
        }
        let is_one = |name: &str| match self.object.get(name).map(json) {
            None | Some(Ok(Json::Null | Json::Integer(1))) => true,
            Some(Ok(Json::Float(number))) => number == 1.0,
            Some(_) => false,
        };
        match ["n", "best_of", "n_cmpl"].into_iter().find(|name| !is_one(name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("`{name}` must be 1 for this model.");
                Err(Error::new(Code::UnsupportedParameter).param(name).message(message))
            }
        }
    }
}

/// Reads one value. Its text was checked already, but not for what [`Json`] refuses in addition.
pub(super) fn json(value: &[u8]) -> Result<Json<'_>, Error> {
    input::json::parse(value)
}

fn refuse(error: JsonError) -> Error {
    let message = match error {
        JsonError::NotAnObject => "The body must be a JSON object.".to_owned(),
        JsonError::NotUtf8 { at } => format!("The body is not valid UTF-8 at byte {at}."),
        JsonError::Invalid(message) => format!("The body is not valid JSON: {message}."),
        JsonError::TooDeep => format!("The body is nested deeper than {MAX_DEPTH}."),
        JsonError::Duplicate(name) => format!("The body is not valid JSON: the key \"{name}\" stands twice."),
    };
    Error::new(Code::InvalidJson).param("body").message(message)
}

#[cfg(test)]
mod tests;
