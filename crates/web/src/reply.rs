//! Replies of handlers: the envelope, a bare object or text, and errors in the same formats.

mod body;
mod kept;

use std::borrow::Cow;
use std::marker::PhantomData;

use axum::body::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::json;

use crate::entity_tags::entity_tag;
use kernel::error::{Code, Detail, Error};
use kernel::version::Version;

pub use axum::body::Body;
pub use body::whole;
pub use kept::KeptResponse;

/// The header that marks a response that was stored and is sent again.
pub const IDEMPOTENCY_REPLAYED: &str = "idempotency-replayed";

/// A reply of a handler.
pub trait Reply: Send + 'static {
    /// Returns the reply as an HTTP response.
    fn into_response(self) -> Result<Response<Body>, Error>;
    /// Returns the content type of the body, for the OpenAPI document.
    fn content_type() -> &'static str {
        "application/json"
    }
    /// Returns a second content type that the client can request, for the OpenAPI document.
    fn other_content_type() -> Option<&'static str> {
        None
    }
    /// Returns `true` if the reply has an `ETag`, for the OpenAPI document.
    fn has_entity_tag() -> bool {
        false
    }
    /// Returns the JSON schema of the body, for the OpenAPI document.
    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value;
}

/// An object without an envelope, which caches may store.
#[derive(Debug)]
pub struct Cacheable<T> {
    pub data: T,
    /// The number of seconds for which caches may store it.
    pub max_age_s: u32,
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Cacheable<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = json_response(StatusCode::OK, to_json(&self.data)?);
        if let Ok(value) = HeaderValue::from_str(&format!("public, max-age={}", self.max_age_s)) {
            response.headers_mut().insert(header::CACHE_CONTROL, value);
        }
        Ok(response)
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        generator.subschema_for::<T>().to_value()
    }
}

/// The Prometheus text format, version 0.0.4.
#[derive(Debug)]
pub struct PlainText(pub String);

impl Reply for PlainText {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = Response::new(whole(self.0));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }

    fn content_type() -> &'static str {
        "text/plain"
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        json!({"type": "string"})
    }
}

/// A successful reply in the envelope (docs/contract/README.md#answers): `status_code`, `status_message` and
/// `data`.
#[derive(Debug)]
pub struct Enveloped<T> {
    data: T,
    no_store: bool,
}

/// Returns a successful reply in the envelope.
pub fn ok<T: Serialize>(data: T) -> Enveloped<T> {
    Enveloped { data, no_store: false }
}

/// Returns a successful reply in the envelope that no cache may store, because it contains a secret or
/// personal data.
pub fn private<T: Serialize>(data: T) -> Enveloped<T> {
    Enveloped { data, no_store: true }
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    status_code: u16,
    status_message: &'static str,
    data: &'a T,
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Enveloped<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let body = Envelope { status_code: 200, status_message: "SUCCESS", data: &self.data };
        let mut response = json_response(StatusCode::OK, to_json(&body)?);
        if self.no_store {
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        Ok(response)
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        generator.subschema_for::<EnvelopeOf<T>>().to_value()
    }
}

/// The schema of an envelope that contains a `T`. It is named after `T`.
struct EnvelopeOf<T>(PhantomData<fn() -> T>);

impl<T: JsonSchema> JsonSchema for EnvelopeOf<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Enveloped{}", T::schema_name()).into()
    }
    fn schema_id() -> Cow<'static, str> {
        format!("Enveloped<{}>", T::schema_id()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut data = generator.subschema_for::<T>();
        data.insert("description".into(), "The result of the operation.".into());
        json_schema!({
            "type": "object",
            "required": ["status_code", "status_message", "data"],
            "properties": {
                "status_code": {
                    "type": "integer",
                    "description": "Always 200, the HTTP status.",
                    "examples": [200],
                },
                "status_message": {
                    "type": "string",
                    "description": "Always `SUCCESS`; in errors, the code in upper case.",
                    "examples": ["SUCCESS"],
                },
                "data": data,
            },
        })
    }
}

/// A successful reply in the envelope, with the version of its object in `ETag`.
#[derive(Debug)]
pub struct Versioned<T> {
    reply: Enveloped<T>,
    version: Version,
}

/// Returns a successful reply in the envelope with the version of its object.
pub fn versioned<T: Serialize>(version: Version, data: T) -> Versioned<T> {
    Versioned { reply: ok(data), version }
}

/// Like [`versioned`], for data that no cache may store.
pub fn private_versioned<T: Serialize>(version: Version, data: T) -> Versioned<T> {
    Versioned { reply: private(data), version }
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Versioned<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = self.reply.into_response()?;
        response.headers_mut().insert(header::ETAG, entity_tag(self.version)?);
        Ok(response)
    }

    fn has_entity_tag() -> bool {
        true
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        Enveloped::<T>::schema(generator)
    }
}

/// An object without an envelope, as for models, the service listener and well-known documents.
#[derive(Debug)]
pub struct Bare<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Bare<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        Ok(json_response(StatusCode::OK, to_json(&self.0)?))
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        generator.subschema_for::<T>().to_value()
    }
}

/// A `T` as JSON text, for objects that are sent many times between changes.
#[derive(Debug)]
pub struct RenderedJson<T> {
    json: Bytes,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize> RenderedJson<T> {
    /// Wraps JSON text that [`to_json`] has made from a `T`.
    pub fn new(json: Bytes) -> Self {
        Self { json, of: PhantomData }
    }
}

impl<T: Serialize + JsonSchema + 'static> Reply for RenderedJson<T> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        Ok(json_response(StatusCode::OK, self.json))
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        generator.subschema_for::<T>().to_value()
    }
}

