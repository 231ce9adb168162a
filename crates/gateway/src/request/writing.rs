//! A client's request as an upstream gets it: byte for byte the same, except for the model's name, the limit
//! of tokens, and what makes the upstream count.

use hyper::body::Bytes;
use input::json::Json;

use super::{ModelRequest, json, policy};
use crate::errors;
use crate::json::{Edit, Object};
use crate::operation::Operation;
use catalog::UpstreamKind;

/// A member that is added to streams, so that the upstream counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedField {
    /// `stream_options.include_usage`
    IncludeUsage,
    /// `stream_options.continuous_usage_stats`
    ContinuousUsage,
    /// `timings_per_token`
    TimingsPerToken,
}

impl InjectedField {
    /// Every field, those within others first.
    pub const ALL: [Self; 3] = [Self::ContinuousUsage, Self::TimingsPerToken, Self::IncludeUsage];

    /// The name of the member.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IncludeUsage => "include_usage",
            Self::ContinuousUsage => "continuous_usage_stats",
            Self::TimingsPerToken => "timings_per_token",
        }
    }
}

/// The fields that may be added to a stream. By default everything that the kind of upstream knows; an upstream that
/// refuses a field is asked [`without`](Self::without) it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Injection {
    without_include_usage: bool,
    without_continuous_usage: bool,
    without_timings: bool,
}

impl Injection {
    /// Returns the same without a field. Without `include_usage` there are no continuous counts either.
    #[must_use]
    pub const fn without(mut self, field: InjectedField) -> Self {
        match field {
            InjectedField::IncludeUsage => self.without_include_usage = true,
            InjectedField::ContinuousUsage => self.without_continuous_usage = true,
            InjectedField::TimingsPerToken => self.without_timings = true,
        }
        self
    }

    /// Returns `true` if the field isn't added to any stream.
    pub const fn is_without(self, field: InjectedField) -> bool {
        match field {
            InjectedField::IncludeUsage => self.without_include_usage,
            InjectedField::ContinuousUsage => self.without_continuous_usage,
            InjectedField::TimingsPerToken => self.without_timings,
        }
    }

    /// Returns whether a stream of this kind of upstream gets the field.
    pub const fn adds(self, field: InjectedField, kind: UpstreamKind) -> bool {
        match field {
            InjectedField::IncludeUsage => !self.without_include_usage,
            InjectedField::ContinuousUsage => {
                kind.has_continuous_usage() && !self.without_continuous_usage && !self.without_include_usage
            }
            InjectedField::TimingsPerToken => kind.has_timings() && !self.without_timings,
        }
    }
}

/// Returns the injected field that an upstream refuses, by the message of its answer with status 400.
pub fn refused_field(body: &Bytes) -> Option<InjectedField> {
    let message = errors::message::<&str>(body, &[])?;
    // After the refused field pydantic repeats its value, which names fields that weren't refused.
    let reason = message.split("'input':").next().unwrap_or_default();
    let named = |field: &InjectedField| reason.contains(field.as_str());
    let found = InjectedField::ALL.into_iter().find(named);
    found.or_else(|| reason.contains("stream_options").then_some(InjectedField::IncludeUsage))
}

/// The upstream that a request is written for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The upstream's kind.
    pub kind: UpstreamKind,
    /// The model's name there.
    pub model: &'a str,
    /// The most tokens that each answer may have.
    pub max_completion_tokens: i64,
    /// The fields that may be added.
    pub inject: Injection,
    /// What else is written, and read in the answer.
    pub options: TargetOptions<'a>,
}

/// How a request for an upstream, and its answer, differ from those of the client, apart from counts.
#[derive(Clone, Copy, Default, Debug)]
pub struct TargetOptions<'a> {
    /// Searches on the web that are offered among the tools are left out.
    pub drops_searches: bool,
    /// Keeps what the upstream has cached of prompts apart.
    pub cache_salt: Option<&'a str>,
    /// The client isn't told how many tokens came from a cache.
    pub hides_cached_tokens: bool,
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
        if self.is_stream && self.operation != Operation::Messages {
            self.inject(&mut edit, upstream);
        }
        if upstream.options.drops_searches
            && let Some(tools) = self.object.get("tools").and_then(policy::without_searches)
        {
            edit.set("tools", tools);
        }
        if let Some(salt) = upstream.options.cache_salt {
            edit.set("cache_salt", json_string(salt));
        }
        edit.to_bytes()
    }

    /// Lowers each limit that is too high. Where none is sent that this upstream obeys, one is added.
    fn limit_tokens(&self, edit: &mut Edit<'_>, name: &'static str, upstream: &Target<'_>) {
        let most = upstream.max_completion_tokens;
        let limits = [(name, self.max_tokens), ("max_completion_tokens", self.max_completion_tokens)];
        for (name, asked) in limits {
            if asked.is_some_and(|asked| asked > most) {
                edit.set(name, most.to_string().into_bytes());
            }
        }
        let is_chat = self.operation == Operation::ChatCompletions;
        let (needed, is_limited) = match upstream.kind {
            UpstreamKind::Openai if is_chat => ("max_completion_tokens", self.asked_tokens().is_some()),
            // TGI and older servers of llama.cpp don't know the newer name.
            UpstreamKind::Tgi | UpstreamKind::Llamacpp => (name, self.max_tokens.is_some()),
            UpstreamKind::Vllm | UpstreamKind::Sglang | UpstreamKind::Demo | UpstreamKind::Openai => {
                (name, self.asked_tokens().is_some())
            }
        };
        if !is_limited {
            let limit = self.asked_tokens().map_or(most, |asked| asked.min(most));
            edit.set(needed, limit.to_string().into_bytes());
        }
        if upstream.kind == UpstreamKind::Llamacpp
            && let Some(predicted) = self.object.get("n_predict")
        {
            let is_within =
                matches!(json(predicted), Ok(Json::Integer(tokens)) if (1..=most).contains(&tokens));
            if !is_within {
                edit.set("n_predict", most.to_string().into_bytes());
            }
        }
    }

    /// Adds what makes the upstream count.
    fn inject(&self, edit: &mut Edit<'_>, upstream: &Target<'_>) {
        let adds = |field| upstream.inject.adds(field, upstream.kind);
        if adds(InjectedField::TimingsPerToken) && !self.timings_per_token {
            edit.set(InjectedField::TimingsPerToken.as_str(), b"true".as_slice());
        }
        // Responses always end with their usage.
        if !adds(InjectedField::IncludeUsage) || !self.operation.has_chunks() {
            return;
        }
        const NAMES: &[&str] =
            &[InjectedField::IncludeUsage.as_str(), InjectedField::ContinuousUsage.as_str()];
        // Absent and null read like an empty object.
        let sent = self.object.slice("stream_options").and_then(|options| Object::read(options, NAMES).ok());
        let Some(options) = sent.or_else(|| Object::read(Bytes::from_static(b"{}"), NAMES).ok()) else {
            return;
        };
        let mut inner = options.edit();
        let wanted = [
            (InjectedField::IncludeUsage, self.include_usage),
            (InjectedField::ContinuousUsage, self.continuous_usage),
        ];
        for (field, _) in wanted.into_iter().filter(|(field, is_there)| adds(*field) && !is_there) {
            inner.set(field.as_str(), b"true".as_slice());
        }
        let options = inner.to_bytes();
        if self.object.get("stream_options") != Some(&options) {
            edit.set("stream_options", options.to_vec());
        }
    }
}

/// Returns a text as JSON.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}

#[cfg(test)]
mod tests;
