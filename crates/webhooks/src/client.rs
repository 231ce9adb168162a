//! Requests to receivers.
//!
//! The name of a receiver is resolved once for each attempt. If one of its addresses isn't allowed, nothing is sent;
//! otherwise the connection goes to one of the addresses that were checked, so a name that changes meanwhile changes
//! nothing. Redirects aren't followed, no proxy of the environment is used, and of the answer nothing but its status and
//! `retry-after` is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use strum::{EnumString, IntoStaticStr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use kernel::authorities;
use kernel::clock::Time;

use crate::rules::addresses::is_global;
use crate::rules::schedule::retry_after_ms;
use crate::rules::urls::WebhookUrl;

/// How long an attempt may take, from the look-up of the name to the answer's head.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long connecting to one of several addresses may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// Looks up the addresses of a name.
pub type Resolve = Box<dyn Fn(String, u16) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> + Send + Sync>;
/// Connects to an address.
pub type Connect = Box<dyn Fn(SocketAddr) -> BoxFuture<'static, std::io::Result<TcpStream>> + Send + Sync>;

/// The network: replaced in tests.
pub struct Network {
    pub resolve: Resolve,
    pub connect: Connect,
}

impl Network {
    /// The network of the machine.
    pub fn of_machine() -> Self {
        Self {
            resolve: Box::new(|host, port| {
                Box::pin(async move {
                    let found = tokio::net::lookup_host((host, port)).await?;
                    Ok(found.map(|address| address.ip()).collect())
                })
            }),
            connect: Box::new(|address| Box::pin(TcpStream::connect(address))),
        }
    }
}

/// What an attempt has come to, a word in the database and the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "WebhookAttemptOutcome")]
pub enum Outcome {
    /// The receiver has answered with a status of success.
    Succeeded,
    /// The receiver has answered with another status; a redirect is one.
    Refused,
    /// Its name has no address.
    NameNotFound,
    /// It has an address that isn't of the public Internet.
    AddressNotAllowed,
    /// There is no connection to it.
    NotConnected,
    /// Its certificate isn't good, or it doesn't speak TLS.
    TlsFailed,
    /// It has closed the connection without an answer of HTTP.
    NoAnswer,
    /// It hasn't answered within 20 seconds.
    Timeout,
}

db::words!(Outcome);

/// The result of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub outcome: Outcome,
    /// The status of the answer, if there is one.
    pub status: Option<u16>,
    /// The wait that the receiver asks for, in milliseconds.
    pub retry_after_ms: Option<i64>,
}

impl Attempt {
    const fn without_answer(outcome: Outcome) -> Self {
        Self { outcome, status: None, retry_after_ms: None }
    }
}

/// What is sent in an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Shipment<'a> {
    pub url: &'a WebhookUrl,
    pub event_id: &'a str,
    pub unix_seconds: i64,
    /// The header `webhook-signature`.
    pub signatures: &'a str,
    pub body: &'a [u8],
}

/// Sends events.
pub struct Client {
    allow_private: bool,
    timeout: Duration,
    network: Network,
    /// Made when it is first needed: reading the authorities of the machine takes its time.
    tls: OnceLock<Result<TlsConnector, String>>,
    roots: Option<RootCertStore>,
}

impl Client {
    /// A client that verifies receivers by these authorities, or by those of the machine.
    pub fn new(allow_private: bool, network: Network, roots: Option<RootCertStore>) -> Self {
        Self { allow_private, timeout: TIMEOUT, network, tls: OnceLock::new(), roots }
    }

