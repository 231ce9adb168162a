//! A stream of events from an upstream to a client: reads, counts, cleans and forwards the events, and
//! settles the call at the end.

mod reader;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::admission::Admitted;
use crate::answer::StreamCleaner;
use crate::backlog::{Backlog, ClientLeft, Pace};
use crate::body::UpstreamBody;
use crate::count::Bounds;
use crate::counters::Outcome;
use crate::errors::{self, UpstreamError};
use crate::gateway::Gateway;
use crate::operation::Operation;
use crate::progress::Progress;
use crate::queue::Place;
use crate::record::{CallRecord, End};
use crate::settlement::Hold;
use crate::sse::Framer;
use catalog::{Route, Upstream};
use kernel::error::{Code, Error};
use kernel::ids::ModelCallId;
use kernel::shares::Holder;
use reader::{NO_MEMORY, Reader};

/// Maximum number of pieces in the channel to a client. Pieces that don't fit wait in the client's
/// [`Backlog`]. A piece has the events of one read from the upstream.
const MAX_WAITING_PIECES: usize = 4;
/// The minimum time for sending the rest of a stream once its call is settled, and the timeout for sending
/// its last event.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two comments.
pub(crate) const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const COMMENT: Bytes = Bytes::from_static(b": waiting\n\n");

/// The events of an answer.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Bytes>);

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

/// Returns both ends of a stream.
pub(crate) fn channel() -> (mpsc::Sender<Bytes>, Events) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_PIECES);
    (sender, Events(receiver))
}

/// A stream of an upstream.
pub(crate) struct Relay {
    call_id: ModelCallId,
    holder: Holder,
    operation: Operation,
    upstream: Arc<Upstream>,
    bounds: Bounds,
    reader: Reader,
    place: Place,
    /// The deadline of the call.
    total: Instant,
}

/// The reason why a stream hasn't begun.
pub(crate) enum BeginFailure {
    /// No event arrives in time.
    Silent,
    /// The stream ended too early, for this reason.
    Cut(String),
    /// The stream begins with an error.
    Error(UpstreamError, Place),
}

/// The end of a stream.
enum Ending {
    /// The upstream ended the stream, and this event remains to be sent.
    Done(Bytes),
    /// The stream ended too early, for this reason.
    Cut(String),
    /// The upstream reported an error.
    Error(UpstreamError),
    ClientLeft,
    /// The client reads its answer too slowly.
    ClientTooSlow,
}

impl Ending {
    /// Returns the end of the call.
    fn end(&self) -> End {
        match self {
            Self::Done(_) => End::stream(Outcome::Completed, None),
            Self::Cut(_) => End::stream(Outcome::Cut, Some(Code::UpstreamCut)),
            Self::Error(error) => End::stream(Outcome::Cut, Some(error.clone().in_stream().code)),
            Self::ClientLeft | Self::ClientTooSlow => End::stream(Outcome::ClientLeft, None),
        }
    }
}

impl Relay {
    /// Returns the relay of a body. `total` is the deadline of the call.
    pub(crate) fn new(
        gateway: &Gateway,
        call: &Admitted,
        route: &Route,
        cleaner: StreamCleaner,
        body: UpstreamBody,
        place: Place,
        total: Instant,
    ) -> Self {
        let upstream = Arc::clone(&route.upstream);
        let reader = Reader {
            body,
            framer: Framer::new(),
            large: None,
            has_more: false,
            memory: gateway.memory_of(call.holder),
            waits_for_memory: false,
            turns: Arc::clone(gateway.bodies()),
            cleaner,
            ready: Vec::new(),
            has_event: false,
            ending: None,
        };
        let (call_id, holder, operation) = (call.call_id, call.holder, call.request.operation);
        Self { call_id, holder, operation, upstream, bounds: call.bounds, reader, place, total }
    }

