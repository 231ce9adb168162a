//! From a socket to a route and back: request ids, the access log, panics, the two listeners, the end.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::routing::MethodFilter;
use futures_util::FutureExt;
use tokio::net::TcpListener;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::access::{Call, client_address};
use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::RequestId;
use crate::jobs;
use crate::pages;
use crate::reply;
use crate::routes::{self, ErrorShape, Listener, Outcome, Route};

/// The public or the service listener as an axum router.
pub fn router(app: &App, listener: Listener) -> Router {
    let mut router = Router::new();
    let mut methods: BTreeMap<&'static str, Vec<Method>> = BTreeMap::new();
    for route in
        routes::table().into_iter().filter(|r| r.listener == listener || r.listener == Listener::Both)
    {
        methods.entry(route.path).or_default().push(route.method.clone());
        let (app, filter) = (app.clone(), filter(&route.method));
        let (path, route) = (route.path, Arc::new(route));
        router = router.route(
            path,
            axum::routing::on(filter, move |request: Request| {
                let (app, route) = (app.clone(), Arc::clone(&route));
                async move { serve(app, Some(&route), request).await }
            }),
        );
    }
    let allow = Arc::new(allow_headers(methods));
    let (unknown, other) = (app.clone(), app.clone());
    router = router
        .fallback(move |request: Request| {
            let app = unknown.clone();
            async move { serve(app, None, request).await }
        })
        .method_not_allowed_fallback(move |request: Request| {
            let (app, allow) = (other.clone(), Arc::clone(&allow));
            async move { serve_wrong_method(app, &allow, request).await }
        });
    match cors(&app.config.cors_origins) {
        Some(layer) if listener == Listener::Public => router.layer(layer),
        _ => router,
    }
}

fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET)
}

fn allow_headers(methods: BTreeMap<&'static str, Vec<Method>>) -> BTreeMap<&'static str, String> {
    let text = |methods: Vec<Method>| {
        let mut words: Vec<_> = methods.iter().map(Method::as_str).collect();
        if words.contains(&"GET") {
            words.push("HEAD");
        }
        words.sort_unstable();
        words.join(", ")
    };
    methods.into_iter().map(|(path, methods)| (path, text(methods))).collect()
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

/// Cross-origin calls are off unless the configuration names origins (decisions, section 1).
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

/// One request, whatever becomes of it: at most one response, with a request id, and one line in the access log.
async fn serve(app: App, route: Option<&Route>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let shape = route.map_or_else(|| routes::error_shape(parts.uri.path()), Route::error_shape);
    let (call, watch) = open_call(&app, parts, body, route).await;
    let line = LogLine {
        method: call.method.clone(),
        route: route.map_or("-", |route| route.path),
        request_id: call.request_id,
        address: call.address,
    };
    let mut given_up = GivenUp { line: app.config.log.access.then_some(&line), watch: &watch };
    let outcome = match route {
        None => Outcome { result: Err(Code::UnknownPath.into()), who: String::new() },
        Some(route) => run(app.clone(), route, call).await,
    };
    given_up.line = None;
    respond(&app, outcome, shape, &line, &watch)
}

/// Leaves the line of a request that is dropped where it stands, because the client has hung up or the stop cuts it off.
struct GivenUp<'a> {
    line: Option<&'a LogLine<'a>>,
    watch: &'a Stopwatch,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        // No status was sent; 499 is how nginx and its kin log this.
        if let (Some(line), Ok(status)) = (self.line, StatusCode::from_u16(499)) {
            log_access(line, &line.request_id.to_string(), "", status, "given_up", self.watch);
        }
    }
}

async fn serve_wrong_method(
    app: App,
    allow: &BTreeMap<&'static str, String>,
    request: Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let shape = routes::error_shape(parts.uri.path());
    let matched =
        parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default();
    let (call, watch) = open_call(&app, parts, body, None).await;
    let line =
        LogLine { method: call.method, route: &matched, request_id: call.request_id, address: call.address };
    let outcome = Outcome { result: Err(Code::MethodNotAllowed.into()), who: String::new() };
    let mut response = respond(&app, outcome, shape, &line, &watch);
    if let Some(value) = allow.get(matched.as_str()).and_then(|text| HeaderValue::from_str(text).ok()) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

async fn open_call(
    app: &App,
    mut parts: axum::http::request::Parts,
    body: Body,
    route: Option<&Route>,
) -> (Call, Stopwatch) {
    let watch = Stopwatch::start();
    let path = match route {
        Some(route) if route.path.contains('{') => path_parameters(&mut parts).await,
        _ => Vec::new(),
    };
    let peer = parts
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::from([0, 0, 0, 0]), |info| info.0.ip());
    let call = Call {
        address: client_address(app, &parts.headers, peer),
        request_id: next_request_id(app),
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
        path,
        body,
        who: String::new(),
    };
    (call, watch)
}

