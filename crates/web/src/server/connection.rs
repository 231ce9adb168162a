//! A connection: serves its requests one after another, and closes when the client is too slow.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Response, StatusCode, header};
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
use super::watchdog::{IdleState, Liveness, Timeouts, Watchdog, WatchedBody, WatchedStream};
use crate::reply::Body;
use crate::request_body::{self, UnreadBody};
use kernel::error::{Code, Error};

/// The maximum number of bytes of a request's head. hyper itself limits it to 100 header lines, which need no
/// heap memory.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The maximum number of bytes of a request that are buffered unread.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// The time that a client has to read the final response, while the server still reads its remaining bytes.
/// Closing a connection while bytes arrive would reset it, and the client would lose the response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which an idle connection is still read after the stop. A request that was sent before the
/// stop may not have been read yet, and would be lost.
const FINAL_READ_TIMEOUT: Duration = Duration::from_millis(100);
/// The time within which the unread rest of a small body must arrive, so that the connection can continue.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The maximum number of unread bytes of a body that are drained.
const MAX_DRAIN_BYTES: usize = 16 * 1024;
/// The maximum number of bytes that are read and discarded before the connection closes.
const MAX_LINGER_BYTES: usize = 1024 * 1024;

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub peer: IpAddr,
    pub dispatcher: Dispatcher,
    pub timeouts: Timeouts,
}

/// An event of a connection.
enum Event {
    /// The connection has ended, with or without an error.
    Ended(hyper::Result<()>),
    /// The server is stopping.
    Stop,
    /// The check for a slow client is due.
    Check,
}

