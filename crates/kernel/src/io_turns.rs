//! Turns for large transfers: a task that moves many bytes lets other tasks run in between.
//!
//! A task that has moved [`MAX_TURN_BYTES`] in a short time waits in a line with other such tasks. For each
//! thread of the runtime, the line lets one task continue, and the next one after all other ready tasks have
//! run. So a thousand large transfers delay a small call by a few turns, not by a thousand.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::Context;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum number of bytes that a task moves in one direction before the other ready tasks run. The runtime
/// only limits the number of operations, each of which may move megabytes.
pub const MAX_TURN_BYTES: usize = 64 * 1024;

/// The number of bytes from which a turn is timed. Small requests and answers don't read the clock.
const TIMED_FROM_BYTES: usize = MAX_TURN_BYTES / 4;
/// The duration from which a turn belongs to a slow transfer, such as a stream of events. Slow transfers skip
/// the line.
const SLOW_TURN: Duration = Duration::from_millis(100);
/// Maximum time for which a task waits in the line. Without it, a task that isn't polled when its turn comes
/// would block the others.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// The line of large transfers. One transfer per thread of the runtime may be at its head.
static LINE: LazyLock<Semaphore> = LazyLock::new(|| {
    let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
    Semaphore::new(threads.max(1))
});

/// The number of bytes moved in one direction since other tasks ran.
#[derive(Default)]
pub struct IoTurn {
    moved: usize,
    /// The time at which [`TIMED_FROM_BYTES`] bytes had been moved.
    since: Option<Instant>,
    /// The line; `None` for the line of the process.
    line: Option<&'static Semaphore>,
    /// `Some` while the task waits in the line.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl IoTurn {
    /// Returns `true` if other tasks should run first. The caller then returns `Poll::Pending`, and is polled
    /// again after them.
    pub fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.waiting.is_none() && self.moved < MAX_TURN_BYTES {
            return false;
        }
        let is_slow = self.waiting.is_none() && self.since.is_some_and(|since| since.elapsed() > SLOW_TURN);
        if is_slow {
            self.end();
            cx.waker().wake_by_ref();
            return true;
        }
        let line = self.line;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(stand_in(line.unwrap_or_else(|| LazyLock::force(&LINE)))));
        let is_waiting = waiting.as_mut().poll(cx).is_pending();
        if !is_waiting {
            self.end();
        }
        is_waiting
    }

    /// Returns the part of these bytes that may be moved in this turn: at least one byte, unless `bytes` is
    /// empty.
    pub fn part<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let left = MAX_TURN_BYTES.saturating_sub(self.moved).max(1);
        bytes.get(..left).unwrap_or(bytes)
    }

    /// Notes that bytes were moved.
    pub fn note(&mut self, bytes: usize) {
        let was_timed = self.moved >= TIMED_FROM_BYTES;
        self.moved = self.moved.saturating_add(bytes);
        if !was_timed && self.moved >= TIMED_FROM_BYTES {
            self.since = Some(Instant::now());
        }
    }

    /// Notes that no bytes could be moved. The task waits, so other tasks run.
    pub fn end(&mut self) {
        self.moved = 0;
        self.waiting = None;
    }
}

impl fmt::Debug for IoTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoTurn").field("moved", &self.moved).finish_non_exhaustive()
    }
}

