//! Connections to upstreams.

pub(crate) mod complaints;
pub(crate) mod sockets;

use std::collections::{HashMap, HashSet};
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, HttpInfo, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio_rustls::rustls::ClientConfig;

use crate::breaker::{Breaker, Change, RetryBudget};
use crate::dialect::Dialect;
use crate::probe_outcomes::ProbeOutcomes;
use crate::queue::{Place, Places};
use catalog::Upstream;
use complaints::Complaints;
use kernel::authorities;
use kernel::error::with_causes;
use kernel::ids::{OrganizationId, RequestId};
use kernel::secrets::Secret;
use sockets::SocketConnector;

/// Maximum idle time of a connection that is reused. vLLM and llama.cpp close idle connections after 5 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum number of idle connections to an upstream.
const MAX_IDLE: usize = 256;

/// The number of consecutive failed checks after which an upstream counts as down.
const MAX_FAILURES: u32 = 3;
/// The maximum number of bytes of a list of models.
const MAX_MODELS_BYTES: usize = 8 << 20;

/// The transports of all upstreams, which outlive reloads of the catalog.
#[derive(Default)]
pub(crate) struct Transports {
    by_id: Mutex<HashMap<String, Arc<Transport>>>,
    tls: OnceLock<ClientConfig>,
}

/// The connections to an upstream, and its slots for calls.
pub(crate) struct Transport {
    upstream: Arc<Upstream>,
    /// The URL without a slash at its end.
    base: String,
    authorization: Option<HeaderValue>,
    /// The fields that the upstream accepts.
    probe_outcomes: ProbeOutcomes,
    /// The times of repeated log lines about the upstream's errors.
    complaints: Complaints,
    client: Client<HttpsConnector<SocketConnector>, Full<Bytes>>,
    places: Arc<Places>,
    /// The local addresses of connections that have served a request. The set has at most one entry per port,
    /// because ports are reused. A new connection may still have an old entry.
    used_connections: Mutex<HashSet<SocketAddr>>,
    /// The number of consecutive failed health checks.
    failed_checks: AtomicU32,
    breaker: Mutex<Breaker>,
    retries: Mutex<RetryBudget>,
    /// The moving average of the time to the first event of a stream, in microseconds; 0 if none was
    /// measured.
    first_event_us: AtomicU64,
}

/// The reason why an upstream didn't respond.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No connection could be opened.
    Connect(String),
    /// A connection that had served other requests ended before the response began, twice.
    Stale(String),
    /// The connection ended before the response began.
    Closed(String),
}

impl SendError {
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::Connect(why) | Self::Stale(why) | Self::Closed(why) => why,
        }
    }
}

impl Transports {
    /// Returns the transport of an upstream. If its settings have changed, a new transport replaces the old
    /// one.
    ///
    /// # Errors
    /// The system's TLS settings can't be used.
    pub(crate) fn get(&self, upstream: &Arc<Upstream>) -> Result<Arc<Transport>, String> {
        let mut known = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(transport) = known.get(&upstream.id)
            && (Arc::ptr_eq(&transport.upstream, upstream) || transport.upstream == *upstream)
        {
            return Ok(Arc::clone(transport));
        }
        let transport = Arc::new(Transport::new(Arc::clone(upstream), self.tls()?)?);
        known.insert(upstream.id.clone(), Arc::clone(&transport));
        Ok(transport)
    }

    /// Returns the transports of all upstreams used so far.
    pub(crate) fn all(&self) -> Vec<Arc<Transport>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let config = authorities::client_config(authorities::of_machine())?;
        Ok(self.tls.get_or_init(|| config).clone())
    }
}

