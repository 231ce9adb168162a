//! A client's request for a model's answer, of any operation.
//!
//! [`ModelRequest`] reads the relevant parts of the body, and [`write_for`](ModelRequest::write_for) turns it
//! into the body for an upstream.

mod contents;
mod field_lists;
mod fields;
mod policy;
mod survey;
mod tools;
mod writing;

use hyper::body::Bytes;
use input::json::{Json, Members};
use kernel::error::{Code, Error};

use crate::count::TextTokens;
use crate::count::reading::{Description, Text};
use crate::dialect::Dialect;
use crate::json::{JsonError, MAX_DEPTH, Object, check_depth};
use crate::lenient::Lenient;
use crate::names::{lookalike, misspelled, shown, unsupported};
use crate::operation::Operation;
use catalog::Upstream;
use contents::ContentsValue;
use fields::Fields;
use survey::{Scheme, Survey};

pub use contents::{Contents, Parts};
pub(crate) use policy::gets_betas;
pub(crate) use survey::{Form, Media};
pub(crate) use writing::json_string;
pub(crate) use writing::named_field;
pub use writing::{InjectedField, Injection, Target, TargetOptions, refused_field};

/// Tokens that a chat template adds to a call, such as a default system prompt and instructions for tools.
pub const TEMPLATE_TOKENS: i64 = 512;
/// Tokens that a template adds to a message or an input: delimiters and the role.
pub const ITEM_TEMPLATE_TOKENS: i64 = 16;
/// Minimum number of tokens that a template adds to a message, from OpenAI's documentation.
const LEAST_ITEM_TOKENS: i64 = 3;
/// The tokens assumed for an image, audio, a video or a file, in addition to its bytes. A small file may
/// contain a large image, for which servers use up to this many tokens (`max_pixels` of Qwen2-VL).
pub const MEDIA_TOKENS: i64 = 16_384;
/// Minimum number of bytes per second of audio: speech at 32 kbit/s.
const LEAST_AUDIO_BYTES_PER_S: i64 = 4_000;
/// The seconds assumed for audio that the upstream fetches.
const REMOTE_AUDIO_SECONDS: i64 = 600;
/// The assumed context of a model whose context isn't known. Few models have a larger context.
const ASSUMED_CONTEXT: i64 = 1 << 20;

/// The members that are read in addition to the contents. Some are specific to one kind of upstream:
/// `n_predict` and `n_cmpl` are llama.cpp's names for `max_tokens` and `n`, and take precedence there.
const NAMES: &[&str] = &[
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "timings_per_token",
    "n_predict",
    "n_cmpl",
    "background",
    "previous_response_id",
    "conversation",
    "tools",
    "system",
    "instructions",
    "cache_salt",
];
/// The members that are read from requests for responses. Here, `prompt` refers to a stored prompt.
const RESPONSE_NAMES: &[&str] = &[
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "timings_per_token",
    "n_predict",
    "n_cmpl",
    "background",
    "previous_response_id",
    "conversation",
    "prompt",
    "tools",
    "instructions",
    "cache_salt",
];
/// The members of a request for a response that refer to a conversation or a prompt stored at an upstream.
/// The gateway can determine neither its number of tokens nor its owner.
const STORED: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

/// The members of `stream_options` that are forwarded. Other members could change how an upstream counts
/// tokens, or make it refuse the injected ones.
const STREAM_OPTIONS: [&str; 3] =
    [InjectedField::IncludeUsage.as_str(), InjectedField::ContinuousUsage.as_str(), INCLUDE_OBFUSCATION];
/// An option of OpenAI's API that pads events, so that their lengths don't reveal their text. The gateway
/// doesn't read it.
const INCLUDE_OBFUSCATION: &str = "include_obfuscation";

/// A request for a model's answer. Members that the gateway doesn't read are forwarded to the upstream.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The operation.
    pub operation: Operation,
    object: Object,
    /// The requested model.
    pub model: String,
    /// `true` if the answer should be a stream.
    pub is_stream: bool,
    /// `true` if the client requested the usage at the end of a stream.
    pub include_usage: bool,
    /// `true` if the client requested the usage on every chunk of a stream.
    pub continuous_usage: bool,
    /// `true` if the client requested llama.cpp's `timings`.
    pub timings_per_token: bool,
    /// The limit of an answer's tokens ([`Operation::limit`]), as sent by the client.
    max_tokens: Option<i64>,
    /// `max_completion_tokens` of a chat, as sent by the client.
    max_completion_tokens: Option<i64>,
    /// The number of answers that the client gets.
    pub choices: i64,
    /// The number of answers that are generated. Each may have the maximum number of tokens.
    pub generated: i64,
    /// The number of prompts or inputs, each of which may fill the model's context.
    pub prompts: i64,
    /// The counts of the content that the model reads.
    pub contents: Contents,
    survey: Survey,
}

