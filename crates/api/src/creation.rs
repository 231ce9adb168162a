//! Operations that create something: a repeated request with the same idempotency key gets the first response
//! (docs/contract/README.md#idempotency).
//!
//! The handler of such an operation doesn't commit: it returns the reply with its transaction, in which the
//! response is stored if the request has a key.

use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use schemars::SchemaGenerator;
use serde_json::{Value, json};

use crate::Api;
use crate::gate::{Access, Call};
use crate::row::{Route, route};
use idempotency::{Attempt, Begun, Request, Uncommitted};
use kernel::error::{Code, Detail, Error};
use kernel::futures::BoxFuture;
use kernel::secrets::sha256;
use web::detached;
use web::input::{Description, Input, read_decoded};
use web::reply::{Body, IDEMPOTENCY_REPLAYED, KeptResponse, Reply, error_response, whole};
use web::route::{Operation, handler_path};

/// The name of the header in the OpenAPI document.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The name of the header in the `param` of errors.
const HEADER: &str = "idempotency-key";
/// The maximum length of a key in characters.
const MAX_KEY_LENGTH: usize = 255;

/// Returns the row of an operation that creates something: a POST below `/v1` that takes an idempotency key.
pub fn creation<H, A, I, O, F, R>(path: &'static str, access: A, handler: F, operation: &Operation) -> Route
where
    H: From<Api> + Send + 'static,
    A: Access<Api>,
    I: Input<Api>,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<Uncommitted<O>, Error>> + Send + 'static,
{
    let answer = move |api: Api, scope: A::Scope, Keyed { request, input }: Keyed<I>| {
        let made = handler(H::from(api.clone()), scope, input);
        let made: Made = Box::pin(async move { Ok(made.await?.map(O::into_response)) });
        async move { Ok(Answer { response: respond(api, request, made).await?, reply: PhantomData::<fn() -> O> }) }
    };
    let mut row = route(Method::POST, path, access, answer, operation);
    row.handler = handler_path::<F>();
    row
}

/// An operation that runs when it is awaited. It is boxed so that all rows share the code below.
type Made = BoxFuture<'static, Result<Uncommitted<Result<Response<Body>, Error>>, Error>>;

async fn respond(api: Api, request: Option<Request>, made: Made) -> Result<Response<Body>, Error> {
    match request {
        None => made.await?.commit().await?,
        // A client that disconnects may retry, so the operation finishes and its response is stored.
        Some(request) => detached::run(run_once(api, request, made)).await,
    }
}

/// Claims the key, runs the operation and stores its response. For a repeated request, returns the stored
/// response.
async fn run_once(api: Api, request: Request, made: Made) -> Result<Response<Body>, Error> {
    let begun = match idempotency::begin(&api.idempotency, &request).await {
        // The first request is still running. Wait for its response.
        Err(error)
            if error.code == Code::IdempotencyInProgress
                && idempotency::wait(&api.idempotency, &request).await =>
        {
            idempotency::begin(&api.idempotency, &request).await
        }
        begun => begun,
    };
    let attempt = match begun? {
        Begun::First(attempt) => attempt,
        Begun::Answered(kept) => return repeat(&api, &kept),
    };
    let made = AssertUnwindSafe(made).catch_unwind().await;
    let made = made.unwrap_or_else(|_| Err(Error::internal("the handler panicked")));
    let finished = match made {
        Ok(made) => finish(&api, &attempt, made).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &finished {
        // If this also fails, the key becomes free when its lease ends.
        close(&api, &attempt, error).await.ok();
    }
    finished
}

/// Stores the response and commits the operation.
async fn finish(
    api: &Api,
    attempt: &Attempt,
    made: Uncommitted<Result<Response<Body>, Error>>,
) -> Result<Response<Body>, Error> {
    let (response, mut rest) = made.split();
    let kept = KeptResponse::read(response?, None).await?;
    idempotency::finish(&api.idempotency, attempt, rest.tx(), &kept.to_bytes()?).await?;
    rest.commit().await?;
    kept.into_response()
}

/// Stores the error of an operation that changed nothing, or releases the key.
async fn close(api: &Api, attempt: &Attempt, error: &Error) -> Result<(), Error> {
    if is_kept(error.code) {
        let kept = KeptResponse::read(error_response(error, true), Some(error.code)).await?;
        idempotency::keep(&api.idempotency, attempt, &kept.to_bytes()?).await
    } else {
        idempotency::release(&api.idempotency, attempt).await
    }
}

/// Returns `true` if an error is stored, because sending the same request again can't change it. Other errors
/// are temporary: missing permissions may be granted, and rate limits and failures pass.
fn is_kept(code: Code) -> bool {
    let status = code.status();
    let may_pass = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_client_error() && !may_pass.contains(&status) && code != Code::IdempotencyInProgress
}

/// Returns a stored response.
fn repeat(api: &Api, kept: &[u8]) -> Result<Response<Body>, Error> {
    let kept = KeptResponse::from_bytes(kept)?;
    if let Some(code) = kept.code() {
        api.metrics.errors.count(code);
    }
    let mut response = kept.into_response()?;
    response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// The response of an operation, either new or stored.
struct Answer<O> {
    response: Response<Body>,
    reply: PhantomData<fn() -> O>,
}

impl<O: Reply> Reply for Answer<O> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        Ok(self.response)
    }
    fn content_type() -> &'static str {
        O::content_type()
    }
    fn other_content_type() -> Option<&'static str> {
        O::other_content_type()
    }
    fn has_entity_tag() -> bool {
        O::has_entity_tag()
    }
    fn schema(generator: &mut SchemaGenerator) -> Value {
        O::schema(generator)
    }
}

