//! The table of error codes, one row per code (docs/contract/README.md#error-codes).

/// Declares [`Code`] from rows of name, HTTP status, `error.code` and default message.
macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $status:literal $word:literal $sentence:literal;)*) => {
        /// The code of an error response. Released codes never change.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the HTTP status, `error.code` and the default message.
            pub(super) const fn row(self) -> (u16, &'static str, &'static str) {
                match self {
                    $(Self::$name => ($status, $word, $sentence),)*
                }
            }
        }
    };
}

codes! {
    /// The client doesn't use HTTP, or uses a version that this port doesn't accept.
    MalformedRequest = 400 "malformed_request" "This is not a valid HTTP/1.1 request.";
    /// The body isn't JSON.
    InvalidJson = 400 "invalid_json" "The body is not valid JSON.";
    /// The body has no content type, or one that isn't JSON.
    UnsupportedContentType = 400 "unsupported_content_type"
        "Send the body with the header `Content-Type: application/json`.";
    /// Some fields are invalid. `details` lists them.
    InvalidRequest = 400 "invalid_request" "Some fields are invalid. See `details` for each of them.";
    /// A verification, reset or invitation token is unknown, used or expired.
    InvalidToken = 400 "invalid_token" "The token is invalid, expired, or already used. Request a new one.";
    /// The challenge of a passkey has expired, was used before, or is for another purpose.
    ChallengeExpired = 400 "challenge_expired" "This challenge has expired or was already used. Start over.";
    /// The project can't be public, because the organization doesn't allow public projects.
    PublicProjectsNotAllowed = 400 "public_projects_not_allowed"
        "This organization doesn't allow public projects. Turn on its setting `allow_public_projects` first.";
    /// The request asks for more tokens than the API key allows.
    MaxTokensExceeded = 400 "max_tokens_exceeded"
        "The request asks for more tokens than this API key allows. Ask for fewer.";
    /// The cost of the call could exceed the maximum for one call.
    AmountOutOfRange = 400 "amount_out_of_range" "This call could cost more than the maximum for one call.";
    /// The server behind the model doesn't support a parameter.
    UnsupportedParameter = 400 "unsupported_parameter" "This model's server doesn't support this parameter.";
    /// The headers `Authorization` and `x-api-key` have different credentials.
    ConflictingCredentials = 400 "conflicting_credentials"
        "`Authorization` and `x-api-key` contain different credentials. Send only one of them.";
    /// The account has no password: its owner signs in with a provider.
    NoPassword = 400 "no_password"
        "Your account has no password. Request an e-mail with a link to set one (`POST \
         /v1/auth/forgot-password`).";
    /// The sign-on with a provider began too long ago, began in another browser, or is already complete.
    SignOnExpired = 400 "sign_on_expired"
        "This sign-on has expired, was already completed, or was started in another browser. Start over.";
    /// The provider's response is invalid.
    SignOnFailed = 400 "sign_on_failed"
        "The provider's response can't be used. Start over, or contact your administrator.";
    /// The call uses an access token, which identifies no project.
    ProjectRequired = 400 "project_required"
        "An access token doesn't identify a project. Send `organization_id` and `project_id`.";
    /// The signature of a payment processor's event is invalid or too old.
    InvalidSignature = 400 "invalid_signature" "The signature of this event is invalid or too old.";
    /// No credential was sent.
    MissingCredentials = 401 "missing_credentials"
        "No credentials were sent. Send the header `Authorization: Bearer <token>`.";
    /// The access token is malformed, expired, revoked or of a different kind.
    InvalidAccessToken = 401 "invalid_access_token"
        "The access token is invalid or has expired. Refresh it or sign in again.";
    /// The refresh token is malformed, expired, revoked or of a different kind.
    InvalidRefreshToken = 401 "invalid_refresh_token"
        "The refresh token is invalid or has expired. Sign in again.";
    /// The API key is malformed or unknown.
    InvalidApiKey = 401 "invalid_api_key" "The API key is invalid.";
    /// The API key has expired.
    ApiKeyExpired = 401 "api_key_expired" "The API key has expired. Create a new one.";
    /// The e-mail or the password is wrong.
    InvalidCredentials = 401 "invalid_credentials" "The e-mail address or password is incorrect.";
    /// The service token is wrong.
    InvalidServiceToken = 401 "invalid_service_token" "The service token is invalid.";
    /// The current password is wrong.
    WrongPassword = 401 "wrong_password" "The current password is incorrect.";
    /// The password is correct, but the account has a second factor: a code is required.
    SecondFactorRequired = 401 "second_factor_required"
        "This account requires a second factor. Also send `one_time_code`: a code from the authenticator app, \
         or a recovery code.";
    /// The code is wrong or was already used.
    InvalidOneTimeCode = 401 "invalid_one_time_code"
        "The code is incorrect or was already used. Enter the next code from your authenticator app, or an \
         unused recovery code.";
    /// The authenticator's response is invalid, or comes from an unknown passkey.
    InvalidCredential = 401 "invalid_credential"
        "This passkey is unknown here, or its signature is invalid.";
    /// The organization's balance and credit limit don't cover the call.
    InsufficientQuota = 402 "insufficient_quota"
        "The organization's balance and credit limit don't cover this call. Add credit.";
    /// A hard budget doesn't cover the call.
    BudgetExceeded = 402 "budget_exceeded"
        "A budget of the organization doesn't cover this call. Ask an owner to raise it.";
    /// The caller's role doesn't allow the action.
    InsufficientRole = 403 "insufficient_role" "Your role does not allow this.";
    /// The user last confirmed their identity too long ago.
    ReauthenticationRequired = 403 "reauthentication_required"
        "Confirm your identity first: call `POST /v1/auth/reauthenticate`, then try again with the access \
         token it returns.";
    /// The user has no second factor and must add one first.
    SecondFactorEnrolmentRequired = 403 "second_factor_enrolment_required"
        "This requires a second factor, and your account has none. Add one in the console under \"Your \
         account\", or with `POST /v1/auth/totp`.";
    /// This member can access the organization only through a sign-on with its provider.
    SignOnRequired = 403 "sign_on_required"
        "You can open this organization only in the console, signed in with its provider. API keys still \
         work.";
    /// Authenticator apps are disabled (configuration `sign_in.totp`).
    TotpDisabled = 403 "totp_disabled" "Authenticator apps are disabled on this server.";
    /// Passkeys are disabled (configuration `sign_in.passkeys`, or the public URL has an IP address).
    PasskeysDisabled = 403 "passkeys_disabled" "Passkeys are disabled on this server.";
    /// Password sign-in is disabled (configuration `sign_in.passwords`).
    PasswordsDisabled = 403 "passwords_disabled"
        "On this server, only operators can sign in with a password. Sign in with a provider or a passkey.";
    /// The browser reports that the request comes from a page outside the console.
    CrossOriginRequest = 403 "cross_origin_request" "This request didn't come from a page of the console.";
    /// The key lacks a permission.
    MissingPermission = 403 "missing_permission" "This API key lacks the required permission.";
    /// The key may not be used from this address.
    IpNotAllowed = 403 "ip_not_allowed" "This API key can't be used from this IP address.";
    /// The key may not use this model.
    ModelNotAllowed = 403 "model_not_allowed" "This API key can't use this model.";
    /// An API key was used for something outside its own project and organization.
    OutsideApiKeyScope = 403 "outside_api_key_scope"
        "An API key can access only its own project and organization. Use an access token instead.";
    /// An API key that is restricted to certain model calls can't manage anything, and no key manages itself.
    ManagementNotAllowed = 403 "management_not_allowed"
        "Only API keys with all four permissions and without `models` and `max_tokens` can manage resources. \
         Use an access token instead.";
    /// An API key would create or grant more access than it has itself.
    KeyExceedsCaller = 403 "key_exceeds_caller"
        "This would exceed the restrictions of the API key making the request. Use an access token instead.";
    /// API keys aren't allowed to manage resources (configuration `api_keys.management`).
    ApiKeyManagementDisabled = 403 "api_key_management_disabled"
        "API keys can't do this on this server. Use an access token instead.";
    /// The account's e-mail address isn't verified yet.
    EmailNotVerified = 403 "email_not_verified"
        "Verify your e-mail address first, with the link that was sent to you.";
    /// An operator has disabled the account.
    AccountDisabled = 403 "account_disabled" "This account is disabled. Contact your administrator.";
    /// Registration is closed, or open only to users with an invitation (configuration `registration`).
    RegistrationClosed = 403 "registration_closed"
        "Sign-up isn't open on this server. Ask your administrator for an account.";
    /// The user of a sign-on has no account, and the provider doesn't create accounts automatically.
    NoAccount = 403 "no_account"
        "You have no account here. Ask for an invitation, or sign up with your e-mail address first.";
    /// Payments aren't configured.
    PaymentsDisabled = 403 "payments_disabled"
        "Online payments are disabled on this server. Contact your administrator.";
    /// No such path.
    UnknownPath = 404 "unknown_path" "This path doesn't exist. See `/openapi.json` for all paths.";
    /// No such organization.
    OrganizationNotFound = 404 "organization_not_found" "No such organization.";
    /// No such project.
    ProjectNotFound = 404 "project_not_found" "No such project.";
    /// No such API key.
    ApiKeyNotFound = 404 "api_key_not_found" "No such API key.";
    /// No such account.
    UserNotFound = 404 "user_not_found" "No such user.";
    /// The caller has no such session.
    SessionNotFound = 404 "session_not_found" "No such session, or it has already ended.";
    /// The account has no second factor.
    SecondFactorNotFound = 404 "second_factor_not_found" "Your account has no second factor.";
    /// The caller has no such passkey.
    PasskeyNotFound = 404 "passkey_not_found" "You have no such passkey.";
    /// No such provider.
    ProviderNotFound = 404 "provider_not_found" "No such provider.";
    /// The caller has no such connection.
    ConnectionNotFound = 404 "connection_not_found" "You have no such connection.";
    /// No such member.
    MemberNotFound = 404 "member_not_found" "No such member.";
    /// No such invitation, or one that was withdrawn.
    InvitationNotFound = 404 "invitation_not_found" "No such invitation.";
    /// No such model.
    ModelNotFound = 404 "model_not_found" "This model doesn't exist. See `/v1/models` for all models.";
    /// No such invoice.
    InvoiceNotFound = 404 "invoice_not_found" "No such invoice.";
    /// No such payment.
    PaymentNotFound = 404 "payment_not_found" "No such payment.";
    /// The budget is unknown.
    BudgetNotFound = 404 "budget_not_found" "No such budget.";
    /// The organization has no such webhook.
    WebhookNotFound = 404 "webhook_not_found" "No such webhook.";
    /// The webhook has no such delivery. Old deliveries are removed.
    DeliveryNotFound = 404 "delivery_not_found"
        "No such delivery. Deliveries are kept only for a limited time.";
    /// The call log has no such call. Old calls are removed.
    CallNotFound = 404 "call_not_found" "No such call. Calls are kept only for a limited time.";
    /// The path exists, but not with this method.
    MethodNotAllowed = 405 "method_not_allowed"
        "This path doesn't support this method. The `allow` header lists the methods it supports.";
    /// A WebSocket upgrade request, on a path that accepts only plain HTTP requests.
    WebsocketNotSupported = 426 "websocket_not_supported"
        "This path doesn't support WebSocket. Send the request with `POST`, and `\"stream\": true` for \
         events.";
    /// The e-mail address has an account.
    EmailTaken = 409 "email_taken" "An account with this e-mail address already exists.";
    /// The account's e-mail address is already verified.
    EmailAlreadyVerified = 409 "email_already_verified" "Your e-mail address is already verified.";
    /// The username is in use.
    UsernameTaken = 409 "username_taken" "This username is taken.";
    /// Another object of the same kind and in the same parent has this name.
    NameTaken = 409 "name_taken" "This name is taken.";
    /// The organization would be left without an owner.
    LastOwner = 409 "last_owner" "This is the last owner. Make another member an owner first.";
    /// The user is already a member.
    AlreadyMember = 409 "already_member" "This user is already a member.";
    /// The address has an open invitation.
    AlreadyInvited = 409 "already_invited" "This address already has an open invitation.";
    /// The invitation was accepted.
    AlreadyAccepted = 409 "already_accepted"
        "This invitation was already accepted, so it can't be withdrawn or sent again.";
    /// The organization owes money or still has credit.
    UnsettledBalance = 409 "unsettled_balance"
        "This organization owes money or still has credit. Settle its balance first.";
    /// The invoice isn't open, so it can't be paid.
    InvoiceNotOpen = 409 "invoice_not_open" "This invoice has no amount due.";
    /// The organization has no saved card.
    NoPaymentMethod = 409 "no_payment_method"
        "The organization has no saved card. Save one first (`PUT …/billing/payment-method`).";
    /// The webhook is switched off.
    WebhookDisabled = 409 "webhook_disabled" "This webhook is disabled. Enable it first (`enabled`).";
    /// The maximum number of such objects exists.
    LimitReached = 409 "limit_reached" "You've reached the maximum number of these. Delete one first.";
    /// Calls of the organization are in progress.
    CallsInProgress = 409 "calls_in_progress"
        "This organization has calls in progress. Try again once they end, within a few minutes.";
    /// A reservation for another call has this request id.
    RequestIdConflict = 409 "request_id_conflict"
        "This `request_id` was already used with another caller, project, model, or amount. Use a new one for \
         each call.";
    /// An expired key can't be rotated.
    KeyExpired = 409 "key_expired" "This API key has expired and can't be rotated. Create a new one.";
    /// The API key has no previous secret.
    NoRotationPending = 409 "no_rotation_pending"
        "This API key has no previous secret: it was never rotated, or that secret has already expired.";
    /// The account would be left without a sign-in method.
    LastCredential = 409 "last_credential"
        "This is the only sign-in method of your account. Set a password or connect another provider first.";
    /// The identity at the provider is connected to another account.
    ConnectionTaken = 409 "connection_taken"
        "This identity is already connected to another account here. Disconnect it there first.";
    /// The organization has no provider, so its members couldn't sign in.
    OrganizationHasNoProvider = 409 "organization_has_no_provider"
        "The organization has no provider on this server. Ask your administrator to configure one.";
    /// No one-time code secret is waiting to be confirmed by its first code.
    NoTotpPending = 409 "no_totp_pending"
        "No authenticator app is being added, or more than ten minutes have passed. Start over.";
    /// The idempotency key was used with a different body.
    IdempotencyKeyReused = 409 "idempotency_key_reused"
        "This `Idempotency-Key` was already used with a different body. Use a new key for each request.";
    /// A request with this idempotency key is in progress.
    IdempotencyInProgress = 409 "idempotency_in_progress"
        "A request with this `Idempotency-Key` is still in progress. Send it again after the delay in the \
         `retry-after` header.";
    /// The object's version differs from the one that the change expects.
    PreconditionFailed = 412 "precondition_failed"
        "This changed after you read it. Read it again, and repeat your change if it still applies.";
    /// The head or body of the request didn't arrive in time.
    RequestTimeout = 408 "request_timeout" "The request didn't arrive in time. Send it again.";
    /// The body is larger than the limit.
    PayloadTooLarge = 413 "payload_too_large" "The body exceeds the maximum size for this path.";
    /// The body has several content codings, or one that the path doesn't accept.
    UnsupportedEncoding = 415 "unsupported_encoding"
        "Send the body uncompressed, or with one of the content codings `gzip`, `zstd` and `br`.";
    /// The prompt has more tokens than the model can read.
    ContextLengthExceeded = 400 "context_length_exceeded"
        "The prompt and the maximum length of the answer exceed the model's context. Shorten one of them.";
    /// Too many requests.
    RateLimited = 429 "rate_limited" "Too many requests; retry after the delay in the `retry-after` header.";
    /// Too many requests of one organization for one model.
    ModelRateLimited = 429 "model_rate_limited"
        "Too many requests from this organization to this model; retry after the delay in the `retry-after` \
         header.";
    /// Too many attempts on one account.
    TooManyAttempts = 429 "too_many_attempts"
        "Too many attempts; retry after the delay in the `retry-after` header.";
    /// Too many password checks are queued.
    PasswordQueueFull = 429 "password_queue_full" "Too many sign-ins are in progress. Try again in a moment.";
    /// The maximum number of concurrent calls of one organization to one model is reached.
    ModelConcurrencyLimited = 429 "model_concurrency_limited"
        "This organization has reached its maximum number of concurrent calls to this model. Try again in a \
         moment.";
    /// The reservation is unknown, or was captured, released or has expired.
    ReservationNotFound = 404 "reservation_not_found"
        "No such reservation: it was captured or released, or has expired.";
    /// An internal error.
    Internal = 500 "internal_error"
        "Something went wrong on our side. Include the request id if you report it.";
    /// The server behind the model failed before its answer began.
    UpstreamFailed = 502 "upstream_failed" "This model's server failed. The call cost nothing; try again.";
    /// The provider doesn't respond, or its response can't be parsed.
    ProviderUnavailable = 502 "provider_unavailable"
        "The provider isn't responding. Try again in a moment, or use another sign-in method.";
    /// The payment processor doesn't respond.
    ProcessorUnavailable = 502 "processor_unavailable"
        "The payment processor can't be reached. Try again in a moment; nothing is paid twice.";
    /// The server behind the model ended its response early, or the rest of it can't be parsed.
    UpstreamCut = 502 "upstream_cut" "This model's server ended its response before it was complete.";
    /// The server behind the model didn't answer in time.
    UpstreamTimeout = 504 "upstream_timeout"
        "This model's server didn't respond in time. The call cost nothing; try again.";
    /// No server behind the model accepts the call now.
    ModelOverloaded = 503 "model_overloaded"
        "Every server of this model is busy. Nothing was done; retry after the delay in the `retry-after` \
         header.";
    /// The catalog has no route for the model.
    ModelNotServed = 503 "model_not_served"
        "No server is configured for this model. Ask your administrator to add a route to the catalog.";
    /// The memory for incoming request bodies is used up.
    ServerBusy = 503 "server_busy"
        "The server is receiving too many requests. Nothing was done; try again in a moment.";
    /// The queue of calls to be booked is full.
    BooksQueueFull = 503 "books_queue_full"
        "Too many calls are waiting to be booked. Nothing was done; try again in a moment.";
    /// This server's clock may be wrong, and the request would have a lasting effect.
    ClockNotTrusted = 503 "clock_not_trusted"
        "This server's clock can't be trusted right now. Nothing was done; try again. See `/readyz` for the \
         reason.";
    /// The database can't be reached.
    DatabaseUnavailable = 503 "database_unavailable" "The database can't be reached. Try again in a moment.";
    /// The disk is full.
    StorageFull = 503 "storage_full" "The server's disk is full. Nothing was written.";
    /// The database can't be written.
    StorageReadOnly = 503 "storage_read_only"
        "The server's database is a standby or read-only. Nothing was changed.";
    /// This replica isn't ready for requests: `/readyz` gives the reason.
    NotReady = 503 "not_ready" "This server isn't ready for requests. See `details` for the reasons.";
}
