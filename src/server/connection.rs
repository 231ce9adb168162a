//! One connection, from its first byte to its last: requests in turn, and no client that is waited for too long.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until, timeout};

use super::Entrance;
use super::protocol::{self, Framing};
use super::watch::{Finding, Patience, Quiet, Watch, Watched};
use crate::input::{LeftOver, RequestBody};
use crate::reply::Body;
use kernel::error::{Code, Error};

/// The most bytes of a request's head; the most lines are hyper's own 100, which take no memory of the heap.
const HEAD_BYTES: usize = 32 * 1024;
/// The most bytes of a request that wait to be read.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long a client may take for our last words to it, and how long its own are still listened to: a connection that is
/// closed while they come would be reset, and our words with it.
const LINGER: Duration = Duration::from_secs(1);
/// How long a connection that waits for its next request is still read after the stop: what was sent before the stop may not
/// have been read by then, and would be lost.
const SETTLE: Duration = Duration::from_millis(100);
/// How long the rest of a small body that nobody has read may take to come, so that the connection can go on.
const DRAIN: Duration = Duration::from_millis(100);
/// The most bytes of such a rest.
const DRAIN_BYTES: usize = 16 * 1024;
/// The most bytes that are still listened to.
const LINGER_BYTES: usize = 1024 * 1024;

/// Who is on the other side, and how it is served.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address.
    pub peer: IpAddr,
    /// What answers it.
    pub entrance: Entrance,
    /// How long it may take.
    pub patience: Patience,
}

/// What a connection has to see to.
enum Event {
    /// It has ended, one way or the other.
    Ended(hyper::Result<()>),
    /// The server stops.
    Stop,
    /// It is time to look how slow the client is.
    Look,
}

