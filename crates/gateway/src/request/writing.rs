//! Conversion of a client's request for an upstream. The bytes stay the same, except for the model's name,
//! the token limit, and injected fields that make the upstream report token counts.

use hyper::body::Bytes;
use input::json::Json;

use super::{ModelRequest, json, tools};
use crate::dialect::{Dialect, Limit, RunningCounts};
use crate::errors;
use crate::json::{Edit, Object};
use crate::operation::Operation;

/// A member that is added to a request so that the upstream reports token counts or applies a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedField {
    /// `stream_options.include_usage`
    IncludeUsage,
    /// `stream_options.continuous_usage_stats`
    ContinuousUsage,
    /// `timings_per_token`
    TimingsPerToken,
    /// `max_tokens` of a chat, in addition to `max_completion_tokens`: some OpenAI-compatible servers apply
    /// only one of them, and OpenAI itself refuses both at once.
    MaxTokens,
}

impl InjectedField {
    /// Every field, nested ones first.
    pub const ALL: [Self; 4] =
        [Self::ContinuousUsage, Self::TimingsPerToken, Self::IncludeUsage, Self::MaxTokens];

    /// Returns `true` if the field makes the upstream report token counts.
    pub(crate) const fn is_for_counting(self) -> bool {
        !matches!(self, Self::MaxTokens)
    }

    /// Returns the name of the member.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IncludeUsage => "include_usage",
            Self::ContinuousUsage => "continuous_usage_stats",
            Self::TimingsPerToken => "timings_per_token",
            Self::MaxTokens => "max_tokens",
        }
    }
}

/// The fields that may be added to a request. By default, these are all fields that the kind of upstream
/// supports. If an upstream refuses a field, requests are sent [`without`](Self::without) it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Injection {
    without_include_usage: bool,
    without_continuous_usage: bool,
    without_timings: bool,
    without_max_tokens: bool,
}

impl Injection {
    /// Returns the same fields without this one. Without `include_usage`, continuous counts are removed as
    /// well.
    #[must_use]
    pub const fn without(mut self, field: InjectedField) -> Self {
        match field {
            InjectedField::IncludeUsage => self.without_include_usage = true,
            InjectedField::ContinuousUsage => self.without_continuous_usage = true,
            InjectedField::TimingsPerToken => self.without_timings = true,
            InjectedField::MaxTokens => self.without_max_tokens = true,
        }
        self
    }

    /// Returns `true` if the field isn't added to any request.
    pub const fn is_without(self, field: InjectedField) -> bool {
        match field {
            InjectedField::IncludeUsage => self.without_include_usage,
            InjectedField::ContinuousUsage => self.without_continuous_usage,
            InjectedField::TimingsPerToken => self.without_timings,
            InjectedField::MaxTokens => self.without_max_tokens,
        }
    }

    /// Returns whether the field may be added to a request for an upstream of this dialect.
    pub const fn adds(self, field: InjectedField, dialect: &Dialect) -> bool {
        let is_known = match field {
            InjectedField::IncludeUsage => true,
            InjectedField::ContinuousUsage => {
                matches!(dialect.running_counts, RunningCounts::Usage) && !self.without_include_usage
            }
            InjectedField::TimingsPerToken => matches!(dialect.running_counts, RunningCounts::Timings),
            InjectedField::MaxTokens => matches!(dialect.limit, Limit::Newer),
        };
        is_known && !self.is_without(field)
    }
}

/// Phrases in errors about a member that a server doesn't accept.
const UNKNOWN: [&str; 8] = [
    "not supported",
    "unsupported",
    "unrecognized",
    "unknown",
    "unexpected",
    "not permitted",
    "not allowed",
    "at the same time",
];

/// Returns the injected field that an upstream refuses, read from the body of its answer.
pub fn refused_field(body: &Bytes) -> Option<InjectedField> {
    named_field(&errors::message::<&str>(body, &[])?)
}

/// Returns the injected field that a message names.
pub(crate) fn named_field(message: &str) -> Option<InjectedField> {
    // pydantic repeats the input after the refused field, and the input may name fields that weren't refused.
    let reason = message.split("'input':").next().unwrap_or_default();
    // Many errors name the token limit because of its value, not because the field is unknown.
    let is_unknown = || UNKNOWN.into_iter().any(|words| reason.to_lowercase().contains(words));
    let named = |field: &InjectedField| {
        reason.contains(field.as_str()) && (*field != InjectedField::MaxTokens || is_unknown())
    };
    let found = InjectedField::ALL.into_iter().find(named);
    found.or_else(|| reason.contains("stream_options").then_some(InjectedField::IncludeUsage))
}

/// The upstream that a request is written for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The upstream's dialect.
    pub dialect: &'static Dialect,
    /// The model's name at the upstream.
    pub model: &'a str,
    /// The maximum number of tokens of each answer.
    pub max_completion_tokens: i64,
    /// The fields that may be added.
    pub inject: Injection,
    /// Other differences from the client's request and answer.
    pub options: TargetOptions<'a>,
}

