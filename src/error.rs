//! One error for every endpoint: section 7 of the interface as a table of codes.
//!
//! A [`Code`] fixes the HTTP status, the `type` and the words; an [`Error`] adds which field, which details
//! and, for the log only, what really happened. What goes to the caller never holds the internal side.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use serde::Serialize;

use crate::db;

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

/// Every error that a caller can meet. The word never changes once released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// What came isn't HTTP, or not the kind that this port takes.
    MalformedRequest,
    /// The body isn't JSON.
    InvalidJson,
    /// The body has no content type, or one that isn't JSON.
    UnsupportedContentType,
    /// One or more fields are wrong: `details` names each.
    InvalidRequest,
    /// A verification, reset or invitation token is unknown, used or expired.
    InvalidToken,
    /// The project can't be public: the organization doesn't allow it.
    PublicProjectsNotAllowed,
    /// More tokens than the key allows for one request.
    MaxTokensExceeded,
    /// An access token says who calls, but not for which project.
    ProjectRequired,
    /// There is no credential.
    MissingCredentials,
    /// The access token is malformed, expired, revoked or of another kind.
    InvalidAccessToken,
    /// The refresh token is malformed, expired, revoked or of another kind.
    InvalidRefreshToken,
    /// The API key is malformed or unknown.
    InvalidApiKey,
    /// The API key has expired.
    ApiKeyExpired,
    /// The e-mail or the password is wrong.
    InvalidCredentials,
    /// The service token is wrong.
    InvalidServiceToken,
    /// The current password is wrong.
    WrongPassword,
    /// The caller's role doesn't allow it.
    InsufficientRole,
    /// The key lacks a permission.
    MissingPermission,
    /// The key may not be used from this address.
    IpNotAllowed,
    /// The key may not use this model.
    ModelNotAllowed,
    /// An API key reaches outside its own project and organization.
    OutsideApiKeyScope,
    /// API keys may not manage (configuration `api_keys.management`).
    ApiKeyManagementDisabled,
    /// The account's e-mail address isn't verified yet.
    EmailNotVerified,
    /// No such path.
    UnknownPath,
    /// No such organization.
    OrganizationNotFound,
    /// No such project.
    ProjectNotFound,
    /// No such API key.
    ApiKeyNotFound,
    /// No such account.
    UserNotFound,
    /// No such member.
    MemberNotFound,
    /// No such model.
    ModelNotFound,
    /// No such invoice.
    InvoiceNotFound,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// The e-mail address has an account.
    EmailTaken,
    /// The username is in use.
    UsernameTaken,
    /// The name is in use beside it.
    NameTaken,
    /// The organization would be left without an owner.
    LastOwner,
    /// The person is a member already.
    AlreadyMember,
    /// There is an open invitation for this address.
    AlreadyInvited,
    /// The organization owes money or still has some.
    UnsettledBalance,
    /// An expired key can't be rotated.
    KeyExpired,
    /// Head or body of the request did not come in time.
    RequestTimeout,
    /// The body is larger than the limit.
    PayloadTooLarge,
    /// The head of the request is larger than the limit.
    HeadTooLarge,
    /// Too many requests.
    RateLimited,
    /// Too many requests of one organization for one model.
    ModelRateLimited,
    /// Too many attempts on one account.
    TooManyAttempts,
    /// Too many logins wait for their password to be checked.
    PasswordQueueFull,
    /// The organization has no money left for the call.
    InsufficientQuota,
    /// As many calls of one organization to one model are under way as the model takes.
    ModelConcurrencyLimited,
    /// There is no such reservation any more.
    ReservationNotFound,
    /// Our own mistake.
    Internal,
    /// Too many calls wait to be booked.
    BooksQueueFull,
    /// The database can't be reached.
    DatabaseUnavailable,
    /// The disk is full.
    StorageFull,
    /// The database can't be written.
    StorageReadOnly,
    /// Requests should go elsewhere: `/readyz` says why.
    NotReady,
}

