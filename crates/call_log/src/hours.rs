//! The sums of the calls of each hour, which wait in memory to be written.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hour_sums::{HourKey, HourSums};

/// Maximum number of rows that wait. While the database fails, further ones are lost.
const CAPACITY: usize = 100_000;

/// The sums that wait, by row.
#[derive(Debug, Default)]
pub(crate) struct Hours(Mutex<BTreeMap<HourKey, HourSums>>);

impl Hours {
    pub(crate) fn add(&self, key: HourKey, sums: HourSums) {
        let mut waiting = self.waiting();
        if let Some(sum) = waiting.get_mut(&key) {
            sum.add(&sums);
        } else if waiting.len() < CAPACITY {
            waiting.insert(key, sums);
        }
    }

    /// Takes the first rows. Those that aren't written are put back.
    pub(crate) fn take(&self, limit: usize) -> TakenHours<'_> {
        let mut waiting = self.waiting();
        let rows = std::iter::from_fn(|| waiting.pop_first()).take(limit).collect();
        TakenHours { hours: self, rows }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<HourKey, HourSums>> {
        // Each change is atomic, so a panic leaves the map in a valid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that are put back if they can't be written or if the write is canceled.
pub(crate) struct TakenHours<'a> {
    hours: &'a Hours,
    rows: Vec<(HourKey, HourSums)>,
}

impl TakenHours<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn rows(&self) -> &[(HourKey, HourSums)] {
        &self.rows
    }

    /// Ends the write of these rows.
    pub(crate) fn done(mut self) {
        self.rows.clear();
    }
}

impl Drop for TakenHours<'_> {
    fn drop(&mut self) {
        for (key, sums) in self.rows.drain(..) {
            self.hours.add(key, sums);
        }
    }
}