/// Differences between the client's request and the upstream's, and between their answers, except in counts.
#[derive(Clone, Copy, Default, Debug)]
pub struct TargetOptions<'a> {
    /// `true` if web searches that are offered among the tools are removed.
    pub drops_searches: bool,
    /// The salt that separates the upstream's prompt cache by organization.
    pub cache_salt: Option<&'a str>,
    /// `true` if cached tokens are hidden from the client.
    pub hides_cached_tokens: bool,
}

impl Target<'_> {
    /// Returns whether the field is added to this request, which doesn't have it yet.
    pub(crate) fn adds(&self, field: InjectedField, request: &ModelRequest) -> bool {
        let is_for_it = match field {
            InjectedField::MaxTokens => {
                request.operation == Operation::ChatCompletions && request.max_tokens.is_none()
            }
            InjectedField::TimingsPerToken => {
                request.is_stream && request.operation != Operation::Messages && !request.timings_per_token
            }
            // Responses and messages always end with their usage.
            InjectedField::IncludeUsage => {
                request.is_stream && request.operation.has_chunks() && !request.include_usage
            }
            InjectedField::ContinuousUsage => {
                request.is_stream && request.operation.has_chunks() && !request.continuous_usage
            }
        };
        is_for_it && self.inject.adds(field, self.dialect)
    }
}

impl ModelRequest {
    /// Returns the body for an upstream.
    pub fn write_for(&self, upstream: &Target<'_>) -> Bytes {
        let mut edit = self.object.edit();
        if upstream.model != self.model {
            edit.set("model", json_string(upstream.model));
        }
        if let Some(name) = self.operation.limit() {
            self.limit_tokens(&mut edit, name, upstream);
        }
        self.inject(&mut edit, upstream);
        if upstream.options.drops_searches
            && let Some(tools) = self.object.get("tools").and_then(tools::without_searches)
        {
            edit.set("tools", tools);
        }
        if let Some(salt) = upstream.options.cache_salt {
            edit.set("cache_salt", json_string(salt));
        }
        edit.to_bytes()
    }

    /// Returns the body for a server that only counts the prompt of a model.
    pub(crate) fn write_for_count(&self, model: &str) -> Bytes {
        let mut edit = self.object.edit();
        if model != self.model {
            edit.set("model", json_string(model));
        }
        edit.to_bytes()
    }

    /// Lowers each limit that is too high. If the request has no limit that this upstream applies, one is
    /// added.
    fn limit_tokens(&self, edit: &mut Edit<'_>, name: &'static str, upstream: &Target<'_>) {
        let most = upstream.max_completion_tokens;
        let limits = [(name, self.max_tokens), ("max_completion_tokens", self.max_completion_tokens)];
        for (name, asked) in limits {
            if asked.is_some_and(|asked| asked > most) {
                edit.set(name, most.to_string().into_bytes());
            }
        }
        let is_chat = self.operation == Operation::ChatCompletions;
        let (needed, is_limited) = match upstream.dialect.limit {
            Limit::Newer if is_chat => ("max_completion_tokens", self.asked_tokens().is_some()),
            Limit::Older => (name, self.max_tokens.is_some()),
            Limit::Both | Limit::Newer => (name, self.asked_tokens().is_some()),
        };
        let limit = self.asked_tokens().map_or(most, |asked| asked.min(most)).to_string().into_bytes();
        if upstream.adds(InjectedField::MaxTokens, self) {
            edit.set(InjectedField::MaxTokens.as_str(), limit.clone());
        }
        if !is_limited {
            edit.set(needed, limit);
        }
        if let Some(name) = upstream.dialect.own_limit
            && let Some(predicted) = self.object.get(name)
        {
            let is_within =
                matches!(json(predicted), Ok(Json::Integer(tokens)) if (1..=most).contains(&tokens));
            if !is_within {
                edit.set(name, most.to_string().into_bytes());
            }
        }
    }

    /// Adds the fields that make the upstream report token counts.
    fn inject(&self, edit: &mut Edit<'_>, upstream: &Target<'_>) {
        if upstream.adds(InjectedField::TimingsPerToken, self) {
            edit.set(InjectedField::TimingsPerToken.as_str(), b"true".as_slice());
        }
        let wanted = [InjectedField::IncludeUsage, InjectedField::ContinuousUsage]
            .into_iter()
            .filter(|field| upstream.adds(*field, self));
        if wanted.clone().next().is_none() {
            return;
        }
        const NAMES: &[&str] =
            &[InjectedField::IncludeUsage.as_str(), InjectedField::ContinuousUsage.as_str()];
        // Absent and null are treated as an empty object.
        let sent = self.object.slice("stream_options").and_then(|options| Object::read(options, NAMES).ok());
        let Some(options) = sent.or_else(|| Object::read(Bytes::from_static(b"{}"), NAMES).ok()) else {
            return;
        };
        let mut inner = options.edit();
        for field in wanted {
            inner.set(field.as_str(), b"true".as_slice());
        }
        let options = inner.to_bytes();
        if self.object.get("stream_options") != Some(&options) {
            edit.set("stream_options", options.to_vec());
        }
    }
}

/// Returns a string as JSON.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}

#[cfg(test)]
mod tests;
