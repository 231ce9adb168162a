//! From a request to a route and back: request ids, access log, panics, wrong methods, cross-origin calls.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::access_line::AccessLine;
use crate::call::Call;
use crate::frame::Frame;
use crate::input::RequestBody;
use crate::reply::{self, Body};
use crate::route::{ErrorShape, Listener, Outcome, Route, State};
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::stopwatch::Stopwatch;
use metrics::RouteMetrics;
use telemetry::{InRequest, Trace, Tracer};

/// Sends the requests of one listener to their routes. Every request gets exactly one response.
pub struct Dispatcher<S: State>(Arc<Inner<S>>);

impl<S: State> Clone for Dispatcher<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<S: State> {
    state: S,
    paths: matchit::Router<Path<S>>,
    cors: Option<CorsLayer>,
    /// The header `strict-transport-security` of every response.
    hsts: Option<HeaderValue>,
    /// Counts requests without a route.
    unrouted: Arc<RouteMetrics>,
    listener: Listener,
}

/// The routes of one path.
struct Path<S: State> {
    path: &'static str,
    /// Each with its counters.
    routes: Vec<(Route<S>, Arc<RouteMetrics>)>,
    /// The header `allow` of the response to a wrong method.
    allow: HeaderValue,
}

impl<S: State> std::fmt::Debug for Dispatcher<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}

impl<S: State> Dispatcher<S> {
    /// Returns the dispatcher of a listener, with those of the routes that are on it.
    pub fn new(state: &S, routes: &[Route<S>], listener: Listener) -> Self {
        let frame = state.frame();
        let is_here = |route: &&Route<S>| route.listener == listener || route.listener == Listener::Both;
        let table: Vec<_> = routes.iter().filter(is_here).cloned().collect();
        let traffic = super::traffic(frame, listener);
        let counted = traffic.routes(|| table.iter().map(|r| (r.method.to_string(), r.path)).collect());
        let mut measured = counted.iter().map(|(_, _, measured)| Arc::clone(measured));
        let mut paths: Vec<Path<S>> = Vec::new();
        for row in table.into_iter().zip(&mut measured) {
            match paths.iter_mut().find(|path| path.path == row.0.path) {
                Some(path) => path.routes.push(row),
                None => paths.push(Path {
                    path: row.0.path,
                    routes: vec![row],
                    allow: HeaderValue::from_static(""),
                }),
            }
        }
        let unrouted = measured.next().unwrap_or_default();
        let mut router = matchit::Router::new();
        for mut path in paths {
            path.allow = path.allowed();
            let text = path.path;
            #[allow(clippy::expect_used, reason = "the table is constant: the first test would find it")]
            router.insert(text, path).expect("a path that contradicts another");
        }
        let cors = cors(&frame.settings.cors_origins).filter(|_| listener == Listener::Public);
        let hsts = hsts(frame.settings.server.hsts_seconds).filter(|_| listener == Listener::Public);
        Self(Arc::new(Inner { state: state.clone(), paths: router, cors, hsts, unrouted, listener }))
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<RequestBody>, peer: IpAddr) -> Response<Body> {
        let mut response = match &self.0.cors {
            None => self.serve(request, peer).await,
            Some(cors) => Box::pin(self.serve_with_cors(cors, request, peer)).await,
        };
        self.set_hsts(&mut response);
        response
    }

