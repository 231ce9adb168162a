//! Requests to receivers.
//!
//! Connections are made by [`outbound`], to allowed addresses only. A name with a forbidden address gets the
//! same outcome as an unknown name, so that creators of webhooks can't probe this network's names. Redirects
//! aren't followed, and only the response's status and `retry-after` are read.

use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use strum::{EnumString, IntoStaticStr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::rustls::RootCertStore;

use outbound::{DialError, Dialer};

use kernel::clock::Time;

use crate::rules::schedule::retry_after_ms;
use crate::rules::urls::WebhookUrl;

pub use outbound::Network;

/// Timeout of an attempt, from the DNS lookup to the response's headers.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "WebhookAttemptOutcome")]
pub enum Outcome {
    /// The receiver responded with a success status.
    Succeeded,
    /// The receiver responded with another status, such as a redirect.
    Refused,
    /// The name has no address, or none that is allowed.
    // Only the log distinguishes these cases. Earlier versions, which may run at the same time, stored a
    // different word for each case. This version reads both words and stores `name_not_found`.
    #[strum(to_string = "name_not_found", serialize = "address_not_allowed", serialize = "not_reachable")]
    NotReachable,
    /// Connecting failed.
    NotConnected,
    /// The certificate is invalid, or the receiver doesn't support TLS.
    TlsFailed,
    /// The receiver closed the connection without an HTTP response.
    NoAnswer,
    /// The receiver didn't respond within 20 seconds.
    Timeout,
}

db::words!(Outcome);

impl Outcome {
    /// Returns the name used in the API, the metrics, and the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotReachable => "not_reachable",
            other => other.as_str(),
        }
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub outcome: Outcome,
    /// The response's status, if any.
    pub status: Option<u16>,
    /// The delay that the receiver requested, in milliseconds.
    pub retry_after_ms: Option<i64>,
}

impl Attempt {
    const fn without_answer(outcome: Outcome) -> Self {
        Self { outcome, status: None, retry_after_ms: None }
    }
}

/// The request of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Shipment<'a> {
    pub url: &'a WebhookUrl,
    pub event_id: &'a str,
    pub unix_seconds: i64,
    /// The header `webhook-signature`.
    pub signatures: &'a str,
    pub body: &'a [u8],
}

impl From<DialError> for Outcome {
    fn from(error: DialError) -> Self {
        match error {
            DialError::NotReachable => Self::NotReachable,
            DialError::NotConnected => Self::NotConnected,
            DialError::TlsFailed => Self::TlsFailed,
        }
    }
}

/// Client that sends events.
pub struct Client {
    timeout: Duration,
    dialer: Dialer,
}

impl Client {
    /// Creates a client that verifies receivers against these authorities, or against the machine's.
    pub fn new(allow_private: bool, network: Network, roots: Option<RootCertStore>) -> Self {
        Self { timeout: TIMEOUT, dialer: Dialer::new(allow_private, network, roots) }
    }

    /// Sends an event once. Failures are returned as the outcome.
    pub async fn send(&self, shipment: &Shipment<'_>, now: Time) -> Attempt {
        match timeout(self.timeout, self.exchange(shipment, now)).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(outcome)) => Attempt::without_answer(outcome),
            Err(_) => Attempt::without_answer(Outcome::Timeout),
        }
    }

    async fn exchange(&self, shipment: &Shipment<'_>, now: Time) -> Result<Attempt, Outcome> {
        let url = shipment.url;
        // The configuration may have been less strict when the URL was stored.
        url.check(self.dialer.allows_private()).map_err(|problem| {
            tracing::debug!(?url, "a webhook was skipped: its URL {}", problem.message);
            Outcome::NotReachable
        })?;
        request(self.dialer.dial(url).await?, shipment, now).await
    }
}

/// Sends the request on a separate connection, and reads the response's headers.
async fn request<S>(stream: S, shipment: &Shipment<'_>, now: Time) -> Result<Attempt, Outcome>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| Outcome::NoAnswer)?;
    let request = head(shipment).map_err(|_| Outcome::NotConnected)?;
    // The connection is dropped when this function returns: the response's body isn't read.
    let mut connection = std::pin::pin!(connection);
    let mut answered = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        biased;
        response = &mut answered => response,
        ended = &mut connection => match ended {
            // The response may already have arrived.
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

/// The status with which a receiver opts out of further events.
pub(crate) const GONE: u16 = StatusCode::GONE.as_u16();

fn head(shipment: &Shipment<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
    Request::post(shipment.url.target())
        .header(header::HOST, shipment.url.host_header())
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