impl Transport {
    fn new(upstream: Arc<Upstream>, tls: ClientConfig) -> Result<Self, String> {
        let tcp = tcp_connector(Duration::from_millis(upstream.connect_ms));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        let authorization = upstream.credential.as_ref().map(|credential| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", credential.expose()));
            if let Ok(value) = &mut value {
                value.set_sensitive(true);
            }
            value.map_err(|_| {
                format!("the credential of the upstream `{}` doesn't fit into a header", upstream.id)
            })
        });
        Ok(Self {
            base: upstream.url.as_ref().map_or("", |url| url.as_str()).trim_end_matches('/').to_owned(),
            authorization: authorization.transpose()?,
            probe_outcomes: ProbeOutcomes::default(),
            complaints: Complaints::default(),
            client,
            places: Places::new(upstream.max_concurrent, upstream.max_waiting),
            used_connections: Mutex::default(),
            failed_checks: AtomicU32::new(0),
            breaker: Mutex::default(),
            retries: Mutex::default(),
            first_event_us: AtomicU64::new(0),
            upstream,
        })
    }

    /// Returns the id of the upstream.
    pub(crate) fn id(&self) -> &str {
        &self.upstream.id
    }

    /// Returns the dialect of the upstream.
    pub(crate) fn dialect(&self) -> &'static Dialect {
        Dialect::of(self.upstream.kind)
    }

    /// Returns the fields that the upstream accepts, as determined by probes.
    pub(crate) const fn probe_outcomes(&self) -> &ProbeOutcomes {
        &self.probe_outcomes
    }

    /// Returns the times of repeated log lines about the upstream's errors.
    pub(crate) const fn complaints(&self) -> &Complaints {
        &self.complaints
    }

    /// Returns the strings that no client may see: the parts of the upstream's address, and its credential.
    pub(crate) fn secrets(&self) -> Vec<&str> {
        let uri = self.upstream.url.as_ref().map(|url| url.uri());
        let authority = uri.and_then(http::Uri::authority);
        let parts = [
            Some(self.base.as_str()),
            authority.map(|all| all.as_str()),
            authority.map(|all| all.host()),
            self.upstream.credential.as_ref().map(Secret::expose),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Returns the number of calls that have a slot.
    pub(crate) fn calls(&self) -> u32 {
        self.places.taken()
    }

    /// Returns `true` if a slot is free, the upstream isn't down, and the breaker admits a call.
    pub(crate) fn is_usable(&self, now_ms: i64) -> bool {
        self.is_up() && self.calls() < self.upstream.max_concurrent && self.breaker().admits(now_ms)
    }

    /// Returns `false` once too many consecutive health checks have failed.
    pub(crate) fn is_up(&self) -> bool {
        self.failed_checks.load(Ordering::Relaxed) < MAX_FAILURES
    }

    /// Notes the outcome of a health check. Returns `true` if the upstream has just gone down or come back
    /// up.
    pub(crate) fn note_health(&self, is_up: bool) -> bool {
        if is_up {
            return self.failed_checks.swap(0, Ordering::Relaxed) >= MAX_FAILURES;
        }
        self.failed_checks.fetch_add(1, Ordering::Relaxed) + 1 == MAX_FAILURES
    }

    /// Requests a path below the root of the server, and returns the status.
    ///
    /// # Errors
    /// The upstream doesn't answer, for the returned reason.
    pub(crate) async fn get_health(&self, path: &str) -> Result<StatusCode, String> {
        let root = self.base.strip_suffix("/v1").unwrap_or(&self.base);
        Ok(self.get(&format!("{root}{path}")).await?.status())
    }

    /// Returns the answer to `GET /models`.
    ///
    /// # Errors
    /// The upstream doesn't answer, for the returned reason.
    pub(crate) async fn get_models(&self) -> Result<(StatusCode, Bytes), String> {
        let response = self.get(&format!("{}/models", self.base)).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_MODELS_BYTES).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }

    async fn get(&self, uri: &str) -> Result<Response<Incoming>, String> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = uri.parse().map_err(|_| "its address isn't a URL".to_owned())?;
        *request.headers_mut() = request_headers(None, false);
        request.headers_mut().remove(header::CONTENT_TYPE);
        if let Some(credential) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, credential.clone());
        }
        // The connection may serve a call next, and then counts as used.
        self.send_once(request).await.map_err(SendError::into_reason)
    }

    /// Begins a request to the upstream.
    pub(crate) fn begin(&self, now_ms: i64) -> Trial<'_> {
        self.breaker().begin(now_ms);
        Trial { transport: self, is_over: false }
    }

    /// Counts a call to the upstream: a first attempt, or a retry of a call that failed elsewhere. Returns
    /// `false` if the retry budget is used up.
    pub(crate) fn admits_call(&self, is_retry: bool) -> bool {
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        if is_retry {
            return retries.take();
        }
        retries.save();
        true
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the recent time to the first event of a stream, in microseconds; 0 if it hasn't been measured.
    pub(crate) fn first_event_us(&self) -> u64 {
        self.first_event_us.load(Ordering::Relaxed)
    }

    /// Updates the moving average of the time to the first event. Each new value has a weight of an eighth.
    pub(crate) fn note_first_event(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.first_event_us();
        let after = if before == 0 { took } else { before - before / 8 + took / 8 };
        // If two values are noted at the same time, one of them may be lost.
        self.first_event_us.store(after.max(1), Ordering::Relaxed);
    }

    /// Takes a slot for a call of this organization, if one is free and the organization may have it.
    pub(crate) fn try_enter(&self, organization: OrganizationId) -> Option<Place> {
        self.places.try_enter(organization)
    }

    /// Takes a slot for a call of this organization, or waits for one. Returns `None` if too many calls are
    /// already waiting, or if the wait takes too long.
    pub(crate) async fn enter(&self, organization: OrganizationId) -> Option<Place> {
        self.places.enter(organization, Duration::from_millis(self.upstream.max_wait_ms)).await
    }

    /// Sends a request, and returns the response once its head has arrived. If the upstream had closed a
    /// reused connection, the request is sent again.
    pub(crate) async fn send(
        &self,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, SendError> {
        let uri = format!("{}{path}", self.base);
        let uri: Uri = uri.parse().map_err(|_| SendError::Connect("its address isn't a URL".to_owned()))?;
        if let Some(credential) = &self.authorization {
            headers.insert(header::AUTHORIZATION, credential.clone());
        }
        let once = async || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            self.send_once(request).await
        };
        match once().await {
            Err(SendError::Stale(_)) => once().await,
            outcome => outcome,
        }
    }

    async fn send_once(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        let connection = capture_connection(&mut request);
        let outcome = self.client.request(request).await;
        let address = local_address(&connection);
        let mut used = self.used_connections.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.inspect(|_| used.extend(address)).map_err(|error| {
            let was_used = address.is_some_and(|address| used.remove(&address));
            let cause = with_causes(&error);
            if error.is_connect() {
                SendError::Connect(cause)
            } else if was_used && has_ended(&error) {
                SendError::Stale(cause)
            } else {
                SendError::Closed(cause)
            }
        })
    }
}

