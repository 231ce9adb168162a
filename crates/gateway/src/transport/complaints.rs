//! Limits repeated errors to one log line per minute, because every call may cause them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The minimum time between two lines about the same error.
const INTERVAL_MS: i64 = 60 * 1_000;

/// The earliest time of the next line about each error of a model or an upstream. The names come from the
/// catalog, so the map stays small.
#[derive(Default, Debug)]
pub(crate) struct Complaints(Mutex<HashMap<(String, &'static str), i64>>);

impl Complaints {
    /// Returns `true` if this error of a name wasn't logged within the last minute, and then notes that it is
    /// logged now. `now_ms` is a time of the steady clock.
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