/// Renders an error, in the envelope or as the member `error` alone (docs/contract/README.md#errors).
pub fn error_response(error: &Error, enveloped: bool) -> Response<Body> {
    let body = if enveloped { enveloped_error_body(error) } else { error_body(error) };
    let mut response = json_response(error.code.status(), body.unwrap_or_default());
    error_headers(error, response.headers_mut());
    response
}

/// Renders an error in the format of Anthropic's API, whose SDKs read `type` and `message`.
pub fn anthropic_error_response(error: &Error) -> Response<Body> {
    let details = details(error);
    let object = ErrorObject { r#type: anthropic_type(error.code), ..error_object(error, &details) };
    let body = to_json(&AnthropicError { r#type: "error", error: object });
    let mut response = json_response(error.code.status(), body.unwrap_or_default());
    error_headers(error, response.headers_mut());
    response
}

/// The error types of Anthropic's API that this service sends.
pub const ANTHROPIC_ERROR_TYPES: [&str; 10] = [
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
    "timeout_error",
];

/// Returns the type of an error in Anthropic's API, which depends on the error's status.
fn anthropic_type(code: Code) -> &'static str {
    match code.status() {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYMENT_REQUIRED => "billing_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY => "api_error",
        _ => "invalid_request_error",
    }
}

fn enveloped_error_body(error: &Error) -> Result<Bytes, Error> {
    to_json(&ErrorEnvelope {
        status_code: error.code.status().as_u16(),
        status_message: error.code.as_str().to_uppercase(),
        data: serde_json::Map::new(),
        error: error_object(error, &details(error)),
    })
}

/// Returns an error as JSON text, without the envelope.
pub fn error_body(error: &Error) -> Result<Bytes, Error> {
    to_json(&BareError { error: error_object(error, &details(error)) })
}

/// Returns the details of an error. An error about one field has one entry.
fn details(error: &Error) -> Cow<'_, [Detail]> {
    match (&error.param, error.details.as_slice()) {
        (Some(param), []) => Cow::Owned(vec![Detail {
            param: param.clone().into_owned(),
            code: error.code.as_str(),
            message: error.public_message().to_owned(),
        }]),
        (_, details) => Cow::Borrowed(details),
    }
}

fn error_object<'a>(error: &'a Error, details: &'a [Detail]) -> ErrorObject<'a> {
    ErrorObject {
        message: error.public_message(),
        r#type: error.code.error_type().as_str(),
        param: error.param.as_deref(),
        code: error.code.as_str(),
        details,
    }
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    status_code: u16,
    status_message: String,
    data: serde_json::Map<String, serde_json::Value>,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'static str,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct BareError<'a> {
    error: ErrorObject<'a>,
}

/// The `error` object of every failure.
#[derive(Debug, Serialize)]
pub struct ErrorObject<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'static str,
    details: &'a [Detail],
}

/// Adds the headers that help programs to handle an error.
pub fn error_headers(error: &Error, headers: &mut HeaderMap) {
    let status = error.code.status();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::UNAUTHORIZED {
        // RFC 9110, section 11.6.1, and RFC 6750, section 3. The challenge names an error only if a token was
        // sent and is the cause.
        let no_token =
            matches!(error.code, Code::MissingCredentials | Code::InvalidCredentials | Code::WrongPassword);
        let challenge = if no_token { "Bearer" } else { "Bearer error=\"invalid_token\"" };
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    if status == StatusCode::REQUEST_TIMEOUT {
        // The rest of the request may still arrive, and must not be read as the start of the next request.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(accepted) = error.accept_encoding {
        // RFC 9110, section 15.5.16.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
    }
    if status == StatusCode::UPGRADE_REQUIRED {
        // RFC 9110, section 15.5.22.
        headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    }
    // Retrying doesn't help until an operator acts.
    let is_not_served = error.code == Code::ModelNotServed;
    let is_running = error.code == Code::IdempotencyInProgress;
    // The response to other 4xx errors stays the same until someone makes a change.
    let may_pass = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    if is_running {
        headers.insert("x-should-retry", HeaderValue::from_static("true"));
    } else if is_not_served || status.is_client_error() && !may_pass {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if is_not_served {
        return;
    }
    if let Some(limit) = error.rate_limit {
        let seconds = limit.retry_after_ms.saturating_add(999).div_euclid(1000).max(1);
        // SDKs wait for this time, so it is at most a minute. Only `too_many_attempts` has its actual wait
        // (docs/contract/README.md#headers).
        let seconds = if error.code == Code::TooManyAttempts { seconds } else { seconds.min(60) };
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        headers.insert("retry-after-ms", HeaderValue::from(limit.retry_after_ms.max(1)));
        headers.insert("x-ratelimit-limit-requests", HeaderValue::from(limit.limit));
        headers.insert("x-ratelimit-remaining-requests", HeaderValue::from(0));
        if let Ok(value) = HeaderValue::from_str(&format!("{}ms", limit.reset_ms)) {
            headers.insert("x-ratelimit-reset-requests", value);
        }
    } else if status == StatusCode::SERVICE_UNAVAILABLE
        || status == StatusCode::TOO_MANY_REQUESTS
        || is_running
    {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(error.retry_after_s.unwrap_or(1).max(1)));
    }
}

/// Returns a response with this JSON text.
pub fn json_response(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Serializes a value as JSON text.
pub fn to_json<T: Serialize>(value: &T) -> Result<Bytes, Error> {
    // Most responses fit into this capacity. Growing the buffer in steps would cost more than writing the
    // text.
    let mut json = Vec::with_capacity(512);
    serde_json::to_writer(&mut json, value).map_err(Error::internal)?;
    Ok(json.into())
}
