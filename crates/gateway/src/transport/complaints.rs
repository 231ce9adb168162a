//! Errors that the operator is told of once a minute, because every call meets them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The least time between two lines about the same.
const INTERVAL_MS: i64 = 60 * 1_000;

/// When what was said last of a model or an upstream. They are those of the catalog, so there are few.
#[derive(Default, Debug)]
pub(crate) struct Complaints(Mutex<HashMap<(String, &'static str), i64>>);

impl Complaints {
    /// Returns `true` if this wasn't said of a name within the last minute, and notes that it is said now, on the steady
    /// clock.
    pub(crate) fn is_due(&self, name: &str, what: &'static str, now_ms: i64) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next_ms = said.entry((name.to_owned(), what)).or_insert(now_ms);
        let is_due = now_ms >= *next_ms;
        if is_due {
            *next_ms = now_ms + INTERVAL_MS;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute() {
        let complaints = Complaints::default();
        assert!(complaints.is_due("a", "route", 5));
        assert!(!complaints.is_due("a", "route", 6));
        assert!(!complaints.is_due("a", "route", 60_004));
        assert!(complaints.is_due("b", "route", 6));
        assert!(complaints.is_due("a", "account", 6));
        assert!(complaints.is_due("a", "route", 60_005));
        assert!(!complaints.is_due("a", "route", 60_006));
    }
}