    /// Sends an event once. The result says whether it was taken; it doesn't fail otherwise.
    pub async fn send(&self, shipment: &Shipment<'_>, now: Time) -> Attempt {
        match timeout(self.timeout, self.exchange(shipment, now)).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(outcome)) => Attempt::without_answer(outcome),
            Err(_) => Attempt::without_answer(Outcome::Timeout),
        }
    }

    async fn exchange(&self, shipment: &Shipment<'_>, now: Time) -> Result<Attempt, Outcome> {
        let url = shipment.url;
        // A stored URL was allowed by the configuration at that time.
        url.check(self.allow_private).map_err(|_| Outcome::AddressNotAllowed)?;
        let addresses = self.addresses(url).await?;
        let stream = self.connect(&addresses, url.port()).await?;
        if !url.is_https() {
            return request(stream, shipment, now).await;
        }
        let name = ServerName::try_from(url.host().to_owned()).map_err(|_| Outcome::TlsFailed)?;
        let stream = self.tls()?.connect(name, stream).await.map_err(|_| Outcome::TlsFailed)?;
        request(stream, shipment, now).await
    }

    /// Returns the addresses of a receiver, all of which are allowed.
    async fn addresses(&self, url: &WebhookUrl) -> Result<Vec<IpAddr>, Outcome> {
        let addresses = match url.host().parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => (self.network.resolve)(url.host().to_owned(), url.port()).await.unwrap_or_default(),
        };
        if addresses.is_empty() {
            return Err(Outcome::NameNotFound);
        }
        // One that isn't allowed is enough: a name could have a good one for show.
        if !self.allow_private && !addresses.iter().all(|address| is_global(*address)) {
            return Err(Outcome::AddressNotAllowed);
        }
        Ok(addresses)
    }

    async fn connect(&self, addresses: &[IpAddr], port: u16) -> Result<TcpStream, Outcome> {
        for address in addresses.iter().take(MAX_ADDRESSES) {
            let connecting = (self.network.connect)(SocketAddr::new(*address, port));
            if let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, connecting).await {
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
        }
        Err(Outcome::NotConnected)
    }

    fn tls(&self) -> Result<&TlsConnector, Outcome> {
        let connector = self.tls.get_or_init(|| {
            let roots = self.roots.clone().unwrap_or_else(authorities::of_machine);
            let mut config: ClientConfig = authorities::client_config(roots)?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(TlsConnector::from(Arc::new(config)))
        });
        connector.as_ref().map_err(|error| {
            tracing::error!("webhooks can't use TLS: {error}");
            Outcome::TlsFailed
        })
    }
}

/// Sends the request on a connection of its own, and reads the head of the answer.
async fn request<S>(stream: S, shipment: &Shipment<'_>, now: Time) -> Result<Attempt, Outcome>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| Outcome::NoAnswer)?;
    let request = head(shipment).map_err(|_| Outcome::NotConnected)?;
    // The connection ends with this function: nothing of the answer's body is read.
    let mut connection = std::pin::pin!(connection);
    let mut answered = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        biased;
        response = &mut answered => response,
        ended = &mut connection => match ended {
            // The answer may be there already.
            Ok(()) => answered.await,
            Err(error) => Err(error),
        },
    };
    let response = response.map_err(|_| Outcome::NoAnswer)?;
    let status = response.status();
    let asked = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    Ok(Attempt {
        outcome: if status.is_success() { Outcome::Succeeded } else { Outcome::Refused },
        status: Some(status.as_u16()),
        retry_after_ms: asked.and_then(|asked| retry_after_ms(asked, now)),
    })
}

/// The status by which a receiver says that it wants no more events.
pub(crate) const GONE: u16 = StatusCode::GONE.as_u16();

fn head(shipment: &Shipment<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
    let uri = shipment.url.uri();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    // Without the port that goes without saying, as clients of HTTP send it.
    let default_port = if shipment.url.is_https() { ":443" } else { ":80" };
    let host = authority.strip_suffix(default_port).unwrap_or(authority);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    Request::post(target)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("tollkeeper/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, HeaderValue::from_static("close"))
        .header("webhook-id", shipment.event_id)
        .header("webhook-timestamp", shipment.unix_seconds)
        .header("webhook-signature", shipment.signatures)
        .body(Full::new(Bytes::copy_from_slice(shipment.body)))
}

#[cfg(test)]
mod tests;
