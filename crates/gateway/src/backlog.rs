//! The part of a stream that its client hasn't taken yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout_at};

use crate::body::holding;
use crate::memory::LARGE_BYTES;
use kernel::shares::{Holder, Permit, SharedBound};

/// Maximum number of bytes that wait for a slow client. Most answers fit, so their slots at upstreams become
/// free as soon as the upstream has finished. A longer answer isn't read further until the client has taken
/// some bytes.
const MAX_BYTES: usize = 1 << 20;

/// Minimum number of bytes that a slow client must take in each period: 16 KiB per second.
const LEAST_TAKEN: usize = 480 << 10;
const LEAST_TAKEN_IN: Duration = Duration::from_secs(30);

/// The pieces of a stream that its client hasn't taken.
pub(crate) struct Backlog {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// The bytes that the client has taken so far.
    taken: usize,
    bound: Arc<SharedBound>,
    /// The memory of small pieces. Large pieces have separate memory.
    memory: Permit,
    /// The total size of the small pieces.
    small_bytes: usize,
}

/// The pace at which a client takes the bytes that wait for it. A client that was too slow once has to keep
/// the minimum pace until it has taken everything. Otherwise it could occupy a slot at the upstream for the
/// maximum duration of a call.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pace {
    /// The start of the current period, and the number of bytes taken by then; `None` if the client isn't
    /// watched.
    watched: Option<(Instant, usize)>,
}

impl Pace {
    /// Begins or ends the watch of a client, depending on its backlog. `has_room` is `true` if more may be
    /// read for it.
    pub(crate) fn note(&mut self, now: Instant, backlog: &Backlog, has_room: bool) {
        if backlog.is_empty() {
            self.watched = None;
        } else if !has_room {
            self.watched.get_or_insert((now, backlog.taken));
        }
    }

    /// Returns the time by which a watched client must have taken enough.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.watched.map(|(since, _)| since + LEAST_TAKEN_IN)
    }

    /// Returns `true` if the period has ended and the client has taken too little in it. A new period begins
    /// at the end of each one.
    pub(crate) fn is_too_slow(&mut self, now: Instant, backlog: &Backlog) -> bool {
        let Some((since, before)) = self.watched else { return false };
        if now < since + LEAST_TAKEN_IN {
            return false;
        }
        self.watched = Some((now, backlog.taken));
        backlog.taken - before < LEAST_TAKEN
    }
}

/// The error for a client that has disconnected from its stream.
#[derive(Debug)]
pub(crate) struct ClientLeft;

impl Backlog {
    /// Returns an empty backlog, which takes its memory from this bound.
    pub(crate) fn new(bound: &Arc<SharedBound>, holder: Holder) -> Self {
        Self {
            pieces: VecDeque::new(),
            bytes: 0,
            taken: 0,
            bound: Arc::clone(bound),
            memory: bound.none(holder),
            small_bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns `true` while more may be read for the client: nothing is waiting, or the backlog has room and
    /// memory for more.
    pub(crate) fn has_room(&mut self) -> bool {
        self.is_empty() || (self.bytes < MAX_BYTES && self.memory.grow_to(self.small_bytes + 1))
    }

    /// Sends a piece to the client, or keeps it for later.
    pub(crate) fn send(&mut self, client: &mpsc::Sender<Bytes>, piece: Bytes) -> Result<(), ClientLeft> {
        let piece = if piece.len() >= LARGE_BYTES { self.hold(piece) } else { piece };
        if !self.is_empty() {
            self.push(piece);
            return Ok(());
        }
        match client.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(ClientLeft),
            Err(TrySendError::Full(piece)) => {
                self.push(piece);
                Ok(())
            }
        }
    }

    /// Takes separate memory for a large piece, which is released once its last byte is written. The piece is
    /// kept even if no memory is left.
    fn hold(&self, piece: Bytes) -> Bytes {
        let mut memory = self.bound.none(self.memory.holder());
        memory.grow_to(piece.len());
        holding(piece, memory)
    }

    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.small_bytes += small(&piece);
        // The piece has already been read; without memory for it, no further piece is read.
        self.memory.grow_to(self.small_bytes);
        self.pieces.push_back(piece);
    }

    /// Sends the oldest piece to the client, once the channel has room for it.
    pub(crate) async fn send_next(&mut self, client: &mpsc::Sender<Bytes>) -> Result<(), ClientLeft> {
        let room = client.reserve().await.map_err(|_| ClientLeft)?;
        if let Some(piece) = self.pieces.pop_front() {
            self.bytes -= piece.len();
            self.taken += piece.len();
            self.small_bytes -= small(&piece);
            self.memory.shrink_to(self.small_bytes);
            room.send(piece);
        }
        Ok(())
    }

    /// Sends all pieces to the client, until this time.
    pub(crate) async fn send_all(
        mut self,
        client: &mpsc::Sender<Bytes>,
        until: Instant,
    ) -> Result<(), ClientLeft> {
        let all = async {
            while !self.is_empty() {
                self.send_next(client).await?;
            }
            Ok(())
        };
        timeout_at(until, all).await.unwrap_or(Err(ClientLeft))
    }
}

