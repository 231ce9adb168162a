//! A rate that several replicas share: what is used of it, and what is lent to them.
//!
//! A replica borrows a few requests at a time, lets calls through with them, and says later how many it used. What is
//! used drains like in any meter. What is lent doesn't, until it is reported, so a late report gains nobody anything. What
//! nobody reports counts as used when the term after the one that it was lent in is over: a replica that has fallen
//! silent blocks its share for `TERM_MS` to twice that, no longer.
//!
//! **No more than the limit.** Let U be what a single meter would hold that sees each call when it is let through. At all
//! times U ≤ `level` + what is lent and used: lending adds to neither, a call adds one to both, a report moves what was
//! used from one part of the right side to the other, time takes from U at least what it takes from `level`. And `level` +
//! `lent` + `lent_before` ≤ limit + `AHEAD_MS` of the rate, because [`Pool::lend`] lends no more and nothing else
//! raises the sum but [`Pool::catch_up`], after an outage. So all replicas together let through what one would, and at most two seconds of the rate more: less
//! than one lease, which is five.

use kernel::clock::{MINUTE_MS, SECOND_MS};
use kernel::rates::{Meter, REQUEST, capacity};

/// How long a replica may use what it has borrowed, in milliseconds.
pub const HOLD_MS: i64 = 5 * SECOND_MS;
/// The length of a term, in milliseconds: longer than a lease is held, so that there is time to report, and for clocks
/// that differ a little.
const TERM_MS: i64 = 6 * SECOND_MS;
/// How far ahead of time requests are lent when all are used, in milliseconds: a replica under a flood of calls then asks
/// twice a second at most, and not for each request that becomes free.
const AHEAD_MS: u64 = 2_000;

/// The most that one lease holds: what the rate gives in [`HOLD_MS`], at least one.
pub fn most_of(per_minute: u32) -> u32 {
    per_minute.div_ceil(12).max(1)
}

/// A shared rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// What is used, as far as it was reported.
    pub meter: Meter,
    /// Requests that were lent in the term of `meter.at_ms` and not reported yet.
    pub lent: u32,
    /// Those of the term before.
    pub lent_before: u32,
}

/// What became of requests that were lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The term that they were lent in.
    pub term: i64,
    /// How many calls were let through.
    pub used: u32,
    /// How many go back.
    pub unused: u32,
}

/// What was lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loan {
    /// How many requests.
    pub granted: u32,
    /// How many of them are counted as used already: the one of a call that waits, if its time has come.
    pub counted: u32,
}

impl Pool {
    /// One that nobody has used.
    pub fn new(per_minute: u32, now_ms: i64) -> Self {
        Self { meter: Meter::empty(per_minute, now_ms), lent: 0, lent_before: 0 }
    }

    /// The term that it is in.
    pub fn term(&self) -> i64 {
        self.meter.at_ms.div_euclid(TERM_MS)
    }

    /// Lets the time pass. It never goes back, as clocks of replicas may; only one that was wrong by more than a minute
    /// isn't waited for.
    pub fn advance(&mut self, now_ms: i64) {
        if self.meter.at_ms > now_ms.saturating_add(MINUTE_MS) {
            self.meter.at_ms = now_ms;
        }
        while self.meter.at_ms < now_ms && self.lent_in_all() > 0 {
            let term_ends_ms = self.term().saturating_add(1).saturating_mul(TERM_MS);
            if now_ms < term_ends_ms {
                break;
            }
            self.meter.drain(term_ends_ms);
            self.use_up(self.lent_before);
            self.lent_before = std::mem::take(&mut self.lent);
        }
        if self.meter.at_ms < now_ms {
            self.meter.drain(now_ms);
        }
    }

    /// Takes in what became of requests that were lent. What is reported too late has been counted as used.
    pub fn settle(&mut self, report: Report) {
        let term = self.term();
        let lent = match term.saturating_sub(report.term) {
            0 => &mut self.lent,
            1 => &mut self.lent_before,
            _ => return,
        };
        let used = report.used.min(*lent);
        *lent = (*lent - used).saturating_sub(report.unused);
        self.use_up(used);
    }

    /// Lends up to so many requests, one of them to a call that waits if there is one. Who wants several, because there
    /// are that many calls, gets some ahead of time, to be used when their time has come.
    pub fn lend(&mut self, wanted: u32, call_waits: bool) -> Loan {
        let per_minute = self.meter.per_minute;
        let ahead = match wanted {
            0 | 1 => 0,
            _ => (AHEAD_MS * u64::from(per_minute)).min(u64::from(wanted) * REQUEST),
        };
        let room = (capacity(per_minute) + ahead).saturating_sub(self.taken()) / REQUEST;
        let granted = wanted.min(u32::try_from(room).unwrap_or(u32::MAX));
        let goes_through = self.taken().saturating_add(REQUEST) <= capacity(per_minute);
        let counted = u32::from(call_waits && goes_through).min(granted);
        self.use_up(counted);
        self.lent = self.lent.saturating_add(granted - counted);
        Loan { granted, counted }
    }

