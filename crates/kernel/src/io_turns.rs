//! Bytes of a connection in turns: a task that moves many lets others run in between.

use std::task::Context;

/// The most bytes that a task moves in one direction before the other tasks that are ready run. The runtime itself counts
/// operations, of which one may move megabytes.
pub const MAX_TURN_BYTES: usize = 64 * 1024;

/// The bytes that were moved in one direction since other tasks ran.
#[derive(Debug, Default)]
pub struct IoTurn {
    moved: usize,
}

impl IoTurn {
    /// Returns `true` if other tasks are to run first. The caller then returns `Poll::Pending`, and is polled again after them.
    pub fn is_over(&mut self, cx: &Context<'_>) -> bool {
        let is_over = self.moved >= MAX_TURN_BYTES;
        if is_over {
            self.moved = 0;
            cx.waker().wake_by_ref();
        }
        is_over
    }

    /// Returns the part of these bytes that may be moved in this turn; at least one, if there are some.
    pub fn part<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let left = MAX_TURN_BYTES.saturating_sub(self.moved).max(1);
        bytes.get(..left).unwrap_or(bytes)
    }

    /// Notes that bytes were moved.
    pub fn note(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Notes that there was nothing to move: the task waits, so others run.
    pub fn end(&mut self) {
        self.moved = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn turn_ends_after_its_bytes() {
        let wakes = Arc::new(Wakes::default());
        let waker = Arc::clone(&wakes).into();
        let cx = Context::from_waker(&waker);
        let mut turn = IoTurn::default();
        let large = vec![0; 3 * MAX_TURN_BYTES];
        assert!(!turn.is_over(&cx));
        assert_eq!(turn.part(&large).len(), MAX_TURN_BYTES);
        turn.note(MAX_TURN_BYTES - 10);
        assert_eq!((turn.part(&large).len(), turn.part(b"few").len(), turn.part(b"").len()), (10, 3, 0));
        assert!(!turn.is_over(&cx));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        turn.note(10);
        assert!(turn.is_over(&cx));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(!turn.is_over(&cx), "the next one begins");
        // Who waits has had no turn.
        turn.note(MAX_TURN_BYTES);
        turn.end();
        assert!(!turn.is_over(&cx));
    }
}
