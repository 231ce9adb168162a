//! Inputs of handlers: bodies and query parameters, read with all mistakes reported at once.
//!
//! A request type lists its fields once (`Record::read`). That list reads a body, suggests names for
//! misspelled fields, and documents the body in the OpenAPI document, so that all three agree.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::Bytes;
use http::{HeaderMap, header};

pub use crate::request_body::{BodyError, ReceivedBody};
pub use ::input::fields::{Fields, Record};
pub use kernel::patch::Patch;

use crate::body_limit::BodyLimit;
use crate::call::Call;
use crate::content_coding::{ContentCoding, check_as_sent};
use crate::entity_tags;
use crate::request_body;
use crate::state::State;
use ::input::fields::{self, Sent, object};
use ::input::json::{Json, Members};
use ::input::schema::ObjectSchema;
use kernel::error::{Code, Detail, Error};
use kernel::shares::Holder;
use kernel::version::Expected;
use serde_json::{Value, json};

/// The maximum number of parameters of a query string, and of fields of an HTML form.
pub const MAX_PARAMETERS: usize = 256;

/// An argument of a handler, read from the request.
pub trait Input<S: State>: Sized + Send + 'static {
    /// `true` if it reads the body. The session or key is then checked again, because a body may take a long
    /// time to arrive.
    const READS_BODY: bool = true;

    /// Reads the input. The gate has already admitted the caller.
    fn read(state: &S, call: &mut Call<S::Credential>) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Returns the input's part of the OpenAPI document.
    fn describe() -> Description;
}

/// The fields of an endpoint by their source, for the OpenAPI document.
#[derive(Debug, Default)]
pub struct Description {
    /// The JSON body, if the endpoint has one.
    pub body: Option<ObjectSchema>,
    /// The HTML form, if the endpoint has one.
    pub form: Option<ObjectSchema>,
    /// The query parameters, if the endpoint has any.
    pub query: Option<ObjectSchema>,
    /// Name and schema of each header that the endpoint reads; none is required.
    pub headers: Vec<(&'static str, Value)>,
}

/// No input except the path: body and query parameters are ignored.
#[derive(Clone, Copy, Debug)]
pub struct NoInput;

impl<S: State> Input<S> for NoInput {
    const READS_BODY: bool = false;

    async fn read(_: &S, _: &mut Call<S::Credential>) -> Result<Self, Error> {
        Ok(Self)
    }
    fn describe() -> Description {
        Description::default()
    }
}

/// An input with the header `If-Match`, which contains the versions that the caller expects.
#[derive(Debug)]
pub struct IfMatch<I>(pub Expected, pub I);

impl<S: State, I: Input<S>> Input<S> for IfMatch<I> {
    const READS_BODY: bool = I::READS_BODY;

    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let expected = entity_tags::expected(&call.headers)?;
        Ok(Self(expected, I::read(state, call).await?))
    }
    fn describe() -> Description {
        let mut description = I::describe();
        let text = "The `ETag` from a read or an earlier change. If it is no longer current, the response is 412. \
                    Separate several with commas; `*` matches any version.";
        description
            .headers
            .push((entity_tags::IF_MATCH, json!({"type": "string", "description": text, "examples": ["*"]})));
        description
    }
}

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: State, T: Record<S>> Input<S> for Body<T> {
    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let bytes = read_json(state, call).await?;
        Ok(Self(parse_record(state, &bytes)?))
    }
    fn describe() -> Description {
        Description { body: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}

/// The description of a JSON body that its handler parses.
pub trait DescribeBody: Send + 'static {
    /// Returns the fields that this service reads.
    fn describe() -> ObjectSchema;
}

/// A JSON body that isn't parsed. `T` describes it.
pub struct RawJson<T> {
    pub bytes: Bytes,
    described: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for RawJson<T> {
    /// Hides the bytes, because they contain users' data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawJson").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<S: State, T: DescribeBody> Input<S> for RawJson<T> {
    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let bytes = read_json(state, call).await?.into_bytes();
        Ok(Self { bytes, described: PhantomData })
    }
    fn describe() -> Description {
        Description { body: Some(T::describe()), ..Description::default() }
    }
}