impl Client {
    /// Serves requests until one side ends the connection, or the stop has come and nothing is in flight.
    pub async fn serve<S>(self, stream: S, mut stopped: Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let watch = Watch::new();
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&watch)));
        let left_over = Arc::new(LeftOver::default());
        let service = service_fn(|request| self.answer(request, &watch, &left_over));
        // Answers are small: one buffer and one plain write for head and body.
        let mut http = http1::Builder::new();
        http.writev(false).max_header_size(HEAD_BYTES).max_buf_size(BUFFER_BYTES);
        let mut connection = http.serve_connection(io, service);
        let mut look = pin::pin!(sleep_until(watch.first_look(&self.patience)));
        let stop_seen = stopped.clone();
        let mut stop = pin::pin!(async move {
            // An error means that the sender is gone, which is a stop as well.
            stopped.wait_for(|stop| *stop).await.is_ok()
        });
        let (mut quiet, mut stopping, mut settling, mut waits) = (Quiet::default(), false, false, false);
        let refusal = loop {
            let event = poll_fn(|cx| {
                // What has come is read before the stop is heard, so that it counts as in flight.
                if let Poll::Ready(outcome) = pin::Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(Event::Ended(outcome));
                }
                // Both wake this task by themselves once they were asked: it isn't done for each request again.
                if waits && !look.is_elapsed() && (stopping || !stop_seen.has_changed().unwrap_or(true)) {
                    return Poll::Pending;
                }
                waits = true;
                if !stopping && stop.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Event::Stop);
                }
                look.as_mut().poll(cx).map(|()| Event::Look)
            });
            match event.await {
                Event::Ended(outcome) => break self.last_word(outcome, &watch),
                Event::Stop => {
                    (stopping, settling) = (true, true);
                    watch.stop();
                    look.as_mut().reset(Instant::now() + SETTLE);
                }
                Event::Look => {
                    if std::mem::take(&mut settling) {
                        pin::Pin::new(&mut connection).graceful_shutdown();
                    }
                    match watch.look(&self.patience, &mut quiet, Instant::now()) {
                        Finding::LookAgain(at) => look.as_mut().reset(at),
                        Finding::SlowHead => break Some(slow_head()),
                        Finding::Dead(why) => {
                            tracing::debug!(peer = %self.peer, "a connection is closed: {why}");
                            return;
                        }
                    }
                }
            }
            waits = false;
        };
        let Some(stream) = connection.into_parts().io.into_inner().into_open_stream() else { return };
        self.part(stream, refusal).await;
    }

    /// The answer to a client whose connection hyper has ended: something that isn't a request gets an answer.
    fn last_word(&self, outcome: hyper::Result<()>, watch: &Watch) -> Option<Error> {
        // To the first words of HTTP/2 hyper says nothing by itself.
        let nonsense = outcome.as_ref().is_err_and(hyper::Error::is_parse);
        // A client that hangs up or talks nonsense is no event of ours.
        if let Err(error) = outcome {
            tracing::debug!(peer = %self.peer, "a connection ended early: {error}");
        }
        watch.refused().map(refusal).or_else(|| nonsense.then(|| Code::MalformedRequest.into()))
    }

    async fn answer(
        &self,
        request: http::Request<Incoming>,
        watch: &Watch,
        left_over: &Arc<LeftOver>,
    ) -> Result<Response<Body>, Infallible> {
        let head = watch.begin();
        let framing = protocol::check(&request, head);
        let is_last = matches!(framing, Ok(Framing::Doubtful));
        let mut response = match framing {
            Ok(_) => {
                let asks_first = request.headers().contains_key(header::EXPECT);
                let request = request.map(|body| RequestBody::arriving(body, self.patience.body, left_over));
                let mut response = self.entrance.answer(request, self.peer).await;
                // hyper would close the connection without a word to the client, who could have sent its next request. Boxed: it
                // is rare, and each connection would have room for it.
                if let Some(rest) = left_over.take()
                    && (asks_first || !Box::pin(drained(rest)).await)
                {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
            Err(error) => self.entrance.refuse(error, self.peer),
        };
        if is_last || watch.is_stopping() {
            // Who is told doesn't send the next request on a connection that is about to be closed.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        watch.answered();
        Ok(response)
    }

    /// Says a last word, if there is one, and leaves so that it is heard.
    pub async fn part(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, refusal: Option<Error>) {
        if let Some(error) = refusal {
            let response = self.entrance.refuse(error, self.peer);
            let words = on_the_wire(response).await;
            let said = async {
                stream.write_all(&words).await?;
                stream.shutdown().await
            };
            if !matches!(timeout(LINGER, said).await, Ok(Ok(()))) {
                return;
            }
        } else if !has_unread(&mut stream) {
            return;
        }
        let mut rest = stream.take(u64::try_from(LINGER_BYTES).unwrap_or_default());
        // Whatever comes of it, the connection ends here.
        timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await.ok();
    }
}

/// Whether the rest of a body was small and came at once, so that the next request is what comes next.
async fn drained(mut rest: Incoming) -> bool {
    if rest.size_hint().lower() > u64::try_from(DRAIN_BYTES).unwrap_or_default() {
        return false;
    }
    let all = async {
        let mut length = 0;
        while let Some(frame) = rest.frame().await {
            length += frame.ok()?.into_data().map_or(0, |piece| piece.len());
            if length > DRAIN_BYTES {
                return None;
            }
        }
        Some(())
    };
    matches!(timeout(DRAIN, all).await, Ok(Some(())))
}

/// Whether the client has sent something that nobody has read.
fn has_unread(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0; 1];
    matches!(stream.read(&mut byte).now_or_never(), Some(Ok(1)))
}

fn slow_head() -> Error {
    Error::new(Code::RequestTimeout).message("The head of the request did not arrive in time.")
}

/// What hyper tells by a bare status.
fn refusal(status: u16) -> Error {
    let too_large = Code::HeadTooLarge.status().as_u16() == status;
    if too_large { Code::HeadTooLarge.into() } else { Code::MalformedRequest.into() }
}

/// A response as HTTP/1.1 has it, for what hyper doesn't send.
async fn on_the_wire(response: Response<Body>) -> Vec<u8> {
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let mut wire = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        wire.extend_from_slice(name.as_str().as_bytes());
        wire.extend_from_slice(b": ");
        wire.extend_from_slice(value.as_bytes());
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    wire.extend_from_slice(&body);
    wire
}
