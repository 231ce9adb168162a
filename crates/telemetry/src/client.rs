//! POST requests to a collector, each on a connection of its own, with TLS for `https`.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use kernel::urls::PublicUrl;

use crate::Header;

/// How long a POST may take, from connecting to the response.
const POST_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an error response that are read, for the log.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// The URL of a collector for one kind of items.
pub(crate) struct Target {
    /// The URL, for the log.
    pub shown: String,
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Target {
    /// Reads the URL of `path` at the collector.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn new(endpoint: &PublicUrl, headers: &[Header], path: &str) -> Result<Self, String> {
        let shown = format!("{}{path}", endpoint.as_str());
        let wrong = |error: &dyn std::fmt::Display| format!("`telemetry.endpoint`: {shown}: {error}");
        let uri: Uri = shown.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))?;
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let tls = if is_tls { Some(connector().map_err(|why| wrong(&why))?) } else { None };
        let headers = headers.iter().map(Header::parts).collect();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { host, port, tls, headers, uri, shown })
    }

    /// Sends a body.
    ///
    /// # Errors
    /// The reason for which the collector may not have accepted it.
    pub async fn post(&self, body: Vec<u8>) -> Result<(), String> {
        let sent = tokio::time::timeout(POST_TIMEOUT, self.exchange(body)).await;
        sent.map_err(|_| "the collector doesn't answer in time".to_owned())?
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<(), String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(describe)?;
        match &self.tls {
            None => self.send(stream, body).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(describe)?;
                self.send(tls.connect(name, stream).await.map_err(describe)?, body).await
            }
        }
    }

    async fn send<S>(&self, stream: S, body: Vec<u8>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(describe)?;
        let exchange = async {
            let response = sender.send_request(self.request(body)?).await.map_err(describe)?;
            let status = response.status();
            if status.is_success() {
                return Ok(());
            }
            let answer = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            let text = answer.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Err(format!("the collector answers {status}: {}", String::from_utf8_lossy(&text).trim()))
        };
        let mut exchange = std::pin::pin!(exchange);
        // The connection must be polled for the exchange to proceed.
        let ended = tokio::select! {
            answer = &mut exchange => return answer,
            ended = connection => ended,
        };
        // The collector may have answered and then closed the connection.
        match (exchange.await, ended) {
            (Err(_), Err(error)) => Err(describe(error)),
            (answer, _) => answer,
        }
    }

    fn request(&self, body: Vec<u8>) -> Result<Request<Full<Bytes>>, String> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::post(path)
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("tollkeeper/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::from(body)).map_err(describe)
    }
}

/// Trusts the authorities of the operating system, or those in `SSL_CERT_FILE`.
fn connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let (good, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if good == 0 {
        return Err("this machine has no certificates of authorities to verify the collector with".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

fn describe(error: impl std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
