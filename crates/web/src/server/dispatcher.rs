//! Dispatches a request to its route, with axum's router over the table of routes, inside a stack of layers.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, Router};
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tower::util::option_layer;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use tower_http::set_header::SetResponseHeaderLayer;

use super::access_line::AccessLine;
use crate::call::Call;
use crate::frame::Frame;
use crate::reply;
use crate::route::{ErrorShape, Listener, Outcome, Pages, Route, State};
use crate::settings::Settings;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::stopwatch::Stopwatch;
use metrics::RouteMetrics;
use telemetry::{InRequest, Trace};

/// Sends the requests of one listener to their routes. Every request gets exactly one response.
///
/// The type has no parameter for the program's state, so that the code that serves connections is compiled in
/// this crate.
#[derive(Clone)]
pub struct Dispatcher {
    router: Router,
    frame: Arc<Frame>,
    listener: Listener,
    /// The counters of requests without a route, and of bytes that aren't a request.
    unrouted: Arc<RouteMetrics>,
    hsts: Option<HeaderValue>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Returns the dispatcher of a listener, with the routes of that listener.
    pub fn new<S: State>(state: &S, routes: &[Route<S>], listener: Listener) -> Self {
        let frame = state.frame();
        let is_here = |route: &&Route<S>| route.listener == listener || route.listener == Listener::Both;
        let table: Vec<_> = routes.iter().filter(is_here).cloned().collect();
        let traffic = super::traffic(frame, listener);
        let unrouted = traffic.route("-", "-");
        let endpoint = |path: Option<&'static str>, target, measured| {
            let shape = path.map(S::error_shape);
            Arc::new(Endpoint { state: state.clone(), listener, path, shape, target, measured })
        };

        let mut paths: Vec<(&'static str, MethodRouter)> = Vec::new();
        for route in table {
            let (path, pages) = (route.path, route.pages);
            let measured = traffic.route(route.method.as_str(), path);
            #[allow(clippy::expect_used, reason = "the table is constant: the first test would find it")]
            let method = MethodFilter::try_from(route.method.clone()).expect("a method that axum routes");
            let service = endpoint(Some(path), Target::Route(Box::new(route)), measured).service();
            match paths.iter_mut().find(|(known, _)| *known == path) {
                Some((_, methods)) => *methods = std::mem::take(methods).on_service(method, service),
                None => {
                    let refused = Target::Refused(Code::MethodNotAllowed, pages);
                    let refused = endpoint(Some(path), refused, Arc::clone(&unrouted)).service();
                    let methods = MethodRouter::new().fallback_service(refused).on_service(method, service);
                    paths.push((path, methods));
                }
            }
        }
        let unknown = endpoint(None, Target::Refused(Code::UnknownPath, None), Arc::clone(&unrouted));
        let router = Router::new().fallback_service(unknown.service());
        let router = paths.into_iter().fold(router, |router, (path, methods)| router.route(path, methods));

        let settings = &frame.settings;
        let is_public = listener == Listener::Public;
        let hsts = hsts(settings.server.hsts_seconds).filter(|_| is_public);
        let set_hsts = hsts
            .clone()
            .map(|value| SetResponseHeaderLayer::overriding(header::STRICT_TRANSPORT_SECURITY, value));
        let cors = cors::<S>(settings).filter(|_| is_public);
        // Each layer costs some allocations per request, so only the required layers are added.
        let router = match (set_hsts, cors) {
            (None, None) => router,
            (hsts, cors) => {
                router.layer(ServiceBuilder::new().layer(option_layer(hsts)).layer(option_layer(cors)))
            }
        };
        Self { router, frame: Arc::clone(frame), listener, unrouted, hsts }
    }

    /// Returns the state shared by both listeners.
    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Returns the listener whose requests are dispatched.
    pub(super) fn listener(&self) -> Listener {
        self.listener
    }

