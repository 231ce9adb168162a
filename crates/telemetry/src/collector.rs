//! Requests to a collector.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::Settings;
use kernel::authorities;
use kernel::error::with_causes;

/// Timeout of a request, from connecting to the end of the response.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes read from a response.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// A client of the collector, with TLS for `https`. The SDK calls it on threads without a runtime.
#[derive(Clone)]
pub(crate) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    runtime: Handle,
    /// The reason for the last failure, which the exporter doesn't pass on.
    failure: Arc<Mutex<String>>,
}

impl Collector {
    /// # Errors
    /// A sentence for the operator, if the certificates of the system can't be read.
    pub fn new(settings: &Settings, is_tls: bool) -> Result<Self, String> {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(is_tls)?);
        let connector = connector.https_or_http().enable_http1().build();
        // Each request has its own connection, as a collector may close an idle one at any time.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let headers = settings.headers.iter().map(crate::Header::parts).collect();
        let runtime = Handle::try_current().map_err(|error| error.to_string())?;
        Ok(Self { client, headers, runtime, failure: Arc::default() })
    }

    /// Returns the reason for the last failure.
    pub fn failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(self, mut request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        request.headers_mut().extend(self.headers);
        let response =
            self.client.request(request.map(Full::from)).await.map_err(|error| with_causes(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        if !head.status.is_success() {
            let text = String::from_utf8_lossy(&body);
            return Err(format!("the collector answers {}: {}", head.status, text.trim()));
        }
        Ok(Response::from_parts(head, body))
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let this = self.clone();
        let sent = self.runtime.spawn(async { tokio::time::timeout(TIMEOUT, this.send(request)).await });
        let outcome = match sent.await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("the collector doesn't answer in time".to_owned()),
            Err(_) => Err("the server has stopped".to_owned()),
        };
        outcome.map_err(|why| {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&why);
            why.into()
        })
    }
}

/// Returns a TLS configuration that trusts the machine's authorities.
fn tls(is_used: bool) -> Result<ClientConfig, String> {
    let roots = if is_used { authorities::of_machine() } else { RootCertStore::empty() };
    if is_used && roots.is_empty() {
        return Err("this machine has no certificates of authorities to verify the collector with".to_owned());
    }
    authorities::client_config(roots)
}
