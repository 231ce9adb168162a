//! Where a connection stands, and since when, so that one timer a connection finds the clients that are too slow.
//!
//! The connection's stream and the service note what happens, all on one task. A request that comes in one piece and whose
//! answer goes out at once reads no clock and touches no timer: a moment is only noted when something has to be waited for.

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

/// No moment was noted.
const NEVER: u64 = u64::MAX;

/// What has become of a connection so far.
#[derive(Debug)]
pub struct Watch {
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
    names_length: AtomicBool,
}

/// How the head of a request was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// From its first byte, and whether it names the length of the body.
    Seen {
        /// Whether there was a line `Content-Length`.
        names_length: bool,
    },
    /// It came along with what went before.
    Unseen,
}

/// What a look at a connection has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// All is well; look again then.
    LookAgain(Instant),
    /// Part of a head came, and the rest doesn't.
    SlowHead,
    /// Nothing comes, or the client doesn't take its answer.
    Dead(&'static str),
}

/// The quiet that the last look has met, since nobody notes when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet {
    requests: u32,
    since: Option<Instant>,
    /// Whether the last look would have closed the connection.
    is_last_chance: bool,
}

/// How long a connection is still read after it was found to be idle: the next request may be here, and a busy machine tells
/// the time before it tells of that.
const LAST_CHANCE: Duration = Duration::from_millis(100);

