//! The codes of errors: section 7 of the interface as a table, one row a code.

/// The table of codes: what it means, and after its name the HTTP status, the stable word and the sentence for people.
macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $status:literal $word:literal $sentence:literal;)*) => {
        /// Every error that a caller can meet. The word never changes once released.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// Every code, for the documents.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// HTTP status, stable word, and the sentence for people.
            pub(super) const fn row(self) -> (u16, &'static str, &'static str) {
                match self {
                    $(Self::$name => ($status, $word, $sentence),)*
                }
            }
        }
    };
}

codes! {
    /// What came isn't HTTP, or not the kind that this port takes.
    MalformedRequest = 400 "malformed_request" "This is not a valid HTTP/1.1 request.";
    /// The body isn't JSON.
    InvalidJson = 400 "invalid_json" "The body is not valid JSON.";
    /// The body has no content type, or one that isn't JSON.
    UnsupportedContentType = 400 "unsupported_content_type"
        "Send the body with the header `Content-Type: application/json`.";
    /// One or more fields are wrong: `details` names each.
    InvalidRequest = 400 "invalid_request" "Some fields are not valid; `details` names each.";
    /// A verification, reset or invitation token is unknown, used or expired.
    InvalidToken = 400 "invalid_token" "The token is unknown, used or expired: ask for a new one.";
    /// The project can't be public: the organization doesn't allow it.
    PublicProjectsNotAllowed = 400 "public_projects_not_allowed"
        "This organization does not allow public projects: turn on its setting `allow_public_projects` first.";
    /// More tokens than the key allows for one request.
    MaxTokensExceeded = 400 "max_tokens_exceeded" "The request asks for more tokens than this API key allows.";
    /// The call could cost more than one call may.
    AmountOutOfRange = 400 "amount_out_of_range" "This call could cost more than one call may.";
    /// An access token says who calls, but not for which project.
    ProjectRequired = 400 "project_required"
        "An access token doesn't say for which project the call is: name `organization_id` and `project_id`.";
    /// There is no credential.
    MissingCredentials = 401 "missing_credentials" "Send the header `Authorization: Bearer <token>`.";
    /// The access token is malformed, expired, revoked or of another kind.
    InvalidAccessToken = 401 "invalid_access_token"
        "The access token is not valid or has expired: refresh it or log in again.";
    /// The refresh token is malformed, expired, revoked or of another kind.
    InvalidRefreshToken = 401 "invalid_refresh_token" "The refresh token is not valid or has expired: log in again.";
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
    /// The caller's role doesn't allow it.
    InsufficientRole = 403 "insufficient_role" "Your role does not allow this.";
    /// The key lacks a permission.
    MissingPermission = 403 "missing_permission" "This API key lacks the permission that this needs.";
    /// The key may not be used from this address.
    IpNotAllowed = 403 "ip_not_allowed" "This API key may not be used from this address.";
    /// The key may not use this model.
    ModelNotAllowed = 403 "model_not_allowed" "This API key may not use this model.";
    /// An API key reaches outside its own project and organization.
    OutsideApiKeyScope = 403 "outside_api_key_scope"
        "An API key acts only on its own project and organization: use an access token here.";
    /// An API key that was narrowed to some model calls manages nothing, and no key manages itself.
    ManagementNotAllowed = 403 "management_not_allowed"
        "An API key manages only with all four permissions and without `models` and `max_tokens`: use an access token here.";
    /// An API key would make or hand out more than it has itself.
    KeyExceedsCaller = 403 "key_exceeds_caller"
        "This would reach beyond the restrictions of the API key that calls: use an access token here.";
    /// API keys may not manage (configuration `api_keys.management`).
    ApiKeyManagementDisabled = 403 "api_key_management_disabled"
        "API keys may not do this on this server: use an access token here.";
    /// The account's e-mail address isn't verified yet.
    EmailNotVerified = 403 "email_not_verified" "Verify your e-mail address first: the link is in your mail.";
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
    /// No such member.
    MemberNotFound = 404 "member_not_found" "There is no such member here.";
    /// No such model.
    ModelNotFound = 404 "model_not_found" "There is no such model; `/v1/models` lists all.";
    /// No such invoice.
    InvoiceNotFound = 404 "invoice_not_found" "There is no such invoice.";
    /// The path exists, but not with this method.
    MethodNotAllowed = 405 "method_not_allowed" "This path takes other methods: the header `allow` names them.";
    /// The e-mail address has an account.
    EmailTaken = 409 "email_taken" "There is an account with this e-mail address.";
    /// The username is in use.
    UsernameTaken = 409 "username_taken" "This username is taken.";
    /// The name is in use beside it.
    NameTaken = 409 "name_taken" "This name is taken.";
    /// The organization would be left without an owner.
    LastOwner = 409 "last_owner" "This is the last owner: make somebody else an owner first.";
    /// The person is a member already.
    AlreadyMember = 409 "already_member" "This person is a member already.";
    /// There is an open invitation for this address.
    AlreadyInvited = 409 "already_invited" "There is an open invitation for this address.";
    /// The organization owes money or still has some.
    UnsettledBalance = 409 "unsettled_balance" "This organization owes money or still has credit: settle that first.";
    /// There are as many of something as there may be.
    LimitReached = 409 "limit_reached" "There are as many as there may be: delete one first.";
    /// Calls of the organization are under way.
    CallsUnderWay = 409 "calls_under_way"
        "Calls of this organization are under way: wait until they have ended, which takes some minutes at most.";
    /// A reservation for another call has this request id.
    RequestIdConflict = 409 "request_id_conflict"
        "A call of another caller, project, model or amount has this `request_id`: give each call its own.";
    /// An expired key can't be rotated.
    KeyExpired = 409 "key_expired" "This API key has expired and can't be rotated: create a new one.";
    /// Head or body of the request did not come in time.
    RequestTimeout = 408 "request_timeout" "The request did not arrive in time: send it again, faster.";
    /// The body is larger than the limit.
    PayloadTooLarge = 413 "payload_too_large" "The body is larger than this path takes.";
    /// The head of the request is larger than the limit.
    HeadTooLarge = 431 "head_too_large" "The request's head has more than 100 headers or 32 KiB.";
    /// Too many requests.
    RateLimited = 429 "rate_limited" "Too many requests: wait as long as `retry-after` says.";
    /// Too many requests of one organization for one model.
    ModelRateLimited = 429 "model_rate_limited"
        "Too many requests of this organization for this model: wait as long as `retry-after` says.";
    /// Too many attempts on one account.
    TooManyAttempts = 429 "too_many_attempts" "Too many attempts: wait as long as `retry-after` says.";
    /// Too many logins wait for their password to be checked.
    PasswordQueueFull = 429 "password_queue_full" "Too many logins are waiting: try again in a moment.";
    /// The organization has no money left for the call.
    InsufficientQuota = 429 "insufficient_quota"
        "The organization's balance and credit limit don't cover this call: add credit.";
    /// As many calls of one organization to one model are under way as the model takes.
    ModelConcurrencyLimited = 429 "model_concurrency_limited"
        "As many calls of this organization to this model are under way as it takes: try again in a moment.";
    /// There is no such reservation any more.
    ReservationNotFound = 404 "reservation_not_found"
        "There is no such reservation: it was captured, released or has expired.";
    /// Our own mistake.
    Internal = 500 "internal_error" "Something went wrong on our side; the request id helps to find it.";
    /// Unfinished request bodies take all the bytes that they may.
    ServerBusy = 503 "server_busy"
        "Too many requests are being received: nothing was done, try again in a moment.";
    /// Too many calls wait to be booked.
    BooksQueueFull = 503 "books_queue_full"
        "Too many calls wait to be booked: nothing was done, try again in a moment.";
    /// By this server's clock what is asked might be decided wrongly, and for good.
    ClockNotTrusted = 503 "clock_not_trusted"
        "This server's clock can't be trusted right now: nothing was done, send it again. `/readyz` says why.";
    /// The database can't be reached.
    DatabaseUnavailable = 503 "database_unavailable"
        "The database can't be reached right now: try again in a moment.";
    /// The disk is full.
    StorageFull = 503 "storage_full" "The server's disk is full: nothing was written.";
    /// The database can't be written.
    StorageReadOnly = 503 "storage_read_only" "The server's database can't be written to: nothing was changed.";
    /// Requests should go elsewhere: `/readyz` says why.
    NotReady = 503 "not_ready" "This server is not ready for requests: `details` names each reason.";
}
