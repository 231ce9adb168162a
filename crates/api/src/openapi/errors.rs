//! The error codes of each operation: what its access and its input refuse with, and what its handler adds.
//!
//! Some errors can answer any request and aren't listed: `malformed_request`, `unknown_path` and
//! `method_not_allowed`.

use super::{handler_words, is_model_call, path_parameters};
use crate::routes::Route;
use kernel::error::Code;
use web::entity_tags::IF_MATCH;

/// The codes that no operation lists, because they come before one is found.
pub const CODES_OF_ANY_REQUEST: [Code; 3] =
    [Code::MalformedRequest, Code::UnknownPath, Code::MethodNotAllowed];

/// The refusals while the database can't be used.
const DATABASE: &[Code] =
    &[Code::DatabaseUnavailable, Code::StorageFull, Code::StorageReadOnly, Code::NotReady];

/// The refusals of a body.
const BODY: &[Code] = &[
    Code::InvalidJson,
    Code::UnsupportedContentType,
    Code::InvalidRequest,
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::ServerBusy,
];

/// The refusals of a decision about a model call.
const DECISION: &[Code] = &[
    Code::AmountOutOfRange,
    Code::BooksQueueFull,
    Code::ClockNotTrusted,
    Code::InsufficientQuota,
    Code::MaxTokensExceeded,
    Code::ModelConcurrencyLimited,
    Code::ModelNotAllowed,
    Code::ModelNotFound,
    Code::ModelRateLimited,
];

/// The refusals of the credential that a decision is about.
const DECIDED_CREDENTIAL: &[Code] = &[
    Code::ApiKeyExpired,
    Code::InsufficientRole,
    Code::InvalidAccessToken,
    Code::InvalidApiKey,
    Code::InvalidRequest,
    Code::IpNotAllowed,
    Code::MissingPermission,
    Code::OrganizationNotFound,
    Code::OutsideApiKeyScope,
    Code::ProjectNotFound,
    Code::ProjectRequired,
    Code::RequestIdConflict,
];

/// The refusals of the gateway, once a call may be made.
const GATEWAY: &[Code] = &[
    Code::ModelNotServed,
    Code::ModelOverloaded,
    Code::UnsupportedParameter,
    Code::UpstreamCut,
    Code::UpstreamFailed,
    Code::UpstreamTimeout,
];

/// The refusals while many passwords are checked, or many were guessed.
const PASSWORD_GUESS: &[Code] = &[Code::PasswordQueueFull, Code::TooManyAttempts, Code::WrongPassword];

/// Returns the error codes of an operation, in the order of the table of codes.
pub fn codes(route: &Route) -> Vec<Code> {
    let input = (route.input)();
    let mut codes = route.access.codes.clone();
    codes.push(Code::Internal);
    if !route.access.before_ready {
        codes.extend(DATABASE);
    }
    codes.extend(path_parameters(route.path).filter_map(code_of_unknown));
    if input.body.is_some() || input.form.is_some() {
        codes.extend(BODY);
    }
    if input.query.is_some() || !input.headers.is_empty() {
        codes.push(Code::InvalidRequest);
    }
    if input.headers.iter().any(|(name, _)| *name == IF_MATCH) {
        codes.push(Code::ChangedMeanwhile);
    }
    if is_model_call(route.path) {
        codes.extend([DECISION, GATEWAY].concat());
    }
    codes.extend(own_codes(&handler_words(route).join("_")));
    Code::ALL.iter().copied().filter(|code| codes.contains(code)).collect()
}

/// Returns the refusal of an id in the path that nothing has.
fn code_of_unknown(parameter: &str) -> Option<Code> {
    match parameter {
        "organization_id" => Some(Code::OrganizationNotFound),
        "project_id" => Some(Code::ProjectNotFound),
        "key_id" => Some(Code::ApiKeyNotFound),
        "member_id" => Some(Code::MemberNotFound),
        "invitation_id" => Some(Code::InvitationNotFound),
        "invoice_id" => Some(Code::InvoiceNotFound),
        "session_id" => Some(Code::SessionNotFound),
        "reservation_id" => Some(Code::ReservationNotFound),
        "model_id" => Some(Code::ModelNotFound),
        _ => None,
    }
}

