//! One connection: serves its requests in turn and closes it when the client is too slow.

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

use super::Dispatcher;
use super::protocol::{self, Framing};
use super::watchdog::{IdleState, Liveness, Timeouts, Watchdog, WatchedStream};
use crate::input::{RequestBody, UnreadBody};
use crate::reply::Body;
use crate::route::State;
use kernel::error::{Code, Error};

/// The most bytes of a request's head. hyper itself limits the lines to 100, which need no heap memory.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The most bytes of a request that are buffered unread.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long a client may take to read our final response, and how long its remaining bytes are still read. A
/// connection that is closed while bytes arrive would be reset, and the response lost with it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an idle connection is still read after the stop. A request that was sent before the stop may not
/// have been read yet, and would be lost.
const FINAL_READ_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the unread rest of a small body may take to arrive, so that the connection can continue.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The most bytes of the unread rest of a body that are drained.
const MAX_DRAIN_BYTES: usize = 16 * 1024;
/// The most bytes that are read and discarded before the connection closes.
const MAX_LINGER_BYTES: usize = 1024 * 1024;

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client<S: State> {
    pub peer: IpAddr,
    pub dispatcher: Dispatcher<S>,
    pub timeouts: Timeouts,
}

/// An event of a connection.
enum Event {
    /// The connection has ended, with or without an error.
    Ended(hyper::Result<()>),
    /// The server is stopping.
    Stop,
    /// The time to check whether the client is too slow.
    Check,
}

