//! What a client hasn't taken yet of its stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout_at};

use crate::body::holding;
use crate::gateway::LARGE_BYTES;
use kernel::shares::{Holder, Permit, SharedBound};

/// The most bytes that wait for a slow client. Most answers fit, so that their places at upstreams are free as soon as the
/// upstream has ended; of others no more is read until the client takes some.
const MAX_BYTES: usize = 1 << 20;

/// What a slow client takes at least, in each such time: 16 KiB a second.
const LEAST_TAKEN: usize = 480 << 10;
const LEAST_TAKEN_IN: Duration = Duration::from_secs(30);

/// The pieces of a stream that its client hasn't taken.
pub(crate) struct Backlog {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// The bytes that the client has taken of it.
    taken: usize,
    bound: Arc<SharedBound>,
    /// Of pieces that aren't large: those have memory of their own.
    memory: Permit,
    /// The bytes of these.
    small_bytes: usize,
}

/// How fast a client takes what waits for it. One that was too slow once has to keep the least pace until it has taken
/// everything: otherwise it would hold a place at the upstream for as long as a call may take.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pace {
    /// Since when it is watched, and what it had taken then.
    watched: Option<(Instant, usize)>,
}

impl Pace {
    /// Notes what a client has taken. `has_room`: more may be read for it.
    pub(crate) fn note(&mut self, now: Instant, backlog: &Backlog, has_room: bool) {
        if backlog.is_empty() {
            self.watched = None;
        } else if !has_room {
            self.watched.get_or_insert((now, backlog.taken));
        }
    }

    /// Returns when the client must have taken enough, if it is watched.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.watched.map(|(since, _)| since + LEAST_TAKEN_IN)
    }

    /// Returns `true` if the client has taken too little by now. It gets as much time again otherwise.
    pub(crate) fn is_too_slow(&mut self, now: Instant, backlog: &Backlog) -> bool {
        let Some((since, before)) = self.watched else { return false };
        if now < since + LEAST_TAKEN_IN {
            return false;
        }
        self.watched = Some((now, backlog.taken));
        backlog.taken - before < LEAST_TAKEN
    }
}

/// The client doesn't take its stream any more.
#[derive(Debug)]
pub(crate) struct ClientLeft;

impl Backlog {
    /// Returns an empty one, which takes of this memory what it needs.
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

    /// Returns `true` while more may be read for a client: it takes what there is, or there is memory for more.
    pub(crate) fn has_room(&mut self) -> bool {
        self.is_empty() || (self.bytes < MAX_BYTES && self.memory.grow_to(self.small_bytes + 1))
    }

    /// Hands over a piece, or keeps it for later.
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

    /// Gives a large piece memory of its own, which is taken until the last of it is written. If there is none left, the piece
    /// is there already.
    fn hold(&self, piece: Bytes) -> Bytes {
        let mut memory = self.bound.none(self.memory.holder());
        memory.grow_to(piece.len());
        holding(piece, memory)
    }

    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.small_bytes += small(&piece);
        // The piece is there already; if there is no memory for it, none is read after it.
        self.memory.grow_to(self.small_bytes);
        self.pieces.push_back(piece);
    }

    /// Hands over the oldest piece, once there is room for it.
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

    /// Hands over all pieces, until this instant.
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

/// Returns the bytes of a piece, if it has no memory of its own.
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

    /// A client that was too slow takes 480 KiB in each half minute, until it has taken everything.
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
        assert_eq!(pace.deadline(), None, "there is room");
        pace.note(at(1), &backlog, false);
        pace.note(at(2), &backlog, false);
        assert_eq!(pace.deadline(), Some(at(31)));
        for _ in 0..2 {
            receiver.recv().await.unwrap();
            backlog.send_next(&sender).await.unwrap();
        }
        assert!(!pace.is_too_slow(at(30), &backlog));
        assert!(!pace.is_too_slow(at(31), &backlog));
        // Room alone doesn't end it.
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
