//! The events of an upstream's stream: splits the pieces into events, counts tokens, and cleans the events
//! for the client.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::body::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::Ending;
use crate::answer::{Cleaned, StreamCleaner};
use crate::body::{UpstreamBody, wait_to_grow};
use crate::count::{Bounds, Totals};
use crate::memory::{LARGE_BYTES, grown};
use crate::sse::{Frame, Framer};
use catalog::OnDisconnect;
use kernel::shares::Permit;
use kernel::turns::Turns;

/// The number of bytes of events after which the rest of a piece waits for its turn. A connection hands over up
/// to 400 KiB at once, which take milliseconds.
const MAX_TURN_BYTES: usize = 16 << 10;
/// Maximum number of pieces that are joined, and the number of bytes from which no further piece is added.
const MAX_JOINED_PIECES: usize = 64;
const JOINED_BYTES: usize = 16 << 10;
/// Maximum time for which data that had already arrived is read after a client has left.
const MAX_HANDOVER: Duration = Duration::from_secs(1);
/// The number of empty reads of a connection after which all data that had arrived before was handed over.
/// The first read may be empty although data has just arrived, because tokio hasn't noticed the data.
const EMPTY_READS: u64 = 2;
/// Maximum number of pieces that are still queued in the task of a connection after these reads.
const MAX_HANDED_OVER: usize = 2;
/// The interval between checks for data that the task of the connection hasn't handed over yet.
const HANDOVER_CHECK: Duration = Duration::from_millis(2);

/// The reason for ending a stream if no memory is available for its next event.
pub(super) const NO_MEMORY: &str = "other calls leave no memory for its next event";

/// A reader of an upstream's stream, which returns the events for the client.
pub(super) struct Reader {
    pub(super) body: UpstreamBody,
    pub(super) framer: Framer,
    /// A large event that waits for its turn, because parsing takes a long time.
    pub(super) large: Option<Frame>,
    /// `true` if the framer has further events, which wait for their turn.
    pub(super) has_more: bool,
    /// The memory of large, incomplete events.
    pub(super) memory: Permit,
    /// `true` if reading waits for memory, not for the upstream.
    pub(super) waits_for_memory: bool,
    pub(super) turns: Arc<Turns>,
    pub(super) cleaner: StreamCleaner,
    /// The events that can be forwarded.
    pub(super) ready: Vec<Bytes>,
    /// `true` once an event can be forwarded. Comments don't count as events.
    pub(super) has_event: bool,
    /// The end of the stream, once it has arrived. Events that are ready precede it.
    pub(super) ending: Option<Ending>,
}

impl Reader {
    /// Reads the next piece of the body, with its events. No data is lost if this future is dropped while it
    /// waits.
    pub(super) async fn read(&mut self) {
        if self.waits_for_turn() {
            let turn = self.turns.take(self.memory.holder()).await;
            self.has_more = false;
            if let Some(frame) = self.large.take() {
                self.ending = self.take_event(&frame);
            }
            if self.ending.is_none() {
                self.ending = self.take_events();
            }
            return turn.end().await;
        }
        let held = self.framer.held_bytes();
        match held {
            0..LARGE_BYTES => self.memory.shrink_to(0),
            _ => {
                self.waits_for_memory = true;
                let taken = wait_to_grow(&mut self.memory, held).await;
                self.waits_for_memory = false;
                if taken.is_err() {
                    self.ending = Some(Ending::Cut(NO_MEMORY.to_owned()));
                    return;
                }
            }
        }
        let chunk = self.body.next_chunk().await;
        self.ending = self.take_chunk(chunk);
    }

    /// Returns `true` if events that have arrived wait for their turn.
    fn waits_for_turn(&self) -> bool {
        self.large.is_some() || self.has_more
    }

    /// Adds further pieces that have already arrived, so that they are written together: a write takes longer
    /// than all other work on an event.
    pub(super) async fn join_arrived(&mut self) {
        for _ in 1..MAX_JOINED_PIECES {
            let is_enough = self.ready.iter().map(Bytes::len).sum::<usize>() >= JOINED_BYTES;
            if is_enough || self.ending.is_some() || self.waits_for_turn() || self.framer.held_bytes() > 0 {
                return;
            }
            step_aside().await;
            let Some(chunk) = self.body.next_chunk().now_or_never() else { return };
            self.ending = self.take_chunk(chunk);
        }
    }