impl<S: State> Client<S> {
    /// Serves requests until one side ends the connection, or until the server stops and no request is in
    /// flight.
    pub async fn serve<T>(self, stream: T, mut stopped: Receiver<bool>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let watchdog = Watchdog::new();
        let io = TokioIo::new(WatchedStream::new(stream, Arc::clone(&watchdog)));
        let unread = Arc::new(UnreadBody::default());
        let service = service_fn(|request| self.answer(request, &watchdog, &unread));
        // Responses are small: one buffer and one plain write for head and body.
        let mut http = http1::Builder::new();
        http.writev(false).max_header_size(MAX_HEAD_BYTES).max_buf_size(MAX_BUFFER_BYTES);
        let mut connection = http.serve_connection(io, service);
        let mut check_timer = pin::pin!(sleep_until(watchdog.first_check_at(&self.timeouts)));
        let stop_seen = stopped.clone();
        let mut stop = pin::pin!(async move {
            // An error means that the sender is gone, which is a stop as well.
            stopped.wait_for(|stop| *stop).await.is_ok()
        });
        let (mut idle, mut is_stopping, mut is_final_read, mut waits) =
            (IdleState::default(), false, false, false);
        let refusal = loop {
            let event = poll_fn(|cx| {
                // Bytes that have arrived are read before the stop is noticed, so that their request counts
                // as in flight.
                if let Poll::Ready(outcome) = pin::Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(Event::Ended(outcome));
                }
                // Both wake this task once they have been polled: polling them again for each request is not
                // needed.
                if waits
                    && !check_timer.is_elapsed()
                    && (is_stopping || !stop_seen.has_changed().unwrap_or(true))
                {
                    return Poll::Pending;
                }
                waits = true;
                if !is_stopping && stop.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Event::Stop);
                }
                check_timer.as_mut().poll(cx).map(|()| Event::Check)
            });
            match event.await {
                Event::Ended(outcome) => break self.final_error(outcome, &watchdog),
                Event::Stop => {
                    (is_stopping, is_final_read) = (true, true);
                    watchdog.set_stopping();
                    check_timer.as_mut().reset(Instant::now() + FINAL_READ_TIMEOUT);
                }
                Event::Check => {
                    if std::mem::take(&mut is_final_read) {
                        pin::Pin::new(&mut connection).graceful_shutdown();
                    }
                    match watchdog.check(&self.timeouts, &mut idle, Instant::now()) {
                        Liveness::CheckAt(at) => check_timer.as_mut().reset(at),
                        Liveness::SlowHead => break Some(head_timeout_error()),
                        Liveness::TimedOut(why) => {
                            tracing::debug!(peer = %self.peer, "a connection is closed: {why}");
                            return;
                        }
                    }
                }
            }
            waits = false;
        };
        let Some(stream) = connection.into_parts().io.into_inner().into_open_stream() else { return };
        self.close(stream, refusal).await;
    }

    /// Returns the error to send after hyper has ended the connection: bytes that are no request get a
    /// response.
    fn final_error(&self, outcome: hyper::Result<()>, watchdog: &Watchdog) -> Option<Error> {
        // hyper itself sends nothing in response to the HTTP/2 preface.
        let nonsense = outcome.as_ref().is_err_and(hyper::Error::is_parse);
        // A client that hangs up or sends garbage is logged at debug level only.
        if let Err(error) = outcome {
            tracing::debug!(peer = %self.peer, "a connection ended early: {error}");
        }
        watchdog
            .refusal_status()
            .map(error_for_status)
            .or_else(|| nonsense.then(|| Code::MalformedRequest.into()))
    }

    async fn answer(
        &self,
        request: http::Request<Incoming>,
        watchdog: &Watchdog,
        unread: &Arc<UnreadBody>,
    ) -> Result<Response<Body>, Infallible> {
        let head = watchdog.begin_request();
        let framing = protocol::check(&request, head);
        let is_last = matches!(framing, Ok(Framing::Ambiguous));
        let mut response = match framing {
            Ok(_) => {
                let asks_first = request.headers().contains_key(header::EXPECT);
                let request = request.map(|body| RequestBody::incoming(body, self.timeouts.body, unread));
                let mut response = self.dispatcher.answer(request, self.peer).await;
                // hyper would close the connection without notice, and the client could already have sent its
                // next request. Boxed: it is rare, and otherwise every connection would reserve memory for
                // it.
                if let Some(rest) = unread.take()
                    && (asks_first || !Box::pin(drain(rest)).await)
                {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
            Err(error) => self.dispatcher.refuse(error, self.peer),
        };
        if is_last || watchdog.is_stopping() {
            // The header keeps the client from sending its next request on a connection that is about to
            // close.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        watchdog.response_ready();
        Ok(response)
    }

    /// Sends a final error, if there is one, and closes the connection so that the client can still read it.
    pub async fn close(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, refusal: Option<Error>) {
        if let Some(error) = refusal {
            let response = self.dispatcher.refuse(error, self.peer);
            let bytes = encode_response(response).await;
            let sent = async {
                stream.write_all(&bytes).await?;
                stream.shutdown().await
            };
            if !matches!(timeout(LINGER_TIMEOUT, sent).await, Ok(Ok(()))) {
                return;
            }
        } else if !has_unread(&mut stream) {
            return;
        }
        let mut rest = stream.take(u64::try_from(MAX_LINGER_BYTES).unwrap_or_default());
        // The connection ends here, whatever the outcome.
        timeout(LINGER_TIMEOUT, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await.ok();
    }
}

/// Reads and discards the rest of a body. Returns `true` if it was small and arrived at once, so that the
/// next bytes are the next request.
async fn drain(mut rest: Incoming) -> bool {
    if rest.size_hint().lower() > u64::try_from(MAX_DRAIN_BYTES).unwrap_or_default() {
        return false;
    }
    let all = async {
        let mut length = 0;
        while let Some(frame) = rest.frame().await {
            length += frame.ok()?.into_data().map_or(0, |piece| piece.len());
            if length > MAX_DRAIN_BYTES {
                return None;
            }
        }
        Some(())
    };
    matches!(timeout(DRAIN_TIMEOUT, all).await, Ok(Some(())))
}

/// Returns `true` if the client has sent bytes that were not read.
fn has_unread(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0; 1];
    matches!(stream.read(&mut byte).now_or_never(), Some(Ok(1)))
}

fn head_timeout_error() -> Error {
    Error::new(Code::RequestTimeout).message("The head of the request did not arrive in time.")
}

/// Returns the error for a status that hyper would send without a body.
fn error_for_status(status: u16) -> Error {
    let too_large = Code::HeadTooLarge.status().as_u16() == status;
    if too_large { Code::HeadTooLarge.into() } else { Code::MalformedRequest.into() }
}

/// Encodes a response as HTTP/1.1, for errors that hyper doesn't send.
async fn encode_response(response: Response<Body>) -> Vec<u8> {
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