impl ModelRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 that lists every problem. Unknown members are allowed.
    pub fn read(operation: Operation, body: &Bytes) -> Result<Self, Error> {
        let names = names(operation);
        let part = operation.contents();
        let (object, contents) =
            Object::read_with_surrogates::<ContentsValue>(body.clone(), names, part).map_err(refuse)?;
        check_depth(body).map_err(refuse)?;
        let survey = Survey::read(operation, text_of(object.readable())?)?;
        refuse_stream_options(&object)?;
        let mut members = Members::with_capacity(names.len() + 1);
        for name in Fields::names(operation) {
            let Some(value) = object.get(name) else { continue };
            let mut value = json(value)?;
            if let (Json::Object(options), "stream_options") = (&mut value, *name) {
                options.retain(|(option, _)| option != INCLUDE_OBFUSCATION);
            }
            members.push(((*name).into(), value));
        }
        let counted = contents.as_ref().map_or_else(Contents::default, |value| value.contents);
        members.extend(contents.map(|value| (part.into(), value.stand_in)));
        let fields = Fields::read(operation, members)?;
        let prompts = match operation {
            Operation::Completions | Operation::Embeddings => counted.texts,
            Operation::ChatCompletions | Operation::Responses | Operation::Messages => 1,
        };
        let request = Self {
            operation,
            model: fields.model,
            is_stream: fields.stream,
            include_usage: fields.include_usage,
            continuous_usage: fields.continuous_usage,
            timings_per_token: fields.timings_per_token,
            max_tokens: fields.max_tokens,
            max_completion_tokens: fields.max_completion_tokens,
            choices: fields.n.saturating_mul(prompts),
            generated: fields.n.max(fields.best_of).saturating_mul(prompts),
            prompts,
            contents: counted,
            survey,
            object,
        };
        request.refuse_stored()?;
        Ok(request)
    }

    /// Fails for a response that needs a stored conversation or prompt, or that would continue after its
    /// answer.
    fn refuse_stored(&self) -> Result<(), Error> {
        if self.operation != Operation::Responses {
            return Ok(());
        }
        let unsupported = |name, message| Error::new(Code::UnsupportedParameter).param(name).message(message);
        let is_sent = |name: &str| self.object.get(name).is_some_and(|value| value != b"null");
        if let Some(name) = STORED.into_iter().find(|name| is_sent(name)) {
            let message =
                format!("`{name}` isn't supported: no conversation is stored. Send all of it as `input`.");
            return Err(unsupported(name, message));
        }
        if self.contents.has_references {
            let message = "An `item_reference` isn't supported: no item is stored. Send the item itself.";
            return Err(unsupported("input", message.to_owned()));
        }
        if self.object.get("background").is_some_and(|value| !matches!(value, b"null" | b"false")) {
            let message = "`background` must be false: the answer is sent while it is generated.";
            return Err(unsupported("background", message.to_owned()));
        }
        Ok(())
    }

    /// Returns the media in the request that have to be loaded from web URLs.
    pub(crate) fn web_media(&self) -> impl Iterator<Item = &Media> {
        self.survey.media.iter().filter(|media| media.scheme == Scheme::Web)
    }

    /// Returns the body with each web URL replaced by the result of `text_of`. If that is `None`, the URL
    /// stays.
    pub(crate) fn body_with(&self, text_of: impl Fn(&Media) -> Option<String>) -> Bytes {
        let text = self.object.text();
        let mut places: Vec<_> = self.web_media().collect();
        places.sort_by_key(|media| media.place.start);
        let (mut body, mut copied) = (Vec::with_capacity(text.len()), 0);
        for media in places {
            let Some(replacement) = text_of(media) else { continue };
            body.extend_from_slice(text.get(copied..media.place.start).unwrap_or_default());
            body.extend_from_slice(replacement.as_bytes());
            copied = media.place.end;
        }
        body.extend_from_slice(text.get(copied..).unwrap_or_default());
        body.into()
    }

    /// Returns the person that the client names, for the log of calls.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.survey.end_user()
    }

    /// Returns the unchanged body.
    pub fn body(&self) -> &Bytes {
        self.object.text()
    }

    /// Returns the requested token limit of each answer: the smaller of both limits, and at least 1.
    pub fn asked_tokens(&self) -> Option<i64> {
        let asked = [self.max_tokens, self.max_completion_tokens].into_iter().flatten().min();
        // vLLM also generates a token for a limit of 0.
        asked.map(|tokens| tokens.max(1))
    }

    /// Returns the name of the field with the requested token limit. Of two limits, the smaller one counts.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        match (self.max_tokens, self.max_completion_tokens) {
            (older, Some(newer)) if older.is_none_or(|older| newer < older) => Some("max_completion_tokens"),
            _ => self.operation.limit(),
        }
    }

    /// Returns the number of tokens to reserve for all prompts, for a model with this context. A token of
    /// text has at least one byte in the body; the tokens of the chat template and of media are added. Remote
    /// media may have any number of tokens, so the whole context is reserved. The same applies if one of
    /// these upstreams may add to the prompt, such as the results of a tool that it runs.
    pub fn reserved_prompt_tokens<'a>(
        &self,
        context_length: Option<i64>,
        upstreams: impl IntoIterator<Item = &'a Upstream>,
    ) -> i64 {
        let contexts = context_length.map(|context| context.saturating_mul(self.prompts));
        let is_open =
            || self.contents.parts.remote > 0 || upstreams.into_iter().any(|one| self.is_added_to(one));
        match contexts {
            Some(contexts) if is_open() => contexts,
            Some(contexts) => self.prompt_tokens_bound().min(contexts),
            None => self.prompt_tokens_bound(),
        }
    }

    /// Returns the maximum number of web searches that an upstream may make for the answer. Without a search
    /// tool, the number is 0.
    pub fn most_searches(&self) -> i64 {
        self.survey.most_searches(self.operation)
    }

    /// Returns the maximum number of seconds of audio in the prompt; 0 without audio. Inline audio has at
    /// least 4,000 bytes per second, and can't have more bytes than the body.
    pub fn most_audio_seconds(&self) -> i64 {
        let Contents { parts, .. } = self.contents;
        if parts.audios == 0 {
            return 0;
        }
        // Base64 has four characters for three bytes.
        let bytes = i64::try_from(self.object.text().len() / 4 * 3).unwrap_or(i64::MAX);
        let remote = parts.remote.min(parts.audios).saturating_mul(REMOTE_AUDIO_SECONDS);
        (bytes / LEAST_AUDIO_BYTES_PER_S + parts.audios).saturating_add(remote)
    }

    /// Returns the maximum number of tokens that an upstream can count for all prompts, for a model with this
    /// context.
    pub fn countable_prompt_tokens(&self, context_length: Option<i64>) -> i64 {
        match context_length {
            Some(context) => context.saturating_mul(self.prompts),
            None => ASSUMED_CONTEXT.saturating_mul(self.prompts).max(self.prompt_tokens_bound()),
        }
    }

    fn prompt_tokens_bound(&self) -> i64 {
        let bytes = i64::try_from(self.object.text().len()).unwrap_or(i64::MAX);
        let Contents { items, parts, .. } = self.contents;
        let items = items.max(1).saturating_mul(ITEM_TEMPLATE_TOKENS);
        let template = match self.operation {
            // Inputs have no template, only special tokens at the beginning and the end.
            Operation::Completions | Operation::Embeddings => items,
            Operation::ChatCompletions | Operation::Responses | Operation::Messages => {
                TEMPLATE_TOKENS.saturating_add(items)
            }
        };
        let media = parts.images + parts.audios + parts.videos + parts.files;
        bytes.saturating_add(template).saturating_add(media.saturating_mul(MEDIA_TOKENS))
    }

    /// Returns the approximate number of tokens of the prompts, for upstreams that don't count them.
    pub fn estimated_prompt_tokens(&self) -> i64 {
        let text = self.contents.text + self.tokens_beside_contents();
        let tokens = text.count().saturating_add(self.contents.tokens);
        match self.operation {
            Operation::Completions | Operation::Embeddings => tokens.max(1),
            Operation::ChatCompletions | Operation::Responses | Operation::Messages => {
                tokens.saturating_add(self.contents.items.max(1).saturating_mul(LEAST_ITEM_TOKENS))
            }
        }
    }

    /// Returns the tokens of the system prompt, the instructions and the tools, which the model reads in
    /// addition to the contents.
    fn tokens_beside_contents(&self) -> TextTokens {
        let texts = ["system", "instructions"].into_iter().filter_map(|name| self.object.get(name));
        let mut tokens = TextTokens::default();
        for value in texts {
            tokens += serde_json::from_slice(value).map_or(TextTokens::default(), |Lenient(Text(text))| text);
        }
        let tools = self.object.get("tools").and_then(|value| serde_json::from_slice(value).ok());
        tokens + tools.map_or(TextTokens::default(), |Lenient(Description(tools))| tools)
    }

    /// Returns the beginning of the contents as sent. Calls with the same beginning share a prefix of their
    /// prompts, which an upstream may have cached.
    pub fn beginning(&self) -> &[u8] {
        const MAX_BYTES: usize = 4096;
        let text = self.object.text();
        let name = format!("\"{}\"", self.operation.contents());
        let start = memchr::memmem::find(text, name.as_bytes()).unwrap_or_default();
        let rest = text.get(start..).unwrap_or_default();
        rest.get(..MAX_BYTES).unwrap_or(rest)
    }

    /// Fails if an upstream of this dialect doesn't support the operation, or would count only one of several
    /// answers.
    ///
    /// # Errors
    /// 503 `model_not_served`, or 400 `unsupported_parameter`.
    pub fn check_dialect(&self, dialect: &Dialect) -> Result<(), Error> {
        if !dialect.has(self.operation) {
            let path = self.operation.path();
            let message = format!("No server behind the model `{}` supports `/v1{path}`.", self.model);
            return Err(Error::new(Code::ModelNotServed).message(message));
        }
        if !dialect.counts_one_answer || self.operation == Operation::Embeddings {
            return Ok(());
        }
        let unsupported = |name: &'static str| {
            let message = format!("`{name}` must be 1 for this model.");
            Error::new(Code::UnsupportedParameter).param(name).message(message)
        };
        let is_one = |name: &str| match self.object.get(name).map(json) {
            None | Some(Ok(Json::Null | Json::Integer(1))) => true,
            Some(Ok(Json::Float(number))) => number == 1.0,
            Some(_) => false,
        };
        if let Some(name) = ["n", "best_of", "n_cmpl"].into_iter().find(|name| !is_one(name)) {
            return Err(unsupported(name));
        }
        if self.prompts > 1 {
            let message = "`prompt` must be a single string for this model.";
            return Err(Error::new(Code::UnsupportedParameter).param("prompt").message(message));
        }
        Ok(())
    }
}