/// A parameter that isn't UTF-8 reads as missing, and so as an id that nobody has.
async fn path_parameters(parts: &mut axum::http::request::Parts) -> Vec<(String, String)> {
    match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        Err(_) => Vec::new(),
    }
}

async fn run(app: App, route: &Route, call: Call) -> Outcome {
    if !route.access.before_ready
        && let Err(error) = app.require_ready()
    {
        return Outcome { result: Err(error), who: String::new() };
    }
    match AssertUnwindSafe(route.call(app, call)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Outcome { result: Err(Error::internal("the handler panicked")), who: String::new() },
    }
}

struct LogLine<'a> {
    method: Method,
    route: &'a str,
    request_id: RequestId,
    address: IpAddr,
}

fn respond(
    app: &App,
    outcome: Outcome,
    shape: ErrorShape,
    line: &LogLine<'_>,
    watch: &Stopwatch,
) -> Response<Body> {
    let (mut response, code) = match outcome.result {
        Ok(response) => {
            // A page may tell of an error and go on: a form with its mistakes, say.
            let code = response.extensions().get::<Code>().map_or("", |code| code.as_str());
            (response, code)
        }
        Err(error) => {
            if error.code.status().is_server_error() {
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
    if app.config.log.access {
        log_access(line, &request_id, &outcome.who, response.status(), code, watch);
    }
    response
}

/// The path itself stays out of the log: links carry tokens.
fn log_access(
    line: &LogLine<'_>,
    request_id: &str,
    who: &str,
    status: StatusCode,
    code: &str,
    watch: &Stopwatch,
) {
    tracing::info!(
        target: "tollkeeper::access",
        method = line.method.as_str(),
        route = line.route,
        status = status.as_u16(),
        code,
        who,
        address = %line.address,
        duration_us = watch.elapsed_us(),
        request_id,
        "request"
    );
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

struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[allow(
        clippy::disallowed_methods,
        reason = "how long a request took is no business of the injected clock"
    )]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Serves both listeners until `shutdown` resolves, then lets requests in flight finish within the grace time.
///
/// # Errors
/// A sentence for the operator: an address that can't be listened on, or a database that will never do.
pub async fn run_until(app: App, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    let public = bind("listen", app.config.listen).await?;
    let service = bind("service_listen", app.config.service_listen).await?;
    let mut boot = tokio::spawn({
        let app = app.clone();
        async move { app.boot_until_ready().await }
    });
    // Requests that come while a short start is still going on wait in the socket's queue instead of meeting a 503.
    let booted = tokio::time::timeout(Duration::from_secs(2), &mut boot).await;
    let mut still_booting = match booted {
        Ok(outcome) => outcome.map_err(|error| error.to_string())?.map(|()| false)?,
        Err(_) => true,
    };
    tracing::info!(public = %app.config.listen, service = %app.config.service_listen, "listening");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let _jobs = AbortOnDrop(tokio::spawn(jobs::run(app.clone())));
    let mut public = tokio::spawn(serve_listener(public, router(&app, Listener::Public), stopped.clone()));
    let mut service = tokio::spawn(serve_listener(service, router(&app, Listener::Service), stopped));
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            outcome = &mut boot, if still_booting => {
                outcome.map_err(|error| error.to_string())??;
                still_booting = false;
            }
            outcome = &mut public => return Err(format!("the public listener ended: {outcome:?}")),
            outcome = &mut service => return Err(format!("the service listener ended: {outcome:?}")),
        }
    }
    tracing::info!("stopping: no new connections, requests in flight finish");
    stop.send_replace(true);
    let grace = Duration::from_millis(u64::from(app.config.shutdown_grace_ms));
    if tokio::time::timeout(grace, async { tokio::join!(&mut public, &mut service) }).await.is_err() {
        tracing::warn!(
            grace_ms = app.config.shutdown_grace_ms,
            "some requests did not finish in time and were cut off"
        );
    }
    tracing::info!("stopped");
    Ok(())
}

/// A task that ends with what it serves.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn bind(key: &str, address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        format!(
            "can't listen on {address}: {error}; set `{key}` to another address (TOLLKEEPER_{})",
            key.to_uppercase()
        )
    })
}

async fn serve_listener(
    listener: TcpListener,
    router: Router,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> std::io::Result<()> {
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            // An error means that the sender is gone, which is a stop as well.
            drop(stopped.wait_for(|stop| *stop).await);
        })
        .await
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::random::Random;

    /// Where the log of a test goes.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A folder that goes away with the test.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    async fn answer(app: &App, route: &Route) -> (StatusCode, String, Value) {
        let response = serve(app.clone(), Some(route), Request::new(Body::empty())).await;
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, id, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_a_line_and_the_server_goes_on() {
        let name = format!("tollkeeper-server-{:032x}", u128::from_be_bytes(Random::system().bytes()));
        let folder = Folder(std::env::temp_dir().join(name));
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
            let written = String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
            let written: Vec<Value> =
                written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
            lines.0.lock().unwrap().clear();
        }
    }
}
