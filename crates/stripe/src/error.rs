//! What can go wrong with a request.

use std::fmt;

use serde::Deserialize;

use crate::values::{Expandable, Reference};

/// The most characters of a message.
const MAX_MESSAGE_CHARS: usize = 500;
/// The most characters of a code or an id.
const MAX_WORD_CHARS: usize = 100;

/// The outcome of a request that wasn't answered with an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Stripe has refused it, and refuses it again: a declined card, a field that it doesn't accept, an object that it
    /// doesn't have.
    Refused(Box<Refusal>),
    /// It may have been executed or not. Send it again with the same key, or read what has become of it.
    Unknown {
        reason: Reason,
        /// What Stripe says about trying again (`Stripe-Should-Retry`).
        should_retry: Option<bool>,
        request_id: Option<String>,
    },
    /// The secret key is wrong, or may not do this: an operator has to change the configuration.
    Misconfigured(Box<Refusal>),
    /// The answer can't be read, although it came whole: it isn't from Stripe, or of another version. A POST may have been
    /// executed.
    Unreadable { status: u16, why: String, request_id: Option<String> },
}

/// Why an outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There was no connection, so nothing was sent.
    NotConnected,
    /// There was no whole answer in time.
    Timeout,
    /// The connection ended before the answer did.
    CutOff,
    /// Stripe has answered with this status: an error of its own, too many requests, or a request with the same key that is
    /// still under way (409).
    Status(u16),
}

/// What Stripe says about a request that it refuses.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub status: u16,
    /// The type of the error, such as `card_error`.
    pub kind: String,
    /// What is wrong, such as `card_declined` or `authentication_required`.
    pub code: Option<String>,
    /// Why the bank has declined the card.
    pub decline_code: Option<String>,
    /// What the bank advises: `try_again_later`, `do_not_try_again`, `confirm_card_data`.
    pub advice_code: Option<String>,
    /// The field that isn't accepted.
    pub param: Option<String>,
    /// A sentence in English, without the secret key.
    pub message: String,
    /// The payment intent that the request has made or changed.
    pub payment_intent: Option<String>,
    /// The charge that has failed.
    pub charge: Option<String>,
    /// The id by which Stripe finds the request.
    pub request_id: Option<String>,
}

impl Refusal {
    /// Returns `true` if Stripe doesn't have the object that a field of the request names, such as `customer`.
    pub fn lacks(&self, field: &str) -> bool {
        self.code.as_deref() == Some("resource_missing") && self.param.as_deref() == Some(field)
    }
}

impl Error {
    /// Returns `true` if Stripe doesn't have the object that a field of the request names, such as `customer`.
    pub fn lacks(&self, field: &str) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.lacks(field))
    }

    /// Returns what Stripe has refused with.
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

    /// Returns `true` if the key may not do this.
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

    /// The error for an id that no object can have.
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
                write!(f, "the answer {status} can't be read: {why}{}", Request(request_id.as_deref()))
            }
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("there is no connection to Stripe"),
            Self::Timeout => f.write_str("Stripe hasn't answered in time"),
            Self::CutOff => f.write_str("the connection to Stripe has ended without a whole answer"),
            Self::Status(status) => write!(f, "Stripe has answered {status}"),
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

/// The id of a request, as the end of a sentence.
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

/// Reads the answer to a request that wasn't executed, with its status.
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
            let why = "it isn't an error as Stripe writes them".to_owned();
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

/// Returns `true` for answers that say nothing about the outcome: an error of the server, too many requests, another
/// request with the key under way, a failed dependency.
const fn is_unknown(status: u16) -> bool {
    matches!(status, 408 | 409 | 424 | 425 | 429 | 500..)
}

fn word(text: Option<String>) -> Option<String> {
    text.map(|text| shortened(&text, MAX_WORD_CHARS)).filter(|text| !text.is_empty())
}

fn shortened(text: &str, chars: usize) -> String {
    text.chars().take(chars).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a message without what may be a part of a key: Stripe repeats the ends of a wrong one.
fn without_secrets(message: &str, secret: &str) -> String {
    let message = if secret.is_empty() { message.to_owned() } else { message.replace(secret, "***") };
    let is_key = |word: &str| ["sk_", "rk_", "whsec_"].iter().any(|prefix| word.contains(prefix));
    let words: Vec<_> = message.split(' ').map(|word| if is_key(word) { "***" } else { word }).collect();
    shortened(&words.join(" "), MAX_MESSAGE_CHARS)
}

#[cfg(test)]
mod tests;