impl Code {
    /// Every code, for the documents.
    pub const ALL: &[Self] = &[
        Self::MalformedRequest,
        Self::InvalidJson,
        Self::UnsupportedContentType,
        Self::InvalidRequest,
        Self::InvalidToken,
        Self::PublicProjectsNotAllowed,
        Self::MaxTokensExceeded,
        Self::ProjectRequired,
        Self::MissingCredentials,
        Self::InvalidAccessToken,
        Self::InvalidRefreshToken,
        Self::InvalidApiKey,
        Self::ApiKeyExpired,
        Self::InvalidCredentials,
        Self::InvalidServiceToken,
        Self::WrongPassword,
        Self::InsufficientRole,
        Self::MissingPermission,
        Self::IpNotAllowed,
        Self::ModelNotAllowed,
        Self::OutsideApiKeyScope,
        Self::ApiKeyManagementDisabled,
        Self::EmailNotVerified,
        Self::UnknownPath,
        Self::OrganizationNotFound,
        Self::ProjectNotFound,
        Self::ApiKeyNotFound,
        Self::UserNotFound,
        Self::MemberNotFound,
        Self::ModelNotFound,
        Self::InvoiceNotFound,
        Self::MethodNotAllowed,
        Self::EmailTaken,
        Self::UsernameTaken,
        Self::NameTaken,
        Self::LastOwner,
        Self::AlreadyMember,
        Self::AlreadyInvited,
        Self::UnsettledBalance,
        Self::KeyExpired,
        Self::RequestTimeout,
        Self::PayloadTooLarge,
        Self::HeadTooLarge,
        Self::RateLimited,
        Self::ModelRateLimited,
        Self::TooManyAttempts,
        Self::PasswordQueueFull,
        Self::InsufficientQuota,
        Self::ModelConcurrencyLimited,
        Self::ReservationNotFound,
        Self::Internal,
        Self::BooksQueueFull,
        Self::DatabaseUnavailable,
        Self::StorageFull,
        Self::StorageReadOnly,
        Self::NotReady,
    ];

