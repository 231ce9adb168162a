//! The rows of the table of endpoints.
//!
//! A row has an access, and the handler takes the scope that this access returns. A handler that needs a
//! stronger scope doesn't compile.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderMap, Method, Response, StatusCode};
use schemars::SchemaGenerator;
use serde_json::Value;

use crate::call::Call;
use crate::input::{Description, Input};
use crate::reply::{Body, IDEMPOTENCY_REPLAYED, Reply};

pub use crate::state::{ErrorShape, State};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;

/// The access of a route.
pub trait Access<S: State>: Send + Sync + 'static {
    /// The proof that the caller may use the route.
    type Scope: Send + 'static;
    /// Admits the caller.
    ///
    /// # Errors
    /// 401, 403, 404 or 429.
    fn admit(
        &self,
        state: &S,
        call: &mut Call<S::Credential>,
    ) -> impl Future<Output = Result<Self::Scope, Error>> + Send;
    /// Describes the access for the OpenAPI document and the access matrix.
    fn describe(&self) -> AccessDoc;
}

/// The description of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessDoc {
    /// The security scheme of the OpenAPI document; `None` for a public route.
    pub scheme: Option<&'static str>,
    /// A second scheme with which the same credential can be sent.
    pub other_scheme: Option<&'static str>,
    /// A description in one line.
    pub text: String,
    /// The kind of place (`organization` or `project`) and the names of the roles that admit a caller, if the
    /// access requires a role.
    pub roles: Option<(&'static str, Vec<&'static str>)>,
    /// The error codes of the access.
    pub codes: Vec<Code>,
    /// `true` if the route answers before the database is ready.
    pub before_ready: bool,
}

impl AccessDoc {
    /// Returns a description of an access that needs the database.
    pub fn new(scheme: Option<&'static str>, text: impl Into<String>) -> Self {
        Self {
            scheme,
            other_scheme: None,
            text: text.into(),
            roles: None,
            codes: Vec::new(),
            before_ready: false,
        }
    }

    /// Adds error codes.
    #[must_use]
    pub fn refuses(mut self, codes: &[Code]) -> Self {
        self.codes.extend(codes);
        self
    }

    /// Sets the roles that admit a caller. `place` is `organization` or `project`.
    #[must_use]
    pub fn roles(self, place: &'static str, roles: Vec<&'static str>) -> Self {
        Self { roles: Some((place, roles)), ..self }
    }

    /// Marks a route that also answers before the database is ready.
    #[must_use]
    pub fn before_ready(self) -> Self {
        Self { before_ready: true, ..self }
    }
}

/// The listener that a route is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// The listener for users and their programs.
    Public,
    /// The listener for inference servers, with a separate port and token.
    Service,
    Both,
}

/// Functions that render a group of routes' responses, for pages that look alike.
pub struct Pages<S: State> {
    /// Renders the response to an error. The call's body may or may not have been read.
    pub error: ErrorPage<S>,
    /// Completes the headers of every response.
    pub headers: fn(&S, &mut HeaderMap),
}

/// The type of [`Pages::error`].
pub type ErrorPage<S> =
    for<'a> fn(&'a S, &'a mut Call<<S as State>::Credential>, &'a Error) -> BoxFuture<'a, Response<Body>>;

impl<S: State> Clone for Pages<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: State> Copy for Pages<S> {}

/// The outcome of a call.
#[derive(Debug)]
pub struct Outcome {
    /// The response, or the error to send.
    pub result: Result<Response<Body>, Error>,
    /// The response to the error, if the route has custom pages.
    pub error_page: Option<Response<Body>>,
    /// The caller's name in the log; empty if it is unknown.
    pub caller: String,
}

impl Outcome {
    /// Returns the outcome of a call whose caller is unknown.
    pub fn refused(error: Error) -> Self {
        Self { result: Err(error), error_page: None, caller: String::new() }
    }
}

/// The description of an endpoint in the OpenAPI document, in addition to its types.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operation {
    /// A verb, and the object that it acts on. Client generators name functions and types after the id, so it
    /// must not change after a release.
    pub id: &'static str,
    /// The codes that the handler adds to those of its access and its input.
    pub errors: &'static [Code],
    /// Groups of such codes that several operations share.
    pub error_groups: &'static [&'static [Code]],
    /// An example of the body as a user would write it, with the fields that most callers send and a line for
    /// each field; empty if the operation has no example.
    pub example: &'static str,
    /// The names and values of the query parameters in its code samples.
    pub query: &'static [(&'static str, &'static str)],
}

impl Operation {
    /// Returns an operation with this id.
    pub const fn new(id: &'static str) -> Self {
        Self { id, errors: &[], error_groups: &[], example: "", query: &[] }
    }
}