/// Returns what the handler itself refuses with.
fn own_codes(operation: &str) -> Vec<Code> {
    use Code::{
        AlreadyAccepted, AlreadyInvited, AlreadyMember, BooksQueueFull, CallsUnderWay, ClockNotTrusted,
        EmailAlreadyVerified, EmailNotVerified, EmailTaken, InvalidCredentials, InvalidToken,
        KeyExceedsCaller, KeyExpired, LastOwner, LimitReached, NameTaken, NoRotationPending, NotReady,
        PasswordQueueFull, PublicProjectsNotAllowed, StorageFull, StorageReadOnly, TooManyAttempts,
        UnknownPath, UnsettledBalance, UserNotFound, UsernameTaken,
    };
    match operation {
        "auth_register" => vec![EmailTaken, UsernameTaken, TooManyAttempts, PasswordQueueFull],
        "auth_verify_email" | "pages_invitations_accept_create" => vec![InvalidToken],
        "auth_resend_verification" => vec![EmailAlreadyVerified, TooManyAttempts],
        "auth_login" => vec![InvalidCredentials, EmailNotVerified, TooManyAttempts, PasswordQueueFull],
        "auth_forgot_password" => vec![TooManyAttempts],
        "auth_reset_password" | "pages_reset_password_create" => vec![InvalidToken, PasswordQueueFull],
        "auth_change_password" | "auth_change_email" => PASSWORD_GUESS.to_vec(),
        "auth_me_update" => vec![UsernameTaken],
        "pages_verify_email_create" => [PASSWORD_GUESS, &[InvalidToken]].concat(),
        "pages_change_email_create" => [PASSWORD_GUESS, &[InvalidToken, EmailTaken]].concat(),
        "pages_docs_read" => vec![UnknownPath],
        "organizations_create" => vec![NameTaken, LimitReached],
        "organizations_update" => vec![NameTaken],
        "organizations_delete" => vec![UnsettledBalance, CallsUnderWay, ClockNotTrusted],
        "organizations_invitations_create" => {
            vec![
                AlreadyInvited,
                AlreadyMember,
                EmailNotVerified,
                KeyExceedsCaller,
                LimitReached,
                TooManyAttempts,
            ]
        }
        "organizations_invitations_delete" => vec![AlreadyAccepted],
        "organizations_invitations_resend" => {
            vec![
                AlreadyAccepted,
                AlreadyInvited,
                AlreadyMember,
                EmailNotVerified,
                KeyExceedsCaller,
                LimitReached,
                TooManyAttempts,
            ]
        }
        "organizations_members_update" => vec![LastOwner, KeyExceedsCaller],
        "organizations_members_delete" => vec![LastOwner],
        "organizations_projects_create" => vec![NameTaken, LimitReached, PublicProjectsNotAllowed],
        "organizations_projects_update" => vec![NameTaken, PublicProjectsNotAllowed],
        "organizations_projects_members_create" => {
            vec![UserNotFound, AlreadyMember, KeyExceedsCaller, TooManyAttempts]
        }
        "organizations_projects_members_update" => vec![KeyExceedsCaller],
        "organizations_projects_api_keys_create" => vec![NameTaken, LimitReached, KeyExceedsCaller],
        "organizations_projects_api_keys_update" => vec![NameTaken, KeyExceedsCaller],
        "organizations_projects_api_keys_rotate" => vec![KeyExpired, KeyExceedsCaller],
        "organizations_projects_api_keys_end_rotation" => vec![NoRotationPending],
        // Their fields may also come in a body.
        "organizations_billing_usage" | "organizations_projects_usage_read" => BODY.to_vec(),
        "service_authorize" => vec![BooksQueueFull, ClockNotTrusted],
        "service_forward_auth" => [DECISION, DECIDED_CREDENTIAL, &[Code::RateLimited]].concat(),
        "service_usage" => vec![BooksQueueFull, ClockNotTrusted],
        "service_reservations_extend" | "service_reservations_delete" => vec![BooksQueueFull],
        "service_health_readyz" => {
            vec![NotReady, ClockNotTrusted, Code::DatabaseUnavailable, StorageFull, StorageReadOnly]
        }
        _ => Vec::new(),
    }
}