    /// Responds to a request.
    pub async fn answer(&self, mut request: Request, peer: IpAddr) -> Response {
        request.extensions_mut().insert(Peer(peer));
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Responds to a request that isn't valid HTTP/1.1. Its path may not be known yet, so the format of the
    /// error can't depend on it.
    pub fn refuse(&self, error: Error, peer: IpAddr) -> Response {
        let line = self.unreadable(peer);
        let render = |error: &Error| reply::error_response(error, false);
        let mut response = finish(&self.frame, Outcome::refused(error), &render, &line);
        let headers = response.headers_mut();
        if let Some(value) = &self.hsts {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(date) = HeaderValue::try_from(self.frame.clock.now().to_http_date()) {
            headers.insert(header::DATE, date);
        }
        response
    }

    /// Logs and counts bytes that aren't a request. The connection has already responded to them with this
    /// status.
    pub fn note_unreadable(&self, status: StatusCode, peer: IpAddr) {
        let line = self.unreadable(peer);
        let code = Code::MalformedRequest;
        self.frame.metrics.errors.count(code);
        line.end("", status, code.as_str());
    }

    fn unreadable(&self, peer: IpAddr) -> AccessLine<'_> {
        let frame = &self.frame;
        AccessLine {
            // A valid method that no request uses.
            method: Method::from_bytes(b"-").unwrap_or_default(),
            route: "-",
            request_id: frame.next_request_id(),
            address: Some(peer),
            stopwatch: Stopwatch::start(),
            measured: &self.unrouted,
            is_logged: frame.settings.log_access,
            trace: None,
            listener: super::listener_name(self.listener),
        }
    }
}

/// Returns the value of `strict-transport-security`.
fn hsts(seconds: u32) -> Option<HeaderValue> {
    let value = HeaderValue::try_from(format!("max-age={seconds}")).ok();
    value.filter(|_| seconds > 0)
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The response headers that a page of an allowed origin may read.
const EXPOSED_HEADERS: [&str; 13] = [
    "etag",
    "idempotency-replayed",
    "x-request-id",
    "x-tollkeeper-call-id",
    "x-tollkeeper-demo",
    "x-tollkeeper-estimated",
    "x-tollkeeper-max-tokens",
    "x-should-retry",
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// Returns the CORS layer, unless the configuration allows no origins
/// (docs/contract/README.md#cross-origin-calls).
fn cors<S: State>(settings: &Settings) -> Option<CorsLayer> {
    let opens_model_calls = settings.allows_model_calls_from_browsers;
    if settings.cors_origins.is_empty() && !opens_model_calls {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // Browser SDKs send custom headers. All are allowed, because only the bearer token has authority.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED_HEADERS.map(HeaderName::from_static))
        .max_age(Duration::from_secs(600));
    let list = settings.cors_origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    let origins: Vec<_> = list.collect();
    let is_allowed = move |origin: &HeaderValue, request: &Parts| {
        origins.contains(origin) || opens_model_calls && S::is_model_path(request.uri.path())
    };
    Some(layer.allow_origin(AllowOrigin::predicate(is_allowed)))
}

/// The peer's address.
#[derive(Clone, Copy)]
struct Peer(IpAddr);

/// The target of requests: a row of the table, or a refusal.
enum Target<S: State> {
    Route(Box<Route<S>>),
    /// A refusal, with the pages of the other routes that have this path.
    Refused(Code, Option<Pages<S>>),
}

/// A target with the data that its log line needs.
struct Endpoint<S: State> {
    state: S,
    listener: Listener,
    /// The path of the route; `None` if no route has the path.
    path: Option<&'static str>,
    /// The format of its errors; `None` if no route has the path, because the format then depends on each
    /// request.
    shape: Option<ErrorShape>,
    target: Target<S>,
    measured: Arc<RouteMetrics>,
}

impl<S: State> Endpoint<S> {
    fn service(
        self: Arc<Self>,
    ) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + Sync
    {
        service_fn(move |request| {
            let endpoint = Arc::clone(&self);
            async move { Ok::<_, Infallible>(endpoint.serve(request).await) }
        })
    }

    /// Gives a request its id and its trace, calls the target, and renders its error. Always writes a line to
    /// the access log.
    async fn serve(&self, request: Request) -> Response {
        let stopwatch = Stopwatch::start();
        let frame = self.state.frame();
        let (mut parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>();
        let address = peer.and_then(|Peer(peer)| frame.client_address(&parts.headers, *peer));
        let request_id = frame.next_request_id();
        // Parameters that aren't UTF-8 are dropped, so they are handled like unknown ids.
        let parameters: Vec<_> = RawPathParams::from_request_parts(&mut parts, &()).await.map_or_else(
            |_| Vec::new(),
            |all| all.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        );
        let trace = frame.tracer.as_ref().and_then(|tracer| {
            let is_trusted = self.listener == Listener::Service;
            let trace = tracer.begin(&parts.headers, is_trusted, request_id)?;
            let organization = parameters.iter().find(|(name, _)| name == "organization_id");
            Some((trace, organization.and_then(|(_, id)| OrganizationId::parse(id))))
        });
        let shape = self.shape.unwrap_or_else(|| S::error_shape(parts.uri.path()));
        let line = AccessLine {
            method: parts.method.clone(),
            route: self.path.unwrap_or("-"),
            request_id,
            address,
            stopwatch,
            measured: &self.measured,
            is_logged: frame.settings.log_access,
            trace,
            listener: super::listener_name(self.listener),
        };
        let mut log_on_drop = LogOnDrop { line: Some(&line) };
        let call = Call {
            address,
            request_id,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            path: parameters,
            body,
            form: None,
            caller: String::new(),
            credential: S::Credential::default(),
        };
        let trace = line.trace.as_ref().map(|(trace, _)| Arc::clone(trace));
        let outcome = self.run(call, trace).await;
        log_on_drop.line = None;
        let render = |error: &Error| match shape {
            ErrorShape::Enveloped => reply::error_response(error, true),
            ErrorShape::Bare => reply::error_response(error, false),
            ErrorShape::Anthropic => reply::anthropic_error_response(error),
            ErrorShape::Page => S::error_page(error, request_id),
        };
        let mut response = finish(frame, outcome, &render, &line);
        if let Some(pages) = self.pages() {
            (pages.headers)(&self.state, response.headers_mut());
        } else if self.is_personal() {
            let private = HeaderValue::from_static("private, no-store");
            response.headers_mut().insert(header::CACHE_CONTROL, private);
        }
        response
    }

    /// Runs the handler of the route, if the path has a route that is ready.
    async fn run(&self, mut call: Call<S::Credential>, trace: Option<Arc<Trace>>) -> Outcome {
        let error = match self.open_route(&call) {
            Ok(route) => {
                let request_id = call.request_id;
                let outcome = pin!(AssertUnwindSafe(route.call(&self.state, call)).catch_unwind());
                let outcome = InRequest::new(Some(request_id), trace, outcome).await;
                return outcome
                    .unwrap_or_else(|_| Outcome::refused(Error::internal("an error page panicked")));
            }
            Err(error) => error,
        };
        let error_page = match self.pages() {
            Some(pages) => Some((pages.error)(&self.state, &mut call, &error).await),
            None => None,
        };
        Outcome { error_page, ..Outcome::refused(error) }
    }

    fn pages(&self) -> Option<Pages<S>> {
        match &self.target {
            Target::Route(route) => route.pages,
            Target::Refused(_, pages) => *pages,
        }
    }

    /// Returns the route, if the path has a route that is ready.
    fn open_route(&self, call: &Call<S::Credential>) -> Result<&Route<S>, Error> {
        match &self.target {
            Target::Route(route) => {
                if !route.access.before_ready {
                    self.state.frame().require_ready()?;
                }
                Ok(route)
            }
            Target::Refused(Code::MethodNotAllowed, _) if asks_for_websocket(&call.headers) => {
                Err(Code::WebsocketNotSupported.into())
            }
            Target::Refused(code, _) => Err(S::no_route(*code, &call.method, call.uri.path())),
        }
    }

    /// Returns `true` if a response is only for its caller, so that no shared cache may store it.
    fn is_personal(&self) -> bool {
        self.listener == Listener::Public
            && matches!(&self.target, Target::Route(route) if route.access.scheme.is_some())
    }
}

/// Returns `true` if a request asks for an upgrade to WebSocket.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// Writes the access line of a request that is dropped early, because the client disconnected or the server
/// stops.
struct LogOnDrop<'a> {
    line: Option<&'a AccessLine<'a>>,
}

impl Drop for LogOnDrop<'_> {
    fn drop(&mut self) {
        // No status was sent; nginx also logs such requests as 499.
        if let (Some(line), Ok(status)) = (self.line, StatusCode::from_u16(499)) {
            line.end("", status, "given_up");
        }
    }
}

/// Renders the error, if any, and records the end of the request in the log and the metrics.
fn finish(
    frame: &Frame,
    outcome: Outcome,
    render: &dyn Fn(&Error) -> Response,
    line: &AccessLine<'_>,
) -> Response {
    let (mut response, code) = match outcome.result {
        // A response with an error page may still be a success, such as a form with its mistakes.
        Ok(response) => {
            let code = response.extensions().get::<Code>().map_or("", |code| code.as_str());
            (response, code)
        }
        Err(error) => {
            frame.metrics.errors.count(error.code);
            // The budget of bodies and the clock guard log these errors themselves, less often. The gateway
            // logs its own errors with the name of the upstream.
            let logs_itself = matches!(
                error.code,
                Code::ServerBusy
                    | Code::ClockNotTrusted
                    | Code::ModelOverloaded
                    | Code::UpstreamFailed
                    | Code::UpstreamTimeout
            );
            // Errors during the startup aren't actionable; the startup logs its progress.
            if error.code.status().is_server_error() && !logs_itself && frame.is_ready() {
                tracing::error!(request_id = %line.request_id, route = line.route, "{error}");
            }
            let response = outcome.error_page.unwrap_or_else(|| render(&error));
            (response, error.code.as_str())
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::try_from(line.request_id.to_string()) {
        headers.insert(REQUEST_ID, value);
    }
    line.end(&outcome.caller, response.status(), code);
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::input::NoInput;
    use crate::reply::Bare;
    use crate::route::route;
    use crate::server::testing::{AllowAll, LogBuffer, TestState};

    async fn answer(dispatcher: &Dispatcher, path: &str) -> (StatusCode, String, Value) {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let response = dispatcher.answer(request, IpAddr::from([127, 0, 0, 1])).await;
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, id, serde_json::from_slice(&body).unwrap())
    }

    async fn panics(_: TestState, (): (), _: NoInput) -> Result<Bare<String>, Error> {
        // Panics after a yield, like a handler that has already done some work.
        tokio::task::yield_now().await;
        panic!("on purpose");
    }

    async fn works(_: TestState, (): (), _: NoInput) -> Result<Bare<&'static str>, Error> {
        Ok(Bare("ok"))
    }

    #[tokio::test]
    async fn panic_is_logged_and_answered_with_500() {
        let state = TestState::new();
        let panicking = route(Method::GET, "/v1/panicking", AllowAll, panics);
        let healthy = route(Method::GET, "/healthz", AllowAll, works);
        let dispatcher = Dispatcher::new(&state, &[panicking, healthy], Listener::Public);
        let lines = LogBuffer::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let _log = tracing::subscriber::set_default(log.finish());
        for _ in 0..2 {
            let (status, id, body) = answer(&dispatcher, "/v1/panicking").await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
            let error = json!({"message": Code::Internal.message(), "type": "api_error", "param": null,
                               "code": "internal_error", "details": []});
            let expected =
                json!({"status_code": 500, "status_message": "INTERNAL_ERROR", "data": {}, "error": error});
            assert_eq!(body, expected);
            let written: Vec<Value> =
                lines.take().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let of = |level: &str| written.iter().filter(|line| line["level"] == level).collect::<Vec<_>>();
            let (errors, access) = (of("ERROR"), of("INFO"));
            assert_eq!((errors.len(), access.len()), (1, 1), "{written:?}");
            assert!(errors[0]["message"].as_str().unwrap().contains("panicked"), "{errors:?}");
            for line in [errors[0], access[0]] {
                assert_eq!((&line["request_id"], &line["route"]), (&json!(id), &json!("/v1/panicking")));
            }
            assert_eq!((&access[0]["status"], &access[0]["code"]), (&json!(500), &json!("internal_error")));

            let (status, _, body) = answer(&dispatcher, "/healthz").await;
            assert_eq!((status, body), (StatusCode::OK, json!("ok")));
            lines.take();
        }
    }
}
