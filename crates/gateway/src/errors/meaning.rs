//! The meaning of an upstream's error, and the error that the client gets.

use hyper::body::Bytes;
use kernel::error::{Code, Error};
use serde::de::{IgnoredAny, MapAccess};

use crate::json::Object;
use crate::lenient::{Gather, Lenient, Name};

/// The maximum number of characters of a parameter's name.
const MAX_PARAM_CHARS: usize = 64;

/// Codes and types that servers use for a prompt that is too long.
const CONTEXT_WORDS: [&str; 3] =
    ["context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"];

/// Parts of messages about a prompt that is too long, in lower case, for servers without a code. All parts of
/// an entry must be present.
const CONTEXT_PHRASES: [&[&str]; 13] = [
    // OpenAI, older vLLM, DeepSeek, Mistral
    &["maximum context length"],
    // OpenAI's responses
    &["exceeds the context window"],
    // vLLM 0.32
    &["the model's context length is only"],
    &["maximum input length of"],
    // SGLang
    &["longer than the model's context length"],
    // llama.cpp
    &["exceeds the available context size"],
    // Anthropic
    &["prompt is too long"],
    // Bedrock
    &["input is too long for requested model"],
    // Gemini
    &["input token count", "exceeds the maximum"],
    // xAI
    &["maximum prompt length"],
    // Groq
    &["reduce the length of the messages"],
    // TGI
    &["`inputs` tokens + `max_new_tokens` must be"],
    &["`inputs` must have less than"],
];

/// Codes and types that servers use for problems of the operator's credential or account.
const ACCOUNT_WORDS: [&str; 6] = [
    "invalid_api_key",
    "insufficient_quota",
    "insufficient_user_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
];

/// Parts of such messages, in lower case.
const ACCOUNT_PHRASES: [&str; 7] = [
    // Gemini
    "api key not valid",
    "api key expired",
    // OpenAI, xAI
    "incorrect api key",
    "check your plan and billing details",
    // Anthropic
    "invalid x-api-key",
    "credit balance is too low",
    // DeepSeek
    "insufficient balance",
];

/// An error of an upstream, reduced to the parts that a client may see.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct UpstreamError {
    /// The message, without anything that reveals the upstream.
    pub message: Option<String>,
    /// The member of the request that the error names.
    param: Option<String>,
    /// The code and the type of the error, in lower case.
    words: Vec<String>,
    /// The status that the error names.
    status: Option<u16>,
}

impl UpstreamError {
    /// Reads the body of an error, or an event with one. `secrets` is the same as for
    /// [`message`](super::message).
    pub fn read<S: AsRef<str>>(body: &Bytes, secrets: &[S]) -> Self {
        const NAMES: &[&str] = &["error", "type", "code", "param", "status"];
        let message = super::message(body, secrets);
        let Ok(object) = Object::read_lax(body.clone(), NAMES) else {
            return Self { message, ..Self::default() };
        };
        let mut found = Self { message, ..Self::default() };
        let inner =
            object.get("error").and_then(|error| serde_json::from_slice::<Lenient<Members>>(error).ok());
        if let Some(Lenient(members)) = inner {
            found.add(members);
        }
        // In the event of a failed response and in flat forms of older servers, the members are outside of
        // `error`.
        let outer = serde_json::from_slice::<Lenient<Members>>(object.readable());
        found.add(outer.map_or_else(|_| Members::default(), |Lenient(members)| members));
        found
    }

    fn add(&mut self, Members { code, kind, param, status }: Members) {
        for word in [code, kind].into_iter().flatten() {
            self.status =
                self.status.or_else(|| word.parse().ok().filter(|status| (400..600).contains(status)));
            self.words.push(word.to_ascii_lowercase());
        }
        self.status = self.status.or(status);
        self.param = self.param.take().or(param);
    }

    /// Returns the code and the type, for the log.
    pub(crate) fn words(&self) -> String {
        self.words.join(", ")
    }