    /// Reads until an event for the client arrives. Earlier data, such as a comment, is a sign of life that
    /// extends the deadline for the first event.
    ///
    /// # Errors
    /// The stream ends before an event arrives, or nothing arrives until `deadline`.
    pub(crate) async fn read_first(mut self, mut deadline: Instant) -> Result<Self, BeginFailure> {
        while !self.reader.has_event {
            match self.reader.ending.take() {
                None => {
                    timeout_at(deadline, self.reader.read()).await.map_err(|_| BeginFailure::Silent)?;
                    deadline = Instant::now() + Duration::from_millis(self.upstream.first_event_ms);
                }
                Some(Ending::Cut(why)) => return Err(BeginFailure::Cut(why)),
                Some(Ending::Error(error)) => return Err(BeginFailure::Error(error, self.place)),
                Some(Ending::Done(_) | Ending::ClientLeft | Ending::ClientTooSlow) => {
                    return Err(BeginFailure::Cut("its stream has no events".to_owned()));
                }
            }
        }
        Ok(self)
    }

    /// Forwards the stream, and settles the call at its end.
    pub(crate) async fn run(
        mut self,
        gateway: &Gateway,
        mut hold: Hold,
        client: mpsc::Sender<Bytes>,
        record: CallRecord,
    ) {
        let progress = hold.progress();
        let mut backlog = Backlog::new(gateway.memory(), self.holder);
        let passing = Box::pin(self.pass_on(gateway, &client, &mut backlog, &progress));
        let ending = hold.during(passing).await;
        if matches!(ending, Ending::ClientLeft | Ending::ClientTooSlow) {
            self.reader.cleaner.mark_left();
            if matches!(ending, Ending::ClientLeft) {
                self.reader.read_arrived().await;
            }
            hold.during(Box::pin(self.read_on(gateway, &progress))).await;
        }
        let Self { call_id, operation, upstream, bounds, reader, place, total, .. } = self;
        let Reader { body, cleaner, .. } = reader;
        if matches!(ending, Ending::Done(_)) {
            body.finish();
        } else {
            // This closes the connection, which stops the upstream.
            drop(body);
        }
        drop(place);
        let ending = match ending {
            Ending::Done(_) if !cleaner.counter().is_complete() => {
                Ending::Cut("its stream ended with unfinished answers".to_owned())
            }
            ending => ending,
        };
        let settled = cleaner.counter().settle(bounds);
        let end = ending.end();
        hold.capture(settled, end, &record).await;
        record.end(end.outcome, Some(settled));
        let last = match ending {
            Ending::Done(last) => last,
            Ending::ClientLeft => return,
            Ending::ClientTooSlow => {
                tracing::info!(%call_id, upstream = upstream.id, "a stream was cut: its client reads it too \
                                                                  slowly");
                error_event(operation, &Code::UpstreamCut.into())
            }
            Ending::Cut(why) => {
                tracing::warn!(%call_id, upstream = upstream.id, "a stream was cut: {why}");
                error_event(operation, &Code::UpstreamCut.into())
            }
            Ending::Error(error) => {
                errors::log(call_id, &upstream.id, error.message.as_deref());
                tracing::warn!(%call_id, upstream = upstream.id, words = error.words(), "a stream was cut: it reports an error");
                error_event(operation, &error.in_stream())
            }
        };
        // The call is settled, and its slot is released: a slow client occupies only the memory of its
        // backlog.
        let until = total.max(Instant::now() + LAST_EVENT_TIMEOUT);
        if backlog.send_all(&client, until).await.is_ok() {
            send_last(&client, last).await;
        }
    }

