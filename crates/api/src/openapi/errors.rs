//! The error codes of each operation: what its access and its input refuse with, and what its handler adds.
//!
//! Some errors can answer any request and aren't listed: `malformed_request`, `unknown_path`,
//! `method_not_allowed` and `websocket_not_supported`.

use super::{handler_words, is_model_call, path_parameters};
use crate::creation::IDEMPOTENCY_KEY;
use crate::routes::Route;
use kernel::error::Code;
use web::entity_tags::IF_MATCH;

/// The codes that no operation lists, because they come before one is found.
pub const CODES_OF_ANY_REQUEST: [Code; 4] =
    [Code::MalformedRequest, Code::UnknownPath, Code::MethodNotAllowed, Code::WebsocketNotSupported];

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
    Code::UnsupportedEncoding,
    Code::ServerBusy,
];

/// The refusals of a decision about a model call.
const DECISION: &[Code] = &[
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
    Code::SecondFactorEnrolmentRequired,
    Code::SignOnRequired,
];

/// The refusals of the gateway, once a call may be made.
const GATEWAY: &[Code] = &[
    Code::ContextLengthExceeded,
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
        codes.push(Code::PreconditionFailed);
    }
    if input.headers.iter().any(|(name, _)| *name == IDEMPOTENCY_KEY) {
        codes.extend([Code::IdempotencyInProgress, Code::IdempotencyKeyReused]);
    }
    let operation = handler_words(route).join("_");
    if operation == "messages_count_tokens" {
        codes.extend([Code::ModelNotAllowed, Code::ModelNotFound]);
    } else if is_model_call(route.path) {
        codes.extend([DECISION, GATEWAY].concat());
    }
    let own = OWN_CODES.iter().filter(|(operations, _)| operations.contains(&operation.as_str()));
    codes.extend(own.flat_map(|(_, own)| *own).copied());
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
        "budget_id" => Some(Code::BudgetNotFound),
        "payment_id" => Some(Code::PaymentNotFound),
        "session_id" => Some(Code::SessionNotFound),
        "passkey_id" => Some(Code::PasskeyNotFound),
        "connection_id" => Some(Code::ConnectionNotFound),
        "reservation_id" => Some(Code::ReservationNotFound),
        "webhook_id" => Some(Code::WebhookNotFound),
        "delivery_id" => Some(Code::DeliveryNotFound),
        "model_id" => Some(Code::ModelNotFound),
        _ => None,
    }
}