/// Fails for a member of `stream_options` that isn't forwarded.
fn refuse_stream_options(object: &Object) -> Result<(), Error> {
    let Some(Json::Object(options)) = object.get("stream_options").map(json).transpose()? else {
        return Ok(());
    };
    let Some((name, _)) = options.iter().find(|(name, _)| !STREAM_OPTIONS.contains(&name.as_ref())) else {
        return Ok(());
    };
    if let Some(meant) = lookalike(name, STREAM_OPTIONS) {
        return Err(misspelled("stream_options.", name, meant).param("stream_options"));
    }
    let name = shown(name);
    let [usage, continuous, obfuscation] = STREAM_OPTIONS;
    let message = format!(
        "`stream_options.{name}` isn't supported: `stream_options` may have `{usage}`, `{continuous}` and \
         `{obfuscation}`."
    );
    Err(unsupported("stream_options", message))
}

/// Returns the members of a request that the gateway reads or writes. Each may appear at most once, and no
/// other name may match it in a case-insensitive parser.
pub fn watched_names(operation: Operation) -> impl Iterator<Item = &'static str> {
    names(operation).iter().copied().chain([operation.contents()])
}

const fn names(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Responses => RESPONSE_NAMES,
        Operation::ChatCompletions | Operation::Completions | Operation::Embeddings | Operation::Messages => {
            NAMES
        }
    }
}

/// Returns a body that has already been parsed, as a string.
fn text_of(body: &Bytes) -> Result<&str, Error> {
    std::str::from_utf8(body).map_err(|error| refuse(JsonError::NotUtf8 { at: error.valid_up_to() }))
}

/// Parses a value. The text is already known to be JSON, but [`Json`] has additional rules.
fn json(value: &[u8]) -> Result<Json<'_>, Error> {
    input::json::parse(value)
}

fn refuse(error: JsonError) -> Error {
    let message = match error {
        JsonError::NotAnObject => "The body must be a JSON object.".to_owned(),
        JsonError::NotUtf8 { at } => format!("The body is not valid UTF-8 at byte {at}."),
        JsonError::Invalid(message) => format!("The body is not valid JSON: {message}."),
        JsonError::TooDeep => format!("The body is nested deeper than {MAX_DEPTH}."),
        JsonError::Duplicate(name) => {
            format!("The body is not valid JSON: the key \"{name}\" appears twice.")
        }
    };
    Error::new(Code::InvalidJson).param("body").message(message)
}

#[cfg(test)]
mod tests;
