//! A shared limit on the memory of unfinished request bodies, so that clients that send large bodies slowly
//! can't exhaust it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernel::pace::SharedPace;
use kernel::shares::{Holder, Permit, SharedBound};
use kernel::turns::Turns;
use tokio::time::Instant;

/// The budget for the bodies of both listeners. No caller can take all of it ([`SharedBound`]).
#[derive(Debug)]
pub struct BodyBudget {
    bound: Arc<SharedBound>,
    /// The rate at which the bodies of a group arrive.
    pace: SharedPace,
    /// The fair queue for copying received bytes.
    turns: Arc<Turns>,
    /// The fair queue for decoding large bodies. Decoding takes longer, so it has a separate queue and
    /// doesn't delay copying.
    decoding: Arc<Turns>,
    refused: AtomicU64,
    /// The time of the log's last warning that the budget is exhausted.
    warned_at: Mutex<Option<Instant>>,
}

/// A part of the budget, which is returned when this is dropped.
#[derive(Debug)]
pub struct BodyPermit<'a> {
    budget: &'a BodyBudget,
    permit: Permit,
}

impl BodyBudget {
    /// Returns an unused budget, and a rate for each group.
    pub fn new(max_bytes: usize, bytes_per_s: usize) -> Self {
        Self {
            bound: SharedBound::new(max_bytes),
            pace: SharedPace::new(bytes_per_s),
            turns: Turns::per_processor(),
            decoding: Turns::per_processor(),
            refused: AtomicU64::new(0),
            warned_at: Mutex::new(None),
        }
    }

    /// Takes a part of the budget. Returns `None` if too little would be left for others. The public listener
    /// gets at most three quarters, so that a quarter is left for inference servers.
    pub fn try_take(&self, holder: Holder, bytes: usize) -> Option<BodyPermit<'_>> {
        let max_bytes = self.bound.load().1;
        let ceiling = if holder == Holder::Trusted { max_bytes } else { max_bytes / 4 * 3 };
        let permit = self.bound.try_take_within(holder, bytes, ceiling);
        if permit.is_none() {
            self.note_refusal();
        }
        Some(BodyPermit { budget: self, permit: permit? })
    }

    /// Returns the number of bytes taken, and the maximum.
    pub fn load(&self) -> (usize, usize) {
        self.bound.load()
    }

    /// Returns the number of refused bodies.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts a refusal, and logs a warning at most once per second, so that a flood doesn't fill the log.
    fn note_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if warned_at.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            *warned_at = Some(Instant::now());
            tracing::warn!(
                body_budget_bytes = self.bound.load().1,
                "unfinished request bodies take too much of `server.body_budget_bytes`: further ones are refused"
            );
        }
    }
}

impl<'a> BodyPermit<'a> {
    /// Grows the part to this size, if it is smaller. Returns `false` if too little of the budget is left.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let has_grown = self.permit.grow_to(bytes);
        if !has_grown {
            self.budget.note_refusal();
        }
        has_grown
    }

    /// Notes that bytes of the body have arrived, and waits if the holder's group is ahead of its rate.
    pub async fn keep_pace(&self, bytes: usize) {
        self.budget.pace.keep(self.permit.holder(), bytes).await;
    }

    /// Processes a piece of the body when it is the holder's turn.
    pub async fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        self.budget.turns.run(self.permit.holder(), work).await
    }

    /// Does a small piece of work immediately. The work may grow the part.
    pub fn at_once<T>(&mut self, work: impl FnOnce(&mut Permit) -> T) -> T {
        work(&mut self.permit)
    }

    /// Counts a refusal because such work couldn't grow the part.
    pub fn note_refusal(&self) {
        self.budget.note_refusal();
    }

    /// Does a large piece of work when it is the holder's turn, on a separate thread with a lower priority.
    /// The work may grow the part, and runs to its end even if this future is dropped. Returns `None` if the
    /// work panics.
    pub async fn in_turn_aside<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Permit) -> T + Send + 'static,
    ) -> Option<(Self, T)> {
        let Self { budget, mut permit } = self;
        let holder = permit.holder();
        let work = move || {
            let done = work(&mut permit);
            (permit, done)
        };
        let (permit, done) = budget.decoding.run_aside(holder, work).await?;
        Some((Self { budget, permit }, done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_leaves_room_for_another() {
        let budget = BodyBudget::new(400, usize::MAX);
        let member = |group| Holder::Member { group, member: 1 };
        let mut first = budget.try_take(member(1), 50).unwrap();
        assert!(first.grow_to(100) && !first.grow_to(101), "a third of three quarters");
        assert!(budget.try_take(member(1), 1).is_none());
        let second = budget.try_take(member(2), 66).unwrap();
        assert!(budget.try_take(member(2), 1).is_none());
        let trusted = budget.try_take(Holder::Trusted, 234).unwrap();
        assert!(budget.try_take(Holder::Trusted, 1).is_none() && budget.try_take(member(3), 1).is_none());
        assert_eq!((budget.load(), budget.refused()), ((400, 400), 5));
        drop((first, second, trusted));
        assert_eq!(budget.load().0, 0);
    }
}