    /// HTTP status, stable word, and the sentence for people. One row a code.
    #[allow(clippy::too_many_lines, reason = "a table: one row a code")]
    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::MalformedRequest => (400, "malformed_request", "This is not a valid HTTP/1.1 request."),
            Self::InvalidJson => (400, "invalid_json", "The body is not valid JSON."),
            Self::UnsupportedContentType => (
                400,
                "unsupported_content_type",
                "Send the body with the header `Content-Type: application/json`.",
            ),
            Self::InvalidRequest => {
                (400, "invalid_request", "Some fields are not valid; `details` names each.")
            }
            Self::InvalidToken => {
                (400, "invalid_token", "The token is unknown, used or expired: ask for a new one.")
            }
            Self::PublicProjectsNotAllowed => (
                400,
                "public_projects_not_allowed",
                "This organization does not allow public projects: turn on its setting `allow_public_projects` first.",
            ),
            Self::MaxTokensExceeded => {
                (400, "max_tokens_exceeded", "The request asks for more tokens than this API key allows.")
            }
            Self::ProjectRequired => (
                400,
                "project_required",
                "An access token doesn't say for which project the call is: name `organization_id` and `project_id`.",
            ),
            Self::MissingCredentials => {
                (401, "missing_credentials", "Send the header `Authorization: Bearer <token>`.")
            }
            Self::InvalidAccessToken => (
                401,
                "invalid_access_token",
                "The access token is not valid or has expired: refresh it or log in again.",
            ),
            Self::InvalidRefreshToken => {
                (401, "invalid_refresh_token", "The refresh token is not valid or has expired: log in again.")
            }
            Self::InvalidApiKey => (401, "invalid_api_key", "The API key is not valid."),
            Self::ApiKeyExpired => (401, "api_key_expired", "The API key has expired: create a new one."),
            Self::InvalidCredentials => (401, "invalid_credentials", "The e-mail or the password is wrong."),
            Self::InvalidServiceToken => (401, "invalid_service_token", "The service token is not valid."),
            Self::WrongPassword => (401, "wrong_password", "The current password is wrong."),
            Self::InsufficientRole => (403, "insufficient_role", "Your role does not allow this."),
            Self::MissingPermission => {
                (403, "missing_permission", "This API key lacks the permission that this needs.")
            }
            Self::IpNotAllowed => (403, "ip_not_allowed", "This API key may not be used from this address."),
            Self::ModelNotAllowed => (403, "model_not_allowed", "This API key may not use this model."),
            Self::OutsideApiKeyScope => (
                403,
                "outside_api_key_scope",
                "An API key acts only on its own project and organization: use an access token here.",
            ),
            Self::ApiKeyManagementDisabled => (
                403,
                "api_key_management_disabled",
                "API keys may not do this on this server: use an access token here.",
            ),
            Self::EmailNotVerified => {
                (403, "email_not_verified", "Verify your e-mail address first: the link is in your mail.")
            }
            Self::UnknownPath => (404, "unknown_path", "There is no such path; `/openapi.json` lists all."),
            Self::OrganizationNotFound => (404, "organization_not_found", "There is no such organization."),
            Self::ProjectNotFound => (404, "project_not_found", "There is no such project."),
            Self::ApiKeyNotFound => (404, "api_key_not_found", "There is no such API key."),
            Self::UserNotFound => (404, "user_not_found", "There is no user with this id."),
            Self::MemberNotFound => (404, "member_not_found", "There is no such member here."),
            Self::ModelNotFound => {
                (404, "model_not_found", "There is no such model; `/v1/models` lists all.")
            }
            Self::InvoiceNotFound => (404, "invoice_not_found", "There is no such invoice."),
            Self::MethodNotAllowed => {
                (405, "method_not_allowed", "This path takes other methods: the header `allow` names them.")
            }
            Self::EmailTaken => (409, "email_taken", "There is an account with this e-mail address."),
            Self::UsernameTaken => (409, "username_taken", "This username is taken."),
            Self::NameTaken => (409, "name_taken", "This name is taken."),
            Self::LastOwner => {
                (409, "last_owner", "This is the last owner: make somebody else an owner first.")
            }
            Self::AlreadyMember => (409, "already_member", "This person is a member already."),
            Self::AlreadyInvited => (409, "already_invited", "There is an open invitation for this address."),
            Self::UnsettledBalance => (
                409,
                "unsettled_balance",
                "This organization owes money or still has credit: settle that first.",
            ),
            Self::KeyExpired => {
                (409, "key_expired", "This API key has expired and can't be rotated: create a new one.")
            }
            Self::RequestTimeout => {
                (408, "request_timeout", "The request did not arrive in time: send it again, faster.")
            }
            Self::HeadTooLarge => {
                (431, "head_too_large", "The request's head has more than 100 headers or 32 KiB.")
            }
            Self::PayloadTooLarge => {
                (413, "payload_too_large", "The body is larger than 1 MiB, or 64 KiB for a form.")
            }
            Self::RateLimited => {
                (429, "rate_limited", "Too many requests: wait as long as `retry-after` says.")
            }
            Self::ModelRateLimited => (
                429,
                "model_rate_limited",
                "Too many requests of this organization for this model: wait as long as `retry-after` says.",
            ),
            Self::TooManyAttempts => {
                (429, "too_many_attempts", "Too many attempts: wait as long as `retry-after` says.")
            }
            Self::PasswordQueueFull => {
                (429, "password_queue_full", "Too many logins are waiting: try again in a moment.")
            }
            Self::InsufficientQuota => (
                429,
                "insufficient_quota",
                "The organization's balance and credit limit don't cover this call: add credit.",
            ),
            Self::ModelConcurrencyLimited => (
                429,
                "model_concurrency_limited",
                "As many calls of this organization to this model are under way as it takes: try again in a moment.",
            ),
            Self::ReservationNotFound => (
                404,
                "reservation_not_found",
                "There is no such reservation: it was captured, released or has expired.",
            ),
            Self::BooksQueueFull => (
                503,
                "books_queue_full",
                "Too many calls wait to be booked: nothing was done, try again in a moment.",
            ),
            Self::Internal => {
                (500, "internal_error", "Something went wrong on our side; the request id helps to find it.")
            }
            Self::DatabaseUnavailable => (
                503,
                "database_unavailable",
                "The database can't be reached right now: try again in a moment.",
            ),
            Self::StorageFull => (503, "storage_full", "The server's disk is full: nothing was written."),
            Self::StorageReadOnly => {
                (503, "storage_read_only", "The server's database can't be written to: nothing was changed.")
            }
            Self::NotReady => {
                (503, "not_ready", "This server is not ready for requests: `details` names each reason.")
            }
        }
    }

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

    /// Bad fields, all at once; the first one's path is the error's `param`.
    pub fn invalid(details: Vec<Detail>) -> Self {
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

impl From<db::Error> for Error {
    fn from(error: db::Error) -> Self {
        let (code, param) = match &error {
            db::Error::Unique(constraint) => match constraint {
                db::Constraint::UserEmail => (Code::EmailTaken, Some("email")),
                db::Constraint::UserUsername => (Code::UsernameTaken, Some("username")),
                db::Constraint::OrganizationName
                | db::Constraint::ProjectName
                | db::Constraint::ApiKeyName => (Code::NameTaken, Some("name")),
                db::Constraint::OpenInvitation => (Code::AlreadyInvited, Some("email")),
                // Whoever writes these looks at the outcome itself.
                db::Constraint::LedgerKey | db::Constraint::CreditReference | db::Constraint::Other(_) => {
                    (Code::Internal, None)
                }
            },
            db::Error::Missing(reference) => match reference {
                db::Reference::Organization => (Code::OrganizationNotFound, None),
                db::Reference::Project => (Code::ProjectNotFound, None),
                db::Reference::Other(_) => (Code::Internal, None),
            },
            db::Error::Unavailable(_) => (Code::DatabaseUnavailable, None),
            db::Error::StorageFull(_) => (Code::StorageFull, None),
            db::Error::ReadOnly(_) => (Code::StorageReadOnly, None),
            db::Error::Internal(_) => (Code::Internal, None),
        };
        Self { param: param.map(Cow::Borrowed), internal: Some(error.to_string()), ..Self::new(code) }
    }
}