/// Returns the size of a small piece; 0 for a large piece, which has separate memory.
fn small(piece: &Bytes) -> usize {
    if piece.len() < LARGE_BYTES { piece.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(byte: u8, length: usize) -> Bytes {
        vec![byte; length].into()
    }

    #[tokio::test]
    async fn pieces_stay_in_order_and_give_their_memory_back() {
        let bound = SharedBound::new(3_000);
        let mut backlog = Backlog::new(&bound, Holder::Member { group: 1, member: 1 });
        let (sender, mut receiver) = mpsc::channel(1);
        backlog.send(&sender, piece(0, 10)).unwrap();
        assert!(backlog.is_empty() && backlog.has_room());
        for byte in 1..=9 {
            assert!(backlog.has_room());
            backlog.send(&sender, piece(byte, 100)).unwrap();
        }
        assert_eq!(bound.load().0, 900);
        // A third of the bound is used up.
        backlog.send(&sender, piece(10, 100)).unwrap();
        assert!(!backlog.has_room());
        assert_eq!(receiver.recv().await.unwrap().first(), Some(&0));
        backlog.send_next(&sender).await.unwrap();
        assert!(backlog.has_room());
        let rest = tokio::spawn(async move {
            let until = Instant::now() + Duration::from_secs(60);
            backlog.send_all(&sender, until).await.unwrap();
        });
        for byte in 1..=10 {
            assert_eq!(receiver.recv().await.unwrap().first(), Some(&byte));
        }
        rest.await.unwrap();
        assert_eq!(bound.load().0, 0);
    }

    #[tokio::test]
    async fn large_pieces_hold_memory_until_they_are_written() {
        let bound = SharedBound::new(100 << 20);
        let mut backlog = Backlog::new(&bound, Holder::Trusted);
        let (sender, mut receiver) = mpsc::channel(1);
        let large = 8 << 20;
        backlog.send(&sender, piece(0, large)).unwrap();
        assert_eq!(bound.load().0, large, "it is on the way to the client");
        backlog.send(&sender, piece(1, large)).unwrap();
        backlog.send(&sender, piece(2, 100)).unwrap();
        assert_eq!(bound.load().0, 2 * large + 100);
        let first = receiver.recv().await.unwrap();
        let part = first.slice(..10);
        drop(first);
        assert_eq!(bound.load().0, 2 * large + 100, "a part of it isn't written yet");
        drop(part);
        assert_eq!(bound.load().0, large + 100);
        for _ in 0..2 {
            backlog.send_next(&sender).await.unwrap();
            drop(receiver.recv().await.unwrap());
        }
        assert!(backlog.is_empty());
        assert_eq!(bound.load().0, 0);
    }

    /// A client that was too slow has to take 480 KiB in each half minute until it has taken everything.
    #[tokio::test]
    async fn slow_client_keeps_the_least_pace() {
        let mut backlog = Backlog::new(&SharedBound::new(100 << 20), Holder::Trusted);
        let (sender, mut receiver) = mpsc::channel(1);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        pace.note(at(0), &backlog, false);
        assert_eq!(pace.deadline(), None, "nothing waits");
        for _ in 0..6 {
            backlog.send(&sender, piece(0, 240 << 10)).unwrap();
        }
        pace.note(at(0), &backlog, true);
        assert_eq!(pace.deadline(), None, "the backlog has room");
        pace.note(at(1), &backlog, false);
        pace.note(at(2), &backlog, false);
        assert_eq!(pace.deadline(), Some(at(31)));
        for _ in 0..2 {
            receiver.recv().await.unwrap();
            backlog.send_next(&sender).await.unwrap();
        }
        assert!(!pace.is_too_slow(at(30), &backlog));
        assert!(!pace.is_too_slow(at(31), &backlog));
        // Room alone doesn't end the watch.
        pace.note(at(32), &backlog, true);
        assert_eq!(pace.deadline(), Some(at(61)));
        receiver.recv().await.unwrap();
        backlog.send_next(&sender).await.unwrap();
        let mut slow = pace;
        assert!(slow.is_too_slow(at(61), &backlog));
        for _ in 0..2 {
            receiver.recv().await.unwrap();
            backlog.send_next(&sender).await.unwrap();
        }
        pace.note(at(60), &backlog, true);
        assert_eq!((backlog.is_empty(), pace.deadline()), (true, None));
    }

    #[tokio::test]
    async fn client_that_leaves_is_noticed() {
        let mut backlog = Backlog::new(&SharedBound::new(100), Holder::Trusted);
        let (sender, receiver) = mpsc::channel(1);
        for byte in 0..2 {
            backlog.send(&sender, piece(byte, 1)).unwrap();
        }
        drop(receiver);
        assert!(backlog.send_next(&sender).await.is_err());
        assert!(backlog.send_all(&sender, Instant::now()).await.is_err());
    }
}
