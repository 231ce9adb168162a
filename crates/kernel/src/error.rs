//! The error of every endpoint, with its table of codes (docs/contract/README.md#errors).
//!
//! A [`Code`] fixes the HTTP status, the `type` and the message. An [`Error`] adds the field, the details and
//! an internal cause, which is logged and never sent to the caller.

mod codes;

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use serde::Serialize;

pub use codes::Code;

/// The `type` of an error, in the vocabulary of the OpenAI SDKs (docs/contract/README.md#errors).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// 400, 404, 405, 408, 409, 412, 413, 415, 426, 431.
    InvalidRequest,
    /// 401.
    Authentication,
    /// 403.
    Permission,
    /// 429.
    RateLimit,
    /// 402: insufficient credit, or a budget is used up. Retrying doesn't help.
    InsufficientQuota,
    /// 5xx.
    Api,
}

impl Type {
    /// Returns the value of `error.type`.
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
    /// Returns the index of this code in [`Code::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Returns the value of `error.code`, a stable word in snake case.
    pub const fn as_str(self) -> &'static str {
        self.row().1
    }

    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the `type` of this code.
    pub const fn error_type(self) -> Type {
        if matches!(self, Self::InsufficientQuota | Self::BudgetExceeded) {
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

    /// Returns the default message.
    pub const fn message(self) -> &'static str {
        self.row().2
    }
}

/// Maximum number of entries in `error.details`.
pub const MAX_DETAILS: usize = 100;

/// An invalid field: one entry of `error.details`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Detail {
    /// The JSON path of the field, for instance `restrictions.allowed_ips[2]`.
    pub param: String,
    /// A stable code in snake case, for instance `too_long`.
    pub code: &'static str,
    /// The violated rule, as a sentence.
    pub message: String,
}

/// The state of an exhausted rate limit, for the headers of a 429.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Maximum number of requests per minute.
    pub limit: u32,
    /// The time until the next request is allowed, in milliseconds.
    pub retry_after_ms: i64,
    /// The time until the whole limit is available again, in milliseconds.
    pub reset_ms: i64,
}

/// An error response.
#[derive(Debug)]
pub struct Error {
    pub code: Code,
    /// The JSON path of the invalid field, if any.
    pub param: Option<Cow<'static, str>>,
    /// The message; if `None`, the code's default message applies.
    pub message: Option<String>,
    /// The invalid fields, one entry each.
    pub details: Vec<Detail>,
    /// The exhausted limit, for a 429.
    pub rate_limit: Option<RateLimit>,
    /// The number of seconds after which the call may be retried, if the code's default is too short.
    pub retry_after_s: Option<u64>,
    /// The content codings that the path accepts, in the form of a header, for a 415.
    pub accept_encoding: Option<&'static str>,
    /// The cause, only for the log.
    pub internal: Option<String>,
}

impl Error {
    /// Returns an error with the code's default message.
    pub const fn new(code: Code) -> Self {
        Self {
            code,
            param: None,
            message: None,
            details: Vec::new(),
            rate_limit: None,
            retry_after_s: None,
            accept_encoding: None,
            internal: None,
        }
    }

    /// Returns an internal error (500). `cause` is only logged.
    pub fn internal(cause: impl fmt::Display) -> Self {
        Self { internal: Some(cause.to_string()), ..Self::new(Code::Internal) }
    }

    /// Returns an `invalid_request` error with all `details`. The path of the first one becomes `param`. A
    /// list longer than [`MAX_DETAILS`] is truncated, and its last entry reports that.
    pub fn invalid(mut details: Vec<Detail>) -> Self {
        if details.len() > MAX_DETAILS {
            details.truncate(MAX_DETAILS - 1);
            let message = "More fields are invalid than are listed here. Correct these first.".to_owned();
            details.push(Detail { param: "body".to_owned(), code: "too_many", message });
        }
        let param = details.first().map(|d| Cow::Owned(d.param.clone()));
        let message = match details.as_slice() {
            [only] => Some(only.message.clone()),
            _ => None,
        };
        Self { param, message, details, ..Self::new(Code::InvalidRequest) }
    }

    /// Sets the invalid field.
    #[must_use]
    pub fn param(mut self, param: &'static str) -> Self {
        self.param = Some(Cow::Borrowed(param));
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Returns the message for the caller.
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

/// Returns the text of an error with all its causes.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_capped_at_a_hundred() {
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