/// An input with the header `Idempotency-Key`.
struct Keyed<I> {
    /// The request and its key; `None` without a key.
    request: Option<Request>,
    input: I,
}

impl<I: Input<Api>> Input<Api> for Keyed<I> {
    const READS_BODY: bool = I::READS_BODY;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let Some(key) = key(&call.headers)? else {
            return Ok(Self { request: None, input: I::read(api, call).await? });
        };
        if call.caller.is_empty() {
            return Err(Error::internal("a caller without a name can't repeat a request"));
        }
        let mut body = hyper::body::Bytes::new();
        if I::READS_BODY {
            body = read_decoded(api, call).await?.into_bytes();
            call.body = whole(body.clone());
        }
        let operation = [call.method.as_str(), call.uri.path()];
        let query = call.uri.query().unwrap_or_default().as_bytes();
        let request = Request::new(&call.caller, operation, &key, [query, &body]);
        Ok(Self { request: Some(request), input: I::read(api, call).await? })
    }

    fn describe() -> Description {
        let mut description = I::describe();
        let text = "A value of your choice that is unique for each request, for example a UUID. For 24 \
                    hours, the same request with the same key isn't executed again. It returns the first \
                    response, with the header `idempotency-replayed: true`. A request with the same key and \
                    a different body is rejected with 409 `idempotency_key_reused`; while the first request \
                    is running, with 409 `idempotency_in_progress`.";
        let schema = json!({
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_KEY_LENGTH,
            "pattern": "^[!-~]+$",
            "description": text,
            "examples": ["5f0c8b0e-8f5b-4a0e-9d3c-2b7a1c9e4d61"],
        });
        description.headers.push((IDEMPOTENCY_KEY, schema));
        description
    }
}

/// An input with a digest that identifies the request, for an operation that commits a part of its work
/// before it responds. A repeated request finds that part by the digest.
#[derive(Debug)]
pub struct Repeatable<I> {
    /// A digest of the caller, the path and the idempotency key; `None` without a key.
    pub request_key: Option<[u8; 32]>,
    pub input: I,
}

impl<I: Input<Api>> Input<Api> for Repeatable<I> {
    const READS_BODY: bool = I::READS_BODY;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let path = call.uri.path().to_owned();
        let request_key = key(&call.headers)?.map(|key| {
            // None of the parts contains a newline.
            sha256(format!("{}\n{path}\n{key}", call.caller).as_bytes())
        });
        Ok(Self { request_key, input: I::read(api, call).await? })
    }
    fn describe() -> Description {
        I::describe()
    }
}

/// Reads the key of a request, if it has one.
///
/// # Errors
/// 400 if several keys are sent, or if the key isn't 1 to 255 visible ASCII characters.
fn key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.as_bytes();
    let is_valid = (1..=MAX_KEY_LENGTH).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(bytes) {
        Ok(key) if is_valid && values.next().is_none() => Ok(Some(key.to_owned())),
        _ => {
            let message = "Send one `Idempotency-Key` of 1 to 255 visible ASCII characters without spaces.";
            let (param, message) = (HEADER.to_owned(), message.to_owned());
            Err(Error::invalid(vec![Detail { param, code: "invalid_idempotency_key", message }]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_one_visible_text() {
        let read = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(HEADER, HeaderValue::from_bytes(line).unwrap());
            }
            key(&headers).map_err(|error| {
                assert_eq!(error.code, Code::InvalidRequest);
                error.details.into_iter().map(|detail| (detail.param, detail.code)).collect::<Vec<_>>()
            })
        };
        let longest = "k".repeat(255);
        for good in ["k", "!", "~", "\"8e03978e-40d5\"", &longest] {
            assert_eq!(read(&[good.as_bytes()]), Ok(Some(good.to_owned())));
        }
        assert_eq!(read(&[]), Ok(None));
        let refused = || Err(vec![(HEADER.to_owned(), "invalid_idempotency_key")]);
        let bad: [&[u8]; 6] = [b"", b"a b", b"a\tb", "é".as_bytes(), b"\xff", &[b'k'; 256]];
        for bad in bad {
            assert_eq!(read(&[bad]), refused(), "{bad:?}");
        }
        assert_eq!(read(&[b"a", b"b"]), refused());
        assert_eq!(read(&[b"a", b"a"]), refused());
    }

    #[test]
    fn refusals_that_may_pass_are_not_kept() {
        let kept = |status: u16| {
            let of_status = |code: &&Code| code.status().as_u16() == status;
            let codes =
                Code::ALL.iter().filter(of_status).filter(|code| **code != Code::IdempotencyInProgress);
            let kept: Vec<_> = codes.map(|code| is_kept(*code)).collect();
            assert!(kept.iter().all(|other| *other == kept[0]), "{status}");
            kept[0]
        };
        assert_eq!([400, 404, 409, 412, 413].map(kept), [true; 5]);
        assert_eq!([401, 403, 408, 429, 500, 503].map(kept), [false; 6]);
        assert!(!is_kept(Code::IdempotencyInProgress) && is_kept(Code::IdempotencyKeyReused));
    }
}