impl Watch {
    /// Of a connection that was just opened.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            state: AtomicU8::new(FRESH),
            head_since_ms: AtomicU64::new(NEVER),
            write_since_ms: AtomicU64::new(NEVER),
            requests: AtomicU32::new(0),
            refused: AtomicU16::new(0),
            stopping: AtomicBool::new(false),
            names_length: AtomicBool::new(false),
        })
    }

    /// A request has come.
    pub fn begin(&self) -> Head {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(BUSY, Ordering::Relaxed);
        let count = self.requests.load(Ordering::Relaxed);
        self.requests.store(count.wrapping_add(1), Ordering::Relaxed);
        match state {
            HEAD => Head::Seen { names_length: self.names_length.load(Ordering::Relaxed) },
            _ => Head::Unseen,
        }
    }

    /// Its answer is made.
    pub fn answered(&self) {
        self.state.store(ANSWERED, Ordering::Relaxed);
    }

    /// The server stops: the next answer is the last one.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server stops.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// When to look first.
    pub fn first_look(&self, timeouts: &Timeouts) -> Instant {
        self.opened + timeouts.shortest()
    }

    /// What hyper would have answered to what came, if it wasn't a request.
    pub fn refused(&self) -> Option<u16> {
        Some(self.refused.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }

    /// Looks whether the client keeps us waiting for too long.
    pub fn look(&self, timeouts: &Timeouts, quiet: &mut Quiet, now: Instant) -> Finding {
        let state = self.state.load(Ordering::Relaxed);
        let at = |ms: u64| self.opened + Duration::from_millis(ms);
        let noted =
            |moment: &AtomicU64| Some(moment.load(Ordering::Relaxed)).filter(|ms| *ms != NEVER).map(at);
        let due = if let Some(since) = noted(&self.write_since_ms) {
            Some((since + timeouts.write, Finding::Dead("it does not take its answer")))
        } else if state == FRESH {
            Some((self.opened + timeouts.head, Finding::Dead("it says nothing")))
        } else if state == HEAD {
            noted(&self.head_since_ms).map(|since| (since + timeouts.head, Finding::SlowHead))
        } else if state == IDLE {
            let requests = self.requests.load(Ordering::Relaxed);
            if quiet.requests != requests || quiet.since.is_none() {
                *quiet = Quiet { requests, since: Some(now), ..*quiet };
            }
            quiet.since.map(|since| (since + timeouts.idle, Finding::Dead("it has been idle for long")))
        } else {
            None
        };
        let next = now + timeouts.shortest();
        let is_due = due.is_some_and(|(due, _)| due <= now);
        let had_its_chance = std::mem::replace(&mut quiet.is_last_chance, is_due);
        match due {
            Some((_, Finding::Dead(_))) if is_due && !had_its_chance => Finding::LookAgain(now + LAST_CHANCE),
            Some((_, finding)) if is_due => finding,
            Some((due, _)) => Finding::LookAgain(due.min(next)),
            None => Finding::LookAgain(next),
        }
    }

    fn note(&self, moment: &AtomicU64) {
        if moment.load(Ordering::Relaxed) == NEVER {
            let ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(NEVER);
            moment.store(ms, Ordering::Relaxed);
        }
    }

    /// Whether this is the beginning of a head.
    fn has_read(&self) -> bool {
        let begins = matches!(self.state.load(Ordering::Relaxed), FRESH | IDLE);
        if begins {
            self.head_since_ms.store(NEVER, Ordering::Relaxed);
            self.state.store(HEAD, Ordering::Relaxed);
        }
        begins
    }

    fn waits_to_read(&self) {
        if self.state.load(Ordering::Relaxed) == HEAD {
            self.note(&self.head_since_ms);
        }
    }

    fn has_flushed(&self) {
        self.write_since_ms.store(NEVER, Ordering::Relaxed);
        if self.state.load(Ordering::Relaxed) == ANSWERED {
            self.state.store(IDLE, Ordering::Relaxed);
        }
    }

    /// Whether these are hyper's own words: nobody else answers what isn't a request. They have no body, so another answer
    /// takes their place once hyper is done.
    fn refuses(&self, bytes: &[u8]) -> bool {
        if self.refused().is_some() {
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

/// A stream that tells its watch what happens.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    watch: Arc<Watch>,
    head: HeadScan,
    /// Whether the client has ended its side.
    ended: bool,
}

impl<S> Watched<S> {
    /// Nothing has happened on the stream yet.
    pub fn new(stream: S, watch: Arc<Watch>) -> Self {
        Self { stream, watch, head: HeadScan::default(), ended: false }
    }

    fn scan(&mut self, bytes: &[u8]) {
        if self.watch.has_read() {
            self.head = HeadScan::default();
        }
        if self.watch.state.load(Ordering::Relaxed) == HEAD {
            let names_length = self.head.see(bytes);
            self.watch.names_length.store(names_length, Ordering::Relaxed);
        }
    }

    /// The stream, unless its client is gone.
    pub fn into_open_stream(self) -> Option<S> {
        if self.ended { None } else { Some(self.stream) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, into);
        match &outcome {
            Poll::Pending => self.watch.waits_to_read(),
            Poll::Ready(Ok(())) => match into.filled().get(before..) {
                Some(bytes) if !bytes.is_empty() => self.scan(bytes),
                _ => self.ended = true,
            },
            Poll::Ready(Err(_)) => self.ended = true,
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.watch.refuses(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        match &outcome {
            Poll::Pending => self.watch.note(&self.watch.write_since_ms),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(_)) => self.ended = true,
        }
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        match &outcome {
            Poll::Pending => self.watch.note(&self.watch.write_since_ms),
            Poll::Ready(_) => self.watch.has_flushed(),
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.watch.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Timeouts = Timeouts {
        head: Duration::from_secs(10),
        body: Duration::from_secs(99),
        write: Duration::from_secs(30),
        idle: Duration::from_secs(150),
    };

    /// Looks as the connection does, and says after how many seconds it is given up, or that it is not within an hour.
    fn ends_after(watch: &Watch, quiet: &mut Quiet) -> (u64, Finding) {
        let mut at = watch.first_look(&PATIENCE);
        while at < watch.opened + Duration::from_secs(3_600) {
            match watch.look(&PATIENCE, quiet, at) {
                Finding::LookAgain(next) => {
                    assert!(next > at && next <= at + PATIENCE.shortest());
                    at = next;
                }
                finding => return ((at - watch.opened).as_secs(), finding),
            }
        }
        (3_600, Finding::LookAgain(at))
    }

    fn looked(watch: &Watch) -> (u64, Finding) {
        ends_after(watch, &mut Quiet::default())
    }

    #[test]
    fn each_state_has_its_time() {
        let watch = Watch::new();
        assert_eq!(looked(&watch), (10, Finding::Dead("it says nothing")));
        watch.has_read();
        watch.waits_to_read();
        assert_eq!(looked(&watch), (10, Finding::SlowHead));
        watch.begin();
        assert_eq!(looked(&watch).0, 3_600, "a request takes what it takes");
        watch.waits_to_read();
        watch.answered();
        watch.note(&watch.write_since_ms);
        assert_eq!(looked(&watch), (30, Finding::Dead("it does not take its answer")));
        watch.has_flushed();
        // Noticed at the first look, ten seconds in.
        assert_eq!(looked(&watch), (160, Finding::Dead("it has been idle for long")));
        watch.has_read();
        assert_eq!(looked(&watch).0, 3_600, "nothing is waited for yet");
        watch.waits_to_read();
        assert_eq!(looked(&watch), (10, Finding::SlowHead), "the second head has its own beginning");
    }

    #[test]
    fn a_request_between_two_looks_starts_idleness_over() {
        let watch = Watch::new();
        let mut quiet = Quiet::default();
        let request = || {
            watch.has_read();
            watch.begin();
            watch.answered();
            watch.has_flushed();
        };
        let at = |seconds| watch.opened + Duration::from_secs(seconds);
        request();
        for seconds in [10, 100, 159] {
            assert!(matches!(watch.look(&PATIENCE, &mut quiet, at(seconds)), Finding::LookAgain(_)));
        }
        request();
        assert!(matches!(watch.look(&PATIENCE, &mut quiet, at(161)), Finding::LookAgain(_)));
        assert!(matches!(watch.look(&PATIENCE, &mut quiet, at(310)), Finding::LookAgain(_)));
        // What has come by now is read before the next look.
        let again = watch.look(&PATIENCE, &mut quiet, at(311));
        assert_eq!(again, Finding::LookAgain(at(311) + LAST_CHANCE));
        request();
        assert!(matches!(watch.look(&PATIENCE, &mut quiet, at(312)), Finding::LookAgain(_)));
        assert!(matches!(watch.look(&PATIENCE, &mut quiet, at(462)), Finding::LookAgain(_)));
        assert!(matches!(watch.look(&PATIENCE, &mut quiet, at(463)), Finding::Dead(_)));
    }

    #[test]
    fn only_words_without_a_request_are_hyper_s_own() {
        let watch = Watch::new();
        let refusal = b"HTTP/1.1 431 Request Header Fields Too Large\r\n";
        watch.has_read();
        watch.begin();
        assert!(!watch.refuses(refusal), "a handler may say so");
        watch.answered();
        assert!(!watch.refuses(refusal));
        watch.has_flushed();
        assert!(!watch.refuses(b"{\"rest of\": \"an answer\"}"));
        assert_eq!(watch.refused(), None);
        watch.has_read();
        assert!(watch.refuses(refusal) && watch.refuses(b"content-length: 0"));
        assert_eq!(watch.refused(), Some(431));
    }
}
