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

            /// HTTP status, `error.code` and default message.
            pub(super) const fn row(self) -> (u16, &'static str, &'static str) {
                match self {
                    $(Self::$name => ($status, $word, $sentence),)*
                }
            }
        }
    };
}

codes! {
    /// The client doesn't speak HTTP, or not the version that this port takes.
    MalformedRequest = 400 "malformed_request" "This is not a valid HTTP/1.1 request.";
    /// The body isn't JSON.
    InvalidJson = 400 "invalid_json" "The body is not valid JSON.";
    /// The body has no content type, or one that isn't JSON.
    UnsupportedContentType = 400 "unsupported_content_type"
        "Send the body with the header `Content-Type: application/json`.";
    /// One or more fields are invalid: `details` lists each.
    InvalidRequest = 400 "invalid_request" "Some fields are not valid; `details` names each.";
    /// A verification, reset or invitation token is unknown, used or expired.
    InvalidToken = 400 "invalid_token" "The token is unknown, used or expired: ask for a new one.";
    /// The challenge of a passkey has expired, was used before, or is for another purpose.
    ChallengeExpired = 400 "challenge_expired"
        "This challenge has expired or was used before: start again.";
    /// The project can't be public: the organization doesn't allow it.
    PublicProjectsNotAllowed = 400 "public_projects_not_allowed"
        "This organization does not allow public projects: turn on its setting `allow_public_projects` \
         first.";
    /// More tokens than the key allows for one request.
    MaxTokensExceeded = 400 "max_tokens_exceeded"
        "The request asks for more tokens than this API key allows.";
    /// The cost of the call could exceed the maximum for one call.
    AmountOutOfRange = 400 "amount_out_of_range" "This call could cost more than one call may.";
    /// The server behind the model can't do what a parameter asks for.
    UnsupportedParameter = 400 "unsupported_parameter"
        "The server behind this model doesn't support this parameter.";
    /// The headers `Authorization` and `x-api-key` have different credentials.
    ConflictingCredentials = 400 "conflicting_credentials"
        "`Authorization` and `x-api-key` have different credentials: send one of them.";
    /// The account has no password: its person signs in with a provider.
    NoPassword = 400 "no_password"
        "Your account has no password: ask for a mail with a link to set one (`POST /v1/auth/forgot-password`).";
    /// A sign-on with a provider began too long ago, in another browser, or is over already.
    SignOnExpired = 400 "sign_on_expired"
        "This sign-on began too long ago, in another browser, or is over already: begin again.";
    /// What a provider has answered isn't good.
    SignOnFailed = 400 "sign_on_failed"
        "The provider's answer can't be used: begin again, or ask whoever runs this service.";
    /// The call is made with an access token, which names no project.
    ProjectRequired = 400 "project_required"
        "An access token doesn't say for which project the call is: name `organization_id` and `project_id`.";
    /// The signature of an event of the payment processor isn't valid, or is too old.
    InvalidSignature = 400 "invalid_signature" "The signature of this event is not valid, or too old.";
    /// No credential was sent.
    MissingCredentials = 401 "missing_credentials" "Send the header `Authorization: Bearer <token>`.";
    /// The access token is malformed, expired, revoked or of another kind.
    InvalidAccessToken = 401 "invalid_access_token"
        "The access token is not valid or has expired: refresh it or log in again.";
    /// The refresh token is malformed, expired, revoked or of another kind.
    InvalidRefreshToken = 401 "invalid_refresh_token"
        "The refresh token is not valid or has expired: log in again.";
    /// The API key is malformed or unknown.
    InvalidApiKey = 401 "invalid_api_key" "The API key is not valid.";
    /// The API key has expired.
    ApiKeyExpired = 401 "api_key_expired" "The API key has expired: create a new one.";
    /// The e-mail or the password is wrong.
    InvalidCredentials = 401 "invalid_credentials" "The e-mail or the password is wrong.";
    /// The service token is wrong.
    InvalidServiceToken = 401 "invalid_service_token" "The service token is not valid.";
    /// The current password is wrong.
    WrongPassword = 401 "wrong_password" "The current password is wrong.";
    /// The password was right, and the account has a second factor: a code is due.
    SecondFactorRequired = 401 "second_factor_required"
        "This account has a second factor: send `one_time_code` as well, a code of the authenticator app or a recovery \
         code.";
    /// The code is wrong, or was used before.
    InvalidOneTimeCode = 401 "invalid_one_time_code"
        "The code is wrong, or was used before: take the next one of the app, or an unused recovery code.";
    /// The answer of an authenticator isn't valid, or is by an unknown passkey.
    InvalidCredential = 401 "invalid_credential"
        "This passkey is unknown here, or what it has signed is not valid.";
    /// The organization's balance and credit limit don't cover the call.
    InsufficientQuota = 402 "insufficient_quota"
        "The organization's balance and credit limit don't cover this call: add credit.";
    /// A hard budget doesn't cover the call.
    BudgetExceeded = 402 "budget_exceeded"
        "A budget of the organization doesn't cover this call: ask one of its owners.";
    /// The caller's role doesn't allow it.
    InsufficientRole = 403 "insufficient_role" "Your role does not allow this.";
    /// The person proved too long ago who they are.
    ReauthenticationRequired = 403 "reauthentication_required"
        "Prove first that it's you: call `POST /v1/auth/reauthenticate`, and try again with its access token.";
    /// The person has no second factor, and has to add one first.
    SecondFactorEnrolmentRequired = 403 "second_factor_enrolment_required"
        "This needs a second factor, and your account has none: add one in the console under \"Your account\", or by \
         `POST /v1/auth/totp`.";
    /// The organization is open to this member only by a sign-on with its provider.
    SignOnRequired = 403 "sign_on_required"
        "This organization is open to you only in the console, signed in with its provider. API keys go on.";
    /// One-time codes can't be added on this server (configuration `sign_in.totp`).
    TotpDisabled = 403 "totp_disabled" "On this server nobody can add an authenticator app.";
    /// Passkeys can't be used on this server (configuration `sign_in.passkeys`, or the public URL has an IP address).
    PasskeysDisabled = 403 "passkeys_disabled" "Passkeys can't be used on this server.";
    /// People sign in without passwords on this server (configuration `sign_in.passwords`).
    PasswordsDisabled = 403 "passwords_disabled"
        "People sign in with a provider or a passkey on this server: passwords are good for operators only.";
    /// A browser says that the request comes from another page than one of the console.
    CrossOriginRequest = 403 "cross_origin_request"
        "This request came from another page than one of the console.";
    /// The key lacks a permission.
    MissingPermission = 403 "missing_permission" "This API key lacks the permission that this needs.";
    /// The key may not be used from this address.
    IpNotAllowed = 403 "ip_not_allowed" "This API key may not be used from this address.";
    /// The key may not use this model.
    ModelNotAllowed = 403 "model_not_allowed" "This API key may not use this model.";
    /// An API key reaches outside its own project and organization.
    OutsideApiKeyScope = 403 "outside_api_key_scope"
        "An API key acts only on its own project and organization: use an access token here.";
    /// An API key that is restricted to certain model calls can't manage anything, and no key manages itself.
    ManagementNotAllowed = 403 "management_not_allowed"
        "An API key manages only with all four permissions and without `models` and `max_tokens`: use an \
         access token here.";
    /// An API key would create or grant more access than it has itself.
    KeyExceedsCaller = 403 "key_exceeds_caller"
        "This would reach beyond the restrictions of the API key that calls: use an access token here.";
    /// API keys may not manage (configuration `api_keys.management`).
    ApiKeyManagementDisabled = 403 "api_key_management_disabled"
        "API keys may not do this on this server: use an access token here.";
    /// The account's e-mail address isn't verified yet.
    EmailNotVerified = 403 "email_not_verified" "Verify your e-mail address first: the link is in your mail.";
    /// An operator has disabled the account.
    AccountDisabled = 403 "account_disabled" "This account is disabled: ask whoever runs this server.";
    /// Nobody may register, or only people with an invitation (configuration `registration`).
    RegistrationClosed = 403 "registration_closed"
        "Nobody can register on this server: ask whoever runs it for an account.";
    /// Nobody here is the person of a sign-on, and the provider's people don't get accounts by themselves.
    NoAccount = 403 "no_account"
        "You have no account here: ask for an invitation, or register with your e-mail address first.";
    /// Payments aren't configured.
    PaymentsDisabled = 403 "payments_disabled"
        "Nothing can be paid online on this server: ask whoever runs it.";
    /// No such path.
    UnknownPath = 404 "unknown_path" "There is no such path; `/openapi.json` lists all.";
    /// No such organization.
    OrganizationNotFound = 404 "organization_not_found" "There is no such organization.";
    /// No such project.
    ProjectNotFound = 404 "project_not_found" "There is no such project.";
    /// No such API key.
    ApiKeyNotFound = 404 "api_key_not_found" "There is no such API key.";
    /// No such account.
    UserNotFound = 404 "user_not_found" "There is no user with this id.";
    /// No such session of the caller.
    SessionNotFound = 404 "session_not_found" "You have no such session, or it has ended.";
    /// The account has no second factor.
    SecondFactorNotFound = 404 "second_factor_not_found" "Your account has no second factor.";
    /// No such passkey of the caller.
    PasskeyNotFound = 404 "passkey_not_found" "You have no such passkey.";
    /// No such provider.
    ProviderNotFound = 404 "provider_not_found" "There is no such provider.";
    /// No such connection of the caller.
    ConnectionNotFound = 404 "connection_not_found" "You have no such connection.";
    /// No such member.
    MemberNotFound = 404 "member_not_found" "There is no such member here.";
    /// No such invitation, or one that was withdrawn.
    InvitationNotFound = 404 "invitation_not_found" "There is no such invitation.";
    /// No such model.
    ModelNotFound = 404 "model_not_found" "There is no such model; `/v1/models` lists all.";
    /// No such invoice.
    InvoiceNotFound = 404 "invoice_not_found" "There is no such invoice.";
    /// No such payment.
    PaymentNotFound = 404 "payment_not_found" "There is no such payment.";
    /// The budget is unknown.
    BudgetNotFound = 404 "budget_not_found" "There is no such budget.";
    /// The organization has no such webhook.
    WebhookNotFound = 404 "webhook_not_found" "There is no such webhook.";
    /// The webhook has no such delivery; old ones are removed.
    DeliveryNotFound = 404 "delivery_not_found" "There is no such delivery: they are kept for a while only.";
    /// The path exists, but not with this method.
    MethodNotAllowed = 405 "method_not_allowed"
        "This path takes other methods: the header `allow` names them.";
    /// A request to change to WebSocket, at a path that answers requests of HTTP.
    WebsocketNotSupported = 426 "websocket_not_supported"
        "This path doesn't speak WebSocket: send the request with `POST`, and `\"stream\": true` for events.";
    /// The e-mail address has an account.
    EmailTaken = 409 "email_taken" "There is an account with this e-mail address.";
    /// The account's e-mail address is verified already.
    EmailAlreadyVerified = 409 "email_already_verified" "Your e-mail address is verified already.";
    /// The username is in use.
    UsernameTaken = 409 "username_taken" "This username is taken.";
    /// A sibling has this name.
    NameTaken = 409 "name_taken" "This name is taken.";
    /// The organization would be left without an owner.
    LastOwner = 409 "last_owner" "This is the last owner: make somebody else an owner first.";
    /// The person is a member already.
    AlreadyMember = 409 "already_member" "This person is a member already.";
    /// There is an open invitation for this address.
    AlreadyInvited = 409 "already_invited" "There is an open invitation for this address.";
    /// The invitation was accepted.
    AlreadyAccepted = 409 "already_accepted"
        "This invitation was accepted: it can be neither withdrawn nor sent again.";
    /// The organization owes money or still has credit.
    UnsettledBalance = 409 "unsettled_balance"
        "This organization owes money or still has credit: settle that first.";
    /// The invoice isn't open, so it can't be paid.
    InvoiceNotOpen = 409 "invoice_not_open" "Nothing is due of this invoice.";
    /// The organization has no saved card.
    NoPaymentMethod = 409 "no_payment_method"
        "The organization has no saved card: save one first (`PUT …/billing/payment-method`).";
    /// The webhook is switched off.
    WebhookDisabled = 409 "webhook_disabled" "This webhook is switched off: switch it on first (`enabled`).";
    /// The maximum number of such objects exists.
    LimitReached = 409 "limit_reached" "There are as many as there may be: delete one first.";
    /// Calls of the organization are in progress.
    CallsInProgress = 409 "calls_in_progress"
        "Calls of this organization are in progress: try again once they have ended, in a few minutes at most.";
    /// A reservation for another call has this request id.
    RequestIdConflict = 409 "request_id_conflict"
        "A call of another caller, project, model or amount has this `request_id`: give each call its own.";
    /// An expired key can't be rotated.
    KeyExpired = 409 "key_expired" "This API key has expired and can't be rotated: create a new one.";
    /// The API key has no previous secret.
    NoRotationPending = 409 "no_rotation_pending"
        "This API key has no previous secret: it was never rotated, or that secret has ended already.";
    /// The account would be left without a way in.
    LastCredential = 409 "last_credential"
        "This is the only way into your account: set a password, or connect another provider first.";
    /// The person at the provider is connected with another account.
    ConnectionTaken = 409 "connection_taken"
        "This person is connected with another account here: disconnect it there first.";
    /// Nobody could sign in with a provider of the organization: it has none.
    OrganizationHasNoProvider = 409 "organization_has_no_provider"
        "No provider of this server belongs to the organization: ask whoever runs the server to configure one.";
    /// No seed of one-time codes waits for its first code.
    NoTotpPending = 409 "no_totp_pending"
        "No authenticator app is being added, or it took more than ten minutes: begin again.";
    /// The idempotency key was used with another body.
    IdempotencyKeyReused = 409 "idempotency_key_reused"
        "This `Idempotency-Key` was used for a request with another body: make a new one for each request.";
    /// A request with this idempotency key runs.
    IdempotencyInProgress = 409 "idempotency_in_progress"
        "A request with this `Idempotency-Key` is still running: send it again as `retry-after` says.";
    /// The object has another version than the change expects.
    PreconditionFailed = 412 "precondition_failed"
        "This changed after you read it: read it again, and repeat your change if it still applies.";
    /// Head or body of the request didn't arrive in time.
    RequestTimeout = 408 "request_timeout" "The request did not arrive in time: send it again, faster.";
    /// The body is larger than the limit.
    PayloadTooLarge = 413 "payload_too_large" "The body is larger than this path takes.";
    /// The body has a content coding that the path doesn't take, or several.
    UnsupportedEncoding = 415 "unsupported_encoding"
        "Send the body as it is, or with one of the content codings `gzip`, `zstd` and `br`.";
    /// The prompt has more tokens than the model can read.
    ContextLengthExceeded = 400 "context_length_exceeded"
        "The prompt and the limit of the answer have more tokens than the model's context: send less.";
    /// Too many requests.
    RateLimited = 429 "rate_limited" "Too many requests: wait as long as `retry-after` says.";
    /// Too many requests of one organization for one model.
    ModelRateLimited = 429 "model_rate_limited"
        "Too many requests of this organization for this model: wait as long as `retry-after` says.";
    /// Too many attempts on one account.
    TooManyAttempts = 429 "too_many_attempts" "Too many attempts: wait as long as `retry-after` says.";
    /// Too many password checks are queued.
    PasswordQueueFull = 429 "password_queue_full" "Too many logins are waiting: try again in a moment.";
    /// The maximum number of concurrent calls of one organization to one model is reached.
    ModelConcurrencyLimited = 429 "model_concurrency_limited"
        "As many calls of this organization to this model are under way as it takes: try again in a moment.";
    /// The reservation is unknown, or was captured, released or has expired.
    ReservationNotFound = 404 "reservation_not_found"
        "There is no such reservation: it was captured, released or has expired.";
    /// An internal error.
    Internal = 500 "internal_error" "Something went wrong on our side; the request id helps to find it.";
    /// The server behind the model failed before its answer began.
    UpstreamFailed = 502 "upstream_failed"
        "The server behind this model failed: the call cost nothing, try again.";
    /// A provider doesn't answer, or says nothing that can be understood.
    ProviderUnavailable = 502 "provider_unavailable"
        "The provider doesn't answer right now: try again in a moment, or sign in in another way.";
    /// The payment processor doesn't answer.
    ProcessorUnavailable = 502 "processor_unavailable"
        "The payment processor can't be reached right now: send it again in a moment; nothing is paid twice.";
    /// The server behind the model ended its answer too early, or it can't be understood any more.
    UpstreamCut = 502 "upstream_cut"
        "The server behind this model ended its answer before it was complete.";
    /// The server behind the model didn't answer in time.
    UpstreamTimeout = 504 "upstream_timeout"
        "The server behind this model didn't answer in time: the call cost nothing, try again.";
    /// No server behind the model takes the call now.
    ModelOverloaded = 503 "model_overloaded"
        "Every server behind this model is busy: nothing was done, wait as long as `retry-after` says.";
    /// The catalog names no server for the model.
    ModelNotServed = 503 "model_not_served"
        "No server behind this gateway serves this model: the operator of the catalog has to add a route.";
    /// The memory for request bodies that are being received is used up.
    ServerBusy = 503 "server_busy"
        "Too many requests are being received: nothing was done, try again in a moment.";
    /// The queue of calls to be booked is full.
    BooksQueueFull = 503 "books_queue_full"
        "Too many calls wait to be booked: nothing was done, try again in a moment.";
    /// This server's clock may be wrong, and the request would have a lasting effect.
    ClockNotTrusted = 503 "clock_not_trusted"
        "This server's clock can't be trusted right now: nothing was done, send it again. `/readyz` says \
         why.";
    /// The database can't be reached.
    DatabaseUnavailable = 503 "database_unavailable"
        "The database can't be reached right now: try again in a moment.";
    /// The disk is full.
    StorageFull = 503 "storage_full" "The server's disk is full: nothing was written.";
    /// The database can't be written.
    StorageReadOnly = 503 "storage_read_only"
        "The server's database takes no writes right now: it is a standby or read-only. Nothing was changed.";
    /// This replica isn't ready for requests: `/readyz` gives the reason.
    NotReady = 503 "not_ready" "This server is not ready for requests: `details` names each reason.";
}
