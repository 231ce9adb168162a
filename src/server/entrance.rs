//! From a request to a route and back: request ids, the access log, panics, other methods, cross-origin calls.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::access_line::AccessLine;
use crate::app::App;
use crate::gate::{Call, Credential, client_address};
use crate::input::RequestBody;
use crate::pages;
use crate::reply::{self, Body};
use crate::routes::{self, ErrorShape, Listener, Outcome, Route};
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, RequestId};
use kernel::stopwatch::Stopwatch;
use metrics::RouteMetrics;
use telemetry::{InRequest, Trace, Tracer};

/// What stands behind one listener: every request that gets in leaves with exactly one answer.
#[derive(Clone)]
pub struct Entrance(Arc<Inner>);

struct Inner {
    app: App,
    paths: matchit::Router<Path>,
    cors: Option<CorsLayer>,
    /// The header `strict-transport-security` of every answer.
    hsts: Option<HeaderValue>,
    /// Where what finds no route is counted.
    nowhere: Arc<RouteMetrics>,
    listener: Listener,
}

/// A path and what it takes.
struct Path {
    path: &'static str,
    /// Each with where it is counted.
    routes: Vec<(Route, Arc<RouteMetrics>)>,
    /// The header `allow` of whoever comes with another method.
    allow: HeaderValue,
}

impl std::fmt::Debug for Entrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entrance").finish_non_exhaustive()
    }
}

impl Entrance {
    /// The routes of this listener.
    pub fn new(app: &App, listener: Listener) -> Self {
        let here = |route: &Route| route.listener == listener || route.listener == Listener::Both;
        let table: Vec<_> = routes::table().into_iter().filter(here).collect();
        let traffic = super::traffic(app, listener);
        let counted = traffic.routes(|| table.iter().map(|r| (r.method.to_string(), r.path)).collect());
        let mut measured = counted.iter().map(|(_, _, measured)| Arc::clone(measured));
        let mut paths: Vec<Path> = Vec::new();
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
        let nowhere = measured.next().unwrap_or_default();
        let mut router = matchit::Router::new();
        for mut path in paths {
            path.allow = path.allowed();
            let text = path.path;
            #[allow(clippy::expect_used, reason = "the table is constant: the first test would find it")]
            router.insert(text, path).expect("a path that contradicts another");
        }
        let cors = cors(&app.config.cors_origins).filter(|_| listener == Listener::Public);
        let hsts = hsts(app.config.server.hsts_seconds).filter(|_| listener == Listener::Public);
        Self(Arc::new(Inner { app: app.clone(), paths: router, cors, hsts, nowhere, listener }))
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<RequestBody>, peer: IpAddr) -> Response<Body> {
        let mut response = match &self.0.cors {
            None => self.serve(request, peer).await,
            Some(cors) => Box::pin(self.answer_any_origin(cors, request, peer)).await,
        };
        self.tell_hsts(&mut response);
        response
    }

