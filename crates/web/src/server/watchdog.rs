//! Where a connection stands, and since when, so that one timer a connection finds the clients that are too slow.
//!
//! The connection's stream and the service note what happens, all on one task. A request that comes in one piece and whose
//! answer goes out at once reads no clock and touches no timer: a moment is only started_at when something has to be waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::head_scan::HeadScan;
use crate::settings;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the head of a request, or a handshake.
    pub head: Duration,
    /// For a body.
    pub body: Duration,
    /// For taking an answer.
    pub write: Duration,
    /// For coming with the next request.
    pub idle: Duration,
}

impl Timeouts {
    /// As configured.
    pub fn new(config: &settings::Server) -> Self {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Self {
            head: seconds(config.head_timeout_seconds),
            body: seconds(config.body_timeout_seconds),
            write: seconds(config.write_timeout_seconds),
            idle: seconds(config.idle_timeout_seconds),
        }
    }

    /// Who looks this often is never late.
    fn shortest(&self) -> Duration {
        self.head.min(self.write).min(self.idle)
    }
}

/// Nothing has come since the connection was opened.
const FRESH: u8 = 0;
/// The head of a request is on its way.
const HEAD: u8 = 1;
/// A request is being answered.
const BUSY: u8 = 2;
/// The answer is made, and on its way.
const ANSWERED: u8 = 3;
/// The answer has left.
const IDLE: u8 = 4;

/// No moment was started_at.
const UNSET: u64 = u64::MAX;

/// What has become of a connection so far.
#[derive(Debug)]
pub struct Watchdog {
    opened: Instant,
    state: AtomicU8,
    /// Since when the rest of a head is waited for, in milliseconds from the start.
    head_since_ms: AtomicU64,
    /// Since when the client is waited for to take an answer.
    write_since_ms: AtomicU64,
    /// Counts requests; around its end it starts over.
    requests: AtomicU32,
    /// What hyper would answer to something that isn't a request; 0: nothing.
    refused: AtomicU16,
    /// Whether the server stops.
    stopping: AtomicBool,
    /// Whether the head that is coming names the length of the body.
    has_content_length: AtomicBool,
}

/// How the head of a request was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadInfo {
    /// From its first byte, and whether it names the length of the body.
    Scanned {
        /// Whether there was a line `Content-Length`.
        has_content_length: bool,
    },
    /// It came along with what went before.
    Pipelined,
}

/// What a look at a connection has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// All is well; look again then.
    CheckAt(Instant),
    /// Part of a head came, and the rest doesn't.
    SlowHead,
    /// Nothing comes, or the client doesn't take its answer.
    TimedOut(&'static str),
}

/// The idle that the last look has met, since nobody notes when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleState {
    requests: u32,
    since: Option<Instant>,
    /// Whether the last look would have closed the connection.
    is_in_grace: bool,
}

/// How long a connection is still read after it was found to be idle: the next request may be here, and a busy machine tells
/// the time before it tells of that.
const IDLE_GRACE: Duration = Duration::from_millis(100);

