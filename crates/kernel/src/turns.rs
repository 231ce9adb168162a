//! Shared processor time: work that occupies a thread for a long time is done in turns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::background::BackgroundThreads;
use crate::fair_queue::FairQueue;
use crate::shares::{Group, Holder};

/// Turns for work that the threads of the runtime do for all callers: a few pieces of work at a time, and
/// each group in turn.
///
/// Ready tasks run one after the other. If an organization has sixty tasks, each with a large piece of work,
/// a task of another organization waits for all sixty at each of its steps. With turns, the sixty tasks wait
/// for each other instead.
#[derive(Debug)]
pub struct Turns {
    state: Mutex<State>,
    threads: BackgroundThreads,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: FairQueue<Option<Group>, oneshot::Sender<Turn>>,
}

/// A turn, which ends when this value is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn {
    /// `None` once the turn was passed to another task.
    turns: Option<Arc<Turns>>,
}

impl Turns {
    /// Returns turns, one of which can be taken at the same time for each processor of the machine.
    pub fn per_processor() -> Arc<Self> {
        Self::with_places(std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn with_places(places: usize) -> Arc<Self> {
        // Each entry belongs to a task that already exists, so the queue needs no bound.
        let state = State { free: places, waiting: FairQueue::new(usize::MAX) };
        Arc::new(Self { state: Mutex::new(state), threads: BackgroundThreads::new("turns", places) })
    }

    /// Waits for a turn.
    pub async fn take(self: &Arc<Self>, holder: Holder) -> Turn {
        loop {
            let receiver = {
                let mut state = self.state();
                if state.free > 0 {
                    state.free -= 1;
                    return Turn { turns: Some(Arc::clone(self)) };
                }
                let (sender, receiver) = oneshot::channel();
                state.waiting.push(holder.group(), sender);
                receiver
            };
            // The queue is unbounded, so no task is displaced.
            if let Ok(turn) = receiver.await {
                return turn;
            }
        }
    }

    /// Runs a piece of work in a turn, on this thread.
    pub async fn run<T>(self: &Arc<Self>, holder: Holder, work: impl FnOnce() -> T) -> T {
        let turn = self.take(holder).await;
        let done = work();
        turn.end().await;
        done
    }

    /// Runs a large piece of work in a turn, on a separate thread with a lower priority. Returns `None` if
    /// the work panics.
    pub async fn run_aside<T: Send + 'static>(
        self: &Arc<Self>,
        holder: Holder,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.take(holder).await;
        // The turn lasts until the work is done, even if the caller no longer waits for it, because the
        // processor is still busy.
        let (done, turn) = self.threads.run(move || (work(), turn)).await?.ok()?;
        turn.end().await;
        Some(done)
    }

    /// Passes a turn to the next waiting task.
    fn give_back(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.waiting.pop();
                state.free += usize::from(next.is_none());
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn { turns: Some(Arc::clone(self)) }) {
                Ok(()) => return,
                // The waiting task was dropped, so the next one gets the turn.
                Err(mut turn) => drop(turn.turns.take()),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Ends the turn after all other ready tasks have run.
    pub async fn end(self) {
        yield_now().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder::Member { group: 1, member: 1 };
    const B: Holder = Holder::Member { group: 2, member: 1 };

    /// A log of the executed steps, in order.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<&'static str>>>);

    impl Log {
        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }

        fn is(&self, all: &[&str]) {
            assert_eq!(*self.0.lock().unwrap(), all);
        }
    }

    fn spawn(
        turns: &Arc<Turns>,
        holder: Holder,
        log: &Log,
        what: &'static str,
    ) -> tokio::task::JoinHandle<()> {
        let (turns, log) = (Arc::clone(turns), log.clone());
        tokio::spawn(async move { turns.run(holder, || log.note(what)).await })
    }

    #[tokio::test]
    async fn groups_take_turns() {
        let (turns, log) = (Turns::with_places(1), Log::default());
        let tasks = [(A, "a1"), (A, "a2"), (A, "a3"), (B, "b1"), (Holder::Trusted, "c1"), (B, "b2")]
            .map(|(holder, what)| spawn(&turns, holder, &log, what));
        for task in tasks {
            task.await.unwrap();
        }
        log.is(&["a1", "a2", "b1", "c1", "a3", "b2"]);
        assert_eq!(turns.state().free, 1);
    }

    #[tokio::test]
    async fn other_tasks_run_between_two_turns() {
        let (turns, log) = (Turns::with_places(1), Log::default());
        let heavy = ["a1", "a2", "a3"].map(|what| spawn(&turns, A, &log, what));
        let steps = log.clone();
        let light = tokio::spawn(async move {
            for what in ["one", "two", "three"] {
                steps.note(what);
                yield_now().await;
            }
        });
        for task in heavy {
            task.await.unwrap();
        }
        light.await.unwrap();
        // Without turns, the steps would run after a3.
        log.is(&["a1", "one", "two", "a2", "three", "a3"]);
    }

    #[tokio::test]
    async fn who_leaves_passes_the_turn_on() {
        let turns = Turns::with_places(1);
        let first = turns.take(A).await;
        let waits = |holder| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { drop(turns.take(holder).await) })
        };
        let (left, stays) = (waits(A), waits(A));
        while turns.state().waiting.len() < 2 {
            yield_now().await;
        }
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
        drop(first);
        stays.await.unwrap();
        assert_eq!(turns.state().free, 1);
        assert!(turns.state().waiting.is_empty());
        // A task that is dropped after it got the turn returns it.
        let first = turns.take(A).await;
        let mut late = Box::pin(turns.take(B));
        assert!(is_pending(&mut late).await);
        drop(first);
        drop(late);
        assert_eq!(turns.state().free, 1);
    }

    /// Polls once. Returns `true` if the future is pending.
    async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
        })
        .await
    }

    #[tokio::test]
    async fn panics_end_the_turn() {
        let turns = Turns::with_places(1);
        assert!(turns.run_aside(A, || panic!("as it should")).await.is_none());
        assert_eq!(turns.run_aside(A, || 7).await, Some(7));
        assert_eq!(turns.state().free, 1);
    }
}
