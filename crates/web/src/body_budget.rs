//! A shared limit on the memory of unfinished request bodies, so that clients who declare large bodies and
//! send slowly can't exhaust it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The budget for the bodies of both listeners.
#[derive(Debug)]
pub struct BodyBudget {
    max_bytes: usize,
    used_bytes: AtomicUsize,
    refused: AtomicU64,
    /// When the log last had a warning that the budget is exhausted.
    warned_at: Mutex<Option<Instant>>,
}

/// A part of the budget; returned when dropped.
#[derive(Debug)]
pub struct BodyPermit<'a> {
    budget: &'a BodyBudget,
    bytes: usize,
    share: BudgetShare,
}

/// The share of the budget up to which a body may find room: less important bodies leave room for more
/// important ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BudgetShare {
    Half = 2,
    ThreeQuarters = 3,
    All = 4,
}

impl BodyBudget {
    /// Returns a budget of which nothing is taken.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            used_bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            warned_at: Mutex::new(None),
        }
    }

    /// Takes a part of the budget. Returns `None` if the total would exceed this share of it.
    pub fn try_take(&self, bytes: usize, share: BudgetShare) -> Option<BodyPermit<'_>> {
        // Not `then_some`: that would create and drop a permit even on failure, which returns bytes never
        // taken.
        self.try_reserve(bytes, share).then(|| BodyPermit { budget: self, bytes, share })
    }

    /// Returns the bytes that are taken, and the most that can be.
    pub fn load(&self) -> (usize, usize) {
        (self.used_bytes.load(Ordering::Relaxed), self.max_bytes)
    }

    /// Returns how many bodies were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn try_reserve(&self, bytes: usize, share: BudgetShare) -> bool {
        let max_bytes = self.max_bytes / 4 * share as usize;
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= max_bytes);
        let reserved = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !reserved {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.warn();
        }
        reserved
    }

    /// Warns at most once a second, so that a flood doesn't fill the log.
    fn warn(&self) {
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if warned_at.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            *warned_at = Some(Instant::now());
            tracing::warn!(
                body_budget_bytes = self.max_bytes,
                "unfinished request bodies take too much of `server.body_budget_bytes`: further ones are refused"
            );
        }
    }
}

impl BodyPermit<'_> {
    /// Grows the part to this size, if it is smaller. Returns `false` if the budget has too little left.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.budget.try_reserve(more, self.share) {
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for BodyPermit<'_> {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::BudgetShare::{All, Half, ThreeQuarters};
    use super::*;

    #[test]
    fn permits_return_their_bytes_and_never_exceed_the_budget() {
        let budget = BodyBudget::new(100);
        let mut one = budget.try_take(60, All).unwrap();
        assert!(budget.try_take(41, All).is_none());
        let other = budget.try_take(40, All).unwrap();
        assert_eq!(budget.load(), (100, 100));
        assert!(one.grow_to(60) && one.grow_to(1) && !one.grow_to(61));
        drop(other);
        assert!(one.grow_to(100) && !one.grow_to(usize::MAX));
        assert_eq!(budget.load().0, 100);
        drop(one);
        assert_eq!((budget.load().0, budget.refused()), (0, 3));
        assert!(budget.try_take(usize::MAX, All).is_none());
    }

    #[test]
    fn larger_share_finds_room_for_longer() {
        let budget = BodyBudget::new(100);
        let two = budget.try_take(50, Half).unwrap();
        assert!(budget.try_take(1, Half).is_none());
        let three = budget.try_take(25, ThreeQuarters).unwrap();
        assert!(budget.try_take(1, ThreeQuarters).is_none());
        let mut four = budget.try_take(24, All).unwrap();
        assert!(four.grow_to(25) && budget.try_take(1, All).is_none());
        drop((two, three, four));
        assert!(!budget.try_take(1, Half).unwrap().grow_to(51) && budget.load().0 == 0);
    }

    #[test]
    fn concurrent_permits_never_exceed_the_budget() {
        let budget = BodyBudget::new(1_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in 1..=500 {
                        let permit = budget.try_take(bytes, All);
                        assert!(budget.load().0 <= 1_000);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(budget.load().0, 0);
    }
}