impl Watchdog {
    /// Of a connection that was just opened.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            state: AtomicU8::new(FRESH),
            head_since_ms: AtomicU64::new(UNSET),
            write_since_ms: AtomicU64::new(UNSET),
            requests: AtomicU32::new(0),
            refused: AtomicU16::new(0),
            stopping: AtomicBool::new(false),
            has_content_length: AtomicBool::new(false),
        })
    }

    /// A request has come.
    pub fn begin_request(&self) -> HeadInfo {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(BUSY, Ordering::Relaxed);
        let count = self.requests.load(Ordering::Relaxed);
        self.requests.store(count.wrapping_add(1), Ordering::Relaxed);
        match state {
            HEAD => HeadInfo::Scanned { has_content_length: self.has_content_length.load(Ordering::Relaxed) },
            _ => HeadInfo::Pipelined,
        }
    }

    /// Its answer is made.
    pub fn response_ready(&self) {
        self.state.store(ANSWERED, Ordering::Relaxed);
    }

    /// The server stops: the next answer is the last one.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server stops.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// When to look first.
    pub fn first_check_at(&self, timeouts: &Timeouts) -> Instant {
        self.opened + timeouts.shortest()
    }

    /// What hyper would have answered to what came, if it wasn't a request.
    pub fn refusal_status(&self) -> Option<u16> {
        Some(self.refused.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }

    /// Looks whether the client keeps us waiting for too long.
    pub fn check(&self, timeouts: &Timeouts, idle: &mut IdleState, now: Instant) -> Liveness {
        let state = self.state.load(Ordering::Relaxed);
        let at = |ms: u64| self.opened + Duration::from_millis(ms);
        let started_at =
            |moment: &AtomicU64| Some(moment.load(Ordering::Relaxed)).filter(|ms| *ms != UNSET).map(at);
        let due = if let Some(since) = started_at(&self.write_since_ms) {
            Some((since + timeouts.write, Liveness::TimedOut("it does not take its answer")))
        } else if state == FRESH {
            Some((self.opened + timeouts.head, Liveness::TimedOut("it says nothing")))
        } else if state == HEAD {
            started_at(&self.head_since_ms).map(|since| (since + timeouts.head, Liveness::SlowHead))
        } else if state == IDLE {
            let requests = self.requests.load(Ordering::Relaxed);
            if idle.requests != requests || idle.since.is_none() {
                *idle = IdleState { requests, since: Some(now), ..*idle };
            }
            idle.since.map(|since| (since + timeouts.idle, Liveness::TimedOut("it has been idle for long")))
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

    /// Whether this is the beginning of a head.
    fn on_read(&self) -> bool {
        let begins = matches!(self.state.load(Ordering::Relaxed), FRESH | IDLE);
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
        if self.state.load(Ordering::Relaxed) == ANSWERED {
            self.state.store(IDLE, Ordering::Relaxed);
        }
    }

    /// Whether these are hyper's own words: nobody else answers what isn't a request. They have no body, so another answer
    /// takes their place once hyper is done.
    fn intercept_refusal(&self, bytes: &[u8]) -> bool {
        if self.refusal_status().is_some() {
            return true;
        }
        // The second look is for the day on which an answer leaves in parts.
        if !matches!(self.state.load(Ordering::Relaxed), HEAD | IDLE) || !bytes.starts_with(b"HTTP/1.") {
            return false;
        }
        let status = bytes.get(9..12).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        self.refused.store(status.unwrap_or(400), Ordering::Relaxed);
        true
    }
}

/// A stream that tells its watchdog what happens.
#[derive(Debug)]
pub struct WatchedStream<S> {
    stream: S,
    watchdog: Arc<Watchdog>,
    head: HeadScan,
    /// Whether the client has ended its side.
    ended: bool,
}

impl<S> WatchedStream<S> {
    /// Nothing has happened on the stream yet.
    pub fn new(stream: S, watchdog: Arc<Watchdog>) -> Self {
        Self { stream, watchdog, head: HeadScan::default(), ended: false }
    }

    fn scan(&mut self, bytes: &[u8]) {
        if self.watchdog.on_read() {
            self.head = HeadScan::default();
        }
        if self.watchdog.state.load(Ordering::Relaxed) == HEAD {
            let has_content_length = self.head.scan(bytes);
            self.watchdog.has_content_length.store(has_content_length, Ordering::Relaxed);
        }
    }

    /// The stream, unless its client is gone.
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
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, into);
        match &outcome {
            Poll::Pending => self.watchdog.on_read_pending(),
            Poll::Ready(Ok(())) => match into.filled().get(before..) {
                Some(bytes) if !bytes.is_empty() => self.scan(bytes),
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
        if self.watchdog.intercept_refusal(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        match &outcome {
            Poll::Pending => self.watchdog.start_timer(&self.watchdog.write_since_ms),
            Poll::Ready(Ok(_)) => {}
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
        if self.watchdog.refusal_status().is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        head: Duration::from_secs(10),
        body: Duration::from_secs(99),
        write: Duration::from_secs(30),
        idle: Duration::from_secs(150),
    };

    /// Looks as the connection does, and says after how many seconds it is given up, or that it is not within an hour.
    fn timeout_of(watchdog: &Watchdog, idle: &mut IdleState) -> (u64, Liveness) {
        let mut at = watchdog.first_check_at(&TIMEOUTS);
        while at < watchdog.opened + Duration::from_secs(3_600) {
            match watchdog.check(&TIMEOUTS, idle, at) {
                Liveness::CheckAt(next) => {
                    assert!(next > at && next <= at + TIMEOUTS.shortest());
                    at = next;
                }
                finding => return ((at - watchdog.opened).as_secs(), finding),
            }
        }
        (3_600, Liveness::CheckAt(at))
    }

    fn check(watchdog: &Watchdog) -> (u64, Liveness) {
        timeout_of(watchdog, &mut IdleState::default())
    }

    #[test]
    fn each_state_has_its_time() {
        let watchdog = Watchdog::new();
        assert_eq!(check(&watchdog), (10, Liveness::TimedOut("it says nothing")));
        watchdog.on_read();
        watchdog.on_read_pending();
        assert_eq!(check(&watchdog), (10, Liveness::SlowHead));
        watchdog.begin_request();
        assert_eq!(check(&watchdog).0, 3_600, "a request takes what it takes");
        watchdog.on_read_pending();
        watchdog.response_ready();
        watchdog.start_timer(&watchdog.write_since_ms);
        assert_eq!(check(&watchdog), (30, Liveness::TimedOut("it does not take its answer")));
        watchdog.on_flushed();
        // Noticed at the first look, ten seconds in.
        assert_eq!(check(&watchdog), (160, Liveness::TimedOut("it has been idle for long")));
        watchdog.on_read();
        assert_eq!(check(&watchdog).0, 3_600, "nothing is waited for yet");
        watchdog.on_read_pending();
        assert_eq!(check(&watchdog), (10, Liveness::SlowHead), "the second head has its own beginning");
    }

    #[test]
    fn a_request_between_two_looks_starts_idleness_over() {
        let watchdog = Watchdog::new();
        let mut idle = IdleState::default();
        let request = || {
            watchdog.on_read();
            watchdog.begin_request();
            watchdog.response_ready();
            watchdog.on_flushed();
        };
        let at = |seconds| watchdog.opened + Duration::from_secs(seconds);
        request();
        for seconds in [10, 100, 159] {
            assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(seconds)), Liveness::CheckAt(_)));
        }
        request();
        assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(161)), Liveness::CheckAt(_)));
        assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(310)), Liveness::CheckAt(_)));
        // What has come by now is read before the next look.
        let again = watchdog.check(&TIMEOUTS, &mut idle, at(311));
        assert_eq!(again, Liveness::CheckAt(at(311) + IDLE_GRACE));
        request();
        assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(312)), Liveness::CheckAt(_)));
        assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(462)), Liveness::CheckAt(_)));
        assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(463)), Liveness::TimedOut(_)));
    }

    #[test]
    fn only_words_without_a_request_are_hyper_s_own() {
        let watchdog = Watchdog::new();
        let refusal = b"HTTP/1.1 431 Request Header Fields Too Large\r\n";
        watchdog.on_read();
        watchdog.begin_request();
        assert!(!watchdog.intercept_refusal(refusal), "a handler may say so");
        watchdog.response_ready();
        assert!(!watchdog.intercept_refusal(refusal));
        watchdog.on_flushed();
        assert!(!watchdog.intercept_refusal(b"{\"rest of\": \"an answer\"}"));
        assert_eq!(watchdog.refusal_status(), None);
        watchdog.on_read();
        assert!(watchdog.intercept_refusal(refusal) && watchdog.intercept_refusal(b"content-length: 0"));
        assert_eq!(watchdog.refusal_status(), Some(431));
    }
}