    /// All that is used or lent, as a level of a meter.
    pub fn taken(&self) -> u64 {
        self.meter.level.saturating_add(self.lent_in_all() * REQUEST)
    }

    /// Counts calls that were let through without a lease, while nobody could be asked for one.
    pub fn catch_up(&mut self, calls: u32) {
        self.use_up(calls);
        self.meter.level = self.meter.level.min(capacity(self.meter.per_minute));
    }

    fn lent_in_all(&self) -> u64 {
        u64::from(self.lent) + u64::from(self.lent_before)
    }

    fn use_up(&mut self, requests: u32) {
        self.meter.level = self.meter.level.saturating_add(u64::from(requests) * REQUEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At this time, with this level in requests.
    fn pool(at_ms: i64, level: u64, lent: u32, lent_before: u32) -> Pool {
        Pool { meter: Meter { level: level * REQUEST, at_ms, per_minute: 60 }, lent, lent_before }
    }

    #[test]
    fn a_lease_is_a_twelfth_of_the_limit_and_something() {
        assert_eq!([0, 1, 12, 13, 60].map(most_of), [1, 1, 1, 2, 5]);
    }

    #[test]
    fn only_a_clock_that_was_a_minute_wrong_is_not_waited_for() {
        for (now_ms, at_ms) in [(40_000, 100_000), (39_999, 39_999), (100_000, 100_000), (100_001, 100_001)] {
            let mut found = pool(100_000, 0, 0, 0);
            found.advance(now_ms);
            assert_eq!(found, pool(at_ms, 0, 0, 0), "{now_ms}");
        }
    }

    #[test]
    fn what_nobody_reports_is_used_when_the_next_term_ends() {
        assert_eq!([-1, 0, 5_999, 6_000].map(|at_ms| pool(at_ms, 0, 0, 0).term()), [-1, 0, 0, 1]);
        for (now_ms, due) in [
            (5_999, pool(5_999, 0, 2, 3)),
            (6_000, pool(6_000, 3, 0, 2)),
            (7_000, pool(7_000, 2, 0, 2)),
            // Six of them have drained meanwhile.
            (12_000, pool(12_000, 2, 0, 0)),
            (13_000, pool(13_000, 1, 0, 0)),
        ] {
            let mut found = pool(0, 0, 2, 3);
            found.advance(now_ms);
            assert_eq!(found, due, "{now_ms}");
        }
    }

    #[test]
    fn a_report_counts_for_its_term_and_the_one_after() {
        let mut found = pool(30_000, 0, 4, 6);
        for (term, used, unused, due) in [
            (5, 1, 2, pool(30_000, 1, 1, 6)),
            (4, 2, 1, pool(30_000, 3, 1, 3)),
            (3, 2, 1, pool(30_000, 3, 1, 3)),
            (6, 2, 1, pool(30_000, 3, 1, 3)),
            (5, 9, 9, pool(30_000, 4, 0, 3)),
            (4, 0, 9, pool(30_000, 4, 0, 0)),
        ] {
            found.settle(Report { term, used, unused });
            assert_eq!(found, due, "{term} {used} {unused}");
        }
    }

    #[test]
    fn what_is_lent_fits_but_for_a_flood() {
        for (level, wanted, call_waits, granted, counted) in [
            (0, 5, false, 5, 0),
            (0, 5, true, 5, 1),
            (0, 1, true, 1, 1),
            (0, 0, true, 0, 0),
            (58, 1, true, 1, 1),
            (59, 1, true, 1, 1),
            (60, 1, true, 0, 0),
            // Ahead of time, so the call that waits can't go yet.
            (60, 2, true, 2, 0),
            (60, 5, true, 2, 0),
            (59, 5, true, 3, 1),
            (62, 5, true, 0, 0),
        ] {
            let mut found = pool(0, level, 0, 0);
            assert_eq!(found.lend(wanted, call_waits), Loan { granted, counted }, "{level} {wanted}");
            let due = pool(0, level + u64::from(counted), granted - counted, 0);
            assert_eq!(found, due, "{level} {wanted}");
            assert_eq!(found.taken(), (level + u64::from(granted)) * REQUEST);
        }
    }

    #[test]
    fn what_was_let_through_without_asking_fills_it_at_most() {
        for (calls, level) in [(0, 1), (3, 4), (59, 60), (60, 60), (u32::MAX, 60)] {
            let mut found = pool(0, 1, 0, 0);
            found.catch_up(calls);
            assert_eq!(found, pool(0, level, 0, 0), "{calls}");
        }
    }
}
