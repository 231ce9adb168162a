//! Requests to providers.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};
use tokio_rustls::rustls::RootCertStore;

use kernel::error::with_causes;
use kernel::{authorities, hosts};

/// The maximum duration of a request, from connecting to the end of the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum length of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// An HTTP client that trusts the machine's certificate authorities, and doesn't follow redirects.
#[derive(Clone)]
pub(crate) struct Client(HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// The reason why a request got no valid response, for the log.
#[derive(Debug)]
pub(crate) struct NoResponse(pub(crate) String);

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoResponse {}

impl Client {
    /// Creates a client. If it isn't used, it doesn't read the certificate authorities, which is slow.
    ///
    /// # Errors
    /// TLS can't be used. The error is a sentence for the operator.
    pub(crate) fn new(is_used: bool) -> Result<Self, String> {
        let roots = if is_used { authorities::of_machine() } else { RootCertStore::empty() };
        let tls = authorities::client_config(roots)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        // Each request opens a new connection, because requests are rare, and the provider may close an idle
        // connection at any time.
        Ok(Self(HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)))
    }

    /// Sends a request, and returns the whole response.
    ///
    /// # Errors
    /// The response is missing, too large, too late or a redirect, or the URL isn't safe.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, NoResponse> {
        check_safe(request.uri())?;
        let exchange = async {
            let request = request.map(|body| Full::new(Bytes::from(body)));
            let response = self.0.request(request).await.map_err(|error| NoResponse(with_causes(&error)))?;
            let (head, body) = response.into_parts();
            if head.status.is_redirection() {
                return Err(NoResponse("it responded with a redirect, which isn't followed".to_owned()));
            }
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| NoResponse(format!("its response can't be read: {error}")))?;
            Ok(Response::from_parts(head, body.to_bytes().to_vec()))
        };
        let late = |_| NoResponse("it didn't respond within five seconds".to_owned());
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(late)?
    }

    /// Returns the JSON at a URL.
    ///
    /// # Errors
    /// Those of [`Self::send`]; the status isn't 200; or the bearer token isn't a valid header value.
    pub(crate) async fn get_json(&self, url: &str, bearer: Option<&str>) -> Result<Vec<u8>, NoResponse> {
        let mut request = Request::get(url)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, concat!("tollkeeper/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = bearer {
            let value = http::HeaderValue::try_from(format!("Bearer {bearer}"));
            let mut value =
                value.map_err(|_| NoResponse("its access token doesn't fit into a header".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(http::header::AUTHORIZATION, value);
        }
        let request = request.body(Vec::new()).map_err(|error| NoResponse(error.to_string()))?;
        let response = self.send(request).await?;
        match response.status() {
            http::StatusCode::OK => Ok(response.into_body()),
            status => Err(NoResponse(format!("it responded with {status}"))),
        }
    }
}

impl<'c> AsyncHttpClient<'c> for Client {
    type Error = NoResponse;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, NoResponse>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

/// Checks that no one else can read the traffic: the URL is `https`, or on this machine.
pub(crate) fn check_safe(url: &Uri) -> Result<(), NoResponse> {
    match url.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if url.host().is_some_and(hosts::is_loopback) => Ok(()),
        _ => Err(NoResponse("its address isn't `https`".to_owned())),
    }
}