/// An endpoint.
#[derive(Clone)]
pub struct Route<S: State> {
    pub method: Method,
    /// The path with `{parameters}`.
    pub path: &'static str,
    pub access: AccessDoc,
    pub listener: Listener,
    /// The handler's Rust path without its crate; it mirrors the URL
    /// (docs/architecture.md#life-of-a-request).
    pub handler: &'static str,
    /// The description of the endpoint; empty for a row that isn't in the OpenAPI document.
    pub operation: Operation,
    /// Describes the input, for the OpenAPI document.
    pub input: fn() -> Description,
    /// Returns the schema of the reply, for the OpenAPI document.
    pub reply: fn(&mut SchemaGenerator) -> Value,
    /// The content type of the reply.
    pub content_type: &'static str,
    /// A second content type that the client can request.
    pub other_content_type: Option<&'static str>,
    /// `true` if the reply has an `ETag`.
    pub has_entity_tag: bool,
    /// The error pages, if errors don't have the format of the path (`error_shape`).
    pub pages: Option<Pages<S>>,
    /// The label of its link in the navigation of pages, if it has one.
    pub label: Option<&'static str>,
    endpoint: Endpoint<S>,
}

/// Admits the caller, reads the input and runs the handler. It is compiled once per route, so the steps that
/// all routes share are in [`Route::call`].
type Endpoint<S> = Arc<
    dyn for<'a> Fn(
            &'a S,
            &'a mut Call<<S as State>::Credential>,
        ) -> BoxFuture<'a, Result<Response<Body>, Error>>
        + Send
        + Sync,
>;

/// Returns a row of the table, on the public listener.
pub fn route<S, H, A, I, O, F, R>(method: Method, path: &'static str, access: A, handler: F) -> Route<S>
where
    S: State,
    H: From<S> + Send + 'static,
    A: Access<S>,
    I: Input<S>,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send + 'static,
{
    let doc = access.describe();
    let access = Arc::new(access);
    Route {
        method,
        path,
        access: doc,
        listener: Listener::Public,
        handler: handler_path::<F>(),
        operation: Operation::default(),
        input: I::describe,
        reply: O::schema,
        content_type: O::content_type(),
        other_content_type: O::other_content_type(),
        has_entity_tag: O::has_entity_tag(),
        pages: None,
        label: None,
        endpoint: endpoint(move |state, call| Box::pin(run(Arc::clone(&access), handler, state, call))),
    }
}

/// Returns an endpoint with its type erased.
fn endpoint<S: State>(
    endpoint: impl for<'a> Fn(&'a S, &'a mut Call<S::Credential>) -> BoxFuture<'a, Result<Response<Body>, Error>>
    + Send
    + Sync
    + 'static,
) -> Endpoint<S> {
    Arc::new(endpoint)
}

/// Returns the Rust path of a handler, without its crate.
pub fn handler_path<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    path.split_once("::").map_or(path, |(_, path)| path)
}

async fn run<S, H, A, I, O, F, R>(
    access: Arc<A>,
    handler: F,
    state: &S,
    call: &mut Call<S::Credential>,
) -> Result<Response<Body>, Error>
where
    S: State,
    H: From<S>,
    A: Access<S>,
    I: Input<S>,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R,
    R: Future<Output = Result<O, Error>>,
{
    let scope = access.admit(state, call).await?;
    let input = I::read(state, call).await?;
    if I::READS_BODY {
        state.check_again(call).await?;
    }
    handler(state.clone().into(), scope, input).await?.into_response()
}

/// Returns `true` if a change's response reveals the effect of an earlier attempt: the object no longer
/// exists, it already exists, or the first response is sent again. The earlier attempt then counts as
/// acknowledged.
fn rests_on_reads<S: State>(call: &Call<S::Credential>, answer: &Result<Response<Body>, Error>) -> bool {
    if call.is_read() || S::is_model_path(call.uri.path()) {
        return false;
    }
    match answer {
        Ok(response) => response.headers().contains_key(IDEMPOTENCY_REPLAYED),
        Err(error) => matches!(error.code.status(), StatusCode::NOT_FOUND | StatusCode::CONFLICT),
    }
}

impl<S: State> Route<S> {
    /// Moves the route to another listener.
    #[must_use]
    pub fn on(self, listener: Listener) -> Self {
        Self { listener, ..self }
    }

    /// Describes the route in the OpenAPI document.
    #[must_use]
    pub fn described_by(self, operation: &Operation) -> Self {
        Self { operation: *operation, ..self }
    }

    /// Sets the functions that render errors and complete responses.
    #[must_use]
    pub fn with_pages(self, pages: Pages<S>) -> Self {
        Self { pages: Some(pages), ..self }
    }

    /// Adds a link to the route to the navigation of pages.
    #[must_use]
    pub fn in_navigation(self, label: &'static str) -> Self {
        Self { label: Some(label), ..self }
    }

    /// Returns the format of the route's errors.
    pub fn error_shape(&self) -> ErrorShape {
        S::error_shape(self.path)
    }

    /// Admits the caller, reads the input and runs the handler.
    pub async fn call(&self, state: &S, mut call: Call<S::Credential>) -> Outcome {
        let result = AssertUnwindSafe((self.endpoint)(state, &mut call));
        // Panics are caught here, so that an error page can still be rendered.
        let result = result.catch_unwind().await;
        let mut result = result.unwrap_or_else(|_| Err(Error::internal("the handler panicked")));
        if rests_on_reads::<S>(&call, &result)
            && let Err(error) = Box::pin(state.confirm()).await
        {
            result = Err(error);
        }
        let error_page = match (&result, self.pages) {
            (Err(error), Some(pages)) => Some((pages.error)(state, &mut call, error).await),
            _ => None,
        };
        Outcome { result, error_page, caller: call.caller }
    }
}

impl<S: State> std::fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({})", self.method, self.path, self.access.text)
    }
}
