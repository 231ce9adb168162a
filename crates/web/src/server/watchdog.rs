//! The state of a connection and the time when it began, with which one timer per connection finds slow
//! clients.
//!
//! The connection's stream and its service record events, both on the same task. A request that arrives in
//! one piece and gets its response immediately needs neither the clock nor a timer. A time is recorded only
//! when the connection has to wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::head_scan::HeadScan;
use crate::settings;
use kernel::io_turns::IoTurn;

/// The timeouts of a client.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The time for the head of a request, or a TLS handshake.
    pub head: Duration,
    /// The time for reading a response.
    pub write: Duration,
    /// The time for sending the next request.
    pub idle: Duration,
}

impl Timeouts {
    pub fn new(config: &settings::Server) -> Self {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Self {
            head: seconds(config.head_timeout_seconds),
            write: seconds(config.write_timeout_seconds),
            idle: seconds(config.idle_timeout_seconds),
        }
    }

    /// Returns the shortest timeout, which is also the interval of the checks.
    fn shortest(&self) -> Duration {
        self.head.min(self.write).min(self.idle)
    }
}

/// No request has begun: the connection is new, or the last response is complete.
const IDLE: u8 = 0;
/// The head of a request is arriving.
const HEAD: u8 = 1;
/// A request is being handled, or its response is being written.
const BUSY: u8 = 2;

/// No time was recorded.
const UNSET: u64 = u64::MAX;

/// The state of a connection, shared by its stream and its service.
#[derive(Debug)]
pub struct Watchdog {
    opened: Instant,
    state: AtomicU8,
    /// The start of the wait for the rest of a head, in milliseconds since the connection was opened.
    head_since_ms: AtomicU64,
    /// The start of the wait for the client to read a response, in milliseconds since the connection was
    /// opened.
    write_since_ms: AtomicU64,
    /// The number of requests; wraps around.
    requests: AtomicU32,
    /// `true` while the server is stopping.
    stopping: AtomicBool,
    /// `true` if the arriving head was scanned from its first byte.
    is_scanned: AtomicBool,
    /// `true` if the arriving head has a line `Content-Length`.
    has_content_length: AtomicBool,
}

/// The result of scanning the head of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadInfo {
    /// The head was scanned from its first byte.
    Scanned {
        /// `true` if it had a line `Content-Length`.
        has_content_length: bool,
    },
    /// The head may have arrived in part with the previous request, so it wasn't scanned completely.
    Pipelined,
}

/// The result of a check for a slow client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// The client is on time; check again at this time.
    CheckAt(Instant),
    /// Part of a head has arrived, and the rest is overdue.
    SlowHead,
    /// No request arrives, or the client doesn't read its response. Contains the reason.
    TimedOut(&'static str),
}

/// The idle time as seen by the checks, because the beginning of an idle time isn't recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleState {
    requests: u32,
    since: Option<Instant>,
    /// `true` if the last check found the idle timeout exceeded and only granted [`IDLE_GRACE`].
    is_in_grace: bool,
}

/// The time for which a connection is still read after its idle timeout. Its next request may already have
/// arrived, and a busy machine may report the timer first.
const IDLE_GRACE: Duration = Duration::from_millis(100);

impl Watchdog {
    /// Returns the watchdog of a connection that was just opened.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            state: AtomicU8::new(IDLE),
            head_since_ms: AtomicU64::new(UNSET),
            write_since_ms: AtomicU64::new(UNSET),
            requests: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            is_scanned: AtomicBool::new(true),
            has_content_length: AtomicBool::new(false),
        })
    }

    /// Records that a request has arrived.
    pub fn begin_request(&self) -> HeadInfo {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(BUSY, Ordering::Relaxed);
        let count = self.requests.load(Ordering::Relaxed);
        self.requests.store(count.wrapping_add(1), Ordering::Relaxed);
        if state == HEAD && self.is_scanned.load(Ordering::Relaxed) {
            HeadInfo::Scanned { has_content_length: self.has_content_length.load(Ordering::Relaxed) }
        } else {
            HeadInfo::Pipelined
        }
    }

    /// Records that the response has been written, or dropped.
    fn end_response(&self) {
        self.state.store(IDLE, Ordering::Relaxed);
    }

    /// Records that the server is stopping: the next response is the last one.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the time of the first check.
    pub fn first_check_at(&self, timeouts: &Timeouts) -> Instant {
        self.opened + timeouts.shortest()
    }

    /// Checks whether the client has exceeded a timeout.
    pub fn check(&self, timeouts: &Timeouts, idle: &mut IdleState, now: Instant) -> Liveness {
        let state = self.state.load(Ordering::Relaxed);
        let requests = self.requests.load(Ordering::Relaxed);
        let at = |ms: u64| self.opened + Duration::from_millis(ms);
        let started_at =
            |moment: &AtomicU64| Some(moment.load(Ordering::Relaxed)).filter(|ms| *ms != UNSET).map(at);
        let due = if let Some(since) = started_at(&self.write_since_ms) {
            Some((since + timeouts.write, Liveness::TimedOut("it does not read its response")))
        } else if state == HEAD {
            started_at(&self.head_since_ms).map(|since| (since + timeouts.head, Liveness::SlowHead))
        } else if state == IDLE && requests == 0 {
            Some((self.opened + timeouts.head, Liveness::TimedOut("it sends nothing")))
        } else if state == IDLE {
            if idle.requests != requests || idle.since.is_none() {
                *idle = IdleState { requests, since: Some(now), ..*idle };
            }
            idle.since
                .map(|since| (since + timeouts.idle, Liveness::TimedOut("it has been idle for too long")))
        } else {
            None
        };
        let next = now + timeouts.shortest();
        let is_due = due.is_some_and(|(due, _)| due <= now);
        let had_grace = std::mem::replace(&mut idle.is_in_grace, is_due);
        match due {
            Some((_, Liveness::TimedOut(_))) if is_due && !had_grace => Liveness::CheckAt(now + IDLE_GRACE),
            Some((_, finding)) if is_due => finding,
            Some((due, _)) => Liveness::CheckAt(due.min(next)),
            None => Liveness::CheckAt(next),
        }
    }

    fn start_timer(&self, moment: &AtomicU64) {
        if moment.load(Ordering::Relaxed) == UNSET {
            let ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(UNSET);
            moment.store(ms, Ordering::Relaxed);
        }
    }

    /// Records that bytes were read. Returns `true` if a head begins with these bytes.
    fn on_read(&self) -> bool {
        let begins = self.state.load(Ordering::Relaxed) == IDLE;
        if begins {
            self.head_since_ms.store(UNSET, Ordering::Relaxed);
            self.state.store(HEAD, Ordering::Relaxed);
        }
        begins
    }

    fn on_read_pending(&self) {
        if self.state.load(Ordering::Relaxed) == HEAD {
            self.start_timer(&self.head_since_ms);
        }
    }

    fn on_flushed(&self) {
        self.write_since_ms.store(UNSET, Ordering::Relaxed);
    }
}