/// The operations with what their handlers themselves refuse with. An operation may be in several rows.
#[rustfmt::skip]
const OWN_CODES: &[(&[&str], &[Code])] = {
    use Code::{
        AccountDisabled, AlreadyAccepted, AlreadyInvited, AlreadyMember, AmountOutOfRange, ApiKeyNotFound, BooksQueueFull, CallsInProgress, ChallengeExpired, ClockNotTrusted, DatabaseUnavailable, EmailAlreadyVerified, EmailNotVerified, EmailTaken, InvalidCredential, InvalidCredentials, InvalidOneTimeCode, InvalidSignature, InvalidToken, InvoiceNotFound, InvoiceNotOpen, KeyExceedsCaller, KeyExpired, LastCredential, LastOwner, LimitReached, NameTaken, NoPassword, NoPaymentMethod, NoRotationPending, NoTotpPending, NotReady, OrganizationHasNoProvider, PasskeyNotFound, PasskeysDisabled, PasswordQueueFull, PasswordsDisabled, PaymentsDisabled, ProcessorUnavailable, ProjectNotFound, PublicProjectsNotAllowed, RateLimited, ReauthenticationRequired, RegistrationClosed, SecondFactorNotFound, SecondFactorRequired, StorageFull, StorageReadOnly, TooManyAttempts, TotpDisabled, UnknownPath, UnsettledBalance, UserNotFound, UsernameTaken, WebhookDisabled,
    };
    &[
        (&["auth_register"], &[EmailTaken, RegistrationClosed, UsernameTaken, TooManyAttempts, PasswordQueueFull]),
        (&["auth_verify_email", "auth_reset_password"], &[InvalidToken]),
        (&["auth_resend_verification"], &[EmailAlreadyVerified, TooManyAttempts]),
        (&["auth_login"],
         &[AccountDisabled, InvalidCredentials, EmailNotVerified, TooManyAttempts, PasswordQueueFull]),
        (&["auth_login", "auth_reauthenticate"], &[SecondFactorRequired, InvalidOneTimeCode, PasswordsDisabled]),
        (&["auth_reauthenticate"], PASSWORD_GUESS),
        (&["auth_reauthenticate", "auth_change_password", "auth_change_email"], &[NoPassword]),
        (&["auth_connections_delete", "auth_passkeys_delete"], &[LastCredential]),
        (&["auth_totp_create", "auth_totp_confirm"], &[TotpDisabled]),
        (&["auth_totp_confirm"], &[NoTotpPending, InvalidOneTimeCode]),
        (&["auth_totp_delete_all", "auth_recovery_codes_create"], &[SecondFactorNotFound]),
        (&["auth_passkeys_options_create", "auth_passkeys_create", "auth_passkey_login_options_create",
           "auth_passkey_login", "auth_reauthenticate_options_create", "auth_reauthenticate"], &[PasskeysDisabled]),
        (&["auth_passkeys_create", "auth_passkey_login", "auth_reauthenticate"],
         &[ChallengeExpired, InvalidCredential]),
        (&["auth_passkeys_options_create", "auth_passkeys_create"], &[LimitReached]),
        (&["auth_passkey_login"], &[AccountDisabled, EmailNotVerified]),
        (&["auth_reauthenticate_options_create"], &[PasskeyNotFound]),
        (&["auth_forgot_password"], &[TooManyAttempts]),
        (&["auth_reset_password", "pages_reset_password_create"], &[PasswordQueueFull]),
        (&["auth_change_password", "auth_change_email"], PASSWORD_GUESS),
        (&["auth_change_password", "auth_change_email"], &[ReauthenticationRequired]),
        (&["auth_me_update"], &[UsernameTaken]),
        (&["pages_verify_email_create", "pages_change_email_create"], PASSWORD_GUESS),
        (&["pages_verify_email_create"], &[AccountDisabled]),
        (&["pages_change_email_create"], &[NoPassword]),
        (&["pages_verify_email_create", "pages_reset_password_create", "pages_change_email_create",
           "pages_invitations_accept_create"], &[InvalidToken]),
        (&["pages_change_email_create"], &[EmailTaken]),
        (&["pages_docs_read"], &[UnknownPath]),
        (&["organizations_create"], &[NameTaken, LimitReached]),
        (&["organizations_update"], &[NameTaken, OrganizationHasNoProvider, ReauthenticationRequired]),
        (&["organizations_delete"], &[UnsettledBalance, CallsInProgress, ClockNotTrusted]),
        (&["organizations_delete", "organizations_members_update", "organizations_members_delete",
           "organizations_invitations_create", "organizations_invitations_resend"], &[ReauthenticationRequired]),
        (&["organizations_invitations_create", "organizations_invitations_resend"],
         &[AlreadyInvited, AlreadyMember, EmailNotVerified, KeyExceedsCaller, LimitReached, TooManyAttempts]),
        (&["organizations_invitations_delete", "organizations_invitations_resend"], &[AlreadyAccepted]),
        (&["organizations_members_update", "organizations_members_delete"], &[LastOwner]),
        (&["organizations_members_update", "organizations_projects_members_update"], &[KeyExceedsCaller]),
        (&["organizations_projects_create"], &[NameTaken, LimitReached, PublicProjectsNotAllowed]),
        (&["organizations_projects_update"], &[NameTaken, PublicProjectsNotAllowed]),
        (&["organizations_projects_members_create"],
         &[UserNotFound, AlreadyMember, KeyExceedsCaller, TooManyAttempts]),
        (&["organizations_projects_api_keys_create"], &[NameTaken, LimitReached, KeyExceedsCaller]),
        (&["organizations_projects_api_keys_update"], &[NameTaken, KeyExceedsCaller]),
        (&["organizations_projects_api_keys_rotate"], &[KeyExpired, KeyExceedsCaller]),
        (&["organizations_projects_api_keys_end_rotation"], &[NoRotationPending]),
        (&["organizations_billing_budgets_create"], &[ApiKeyNotFound, LimitReached, NameTaken, ProjectNotFound]),
        (&["organizations_billing_budgets_update"], &[NameTaken]),
        (&["organizations_billing_payments_create"],
         &[InvoiceNotFound, InvoiceNotOpen, AmountOutOfRange, PaymentsDisabled, ProcessorUnavailable]),
        (&["organizations_billing_payment_method_update"], &[PaymentsDisabled, ProcessorUnavailable]),
        (&["organizations_billing_payment_method_delete_all", "organizations_billing_auto_top_up_update"],
         &[NoPaymentMethod, PaymentsDisabled]),
        (&["billing_stripe_events_create"], &[InvalidSignature, PaymentsDisabled]),
        (&["organizations_webhooks_create"], &[LimitReached]),
        (&["organizations_webhooks_test", "organizations_webhooks_redeliver",
           "organizations_webhooks_deliveries_redeliver"], &[WebhookDisabled]),
        // Their fields may also come in a body.
        (&["organizations_billing_usage", "organizations_projects_usage_read"], BODY),
        (&["service_authorize", "service_usage"], &[BooksQueueFull, ClockNotTrusted]),
        (&["service_reservations_extend", "service_reservations_delete"], &[BooksQueueFull]),
        (&["service_forward_auth"], DECISION),
        (&["service_forward_auth"], DECIDED_CREDENTIAL),
        (&["service_forward_auth"], &[RateLimited]),
        (&["service_health_readyz"],
         &[NotReady, ClockNotTrusted, DatabaseUnavailable, StorageFull, StorageReadOnly]),
    ]
};
