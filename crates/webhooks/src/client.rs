//! Requests to receivers.
//!
//! Connections are those of [`outbound`]: to allowed addresses only. A name with another address has the outcome of one that
//! doesn't exist: which names this network has is no business of who makes webhooks. Redirects aren't followed, and of the
//! answer nothing but its status and `retry-after` is read.

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

/// How long an attempt may take, from the look-up of the name to the answer's head.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What an attempt has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "WebhookAttemptOutcome")]
pub enum Outcome {
    /// The receiver has answered with a status of success.
    Succeeded,
    /// The receiver has answered with another status; a redirect is one.
    Refused,
    /// Its name has no address, or one that isn't allowed: which of the two only the log says. The words in the database are
    /// those of earlier versions, which told them apart, and may run beside this one.
    #[strum(to_string = "name_not_found", serialize = "address_not_allowed", serialize = "not_reachable")]
    NotReachable,
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

impl Outcome {
    /// Returns the word in the API, the metrics and the log.
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

impl From<DialError> for Outcome {
    fn from(error: DialError) -> Self {
        match error {
            DialError::NotReachable => Self::NotReachable,
            DialError::NotConnected => Self::NotConnected,
            DialError::TlsFailed => Self::TlsFailed,
        }
    }
}

/// Sends events.
pub struct Client {
    timeout: Duration,
    dialer: Dialer,
}

impl Client {
    /// A client that verifies receivers by these authorities, or by those of the machine.
    pub fn new(allow_private: bool, network: Network, roots: Option<RootCertStore>) -> Self {
        Self { timeout: TIMEOUT, dialer: Dialer::new(allow_private, network, roots) }
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
        url.check(self.dialer.allows_private()).map_err(|problem| {
            tracing::debug!(?url, "nothing is sent to a webhook: its URL {}", problem.message);
            Outcome::NotReachable
        })?;
        request(self.dialer.dial(url).await?, shipment, now).await
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