impl Client {
    /// Serves requests until one side ends the connection, or until the server stops and no request is in
    /// progress.
    pub async fn serve<T>(self, stream: T, mut stopped: Receiver<bool>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let watchdog = Watchdog::new();
        let io = TokioIo::new(WatchedStream::new(stream, Arc::clone(&watchdog)));
        let unread = Arc::new(UnreadBody::default());
        let service = service_fn(|request| self.answer(request, &watchdog, &unread));
        let mut connection = http_builder().serve_connection(io, service);
        let mut check_timer = pin::pin!(sleep_until(watchdog.first_check_at(&self.timeouts)));
        let stop_seen = stopped.clone();
        let mut stop = pin::pin!(async move {
            // An error means that the sender was dropped, which is treated as a stop.
            stopped.wait_for(|stop| *stop).await.is_ok()
        });
        let (mut idle, mut is_stopping, mut is_final_read, mut waits) =
            (IdleState::default(), false, false, false);
        let refusal = loop {
            let event = poll_fn(|cx| {
                // Poll the connection first, so that a request whose bytes have arrived counts as in progress
                // at the stop.
                if let Poll::Ready(outcome) = pin::Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(Event::Ended(outcome));
                }
                // After the first poll, both wake this task, so they needn't be polled again for each
                // request.
                if waits
                    && !check_timer.is_elapsed()
                    && (is_stopping || !stop_seen.has_changed().unwrap_or(true))
                {
                    return Poll::Pending;
                }
                waits = true;
                if !is_stopping && poll_regardless(stop.as_mut(), cx).is_ready() {
                    return Poll::Ready(Event::Stop);
                }
                poll_regardless(check_timer.as_mut(), cx).map(|()| Event::Check)
            });
            match event.await {
                Event::Ended(outcome) => {
                    self.note_outcome(outcome);
                    break None;
                }
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

    /// Logs the error that ended a connection, if any. For bytes that aren't a request, hyper has already
    /// sent a response, except for the preface of HTTP/2.
    fn note_outcome(&self, outcome: hyper::Result<()>) {
        let Err(error) = outcome else { return };
        // A client that disconnects or sends garbage is logged only at debug level.
        tracing::debug!(peer = %self.peer, "a connection ended early: {error}");
        if error.is_parse() {
            let is_too_large = error.is_parse_too_large();
            let status = if is_too_large {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            } else {
                StatusCode::BAD_REQUEST
            };
            self.dispatcher.note_unreadable(status, self.peer);
        }
    }

    async fn answer(
        &self,
        request: http::Request<Incoming>,
        watchdog: &Arc<Watchdog>,
        unread: &Arc<UnreadBody>,
    ) -> Result<Response<WatchedBody>, Infallible> {
        let head = watchdog.begin_request();
        let framing = protocol::check(&request, head);
        let is_last = matches!(framing, Ok(Framing::Ambiguous));
        let mut response = match framing {
            Ok(_) => {
                let asks_first = request.headers().contains_key(header::EXPECT);
                let request = request.map(|body| request_body::incoming(body, unread));
                let mut response = self.dispatcher.answer(request, self.peer).await;
                // Without the header, hyper would close the connection silently after the client may already
                // have sent its next request. The future is boxed because it is rarely needed: otherwise
                // every connection would reserve memory for it.
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
            // The header keeps the client from sending its next request on a connection that is about to be
            // closed.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(|body| WatchedBody::new(body, watchdog)))
    }

    /// Sends a final error, if any, and closes the connection so that the client can still read it.
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
        // The connection ends here, even after a timeout.
        timeout(LINGER_TIMEOUT, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await.ok();
    }
}

/// Polls a future even if the task has used up its cooperative budget. Otherwise the future wouldn't be
/// registered to wake the task.
fn poll_regardless<F: Future>(future: pin::Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    pin::pin!(tokio::task::unconstrained(future)).poll(cx)
}

fn http_builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    // Responses are small, so head and body are written from one buffer with one plain write.
    http.writev(false).max_header_size(MAX_HEAD_BYTES).max_buf_size(MAX_BUFFER_BYTES);
    http
}

/// Reads and discards the rest of a body. Returns `true` if the rest was small and arrived at once, so that
/// the next bytes belong to the next request.
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
    Error::new(Code::RequestTimeout).message("The head of the request didn't arrive in time.")
}

/// Encodes a response as HTTP/1.1, for errors that hyper doesn't send.
async fn encode_response(response: Response<Body>) -> Vec<u8> {
    let (head, body) = response.into_parts();
    // The body is already in memory.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures_util::stream;
    use http::Method;
    use schemars::SchemaGenerator;
    use tokio::io::duplex;

    use super::*;
    use crate::input::NoInput;
    use crate::reply::Reply;
    use crate::route::{Listener, State, route};
    use crate::server::testing::{AllowAll, TestState};

    /// A stream of this many pieces, with a pause before each.
    struct Stream(usize, Duration);

    impl Reply for Stream {
        fn into_response(self) -> Result<Response<Body>, Error> {
            let Self(pieces, pause) = self;
            let pieces = stream::unfold(0, move |count| async move {
                tokio::time::sleep(pause).await;
                (count < pieces)
                    .then_some((Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n")), count + 1))
            });
            Ok(Response::new(Body::from_stream(pieces)))
        }
        fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
            serde_json::Value::Null
        }
    }

    async fn slow(_: TestState, (): (), _: NoInput) -> Result<Stream, Error> {
        Ok(Stream(20, Duration::from_secs(10)))
    }

    async fn endless(_: TestState, (): (), _: NoInput) -> Result<Stream, Error> {
        Ok(Stream(usize::MAX, Duration::ZERO))
    }

    /// Opens a connection and sends a request; returns the client's side and the task that serves it.
    async fn ask(path: &str) -> (tokio::io::DuplexStream, tokio::task::JoinHandle<()>, impl Sized) {
        let state = TestState::new();
        let routes =
            [route(Method::GET, "/slow", AllowAll, slow), route(Method::GET, "/endless", AllowAll, endless)];
        let client = Client {
            peer: IpAddr::from([127, 0, 0, 1]),
            dispatcher: Dispatcher::new(&state, &routes, Listener::Public),
            timeouts: Timeouts::new(&state.frame().settings.server),
        };
        let (mut near, far) = duplex(1024);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let serving = tokio::spawn(client.serve(far, stopped));
        near.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        (near, serving, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn stream_may_take_longer_than_every_timeout() {
        let (mut client, serving, _stop) = ask("/slow").await;
        let (asked, mut text) = (Instant::now(), Vec::new());
        // The connection is closed once it has been idle for too long, after the stream.
        client.read_to_end(&mut text).await.unwrap();
        serving.await.unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches("data: 1").count(), 20, "{text}");
        assert!(text.ends_with("0\r\n\r\n"), "{text}");
        let seconds = asked.elapsed().as_secs();
        assert!((260..=271).contains(&seconds), "200 of the stream, 60 idle: {seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_of_a_stream_is_disconnected() {
        let (client, serving, _stop) = ask("/endless").await;
        let asked = Instant::now();
        serving.await.unwrap();
        let seconds = asked.elapsed().as_secs();
        assert!((30..=40).contains(&seconds), "{seconds}");
        drop(client);
    }
}
