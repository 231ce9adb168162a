//! Groups of error codes that several operations share.

use kernel::error::Code;

/// The error codes of a body.
pub const BODY: &[Code] = &[
    Code::InvalidJson,
    Code::UnsupportedContentType,
    Code::InvalidRequest,
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::UnsupportedEncoding,
    Code::ServerBusy,
];

/// The error codes of a decision about a model call.
pub const DECISION: &[Code] = &[
    Code::AmountOutOfRange,
    Code::BooksQueueFull,
    Code::BudgetExceeded,
    Code::ClockNotTrusted,
    Code::InsufficientQuota,
    Code::MaxTokensExceeded,
    Code::ModelConcurrencyLimited,
    Code::ModelNotAllowed,
    Code::ModelNotFound,
    Code::ModelRateLimited,
];

/// The error codes of the gateway after the decision.
pub const GATEWAY: &[Code] = &[
    Code::ContextLengthExceeded,
    Code::ModelNotServed,
    Code::ModelOverloaded,
    Code::UnsupportedParameter,
    Code::UpstreamCut,
    Code::UpstreamFailed,
    Code::UpstreamTimeout,
];

/// The error codes of a password check.
pub const PASSWORD_GUESS: &[Code] = &[Code::PasswordQueueFull, Code::TooManyAttempts, Code::WrongPassword];
