//! Groups of error codes with which several operations refuse.

use kernel::error::Code;

/// The refusals of a body.
pub const BODY: &[Code] = &[
    Code::InvalidJson,
    Code::UnsupportedContentType,
    Code::InvalidRequest,
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::UnsupportedEncoding,
    Code::ServerBusy,
];

/// The refusals of a decision about a model call.
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

/// The refusals of the gateway, once a call may be made.
pub const GATEWAY: &[Code] = &[
    Code::ContextLengthExceeded,
    Code::ModelNotServed,
    Code::ModelOverloaded,
    Code::UnsupportedParameter,
    Code::UpstreamCut,
    Code::UpstreamFailed,
    Code::UpstreamTimeout,
];

/// The refusals while many passwords are checked, or many were guessed.
pub const PASSWORD_GUESS: &[Code] = &[Code::PasswordQueueFull, Code::TooManyAttempts, Code::WrongPassword];