    /// Returns the status that the error names, or the status that its type stands for.
    pub fn status(&self) -> Option<u16> {
        self.status.or_else(|| {
            self.words.iter().find_map(|word| match word.replace([' ', '_'], "").as_str() {
                "badrequest"
                | "badrequesterror"
                | "invalidrequesterror"
                | "invalidprompt"
                | "contextlengthexceeded"
                | "exceedcontextsizeerror" => Some(400),
                "authenticationerror" => Some(401),
                "permissionerror" => Some(403),
                "notfounderror" | "modelnotfound" => Some(404),
                "requesttoolarge" => Some(413),
                "ratelimiterror" | "ratelimitexceeded" => Some(429),
                "internalservererror" | "apierror" | "servererror" => Some(500),
                "serviceunavailable" => Some(503),
                "overloadederror" => Some(529),
                _ => None,
            })
        })
    }

    /// Returns whether the error is about the operator's credential or account at the upstream.
    pub(crate) fn is_of_account(&self) -> bool {
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        self.status == Some(402)
            || self.words.iter().any(|word| ACCOUNT_WORDS.contains(&word.as_str()))
            || ACCOUNT_PHRASES.into_iter().any(|part| message.contains(part))
    }

    /// Returns whether the error means that the prompt is too long for the model.
    pub fn is_context_length(&self) -> bool {
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        self.words.iter().any(|word| CONTEXT_WORDS.contains(&word.as_str()))
            || CONTEXT_PHRASES.into_iter().any(|parts| parts.iter().all(|part| message.contains(part)))
    }

    /// Returns the error for a client that sent an invalid request, with the upstream's message and the named
    /// member.
    pub(crate) fn of_client(self, code: Code) -> Error {
        let is_context = code == Code::InvalidRequest && self.is_context_length();
        let error = Error::new(if is_context { Code::ContextLengthExceeded } else { code });
        let message =
            self.message.unwrap_or_else(|| "The server behind this model refused the request.".to_owned());
        Error { param: self.param.map(Into::into), ..error.message(message) }
    }

    /// Returns the error that ends a stream. Mistakes of the client are reported in detail; problems of the
    /// upstream aren't.
    pub(crate) fn in_stream(self) -> Error {
        match self.status() {
            _ if self.is_context_length() => self.of_client(Code::InvalidRequest),
            Some(400 | 422) if !self.is_of_account() => self.of_client(Code::InvalidRequest),
            _ => Code::UpstreamCut.into(),
        }
    }

    /// Returns the same error with the client's name of the model.
    #[must_use]
    pub(crate) fn renamed(self, from: &str, to: &str) -> Self {
        Self { message: self.message.map(|message| super::rename(&message, from, to)), ..self }
    }
}

/// The members of an error that determine its meaning.
#[derive(Default)]
struct Members {
    code: Option<String>,
    kind: Option<String>,
    param: Option<String>,
    status: Option<u16>,
}

impl<'de> Gather<'de> for Members {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let member = match name.as_ref() {
                "code" => &mut self.code,
                "type" => &mut self.kind,
                "param" => {
                    let Lenient(param) = members.next_value::<Lenient<String>>()?;
                    self.param = Some(param).filter(|param| is_param(param));
                    continue;
                }
                "status" => {
                    let status = members.next_value::<Lenient<String>>()?.0.parse().ok();
                    self.status = status.filter(|status| (400..600).contains(status));
                    continue;
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let Lenient(word) = members.next_value::<Lenient<String>>()?;
            *member = (!word.is_empty() && word.len() <= MAX_PARAM_CHARS).then_some(word);
        }
        Ok(())
    }
}

/// Returns `true` if a string has the form of a path to a member of a request.
fn is_param(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.[]".contains(&byte);
    !text.is_empty() && text.len() <= MAX_PARAM_CHARS && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests;
