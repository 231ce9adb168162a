//! Groups of paths, with the format of their errors and the limits of their bodies. They also apply to
//! requests without a route.

use http::Method;

use kernel::error::{Code, Error};
use web::body_limit::{BodyLimit, MAX_FORM_BYTES};
use web::route::ErrorShape;

/// The maximum number of bytes in the body of a management call.
const MAX_MANAGEMENT_BODY_BYTES: usize = 256 * 1024;
/// The maximum number of bytes in the body of a model call.
const MAX_MODEL_CALL_BODY_BYTES: usize = 16 * 1024 * 1024;
/// The maximum number of bytes in a body on the service listener.
const MAX_SERVICE_BODY_BYTES: usize = 1024 * 1024;
/// The paths of model calls.
const MODEL_CALLS: [&str; 5] =
    ["/v1/chat", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"];
/// The path of the model catalog. Its answers have no envelope, because the SDKs of model providers read
/// them.
const MODELS: &str = "/v1/models";
/// The methods of Gemini's API that have a body, with what to call instead.
const GEMINI_METHODS: [(&str, &str); 7] = [
    ("generateContent", GEMINI_CHAT),
    ("streamGenerateContent", GEMINI_CHAT),
    ("batchGenerateContent", GEMINI_CHAT),
    ("predict", GEMINI_CHAT),
    ("embedContent", GEMINI_EMBEDDINGS),
    ("batchEmbedContents", GEMINI_EMBEDDINGS),
    ("countTokens", "`POST /v1/messages/count_tokens` in Anthropic's format"),
];
const GEMINI_CHAT: &str = "`POST /v1/chat/completions` in OpenAI's format";
const GEMINI_EMBEDDINGS: &str = "`POST /v1/embeddings` in OpenAI's format";
/// The versions of Gemini's API that aren't also versions of this one.
const GEMINI_VERSIONS: [&str; 3] = ["/v1alpha/", "/v1beta/", "/v1beta1/"];
/// The path of messages. Their errors have the format of Anthropic's API.
const MESSAGES: &str = "/v1/messages";
/// The paths of HTML pages.
const PAGES: [&str; 6] =
    ["/verify-email", "/reset-password", "/change-email", "/invitations/accept", "/docs", "/console"];

/// The paths of management operations, whose answers have the envelope.
const MANAGEMENT: [&str; 3] = ["/v1/auth", "/v1/organizations", "/v1/billing"];

/// Returns the format of errors under this path, including paths without a route. Errors of management
/// operations have the envelope. The SDKs of model providers read all other errors below `/v1/`
/// (docs/contract/README.md#answers).
pub fn error_shape(path: &str) -> ErrorShape {
    if PAGES.into_iter().any(|page| is_below(path, page)) {
        ErrorShape::Page
    } else if is_below(path, MESSAGES) {
        ErrorShape::Anthropic
    } else if MANAGEMENT.into_iter().any(|root| is_below(path, root)) {
        ErrorShape::Enveloped
    } else {
        ErrorShape::Bare
    }
}

/// Returns `true` if a path is this page, or below it.
fn is_below(path: &str, page: &str) -> bool {
    path.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if a path belongs to model calls.
pub fn is_model_call(path: &str) -> bool {
    MODEL_CALLS.into_iter().any(|page| is_below(path, page))
}

/// Returns `true` if a path belongs to model calls or to the catalog.
pub fn is_model_path(path: &str) -> bool {
    is_model_call(path) || is_below(path, MODELS)
}

/// Returns the error for a request without a route. A request in the format of Gemini's API, whose SDKs put
/// the method after a colon, gets a hint about what to call instead.
pub fn no_route(code: Code, method: &Method, path: &str) -> Error {
    let last = path.rsplit('/').next().unwrap_or_default();
    let named = last.rsplit_once(':').filter(|_| method == Method::POST);
    let named = named.and_then(|(_, name)| GEMINI_METHODS.iter().find(|(known, _)| *known == name));
    let version = GEMINI_VERSIONS.into_iter().find_map(|version| path.strip_prefix(version));
    let instead = match (named, version) {
        (Some((_, instead)), _) => *instead,
        (None, Some(rest)) if is_below(rest, "models") && method == Method::GET => "`GET /v1/models`",
        (None, Some(_)) => GEMINI_CHAT,
        (None, None) => return code.into(),
    };
    Error::new(Code::UnknownPath)
        .message(format!("Gemini's API isn't supported. Call {instead} with the same key."))
}

/// Returns the limits of a body under this path.
pub fn body_limit(path: &str) -> BodyLimit {
    if path.starts_with("/service/") {
        BodyLimit::service(MAX_SERVICE_BODY_BYTES)
    } else if path.starts_with("/v1/auth/") {
        BodyLimit::public(MAX_FORM_BYTES)
    } else if is_model_call(path) {
        BodyLimit::model_call(MAX_MODEL_CALL_BODY_BYTES)
    } else {
        BodyLimit::public(MAX_MANAGEMENT_BODY_BYTES)
    }
}
