//! One error for every endpoint: section 7 of the interface as a table of codes.
//!
//! A [`Code`] fixes the HTTP status, the `type` and the words; an [`Error`] adds which field, which details
//! and, for the log only, what really happened. What goes to the caller never holds the internal side.

mod codes;

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use serde::Serialize;

pub use codes::Code;

/// What kind of mistake it is, in the words that the OpenAI SDKs know (decisions, section 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// 400, 404, 405, 408, 409, 413, 431.
    InvalidRequest,
    /// 401.
    Authentication,
    /// 403.
    Permission,
    /// 429.
    RateLimit,
    /// 429 for want of money: waiting doesn't help.
    InsufficientQuota,
    /// 5xx.
    Api,
}

impl Type {
    /// The word in `error.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Permission => "permission_error",
            Self::RateLimit => "rate_limit_error",
            Self::InsufficientQuota => "insufficient_quota",
            Self::Api => "api_error",
        }
    }
}

impl Code {
    /// Its place in [`Code::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }

    /// The stable lower_snake word in `error.code`.
    pub const fn as_str(self) -> &'static str {
        self.row().1
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The `type` that belongs to the status.
    pub const fn error_type(self) -> Type {
        if matches!(self, Self::InsufficientQuota) {
            return Type::InsufficientQuota;
        }
        match self.row().0 {
            401 => Type::Authentication,
            403 => Type::Permission,
            429 => Type::RateLimit,
            500.. => Type::Api,
            _ => Type::InvalidRequest,
        }
    }

    /// The sentence for people.
    pub const fn message(self) -> &'static str {
        self.row().2
    }
}

/// The most entries of `error.details`.
pub const MAX_DETAILS: usize = 100;

/// One bad field: an entry of `error.details`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Detail {
    /// JSON path of the field, for instance `restrictions.allowed_ips[2]`.
    pub param: String,
    /// A stable lower_snake word, for instance `too_long`.
    pub code: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

/// How far a rate limit is used up, for the headers of a 429.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Requests that the limit allows a minute.
    pub limit: u32,
    /// Milliseconds until one more request fits.
    pub retry_after_ms: i64,
    /// Milliseconds until the whole limit is free again.
    pub reset_ms: i64,
}

/// An error on its way to a caller.
#[derive(Debug)]
pub struct Error {
    /// Which one it is.
    pub code: Code,
    /// JSON path of the field at fault, where there is one.
    pub param: Option<Cow<'static, str>>,
    /// Words that say more than the code's own sentence.
    pub message: Option<String>,
    /// One entry a bad field.
    pub details: Vec<Detail>,
    /// How long to wait, for a 429.
    pub rate_limit: Option<RateLimit>,
    /// What really happened: goes to the log, never to the caller.
    pub internal: Option<String>,
}

impl Error {
    /// This code with its own sentence.
    pub const fn new(code: Code) -> Self {
        Self { code, param: None, message: None, details: Vec::new(), rate_limit: None, internal: None }
    }

    /// Our own mistake; `what` goes to the log only.
    pub fn internal(what: impl fmt::Display) -> Self {
        Self { internal: Some(what.to_string()), ..Self::new(Code::Internal) }
    }

    /// Bad fields, all at once; the first one's path is the error's `param`. Past [`MAX_DETAILS`] the last one says that
    /// there are more.
    pub fn invalid(mut details: Vec<Detail>) -> Self {
        if details.len() > MAX_DETAILS {
            details.truncate(MAX_DETAILS - 1);
            let message = "More is wrong than is listed here: correct these first.".to_owned();
            details.push(Detail { param: "body".to_owned(), code: "too_many", message });
        }
        let param = details.first().map(|d| Cow::Owned(d.param.clone()));
        let message = match details.as_slice() {
            [only] => Some(only.message.clone()),
            _ => None,
        };
        Self { param, message, details, ..Self::new(Code::InvalidRequest) }
    }

    /// The same, about this field.
    #[must_use]
    pub fn param(mut self, param: &'static str) -> Self {
        self.param = Some(Cow::Borrowed(param));
        self
    }

    /// The same, in these words.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The sentence that the caller reads.
    pub fn public_message(&self) -> &str {
        self.message.as_deref().unwrap_or(self.code.message())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.public_message())?;
        match &self.internal {
            Some(internal) => write!(f, " ({internal})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Code> for Error {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_hundred_details_at_most() {
        let details = |count: usize| {
            let detail = |index| Detail { param: format!("p{index}"), code: "required", message: "!".into() };
            Error::invalid((0..count).map(detail).collect()).details
        };
        assert!(details(100).iter().all(|detail| detail.code == "required"));
        for count in [101, 5_000] {
            let details = details(count);
            assert_eq!((details.len(), details[98].param.as_str()), (100, "p98"));
            assert_eq!((details[99].param.as_str(), details[99].code), ("body", "too_many"));
        }
    }
}