/// Query parameters. Unknown parameters are ignored.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<S: State, T: Record<S>> Input<S> for Query<T> {
    const READS_BODY: bool = false;

    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        Ok(Self(fields::read(state, Sent { query: query_parameters(call)?, body: Members::new() })?))
    }
    fn describe() -> Description {
        Description { query: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}

/// Query parameters or the JSON body of a GET; a field in both is taken from the body
/// (docs/contract/usage.md#query-and-body).
#[derive(Debug)]
pub struct QueryOrBody<T>(pub T);

impl<S: State, T: Record<S>> Input<S> for QueryOrBody<T> {
    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let bytes = read_json(state, call).await?;
        Ok(Self(fields::read(state, Sent { query: query_parameters(call)?, body: object(&bytes)? })?))
    }
    fn describe() -> Description {
        Description { query: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}

/// The body of an HTML form. The handler shows mistakes next to the fields of the form.
pub struct Form<T> {
    /// The fields, or all their mistakes.
    pub fields: Result<T, Error>,
    sent: Vec<(String, String)>,
}

impl<T> Form<T> {
    /// Returns a field as it was sent, valid or not, or an empty string if no field has this name.
    pub fn sent(&self, name: &str) -> &str {
        self.sent.iter().find(|(other, _)| other == name).map_or("", |(_, text)| text)
    }
}

impl<T> std::fmt::Debug for Form<T> {
    /// Hides the fields, because they may contain passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Form(***)")
    }
}

impl<S: State, T: Record<S>> Input<S> for Form<T> {
    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let bytes = read_form(state, call, BodyLimit::form()).await?;
        let query = parse_pairs(form_text(&bytes)?, "body", "form")?;
        let text = |(name, value): &(Cow<'_, str>, Json<'_>)| match value {
            Json::Text(text) => Some((name.to_string(), text.to_string())),
            _ => None,
        };
        let sent = query.iter().filter_map(text).collect();
        Ok(Self { fields: fields::read(state, Sent { query, body: Members::new() }), sent })
    }
    fn describe() -> Description {
        Description { form: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}

/// The content type of HTML forms.
pub const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// Reads the body of an HTML form, without parsing it. Browsers send forms without a content coding.
pub(crate) async fn read_form<'a, S: State>(
    state: &'a S,
    call: &mut Call<S::Credential>,
    limit: BodyLimit,
) -> Result<ReceivedBody<'a>, Error> {
    check_as_sent(&call.headers)?;
    let bytes = read_body(state, call, limit).await?;
    if !bytes.is_empty() && essence(&call.headers) != FORM_CONTENT_TYPE {
        return Err(Error::new(Code::UnsupportedContentType)
            .param("content-type")
            .message(format!("Send the form with the header `Content-Type: {FORM_CONTENT_TYPE}`.")));
    }
    Ok(bytes)
}

/// Returns the text of an HTML form.
pub(crate) fn form_text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| not_utf8("body", "form"))
}

/// Reads a JSON body, decoded and without a byte order mark, but not parsed.
pub async fn read_json<'a, S: State>(
    state: &'a S,
    call: &mut Call<S::Credential>,
) -> Result<ReceivedBody<'a>, Error> {
    Ok(read_decoded(state, call).await?.without_byte_order_mark())
}

/// Reads and decodes a JSON body, and removes the content coding from the call's headers.
pub async fn read_decoded<'a, S: State>(
    state: &'a S,
    call: &mut Call<S::Credential>,
) -> Result<ReceivedBody<'a>, Error> {
    let coding = ContentCoding::of(&call.headers)?;
    let limit = S::body_limit(call.uri.path());
    let body = read_body(state, call, limit).await?;
    if body.is_empty() {
        return Ok(body);
    }
    check_content_type(&call.headers)?;
    let Some(coding) = coding else { return Ok(body) };
    call.headers.remove(header::CONTENT_ENCODING);
    let (budget, holder) = (&state.frame().body_budget, holder(state, call, limit));
    let decoded = request_body::decode(body, coding, limit, budget, holder).await;
    decoded.map_err(|error| unread(error, limit))
}

/// Reads a signed JSON body without decoding it, because the signature covers the bytes as they were sent.
///
/// # Errors
/// 415 for a content coding, and the errors of reading a body.
pub async fn read_signed_json<'a, S: State>(
    state: &'a S,
    call: &mut Call<S::Credential>,
) -> Result<ReceivedBody<'a>, Error> {
    check_as_sent(&call.headers)?;
    let body = read_body(state, call, S::body_limit(call.uri.path())).await?;
    if !body.is_empty() {
        check_content_type(&call.headers)?;
    }
    Ok(body)
}