    /// Reads the data that has already arrived. It was generated, so it is charged. Data that is generated
    /// from now on isn't awaited. The task of the connection hands over one piece at a time, and may have to
    /// wait for its turn on a busy machine.
    pub(super) async fn read_arrived(&mut self) {
        let until = Instant::now() + MAX_HANDOVER;
        let drained = self.body.empty_reads() + EMPTY_READS;
        while self.ending.is_none() && self.body.empty_reads() < drained {
            let is_read = timeout(HANDOVER_CHECK, self.read()).await.is_ok();
            self.ready.clear();
            let has_nothing = !is_read && !self.waits_for_turn() && self.body.is_drained();
            if has_nothing || Instant::now() >= until {
                return;
            }
        }
        // The connection was found empty after the client left.
        for _ in 0..MAX_HANDED_OVER {
            while self.waits_for_turn() && self.ending.is_none() {
                if timeout_at(until, self.read()).await.is_err() {
                    return;
                }
            }
            if self.ending.is_some() {
                break;
            }
            let Some(chunk) = self.body.next_chunk().now_or_never() else { break };
            self.ending = self.take_chunk(chunk);
        }
        while self.waits_for_turn() && self.ending.is_none() {
            if timeout_at(until, self.read()).await.is_err() {
                break;
            }
        }
        self.ready.clear();
    }

    /// Returns `true` while a stream without a client must be read for its token counts.
    pub(super) fn must_read_on(&self, on_disconnect: OnDisconnect) -> bool {
        match on_disconnect {
            OnDisconnect::Count => !self.cleaner.is_counted(),
            OnDisconnect::Cancel => false,
            OnDisconnect::Drain => true,
        }
    }

    /// Returns the totals of the charge for the call if it ends here.
    pub(super) fn totals(&self, bounds: Bounds) -> Totals {
        self.cleaner.counter().totals(bounds)
    }

    /// Handles a piece with its events. Returns the end of the stream, if it has arrived.
    fn take_chunk(&mut self, chunk: Result<Option<Bytes>, String>) -> Option<Ending> {
        match chunk {
            Ok(Some(chunk)) => self.framer.push(chunk),
            Ok(None) => {
                let cut = || Ending::Cut("its stream ended without its last event".to_owned());
                return Some(self.cleaner.end_of_body().map_or_else(cut, Ending::Done));
            }
            Err(why) => return Some(Ending::Cut(why)),
        }
        self.take_events()
    }

    /// Handles the complete events, up to the first large event or the end of the turn.
    fn take_events(&mut self) -> Option<Ending> {
        let mut taken = 0;
        loop {
            if taken >= MAX_TURN_BYTES {
                self.has_more = true;
                return None;
            }
            let frame = match self.framer.next_event() {
                Ok(Some(frame)) => frame,
                Ok(None) => return None,
                Err(error) => return Some(Ending::Cut(error.to_string())),
            };
            if frame.bytes.len() >= LARGE_BYTES {
                self.large = Some(frame);
                return None;
            }
            taken += frame.bytes.len();
            let ending = self.take_event(&frame);
            if ending.is_some() {
                return ending;
            }
        }
    }

    fn take_event(&mut self, frame: &Frame) -> Option<Ending> {
        match self.cleaner.clean(frame) {
            Cleaned::Forward(bytes) => {
                self.has_event |= frame.data.is_some();
                self.ready.push(bytes);
            }
            Cleaned::Drop => {}
            Cleaned::Last(bytes) => return Some(Ending::Done(bytes)),
            Cleaned::Error(error) => return Some(Ending::Error(error)),
            Cleaned::Invalid => return Some(Ending::Cut("an event isn't JSON".to_owned())),
        }
        None
    }

    /// Takes the end of the stream, if it has arrived. A stream that exceeds its limits ends here.
    pub(super) fn take_ending(&mut self, bounds: Bounds) -> Option<Ending> {
        let exceeds = || {
            let exceeds = self.cleaner.counter().exceeds(bounds);
            exceeds.then(|| Ending::Cut("it continues beyond its token limit".to_owned()))
        };
        self.ending.take().or_else(exceeds)
    }