/// Waits for this task's turn among the large transfers, and then until the other ready tasks have run.
async fn stand_in(line: &'static Semaphore) {
    let place = tokio::time::timeout(LONGEST_WAIT, line.acquire()).await;
    tokio::task::yield_now().await;
    // A timeout is treated like a turn.
    drop(place);
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use super::*;

    /// Returns a separate line for a test.
    fn line() -> &'static Semaphore {
        Box::leak(Box::new(Semaphore::new(1)))
    }

    fn turn_in(line: &'static Semaphore) -> IoTurn {
        IoTurn { line: Some(line), ..IoTurn::default() }
    }

    /// Moves bytes like a socket that is always ready.
    async fn transfer(bytes: usize, line: &'static Semaphore, moved: &AtomicUsize) {
        let (mut turn, mut left) = (turn_in(line), bytes);
        poll_fn(|cx| {
            while left > 0 {
                if turn.is_over(cx) {
                    return Poll::Pending;
                }
                let part = left.min(8 * 1024);
                turn.note(part);
                moved.fetch_add(part, Ordering::Relaxed);
                left -= part;
            }
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn turn_ends_after_its_bytes() {
        let large = vec![0; 3 * MAX_TURN_BYTES];
        let polls = AtomicUsize::new(0);
        let mut turn = turn_in(line());
        poll_fn(|cx| {
            if polls.fetch_add(1, Ordering::Relaxed) > 0 {
                return if turn.is_over(cx) { Poll::Pending } else { Poll::Ready(()) };
            }
            assert!(!turn.is_over(cx));
            assert_eq!(turn.part(&large).len(), MAX_TURN_BYTES);
            turn.note(MAX_TURN_BYTES - 10);
            assert_eq!((turn.part(&large).len(), turn.part(b"few").len(), turn.part(b"").len()), (10, 3, 0));
            assert!(!turn.is_over(cx));
            turn.note(10);
            assert!(turn.is_over(cx));
            Poll::Pending
        })
        .await;
        assert!(polls.load(Ordering::Relaxed) > 1, "other tasks should have run first");
        // A task that has waited for data begins a new turn.
        turn.note(MAX_TURN_BYTES);
        turn.end();
        poll_fn(|cx| {
            assert!(!turn.is_over(cx));
            Poll::Ready(())
        })
        .await;
    }

    /// With fifty transfers, a small task runs after a few turns, not after fifty.
    #[tokio::test]
    async fn large_transfers_take_turns() {
        let (line, moved) = (line(), Arc::new(AtomicUsize::new(0)));
        let transfers: Vec<_> = (0..50)
            .map(|_| {
                let moved = Arc::clone(&moved);
                tokio::spawn(async move { transfer(10 * MAX_TURN_BYTES, line, &moved).await })
            })
            .collect();
        // Each transfer begins with a turn, because its size isn't known yet.
        while moved.load(Ordering::Relaxed) < 50 * MAX_TURN_BYTES {
            tokio::task::yield_now().await;
        }
        let (mut before, mut most) = (moved.load(Ordering::Relaxed), 0);
        while transfers.iter().any(|transfer| !transfer.is_finished()) {
            tokio::task::yield_now().await;
            let now = moved.load(Ordering::Relaxed);
            most = most.max(now - before);
            before = now;
        }
        assert_eq!(before, 500 * MAX_TURN_BYTES);
        assert!(most <= 4 * MAX_TURN_BYTES, "{} turns at once", most / MAX_TURN_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_transfer_stands_in_no_line() {
        let line = line();
        let place = line.acquire().await.unwrap();
        let mut turn = turn_in(line);
        turn.note(MAX_TURN_BYTES / 2);
        tokio::time::advance(SLOW_TURN * 2).await;
        turn.note(MAX_TURN_BYTES / 2);
        let began = Instant::now();
        poll_fn(|cx| if turn.is_over(cx) { Poll::Pending } else { Poll::Ready(()) }).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(place);
    }

    /// A transfer that isn't polled when its turn comes delays the others once.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_one_that_stops() {
        let (line, moved) = (line(), AtomicUsize::new(0));
        let place = line.acquire().await.unwrap();
        let began = Instant::now();
        transfer(3 * MAX_TURN_BYTES, line, &moved).await;
        assert_eq!(moved.load(Ordering::Relaxed), 3 * MAX_TURN_BYTES);
        assert!(began.elapsed() <= LONGEST_WAIT * 2);
        drop(place);
    }
}