    async fn pass_on(
        &mut self,
        gateway: &Gateway,
        client: &mpsc::Sender<Bytes>,
        backlog: &mut Backlog,
        progress: &Progress,
    ) -> Ending {
        let between = Duration::from_millis(self.upstream.between_events_ms);
        let mut cut = pin!(gateway.cut());
        let mut timer = pin!(sleep_until(self.total));
        let mut read_at = Instant::now();
        let mut comment_at = read_at + COMMENT_INTERVAL;
        let mut pace = Pace::default();
        progress.note(self.reader.totals(self.bounds));
        loop {
            if let Some(piece) = self.reader.take_ready()
                && backlog.send(client, piece).is_err()
            {
                return Ending::ClientLeft;
            }
            if let Some(ending) = self.reader.take_ending(self.bounds) {
                return ending;
            }
            // While the backlog is full, the upstream isn't read.
            let may_read = backlog.has_room();
            let now = Instant::now();
            if !may_read {
                read_at = now;
            }
            pace.note(now, backlog, may_read);
            let stalls_at = may_read.then(|| read_at + between);
            let deadlines = [stalls_at, pace.deadline(), Some(comment_at), Some(self.total)];
            timer.as_mut().reset(deadlines.into_iter().flatten().min().unwrap_or(self.total));
            tokio::select! {
                biased;
                () = self.reader.read(), if may_read => {
                    self.reader.join_arrived().await;
                    progress.note(self.reader.totals(self.bounds));
                    read_at = Instant::now();
                    comment_at = read_at + COMMENT_INTERVAL;
                }
                sent = backlog.send_next(client), if !backlog.is_empty() => {
                    if sent.is_err() {
                        return Ending::ClientLeft;
                    }
                }
                () = client.closed() => return Ending::ClientLeft,
                () = &mut cut => return Ending::Cut("the server is stopping".to_owned()),
                () = &mut timer => {
                    let now = Instant::now();
                    if pace.is_too_slow(now, backlog) || (now >= self.total && !may_read) {
                        return Ending::ClientTooSlow;
                    }
                    if now >= self.total || stalls_at.is_some_and(|at| now >= at) {
                        let why = if self.reader.waits_for_memory { NO_MEMORY } else { "it stalled" };
                        return Ending::Cut(why.to_owned());
                    }
                    if now >= comment_at {
                        comment_at = now + COMMENT_INTERVAL;
                        if show_life(client, backlog).is_err() {
                            return Ending::ClientLeft;
                        }
                    }
                }
            }
        }
    }

    /// Continues reading without a client, until the upstream has counted all generated tokens. The call
    /// keeps its slot, which bounds the number of such calls.
    async fn read_on(&mut self, gateway: &Gateway, progress: &Progress) {
        let between = Duration::from_millis(self.upstream.between_events_ms);
        let rest = async {
            while self.reader.ending.is_none() && self.reader.must_read_on(self.upstream.on_disconnect) {
                if timeout(between, self.reader.read()).await.is_err() {
                    return;
                }
                self.reader.ready.clear();
                progress.note(self.reader.totals(self.bounds));
            }
        };
        tokio::select! {
            _ = timeout_at(self.total, rest) => {}
            () = gateway.cut() => {}
        }
    }
}

/// Sends a comment to a client that has nothing to read while its upstream is silent, for example during
/// hidden reasoning. This keeps proxies from considering the connection dead.
fn show_life(client: &mpsc::Sender<Bytes>, backlog: &mut Backlog) -> Result<(), ClientLeft> {
    if backlog.is_empty() { backlog.send(client, COMMENT) } else { Ok(()) }
}

/// Sends the last event. Gives up if the client has left or doesn't read in time.
pub(crate) async fn send_last(client: &mpsc::Sender<Bytes>, event: Bytes) {
    timeout(LAST_EVENT_TIMEOUT, client.send(event)).await.unwrap_or(Ok(())).unwrap_or_default();
}

/// Returns the last event of a failed stream, in the form that the operation's SDKs recognize as an error.
pub(crate) fn error_event(operation: Operation, error: &Error) -> Bytes {
    let message = error.public_message();
    let details = serde_json::json!({
        "message": message,
        "type": error.code.error_type().as_str(),
        "param": error.param,
        "code": error.code.as_str(),
        "details": [],
    });
    let event = match operation {
        Operation::ChatCompletions | Operation::Completions | Operation::Embeddings => {
            format!("data: {}\n\n", serde_json::json!({"error": details}))
        }
        Operation::Responses => {
            let event = serde_json::json!({
                "type": "error",
                "code": error.code.as_str(),
                "message": message,
                "param": null,
                "error": details,
            });
            format!("event: error\ndata: {event}\n\n")
        }
        Operation::Messages => {
            format!("event: error\ndata: {}\n\n", serde_json::json!({"type": "error", "error": details}))
        }
    };
    Bytes::from(event)
}