/// Parses a body as a record. The error lists all mistakes.
pub fn parse_record<S, T: Record<S>>(state: &S, bytes: &[u8]) -> Result<T, Error> {
    fields::read(state, object(bytes)?)
}

async fn read_body<'a, S: State>(
    state: &'a S,
    call: &mut Call<S::Credential>,
    limit: BodyLimit,
) -> Result<ReceivedBody<'a>, Error> {
    let declared =
        call.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if declared.is_some_and(|length: u64| length > limit.max_bytes as u64) {
        return Err(too_large(limit));
    }
    let frame = state.frame();
    let body_timeout = Duration::from_secs(frame.settings.server.body_timeout_seconds.into());
    let holder = holder(state, call, limit);
    let body = std::mem::take(&mut call.body);
    let read = request_body::read(body, limit, body_timeout, &frame.body_budget, holder).await;
    read.map_err(|error| unread(error, limit))
}

/// Returns the holder of a call's body.
fn holder<S: State>(state: &S, call: &Call<S::Credential>, limit: BodyLimit) -> Holder {
    if limit.is_trusted { Holder::Trusted } else { state.holder(call) }
}

/// Returns the error for a body that couldn't be read.
fn unread(error: BodyError, limit: BodyLimit) -> Error {
    let invalid = |message| Error::new(Code::InvalidJson).param("body").message(message);
    match error {
        BodyError::TooLong => too_large(limit),
        BodyError::BudgetExhausted => Code::ServerBusy.into(),
        BodyError::Timeout => {
            Error::new(Code::RequestTimeout).param("body").message("The body didn't arrive in time.")
        }
        BodyError::Incomplete => invalid("The body ended before it was complete."),
        BodyError::Undecodable(coding) => invalid(coding.invalid_message()),
        BodyError::Failed => Error::internal("decoding a body panicked"),
    }
}

fn too_large(limit: BodyLimit) -> Error {
    let kib = limit.max_bytes / 1024;
    Error::new(Code::PayloadTooLarge)
        .param("body")
        .message(format!("The body is larger than {kib} KiB, the maximum for this path."))
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    if headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json") {
        return Ok(());
    }
    let essence = essence(headers);
    let json = essence == "application/json" || (essence.len() > 5 && essence.ends_with("+json"));
    if json { Ok(()) } else { Err(Error::new(Code::UnsupportedContentType).param("content-type")) }
}

/// Returns the content type without parameters, in lower case.
pub fn essence(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(crate) fn query_parameters<C>(call: &Call<C>) -> Result<Members<'_>, Error> {
    parse_pairs(call.uri.query().unwrap_or_default(), "query", "query string")
}

fn not_utf8(param: &'static str, what: &str) -> Error {
    Error::new(Code::InvalidRequest).param(param).message(format!("The {what} is not valid UTF-8."))
}

/// Parses names and values in the format `application/x-www-form-urlencoded`.
///
/// # Errors
/// An error if the text isn't UTF-8, or has more than [`MAX_PARAMETERS`] entries.
pub(crate) fn parse_pairs<'a>(text: &'a str, param: &'static str, what: &str) -> Result<Members<'a>, Error> {
    let mut members = Members::new();
    for (count, pair) in text.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        if count == MAX_PARAMETERS {
            let message = format!("The {what} may have at most {MAX_PARAMETERS} names with their values.");
            return Err(Error::invalid(vec![Detail { param: param.to_owned(), code: "too_many", message }]));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &'a str| decode_percent(text).ok_or_else(|| not_utf8(param, what));
        let (name, value) = (decoded(name)?, Json::Text(decoded(value)?));
        // Some clients write a repeated parameter as `name[]`.
        let name = name.strip_suffix("[]").map(|name| Cow::Owned(name.to_owned())).unwrap_or(name);
        match members.iter_mut().find(|(other, _)| *other == name) {
            None => members.push((name, value)),
            Some((_, Json::Array(items))) => items.push(value),
            Some((_, found)) => {
                let first = std::mem::replace(found, Json::Null);
                *found = Json::Array(vec![first, value]);
            }
        }
    }
    Ok(members)
}

/// Decodes percent-encoding and `+`.
fn decode_percent(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        return decode_percent(&text.replace('+', " ")).map(|text| Cow::Owned(text.into_owned()));
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok()
}