    async fn answer_any_origin(
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

    fn tell_hsts(&self, response: &mut Response<Body>) {
        if let Some(value) = &self.0.hsts {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
    }

    /// What somebody gets whose words are no request: it has no method and no path.
    pub fn refuse(&self, error: Error, peer: IpAddr) -> Response<Body> {
        let app = &self.0.app;
        let line = AccessLine {
            // A method by the letter; nobody has it.
            method: Method::from_bytes(b"-").unwrap_or_default(),
            route: "-",
            request_id: next_request_id(app),
            address: Some(peer),
            watch: Stopwatch::start(),
            measured: &self.0.nowhere,
            logged: app.config.log.access,
            traced: None,
            listener: super::name(self.0.listener),
        };
        let outcome = Outcome { result: Err(error), who: String::new() };
        let mut response = respond(app, outcome, ErrorShape::Bare, &line);
        self.tell_hsts(&mut response);
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(date) = HeaderValue::try_from(app.clock.now().to_http_date()) {
            headers.insert(header::DATE, date);
        }
        response
    }

    async fn serve(&self, request: Request<RequestBody>, peer: IpAddr) -> Response<Body> {
        let (app, paths) = (&self.0.app, &self.0.paths);
        let watch = Stopwatch::start();
        let (parts, body) = request.into_parts();
        let matched = paths.at(parts.uri.path()).ok();
        let path = matched.as_ref().map(|matched| matched.value);
        let parameters = matched.as_ref().map(|matched| decoded(&matched.params)).unwrap_or_default();
        let route = path.and_then(|path| path.route(&parts.method));
        let shape = routes::error_shape(path.map_or(parts.uri.path(), |path| path.path));
        let call = Call {
            address: client_address(app, &parts.headers, peer),
            request_id: next_request_id(app),
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            path: parameters,
            body,
            who: String::new(),
            credential: Credential::default(),
        };
        let line = AccessLine {
            method: call.method.clone(),
            route: path.map_or("-", |path| path.path),
            request_id: call.request_id,
            address: call.address,
            watch,
            measured: route.map_or(&self.0.nowhere, |(_, measured)| measured),
            logged: app.config.log.access,
            traced: app.tracer.as_ref().and_then(|tracer| self.traced(tracer, &call)),
            listener: super::name(self.0.listener),
        };
        let Some((route, _)) = route else {
            let code = if path.is_some() { Code::MethodNotAllowed } else { Code::UnknownPath };
            let outcome = Outcome { result: Err(code.into()), who: String::new() };
            let mut response = respond(app, outcome, shape, &line);
            if let Some(path) = path {
                response.headers_mut().insert(header::ALLOW, path.allow.clone());
            }
            return response;
        };
        let is_head = line.method == Method::HEAD;
        let mut response = serve_route(app, route, call, line).await;
        if is_head {
            leave_the_body(&mut response);
        }
        response
    }
}

/// A HEAD tells how long the body would be (RFC 9110, section 9.3.2).
fn leave_the_body(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Body::default();
}

impl Entrance {
    /// The trace of a call, if it is chosen.
    fn traced(&self, tracer: &Tracer, call: &Call) -> Option<(Arc<Trace>, Option<OrganizationId>)> {
        let believed = self.0.listener == Listener::Service;
        let now = self.0.app.clock.now();
        let trace = tracer.begin(&call.headers, believed, call.request_id, now)?;
        Some((trace, OrganizationId::parse(call.path("organization_id"))))
    }
}

impl Path {
    /// The route of a method; a HEAD is answered as a GET whose body stays here.
    fn route(&self, method: &Method) -> Option<&(Route, Arc<RouteMetrics>)> {
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

/// A parameter that isn't UTF-8 reads as missing, and so as an id that nobody has.
fn decoded(params: &matchit::Params<'_, '_>) -> Vec<(String, String)> {
    let decode = |(name, value): (&str, &str)| {
        let value = percent_decode_str(value).decode_utf8().ok()?;
        Some((name.to_owned(), value.into_owned()))
    };
    params.iter().filter_map(decode).collect()
}

/// What a page of an allowed origin may read besides the body.
const EXPOSED_HEADERS: [&str; 7] = [
    "x-request-id",
    "x-should-retry",
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// Cross-origin calls are off unless the configuration names origins
/// (docs/contract/README.md#cross-origin-calls).
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // Browser SDKs send headers of their own, and none of them is a danger: what counts is the bearer.
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

/// A request that has found its route: whatever becomes of it, at most one response and one line in the access log.
async fn serve_route(app: &App, route: &Route, call: Call, line: AccessLine<'_>) -> Response<Body> {
    let mut given_up = GivenUp { line: Some(&line) };
    let trace = line.traced.as_ref().map(|(trace, _)| Arc::clone(trace));
    let outcome = run(app.clone(), route, call, trace).await;
    given_up.line = None;
    let mut response = respond(app, outcome, route.error_shape(), &line);
    if route.access.scheme.is_some() && line.listener == super::name(Listener::Public) {
        // It is about whoever has the credential, and nobody else may find it in a cache.
        let private = HeaderValue::from_static("private, no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, private);
    }
    response
}

/// Leaves the line of a request that is dropped where it stands, because the client has hung up or the stop cuts it off.
struct GivenUp<'a> {
    line: Option<&'a AccessLine<'a>>,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        // No status was sent; 499 is how nginx and its kin log this.
        if let (Some(line), Ok(status)) = (self.line, StatusCode::from_u16(499)) {
            line.end(&line.request_id.to_string(), "", status, "given_up");
        }
    }
}

async fn run(app: App, route: &Route, call: Call, trace: Option<Arc<Trace>>) -> Outcome {
    if !route.access.before_ready
        && let Err(error) = app.require_ready()
    {
        return Outcome { result: Err(error), who: String::new() };
    }
    let request_id = Some(call.request_id);
    let answering = InRequest::new(request_id, trace, route.call(app, call));
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Outcome { result: Err(Error::internal("the handler panicked")), who: String::new() },
    }
}

fn respond(app: &App, outcome: Outcome, shape: ErrorShape, line: &AccessLine<'_>) -> Response<Body> {
    let (mut response, code) = match outcome.result {
        Ok(response) => {
            // A page may tell of an error and go on: a form with its mistakes, say.
            let code = response.extensions().get::<Code>().map_or("", |code| code.as_str());
            (response, code)
        }
        Err(error) => {
            app.metrics.errors.count(error.code);
            // The budget of bodies and the clock tell of themselves, less often.
            let is_told = matches!(error.code, Code::ServerBusy | Code::ClockNotTrusted);
            if error.code.status().is_server_error() && !is_told {
                tracing::error!(request_id = %line.request_id, route = line.route, "{error}");
            }
            let response = match shape {
                ErrorShape::Enveloped => reply::error_response(&error, true),
                ErrorShape::Bare => reply::error_response(&error, false),
                ErrorShape::Page => pages::error_response(&error, line.request_id),
            };
            (response, error.code.as_str())
        }
    };
    let request_id = line.request_id.to_string();
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    line.end(&request_id, &outcome.who, response.status(), code);
    response
}

/// Request ids need no secrecy, only difference: random bits drawn once a process, and a counter.
fn next_request_id(app: &App) -> RequestId {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    static PROCESS: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let process = *PROCESS.get_or_init(|| u128::from_be_bytes(app.random.bytes()));
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // An odd factor maps counts to numbers one to one, and spreads them.
    let spread = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    RequestId::from_parts(app.clock.now(), process ^ u128::from(spread))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Uri};
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use crate::config::Config;
    use crate::server::entrance::*;
    use crate::server::testing::{Folder, Lines};
    use kernel::clock::Clock;

    async fn answer(app: &App, route: &Route) -> (StatusCode, String, Value) {
        let call = Call {
            method: route.method.clone(),
            uri: Uri::from_static("/"),
            headers: HeaderMap::new(),
            path: Vec::new(),
            address: Some(IpAddr::from([127, 0, 0, 1])),
            request_id: next_request_id(app),
            body: RequestBody::default(),
            who: String::new(),
            credential: Credential::default(),
        };
        let line = AccessLine {
            method: route.method.clone(),
            route: route.path,
            request_id: call.request_id,
            address: call.address,
            watch: Stopwatch::start(),
            measured: &RouteMetrics::default(),
            logged: true,
            traced: None,
            listener: "public",
        };
        let response = serve_route(app, route, call, line).await;
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, id, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_a_line_and_the_server_goes_on() {
        let folder = Folder::new();
        let data_dir = folder.0.to_str().unwrap().to_owned();
        let config = Config::load(None, [("TOLLKEEPER_DATA_DIR".to_owned(), data_dir)]).unwrap();
        let app = App::new(config, Clock::System).unwrap();
        let (lines, healthy) =
            (Lines::default(), routes::table().into_iter().find(|r| r.path == "/healthz").unwrap());
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let _log = tracing::subscriber::set_default(log.finish());
        for _ in 0..2 {
            let (status, id, body) = answer(&app, &routes::tests::panicking()).await;
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

            let (status, _, body) = answer(&app, &healthy).await;
            assert_eq!((status, &body["status"]), (StatusCode::OK, &json!("ok")));
            lines.take();
        }
    }
}