    async fn serve_with_cors(
        &self,
        cors: &CorsLayer,
        request: Request<RequestBody>,
        peer: IpAddr,
    ) -> Response<Body> {
        let inner = service_fn(|request| async move { Ok::<_, Infallible>(self.serve(request, peer).await) });
        match cors.layer(inner).oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn set_hsts(&self, response: &mut Response<Body>) {
        if let Some(value) = &self.0.hsts {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
    }

    /// Responds to bytes that are no request, so there is no method and no path.
    pub fn refuse(&self, error: Error, peer: IpAddr) -> Response<Body> {
        let frame = self.0.state.frame();
        let line = AccessLine {
            // Valid as a method, but no request has it.
            method: Method::from_bytes(b"-").unwrap_or_default(),
            route: "-",
            request_id: frame.next_request_id(),
            address: Some(peer),
            stopwatch: Stopwatch::start(),
            measured: &self.0.unrouted,
            is_logged: frame.settings.log_access,
            trace: None,
            listener: super::listener_name(self.0.listener),
        };
        let outcome = Outcome { result: Err(error), caller: String::new() };
        let mut response = respond::<S>(frame, outcome, ErrorShape::Bare, &line);
        self.set_hsts(&mut response);
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(date) = HeaderValue::try_from(frame.clock.now().to_http_date()) {
            headers.insert(header::DATE, date);
        }
        response
    }

    async fn serve(&self, request: Request<RequestBody>, peer: IpAddr) -> Response<Body> {
        let (frame, paths) = (self.0.state.frame(), &self.0.paths);
        let stopwatch = Stopwatch::start();
        let (parts, body) = request.into_parts();
        let matched = paths.at(parts.uri.path()).ok();
        let path = matched.as_ref().map(|matched| matched.value);
        let parameters =
            matched.as_ref().map(|matched| decode_parameters(&matched.params)).unwrap_or_default();
        let route = path.and_then(|path| path.route(&parts.method));
        let shape = S::error_shape(path.map_or(parts.uri.path(), |path| path.path));
        let call = Call {
            address: frame.client_address(&parts.headers, peer),
            request_id: frame.next_request_id(),
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            path: parameters,
            body,
            caller: String::new(),
            credential: S::Credential::default(),
        };
        let line = AccessLine {
            method: call.method.clone(),
            route: path.map_or("-", |path| path.path),
            request_id: call.request_id,
            address: call.address,
            stopwatch,
            measured: route.map_or(&self.0.unrouted, |(_, measured)| measured),
            is_logged: frame.settings.log_access,
            trace: frame.tracer.as_ref().and_then(|tracer| self.begin_trace(tracer, &call)),
            listener: super::listener_name(self.0.listener),
        };
        let Some((route, _)) = route else {
            let code = if path.is_some() { Code::MethodNotAllowed } else { Code::UnknownPath };
            let outcome = Outcome { result: Err(code.into()), caller: String::new() };
            let mut response = respond::<S>(frame, outcome, shape, &line);
            if let Some(path) = path {
                response.headers_mut().insert(header::ALLOW, path.allow.clone());
            }
            return response;
        };
        let is_head = line.method == Method::HEAD;
        let mut response = serve_route(&self.0.state, route, call, line).await;
        if is_head {
            remove_body(&mut response);
        }
        response
    }
}

/// Removes the body of a response to HEAD, and keeps its length (RFC 9110, section 9.3.2).
fn remove_body(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Body::default();
}

impl<S: State> Dispatcher<S> {
    /// Begins the trace of a call, if it is sampled.
    fn begin_trace(
        &self,
        tracer: &Tracer,
        call: &Call<S::Credential>,
    ) -> Option<(Arc<Trace>, Option<OrganizationId>)> {
        let is_trusted = self.0.listener == Listener::Service;
        let now = self.0.state.frame().clock.now();
        let trace = tracer.begin(&call.headers, is_trusted, call.request_id, now)?;
        Some((trace, OrganizationId::parse(call.path("organization_id"))))
    }
}

impl<S: State> Path<S> {
    /// Returns the route of a method; HEAD uses the route of GET.
    fn route(&self, method: &Method) -> Option<&(Route<S>, Arc<RouteMetrics>)> {
        let find = |method: &Method| self.routes.iter().find(|(route, _)| route.method == *method);
        find(method).or_else(|| if method == Method::HEAD { find(&Method::GET) } else { None })
    }

    fn allowed(&self) -> HeaderValue {
        let mut words: Vec<_> = self.routes.iter().map(|(route, _)| route.method.as_str()).collect();
        if words.contains(&"GET") {
            words.push("HEAD");
        }
        words.sort_unstable();
        HeaderValue::from_str(&words.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// Decodes path parameters. One that isn't UTF-8 is left out, and so reads as an unknown id.
fn decode_parameters(params: &matchit::Params<'_, '_>) -> Vec<(String, String)> {
    let decode = |(name, value): (&str, &str)| {
        let value = percent_decode_str(value).decode_utf8().ok()?;
        Some((name.to_owned(), value.into_owned()))
    };
    params.iter().filter_map(decode).collect()
}

/// Response headers that a page of an allowed origin may read.
const EXPOSED_HEADERS: [&str; 7] = [
    "x-request-id",
    "x-should-retry",
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// Returns the CORS layer, unless the configuration names no origins
/// (docs/contract/README.md#cross-origin-calls).
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // Browser SDKs send headers of their own. All are allowed: only the bearer has authority.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED_HEADERS.map(header::HeaderName::from_static))
        .max_age(Duration::from_secs(600));
    let list = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    Some(layer.allow_origin(AllowOrigin::list(list)))
}

fn hsts(seconds: u32) -> Option<HeaderValue> {
    let value = HeaderValue::try_from(format!("max-age={seconds}")).ok();
    value.filter(|_| seconds > 0)
}

/// Handles a request that has a route. Whatever happens, it gets at most one response and one access line.
async fn serve_route<S: State>(
    state: &S,
    route: &Route<S>,
    call: Call<S::Credential>,
    line: AccessLine<'_>,
) -> Response<Body> {
    let mut log_on_drop = LogOnDrop { line: Some(&line) };
    let trace = line.trace.as_ref().map(|(trace, _)| Arc::clone(trace));
    let outcome = run(state.clone(), route, call, trace).await;
    log_on_drop.line = None;
    let mut response = respond::<S>(state.frame(), outcome, route.error_shape(), &line);
    if route.access.scheme.is_some() && line.listener == super::listener_name(Listener::Public) {
        // The response is personal: no shared cache may store it.
        let private = HeaderValue::from_static("private, no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, private);
    }
    response
}

/// Writes the access line of a request that is dropped before its end, because the client hung up or the
/// server stops.
struct LogOnDrop<'a> {
    line: Option<&'a AccessLine<'a>>,
}

impl Drop for LogOnDrop<'_> {
    fn drop(&mut self) {
        // No status was sent; nginx logs such requests as 499 too.
        if let (Some(line), Ok(status)) = (self.line, StatusCode::from_u16(499)) {
            line.end(&line.request_id.to_string(), "", status, "given_up");
        }
    }
}

async fn run<S: State>(
    state: S,
    route: &Route<S>,
    call: Call<S::Credential>,
    trace: Option<Arc<Trace>>,
) -> Outcome {
    if !route.access.before_ready
        && let Err(error) = state.frame().require_ready()
    {
        return Outcome { result: Err(error), caller: String::new() };
    }
    let request_id = Some(call.request_id);
    let answering = InRequest::new(request_id, trace, route.call(state, call));
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Outcome { result: Err(Error::internal("the handler panicked")), caller: String::new() },
    }
}

fn respond<S: State>(
    frame: &Frame,
    outcome: Outcome,
    shape: ErrorShape,
    line: &AccessLine<'_>,
) -> Response<Body> {
    let (mut response, code) = match outcome.result {
        Ok(response) => {
            // A page may show an error and be a success all the same, such as a form with its mistakes.
            let code = response.extensions().get::<Code>().map_or("", |code| code.as_str());
            (response, code)
        }
        Err(error) => {
            frame.metrics.errors.count(error.code);
            // The budget of bodies and the clock guard log these themselves, less often.
            let logs_itself = matches!(error.code, Code::ServerBusy | Code::ClockNotTrusted);
            if error.code.status().is_server_error() && !logs_itself {
                tracing::error!(request_id = %line.request_id, route = line.route, "{error}");
            }
            let response = match shape {
                ErrorShape::Enveloped => reply::error_response(&error, true),
                ErrorShape::Bare => reply::error_response(&error, false),
                ErrorShape::Page => S::error_page(&error, line.request_id),
            };
            (response, error.code.as_str())
        }
    };
    let request_id = line.request_id.to_string();
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    line.end(&request_id, &outcome.caller, response.status(), code);
    response
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Uri};
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::input::NoInput;
    use crate::reply::Bare;
    use crate::route::route;
    use crate::server::testing::{AllowAll, LogBuffer, TestState};

    async fn answer(state: &TestState, route: &Route<TestState>) -> (StatusCode, String, Value) {
        let call = Call {
            method: route.method.clone(),
            uri: Uri::from_static("/"),
            headers: HeaderMap::new(),
            path: Vec::new(),
            address: Some(IpAddr::from([127, 0, 0, 1])),
            request_id: state.frame().next_request_id(),
            body: RequestBody::default(),
            caller: String::new(),
            credential: (),
        };
        let line = AccessLine {
            method: route.method.clone(),
            route: route.path,
            request_id: call.request_id,
            address: call.address,
            stopwatch: Stopwatch::start(),
            measured: &RouteMetrics::default(),
            is_logged: true,
            trace: None,
            listener: "public",
        };
        let response = serve_route(state, route, call, line).await;
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, id, serde_json::from_slice(&body).unwrap())
    }

    async fn panics(_: TestState, (): (), _: NoInput) -> Result<Bare<String>, Error> {
        // Panics after a yield, as a handler that has done some work.
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
        let lines = LogBuffer::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let _log = tracing::subscriber::set_default(log.finish());
        for _ in 0..2 {
            let (status, id, body) = answer(&state, &panicking).await;
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

            let (status, _, body) = answer(&state, &healthy).await;
            assert_eq!((status, body), (StatusCode::OK, json!("ok")));
            lines.take();
        }
    }
}