    /// Takes all events that can be forwarded, as one piece.
    pub(super) fn take_ready(&mut self) -> Option<Bytes> {
        // From now on, the memory of a large event is accounted to the piece.
        if self.large.is_none() {
            let held = self.framer.held_bytes();
            self.memory.shrink_to(if held < LARGE_BYTES { 0 } else { grown(held) });
        }
        match self.ready.len() {
            0 => None,
            1 => self.ready.pop(),
            _ => {
                let joined = self.ready.concat();
                self.ready.clear();
                Some(joined.into())
            }
        }
    }
}

/// Yields to other ready tasks: the task of a connection hands over one piece at a time.
async fn step_aside() {
    let mut has_stepped = false;
    poll_fn(|cx| {
        if has_stepped {
            return Poll::Ready(());
        }
        has_stepped = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kernel::shares::{Holder, SharedBound};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    use super::*;
    use crate::body::tests::served;
    use crate::dialect::Dialect;
    use crate::operation::Operation;
    use crate::request::{Injection, ModelRequest, Target, TargetOptions};
    use catalog::UpstreamKind;

    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    fn event(tokens: usize) -> String {
        let data = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}}}}],\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":{tokens}}}}}\n\n"
        );
        format!("{:x}\r\n{data}\r\n", data.len())
    }

    fn reader(body: UpstreamBody) -> Reader {
        let request = br#"{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}"#;
        let request = ModelRequest::read(Operation::ChatCompletions, &Bytes::from_static(request)).unwrap();
        let target = Target {
            dialect: Dialect::of(UpstreamKind::Vllm),
            model: "m",
            max_completion_tokens: 100,
            inject: Injection::default(),
            options: TargetOptions::default(),
        };
        Reader {
            body,
            framer: Framer::new(),
            large: None,
            has_more: false,
            memory: SharedBound::new(1 << 30).none(Holder::Trusted),
            waits_for_memory: false,
            turns: Turns::per_processor(),
            cleaner: StreamCleaner::new(&request, &target, Vec::new()),
            ready: Vec::new(),
            has_event: false,
            ending: None,
        }
    }

    fn tokens(reader: &Reader) -> i64 {
        reader.totals(Bounds::new(1_000_000, 1_000_000)).completion_tokens
    }

    #[tokio::test]
    async fn what_is_generated_after_a_client_left_is_not_waited_for() {
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        let mut reader = reader(UpstreamBody::Endless(Bytes::from(event), 0));
        reader.read().await;
        reader.read_arrived().await;
        assert!(tokens(&reader) < 10, "{} events were read", tokens(&reader));
    }

    /// A connection may hand over thousands of events at once. Other tasks run in between.
    #[tokio::test]
    async fn large_piece_is_read_in_turns() {
        const EVENTS: usize = 4_000;
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        let in_a_turn = MAX_TURN_BYTES.div_ceil(event.len());
        let mut reader = reader(UpstreamBody::Endless(Bytes::from(event.repeat(EVENTS)), 0));
        let others = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&others);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut before = 0;
        while before < EVENTS {
            reader.read().await;
            reader.join_arrived().await;
            let now = usize::try_from(tokens(&reader)).unwrap();
            assert!(now - before <= in_a_turn, "{} events at once", now - before);
            before = now;
        }
        other.abort();
        assert_eq!(before, EVENTS);
        let others = others.load(Ordering::Relaxed);
        assert!(others >= EVENTS / in_a_turn - 1, "other tasks ran {others} times");
    }

    #[tokio::test]
    async fn what_has_arrived_when_a_client_leaves_is_read() {
        const ARRIVED: usize = 1_000;
        let (written, is_written) = tokio::sync::oneshot::channel();
        let body = served(async move |mut connection: TcpStream| {
            connection.write_all(HEAD.as_bytes()).await.unwrap();
            let all: String = (1..=ARRIVED).map(event).collect();
            connection.write_all(all.as_bytes()).await.unwrap();
            written.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        let mut reader = reader(body.await);
        reader.read().await;
        is_written.await.unwrap();
        reader.read_arrived().await;
        assert_eq!(tokens(&reader), 1_000);
    }
}