/// A stream that records its events in a [`Watchdog`].
#[derive(Debug)]
pub struct WatchedStream<S> {
    stream: S,
    watchdog: Arc<Watchdog>,
    head: HeadScan,
    /// `true` if bytes after the last head were read, so that the next head may begin in them.
    has_read_ahead: bool,
    /// `true` once the client has closed its side.
    ended: bool,
    read_turn: IoTurn,
    write_turn: IoTurn,
    /// The number of the request whose response `write_turn` covers.
    answered: u32,
}

impl<S> WatchedStream<S> {
    pub fn new(stream: S, watchdog: Arc<Watchdog>) -> Self {
        Self {
            stream,
            watchdog,
            head: HeadScan::default(),
            has_read_ahead: false,
            ended: false,
            read_turn: IoTurn::default(),
            write_turn: IoTurn::default(),
            answered: 0,
        }
    }

    fn scan(&mut self, bytes: &[u8]) {
        if self.watchdog.on_read() {
            self.head = HeadScan::default();
            let has_read_ahead = std::mem::take(&mut self.has_read_ahead);
            self.watchdog.is_scanned.store(!has_read_ahead, Ordering::Relaxed);
        }
        if self.watchdog.state.load(Ordering::Relaxed) == HEAD {
            let rest = self.head.scan(bytes);
            self.has_read_ahead |= !rest.is_empty();
            self.watchdog.has_content_length.store(self.head.has_content_length(), Ordering::Relaxed);
        } else {
            self.has_read_ahead = true;
        }
    }

    /// Returns the stream, unless the client has closed its side.
    pub fn into_open_stream(self) -> Option<S> {
        if self.ended { None } else { Some(self.stream) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // The turn is over. The client isn't slow, so no timer is started.
        if self.read_turn.is_over(cx) {
            return Poll::Pending;
        }
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, into);
        match &outcome {
            Poll::Pending => {
                self.read_turn.end();
                self.watchdog.on_read_pending();
            }
            Poll::Ready(Ok(())) => match into.filled().get(before..) {
                Some(bytes) if !bytes.is_empty() => {
                    self.read_turn.note(bytes.len());
                    self.scan(bytes);
                }
                _ => self.ended = true,
            },
            Poll::Ready(Err(_)) => self.ended = true,
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        // Many small responses aren't a large transfer, because the task waits for a request before each.
        let requests = self.watchdog.requests.load(Ordering::Relaxed);
        if requests != self.answered {
            self.answered = requests;
            self.write_turn.end();
        }
        if self.write_turn.is_over(cx) {
            return Poll::Pending;
        }
        let bytes = self.write_turn.part(bytes);
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        match &outcome {
            Poll::Pending => {
                self.write_turn.end();
                self.watchdog.start_timer(&self.watchdog.write_since_ms);
            }
            Poll::Ready(Ok(written)) => self.write_turn.note(*written),
            Poll::Ready(Err(_)) => self.ended = true,
        }
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        match &outcome {
            Poll::Pending => self.watchdog.start_timer(&self.watchdog.write_since_ms),
            Poll::Ready(_) => self.watchdog.on_flushed(),
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The maximum number of bytes in a frame of a response. hyper copies a whole frame, no matter how slowly its
/// client reads, and requests the next frame as soon as it has room.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// The body of a response, whose end is the end of the request. A stream may take any time while the client
/// reads it.
pub struct WatchedBody {
    body: Body,
    /// The rest of a frame that was too large.
    rest: Bytes,
    watchdog: Arc<Watchdog>,
}

impl WatchedBody {
    pub fn new(body: Body, watchdog: &Arc<Watchdog>) -> Self {
        Self { body, rest: Bytes::new(), watchdog: Arc::clone(watchdog) }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(MAX_FRAME_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.watchdog.end_response();
    }
}

#[cfg(test)]
mod tests;