/// Returns a connector that opens each connection within this time.
fn tcp_connector(timeout: Duration) -> SocketConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Without `TCP_NODELAY`, the end of a request could wait for the acknowledgment of its beginning.
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    SocketConnector(tcp)
}

/// Returns the local address of the connection that a request was sent on.
fn local_address(connection: &CaptureConnection) -> Option<SocketAddr> {
    let mut extras = Extensions::new();
    connection.connection_metadata().as_ref()?.get_extras(&mut extras);
    Some(extras.get::<HttpInfo>()?.local_addr())
}

/// Returns `true` if a connection ended without a response.
fn has_ended(error: &hyper_util::client::legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(|cause| {
        let io = cause.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
        let is_reset = io.is_some_and(|io| {
            matches!(io.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
        });
        cause.is_incomplete_message() || cause.is_canceled() || is_reset
    })
}

/// Returns the headers of every request to an upstream. They don't include any of the client's headers.
pub(crate) fn request_headers(request_id: Option<RequestId>, is_stream: bool) -> HeaderMap {
    const USER_AGENT: &str = concat!("tollkeeper/", env!("CARGO_PKG_VERSION"));
    let accept = if is_stream { "text/event-stream" } else { "application/json" };
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if let Some(value) = request_id.and_then(|id| HeaderValue::try_from(id.to_string()).ok()) {
        headers.insert("x-request-id", value);
    }
    telemetry::inject_context(&mut headers);
    headers
}

/// A request to an upstream, whose outcome is reported to its breaker.
pub(crate) struct Trial<'a> {
    transport: &'a Transport,
    is_over: bool,
}

impl Trial<'_> {
    /// Notes that the upstream has answered.
    pub(crate) fn succeed(mut self) {
        self.is_over = true;
        let change = self.transport.breaker().succeed();
        self.log(change);
    }

    /// Notes that the upstream has failed.
    pub(crate) fn fail(mut self, now_ms: i64) {
        self.is_over = true;
        let change = self.transport.breaker().fail(now_ms);
        self.log(change);
    }

    fn log(&self, change: Option<Change>) {
        let upstream = &self.transport.upstream.id;
        match change {
            Some(Change::Opened { pause_ms }) => {
                tracing::warn!(
                    upstream,
                    pause_ms,
                    "an upstream fails repeatedly: it gets no calls for a while"
                );
            }
            Some(Change::Closed) => tracing::info!(upstream, "an upstream answers again"),
            None => {}
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.transport.breaker().abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;
    use tower_service::Service;

    use super::*;

    #[tokio::test]
    async fn connections_to_upstreams_send_each_piece_at_once() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tcp_connector(Duration::from_secs(20)).call(uri).await.unwrap();
        assert!(connection.tcp().nodelay().unwrap());
    }
}
