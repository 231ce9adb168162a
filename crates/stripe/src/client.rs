//! Requests to Stripe.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use tokio_rustls::rustls::RootCertStore;

use kernel::authorities;
use kernel::secrets::Secret;
use kernel::urls::BaseUrl;

use crate::error::{self, Error, Reason};
use crate::form::{Form, Query};
use crate::values::IdempotencyKey;

/// The API version of requests and responses.
pub const API_VERSION: &str = "2026-10-28.endive";

/// The URL of Stripe's API.
const API_URL: &str = "https://api.stripe.com";
/// Default timeout of a request. A bank may take 20 seconds to respond.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Maximum size of a response with one object, in bytes.
const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// Maximum size of a response with a page of objects, in bytes.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 255;

/// The Stripe account and how to reach it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The API's URL: Stripe itself, a proxy, or a test server.
    pub api_url: BaseUrl,
    pub secret_key: Secret,
    /// Timeout of a request, from connecting to the end of the response.
    pub timeout: Duration,
    /// Certificate authorities that the server's certificate is verified against; defaults to the machine's.
    pub roots: Option<RootCertStore>,
}

impl Settings {
    /// Creates settings for Stripe's own URL or another one.
    ///
    /// # Errors
    /// A sentence for the operator: the URL would send the key over the internet without TLS.
    pub fn new(secret_key: Secret, api_url: Option<BaseUrl>) -> Result<Self, String> {
        let stripe = || BaseUrl::parse(API_URL).ok_or_else(|| format!("{API_URL} isn't a URL"));
        let api_url = api_url.map_or_else(stripe, Ok)?;
        if !api_url.is_https() && !api_url.is_private() {
            return Err(format!("{api_url} would receive the secret key unencrypted: use https"));
        }
        Ok(Self { api_url, secret_key, timeout: TIMEOUT, roots: None })
    }
}

/// A client of a Stripe account. Each request has its own connection. Redirects aren't followed, and proxies
/// set in the environment are ignored.
#[derive(Clone)]
pub struct Client {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    settings: Settings,
    authorization: HeaderValue,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client that verifies Stripe against the configured authorities.
    ///
    /// # Errors
    /// A sentence for the operator: TLS is unavailable, or the key contains characters that are
    /// invalid in a header.
    pub fn new(settings: Settings) -> Result<Self, String> {
        // Loading the authorities takes time.
        let is_tls = settings.api_url.is_https();
        let roots = match &settings.roots {
            Some(roots) => roots.clone(),
            None if is_tls => authorities::of_machine(),
            None => RootCertStore::empty(),
        };
        if is_tls && roots.is_empty() {
            return Err("this machine has no CA certificates to verify Stripe with".to_owned());
        }
        let tls = authorities::client_config(roots)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        // No connection reuse: an idle connection may close just as a request is sent, leaving the outcome of
        // a charge unknown.
        let mut builder = HyperClient::builder(TokioExecutor::new());
        let http = builder.pool_max_idle_per_host(0).retry_canceled_requests(false).build(connector);
        let bearer = format!("Bearer {}", settings.secret_key.expose());
        let mut authorization = HeaderValue::try_from(bearer)
            .map_err(|_| "Stripe's secret key contains invalid characters".to_owned())?;
        authorization.set_sensitive(true);
        Ok(Self { http, settings, authorization })
    }

    /// Returns `true` if the key is a live-mode key, according to its prefix.
    pub fn is_live(&self) -> bool {
        let key = self.settings.secret_key.expose();
        key.starts_with("sk_live_") || key.starts_with("rk_live_")
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: &Query) -> Result<T, Error> {
        self.send(Method::GET, &target(path, query), None, Form::new(), MAX_REPLY_BYTES).await
    }

    pub(crate) async fn get_page<T: DeserializeOwned>(&self, path: &str, query: &Query) -> Result<T, Error> {
        self.send(Method::GET, &target(path, query), None, Form::new(), MAX_PAGE_BYTES).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        form: Form,
        key: &IdempotencyKey,
    ) -> Result<T, Error> {
        self.send(Method::POST, path, Some(key), form, MAX_REPLY_BYTES).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        key: Option<&IdempotencyKey>,
        form: Form,
        max_bytes: usize,
    ) -> Result<T, Error> {
        let request = self.request(&method, target, key, form)?;
        let exchange = self.exchange(request, max_bytes);
        let reply = tokio::time::timeout(self.settings.timeout, exchange).await;
        let reply = reply.map_err(|_| Error::unknown(Reason::Timeout))??;
        if !(200..300).contains(&reply.status) {
            let secret = self.settings.secret_key.expose();
            return Err(error::read(reply.status, &reply.body, reply.request_id, reply.should_retry, secret));
        }
        serde_json::from_slice(&reply.body).map_err(|error| Error::Unreadable {
            status: reply.status,
            // The text itself isn't logged: it may contain names.
            why: format!("line {}, column {}: {:?}", error.line(), error.column(), error.classify()),
            request_id: reply.request_id,
        })
    }

    fn request(
        &self,
        method: &Method,
        target: &str,
        key: Option<&IdempotencyKey>,
        form: Form,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(format!("{}/v1/{target}", self.settings.api_url.as_str()))
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("tollkeeper/", env!("CARGO_PKG_VERSION")))
            .header("stripe-version", API_VERSION);
        if let Some(key) = key {
            request = request.header("idempotency-key", key.as_str());
        }
        let body = form.into_bytes();
        if *method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            // Set explicitly: an empty form would otherwise have no length.
            request = request.header(header::CONTENT_LENGTH, body.len());
        }
        // Ids are encoded, so this is a valid URL.
        request.body(Full::new(Bytes::from(body))).map_err(|_| Error::missing())
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, max_bytes: usize) -> Result<Reply, Error> {
        let sent = self.http.request(request).await;
        let response = sent.map_err(|error| {
            Error::unknown(if error.is_connect() { Reason::NotConnected } else { Reason::CutOff })
        })?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let request_id = text(&head.headers, "request-id").map(str::to_owned);
        let should_retry = match text(&head.headers, "stripe-should-retry") {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        match Limited::new(body, max_bytes).collect().await {
            Ok(body) => Ok(Reply { status, request_id, should_retry, body: body.to_bytes() }),
            Err(error) if error.is::<LengthLimitError>() => Err(Error::Unreadable {
                status,
                why: format!("it has more than {max_bytes} bytes"),
                request_id,
            }),
            Err(_) => Err(Error::Unknown { reason: Reason::CutOff, should_retry, request_id }),
        }
    }
}

/// A complete response.
struct Reply {
    status: u16,
    request_id: Option<String>,
    should_retry: Option<bool>,
    body: Bytes,
}

fn target(path: &str, query: &Query) -> String {
    if query.as_str().is_empty() { path.to_owned() } else { format!("{path}?{}", query.as_str()) }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?;
    (value.len() <= MAX_ID_BYTES).then_some(value)
}

/// Returns the path of an object, such as `customers/cus_1`.
///
/// # Errors
/// The id isn't valid. An empty one would address the list.
pub(crate) fn path(list: &str, id: &str) -> Result<String, Error> {
    let is_id = (1..=MAX_ID_BYTES).contains(&id.len()) && !id.bytes().all(|byte| byte == b'.');
    if is_id { Ok(format!("{list}/{}", crate::form::segment(id))) } else { Err(Error::missing()) }
}

#[cfg(test)]
mod tests;
