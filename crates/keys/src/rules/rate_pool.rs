//! A rate that several replicas share: the used requests, and the requests lent to replicas.
//!
//! A replica borrows a few requests at a time, admits calls with them, and later reports the number used.
//! Used requests drain as in any meter. Lent requests don't drain until they are reported, so a late report
//! has no advantage. Lent requests that aren't reported count as used at the end of the term after the term
//! in which they were lent. So a replica that stops reporting blocks its share for at most two times
//! `TERM_MS`.
//!
//! **Proof that replicas keep to the limit.** Let U be the level of a single meter that sees each call when
//! it is admitted. At all times, U ≤ `level` + the number of requests that are lent and used: lending changes
//! neither side, a call adds one to both, a report moves used requests from the second summand to the first,
//! and time reduces U at least as much as `level`. And `level` + `lent` + `lent_before` ≤ limit +
//! `MAX_ADVANCE_MS` of the rate, because [`Pool::lend`] doesn't lend more, and only [`Pool::catch_up`] also
//! raises the sum, after an outage. So all replicas together admit as many calls as a single meter would,
//! plus at most two seconds of the rate. That is less than one lease, which is five seconds of the rate.

use kernel::clock::{MINUTE_MS, SECOND_MS};
use kernel::rates::{Meter, REQUEST, capacity};

/// The time for which a replica may use a lease, in milliseconds.
pub const LEASE_MS: i64 = 5 * SECOND_MS;
/// The length of a term, in milliseconds. It is longer than a lease, to leave time for the report and for
/// small differences between clocks.
const TERM_MS: i64 = 6 * SECOND_MS;
/// The duration whose requests are lent in advance when all are used, in milliseconds. So under a flood of
/// calls, a replica borrows at most twice per second, and not for each request that becomes free.
const MAX_ADVANCE_MS: u64 = 2_000;

/// Returns the maximum number of requests in one lease: the rate of [`LEASE_MS`], at least one.
pub fn max_lease(per_minute: u32) -> u32 {
    per_minute.div_ceil(12).max(1)
}

/// A shared rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// The used requests, as far as they were reported.
    pub meter: Meter,
    /// The number of requests that were lent in the term of `meter.at_ms` and aren't reported yet.
    pub lent: u32,
    /// The number of requests that were lent in the term before and aren't reported yet.
    pub lent_before: u32,
}

/// A report about lent requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The term in which the requests were lent.
    pub term: i64,
    /// The number of requests that admitted a call.
    pub used: u32,
    /// The number of requests that are returned.
    pub unused: u32,
}

/// Requests that were lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loan {
    /// The number of requests.
    pub granted: u32,
    /// The number of these requests that are already counted as used: 1 if a waiting call may proceed
    /// immediately, otherwise 0.
    pub precounted: u32,
}

impl Pool {
    /// Returns an unused rate.
    pub fn new(per_minute: u32, now_ms: i64) -> Self {
        Self { meter: Meter::empty(per_minute, now_ms), lent: 0, lent_before: 0 }
    }

    /// Returns the current term.
    pub fn term(&self) -> i64 {
        self.meter.at_ms.div_euclid(TERM_MS)
    }

    /// Advances the pool's time. Although the clocks of replicas differ, the time isn't set back, unless it
    /// is more than a minute ahead of `now_ms`.
    pub fn advance(&mut self, now_ms: i64) {
        if self.meter.at_ms > now_ms.saturating_add(MINUTE_MS) {
            self.meter.at_ms = now_ms;
        }
        while self.meter.at_ms < now_ms && self.total_lent() > 0 {
            let term_ends_ms = self.term().saturating_add(1).saturating_mul(TERM_MS);
            if now_ms < term_ends_ms {
                break;
            }
            self.meter.drain(term_ends_ms);
            self.add_used(self.lent_before);
            self.lent_before = std::mem::take(&mut self.lent);
        }
        if self.meter.at_ms < now_ms {
            self.meter.drain(now_ms);
        }
    }

    /// Adds a report. Requests that are reported too late were already counted as used.
    pub fn settle(&mut self, report: Report) {
        let term = self.term();
        let lent = match term.saturating_sub(report.term) {
            0 => &mut self.lent,
            1 => &mut self.lent_before,
            _ => return,
        };
        let used = report.used.min(*lent);
        *lent = (*lent - used).saturating_sub(report.unused);
        self.add_used(used);
    }

