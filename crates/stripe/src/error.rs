//! Errors of requests.

use std::fmt;

use serde::Deserialize;

use crate::values::{Expandable, Reference};

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;
/// Maximum length of a code or an id, in characters.
const MAX_WORD_CHARS: usize = 100;

/// The outcome of a request that didn't return an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Stripe refused the request and would refuse it again: a declined card, an invalid field, or a missing
    /// object.
    Refused(Box<Refusal>),
    /// The request may have been executed. Retry it with the same key, or read the object's current state.
    Unknown {
        reason: Reason,
        /// Stripe's advice on retrying (`Stripe-Should-Retry`).
        should_retry: Option<bool>,
        request_id: Option<String>,
    },
    /// The secret key is wrong or lacks permissions: an operator must change the configuration.
    Misconfigured(Box<Refusal>),
    /// The complete response can't be read: it isn't from Stripe, or it's from another API version. A POST
    /// may have been executed.
    Unreadable { status: u16, why: String, request_id: Option<String> },
}

/// The reason why an outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Connecting failed, so nothing was sent.
    NotConnected,
    /// The response wasn't complete before the timeout.
    Timeout,
    /// The connection closed before the response was complete.
    CutOff,
    /// Stripe responded with this status: an internal error, too many requests, or a request with the same
    /// key is still in progress (409).
    Status(u16),
}

/// Stripe's refusal of a request.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub status: u16,
    /// The type of the error, such as `card_error`.
    pub kind: String,
    /// The error code, such as `card_declined` or `authentication_required`.
    pub code: Option<String>,
    /// The reason why the bank declined the card.
    pub decline_code: Option<String>,
    /// The bank's advice: `try_again_later`, `do_not_try_again`, or `confirm_card_data`.
    pub advice_code: Option<String>,
    /// The invalid field.
    pub param: Option<String>,
    /// A sentence in English that doesn't contain the secret key.
    pub message: String,
    /// The payment intent that the request created or changed.
    pub payment_intent: Option<String>,
    /// The charge that failed.
    pub charge: Option<String>,
    /// Stripe's id of the request.
    pub request_id: Option<String>,
}

impl Refusal {
    /// Returns `true` if Stripe doesn't have the object that a field of the request refers to, such as
    /// `customer`.
    pub fn lacks(&self, field: &str) -> bool {
        self.code.as_deref() == Some("resource_missing") && self.param.as_deref() == Some(field)
    }
}

impl Error {
    /// Returns `true` if Stripe doesn't have the object that a field of the request refers to, such as
    /// `customer`.
    pub fn lacks(&self, field: &str) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.lacks(field))
    }

    /// Returns Stripe's refusal, if any.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::Misconfigured(refusal) => Some(refusal),
            Self::Unknown { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// Returns `true` if Stripe doesn't have the object.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.status == 404)
    }

    /// Returns `true` if the key lacks the permission.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.status == 403)
            || matches!(self, Self::Misconfigured(refusal) if refusal.status == 403)
    }

    /// Returns `true` if the request may have been executed.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Unknown { reason, .. } => *reason != Reason::NotConnected,
            Self::Unreadable { .. } => true,
            Self::Refused(_) | Self::Misconfigured(_) => false,
        }
    }

    /// Returns the error for an id that no object can have.
    pub(crate) fn missing() -> Self {
        let refusal = Refusal {
            status: 404,
            kind: "invalid_request_error".to_owned(),
            code: Some("resource_missing".to_owned()),
            message: "No object has this id".to_owned(),
            ..Refusal::default()
        };
        Self::Refused(Box::new(refusal))
    }

    pub(crate) const fn unknown(reason: Reason) -> Self {
        Self::Unknown { reason, should_retry: None, request_id: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "Stripe refuses: {refusal}"),
            Self::Misconfigured(refusal) => write!(f, "Stripe refuses the secret key: {refusal}"),
            Self::Unknown { reason, request_id, .. } => {
                write!(f, "{reason}{}", Request(request_id.as_deref()))
            }
            Self::Unreadable { status, why, request_id } => {
                write!(f, "can't read the response {status}: {why}{}", Request(request_id.as_deref()))
            }
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("can't connect to Stripe"),
            Self::Timeout => f.write_str("Stripe didn't respond in time"),
            Self::CutOff => f.write_str("the connection to Stripe closed before the response was complete"),
            Self::Status(status) => write!(f, "Stripe responded with {status}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        let words =
            [Some(&self.kind), self.code.as_ref(), self.decline_code.as_ref(), self.advice_code.as_ref()];
        for word in words.into_iter().flatten().filter(|word| !word.is_empty()) {
            write!(f, " {word}")?;
        }
        write!(f, ": {}{}", self.message, Request(self.request_id.as_deref()))
    }
}

/// The id of a request, formatted as the end of a sentence.
struct Request<'a>(Option<&'a str>);

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |id| write!(f, " (request {id})"))
    }
}

#[derive(Deserialize)]
struct Envelope {
    error: Body,
}

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    code: Option<String>,
    decline_code: Option<String>,
    advice_code: Option<String>,
    param: Option<String>,
    message: Option<String>,
    payment_intent: Option<Expandable<Reference>>,
    charge: Option<String>,
}

/// Parses an error response with its status.
pub(crate) fn read(
    status: u16,
    body: &[u8],
    request_id: Option<String>,
    should_retry: Option<bool>,
    secret: &str,
) -> Error {
    if is_unknown(status) {
        return Error::Unknown { reason: Reason::Status(status), should_retry, request_id };
    }
    let body = match serde_json::from_slice::<Envelope>(body) {
        Ok(envelope) => envelope.error,
        Err(_) => {
            let why = "it isn't a Stripe error".to_owned();
            return Error::Unreadable { status, why, request_id };
        }
    };
    let refusal = Box::new(Refusal {
        status,
        kind: word(body.kind).unwrap_or_default(),
        code: word(body.code),
        decline_code: word(body.decline_code),
        advice_code: word(body.advice_code),
        param: word(body.param),
        message: without_secrets(&body.message.unwrap_or_default(), secret),
        payment_intent: word(body.payment_intent.map(|intent| intent.id().to_owned())),
        charge: word(body.charge),
        request_id,
    });
    if matches!(status, 401 | 403) { Error::Misconfigured(refusal) } else { Error::Refused(refusal) }
}

/// Returns `true` for statuses that leave the outcome open: a server error, too many requests, a concurrent
/// request with the same key, or a failed dependency.
const fn is_unknown(status: u16) -> bool {
    matches!(status, 408 | 409 | 424 | 425 | 429 | 500..)
}

fn word(text: Option<String>) -> Option<String> {
    text.map(|text| shortened(&text, MAX_WORD_CHARS)).filter(|text| !text.is_empty())
}

fn shortened(text: &str, chars: usize) -> String {
    text.chars().take(chars).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a message with possible parts of keys masked, since Stripe repeats the ends of a wrong key.
fn without_secrets(message: &str, secret: &str) -> String {
    let message = if secret.is_empty() { message.to_owned() } else { message.replace(secret, "***") };
    let is_key = |word: &str| ["sk_", "rk_", "whsec_"].iter().any(|prefix| word.contains(prefix));
    let words: Vec<_> = message.split(' ').map(|word| if is_key(word) { "***" } else { word }).collect();
    shortened(&words.join(" "), MAX_MESSAGE_CHARS)
}

#[cfg(test)]
mod tests;