    /// Lends up to `wanted` requests, including one for a waiting call. A replica that wants several
    /// requests, because it has many calls, gets some in advance. They can be used only once the rate
    /// permits.
    pub fn lend(&mut self, wanted: u32, call_waits: bool) -> Loan {
        let per_minute = self.meter.per_minute;
        let ahead = match wanted {
            0 | 1 => 0,
            _ => (MAX_ADVANCE_MS * u64::from(per_minute)).min(u64::from(wanted) * REQUEST),
        };
        let room = (capacity(per_minute) + ahead).saturating_sub(self.taken()) / REQUEST;
        let granted = wanted.min(u32::try_from(room).unwrap_or(u32::MAX));
        let may_go_now = self.taken().saturating_add(REQUEST) <= capacity(per_minute);
        let precounted = u32::from(call_waits && may_go_now).min(granted);
        self.add_used(precounted);
        self.lent = self.lent.saturating_add(granted - precounted);
        Loan { granted, precounted }
    }

    /// Returns all used and lent requests, as the level of a meter.
    pub fn taken(&self) -> u64 {
        self.meter.level.saturating_add(self.total_lent() * REQUEST)
    }

    /// Counts calls that were admitted without a lease, while the database couldn't be reached.
    pub fn catch_up(&mut self, calls: u32) {
        self.add_used(calls);
        self.meter.level = self.meter.level.min(capacity(self.meter.per_minute));
    }

    fn total_lent(&self) -> u64 {
        u64::from(self.lent) + u64::from(self.lent_before)
    }

    fn add_used(&mut self, requests: u32) {
        self.meter.level = self.meter.level.saturating_add(u64::from(requests) * REQUEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a pool at this time, with this level in requests.
    fn pool(at_ms: i64, level: u64, lent: u32, lent_before: u32) -> Pool {
        Pool { meter: Meter { level: level * REQUEST, at_ms, per_minute: 60 }, lent, lent_before }
    }

    #[test]
    fn a_lease_is_a_twelfth_of_the_limit_rounded_up() {
        assert_eq!([0, 1, 12, 13, 60].map(max_lease), [1, 1, 1, 2, 5]);
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
    fn unreported_requests_are_used_when_the_next_term_ends() {
        assert_eq!([-1, 0, 5_999, 6_000].map(|at_ms| pool(at_ms, 0, 0, 0).term()), [-1, 0, 0, 1]);
        for (now_ms, expected) in [
            (5_999, pool(5_999, 0, 2, 3)),
            (6_000, pool(6_000, 3, 0, 2)),
            (7_000, pool(7_000, 2, 0, 2)),
            // Six requests have drained in the meantime.
            (12_000, pool(12_000, 2, 0, 0)),
            (13_000, pool(13_000, 1, 0, 0)),
        ] {
            let mut found = pool(0, 0, 2, 3);
            found.advance(now_ms);
            assert_eq!(found, expected, "{now_ms}");
        }
    }

    #[test]
    fn a_report_counts_for_its_term_and_the_one_after() {
        let mut found = pool(30_000, 0, 4, 6);
        for (term, used, unused, expected) in [
            (5, 1, 2, pool(30_000, 1, 1, 6)),
            (4, 2, 1, pool(30_000, 3, 1, 3)),
            (3, 2, 1, pool(30_000, 3, 1, 3)),
            (6, 2, 1, pool(30_000, 3, 1, 3)),
            (5, 9, 9, pool(30_000, 4, 0, 3)),
            (4, 0, 9, pool(30_000, 4, 0, 0)),
        ] {
            found.settle(Report { term, used, unused });
            assert_eq!(found, expected, "{term} {used} {unused}");
        }
    }

    #[test]
    fn loans_exceed_the_limit_only_in_a_flood() {
        for (level, wanted, call_waits, granted, precounted) in [
            (0, 5, false, 5, 0),
            (0, 5, true, 5, 1),
            (0, 1, true, 1, 1),
            (0, 0, true, 0, 0),
            (58, 1, true, 1, 1),
            (59, 1, true, 1, 1),
            (60, 1, true, 0, 0),
            // The requests are lent in advance, so the waiting call can't proceed yet.
            (60, 2, true, 2, 0),
            (60, 5, true, 2, 0),
            (59, 5, true, 3, 1),
            (62, 5, true, 0, 0),
        ] {
            let mut found = pool(0, level, 0, 0);
            assert_eq!(found.lend(wanted, call_waits), Loan { granted, precounted }, "{level} {wanted}");
            let expected = pool(0, level + u64::from(precounted), granted - precounted, 0);
            assert_eq!(found, expected, "{level} {wanted}");
            assert_eq!(found.taken(), (level + u64::from(granted)) * REQUEST);
        }
    }

    #[test]
    fn unleased_calls_fill_the_meter_at_most() {
        for (calls, level) in [(0, 1), (3, 4), (59, 60), (60, 60), (u32::MAX, 60)] {
            let mut found = pool(0, 1, 0, 0);
            found.catch_up(calls);
            assert_eq!(found, pool(0, level, 0, 0), "{calls}");
        }
    }
}
