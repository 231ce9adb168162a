//! Request rates: the generic cell rate algorithm (GCRA), with a burst of one minute's worth of requests.

use crate::clock::SECOND_MS;
use crate::error::RateLimit;

/// The units that one request adds to a meter. Each millisecond drains `per_minute` units. Because a minute
/// has 60,000 milliseconds, every rate is a whole number of units per millisecond.
pub const REQUEST: u64 = 60_000;
/// Maximum step back of the clock that a meter ignores, in milliseconds. Threads that read the clock at
/// slightly different times cause small steps back. If the meter followed them, it would drain twice for the
/// same millisecond.
pub const STEP_BACK_MS: i64 = SECOND_MS;

/// The answer to an allowed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// The number of further requests that would be allowed now.
    pub remaining: u32,
    /// The time until the whole limit is available again, in milliseconds.
    pub reset_ms: i64,
}

/// The used part of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meter {
    /// The level, in units of 1/60,000 request; at most `per_minute` requests.
    pub level: u64,
    /// The time of the last change, in Unix milliseconds.
    pub at_ms: i64,
    /// The limit, in requests per minute.
    pub per_minute: u32,
}

impl Meter {
    /// Returns an unused meter. A rate of 0 counts as 1.
    pub fn empty(per_minute: u32, now_ms: i64) -> Self {
        Self { level: 0, at_ms: now_ms, per_minute: per_minute.max(1) }
    }

    /// Returns `true` unless the meter has drained completely by now.
    pub fn is_used(&self, now_ms: i64) -> bool {
        let mut later = *self;
        later.drain(now_ms);
        later.level > 0
    }

    /// Changes the limit and keeps the used fraction, so that no caller waits longer than a minute.
    pub fn set_rate(&mut self, per_minute: u32) {
        if per_minute != self.per_minute {
            let scaled = u128::from(self.level) * u128::from(per_minute);
            let level = scaled.div_ceil(u128::from(self.per_minute));
            self.level = u64::try_from(level).unwrap_or(u64::MAX).min(capacity(per_minute));
            self.per_minute = per_minute;
        }
    }

    /// Drains the meter by the elapsed time.
    pub fn drain(&mut self, now_ms: i64) {
        let passed = now_ms.saturating_sub(self.at_ms);
        if passed > 0 {
            let drained = passed.unsigned_abs().saturating_mul(u64::from(self.per_minute));
            self.level = self.level.saturating_sub(drained);
        }
        if !(-STEP_BACK_MS..=0).contains(&passed) {
            self.at_ms = now_ms;
        }
    }

    /// Counts a request. Call [`Meter::drain`] first.
    ///
    /// # Errors
    /// The request would exceed the limit.
    pub fn take(&mut self, now_ms: i64) -> Result<Allowance, RateLimit> {
        let rate = u64::from(self.per_minute);
        // After a small step back of the clock, the meter's time is ahead, and the meter drains only from
        // that time on.
        let ahead_ms = self.at_ms.saturating_sub(now_ms).max(0);
        let wait_ms =
            |amount: u64| i64::try_from(amount.div_ceil(rate)).unwrap_or(i64::MAX).saturating_add(ahead_ms);
        let full = capacity(self.per_minute);
        let wanted = self.level.saturating_add(REQUEST);
        if wanted > full {
            return Err(RateLimit {
                limit: self.per_minute,
                retry_after_ms: wait_ms(wanted - full),
                reset_ms: wait_ms(self.level),
            });
        }
        self.level = wanted;
        let remaining = u32::try_from((full - wanted) / REQUEST).unwrap_or(u32::MAX);
        Ok(Allowance { remaining, reset_ms: wait_ms(wanted) })
    }

    /// Undoes a request.
    pub fn give_back(&mut self, now_ms: i64) {
        self.drain(now_ms);
        // Part of the request may have drained in the meantime.
        self.level = self.level.saturating_sub(REQUEST);
    }
}

/// Returns the level of a full meter.
pub fn capacity(per_minute: u32) -> u64 {
    u64::from(per_minute) * REQUEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(level: u64, at_ms: i64, per_minute: u32) -> Meter {
        Meter { level, at_ms, per_minute }
    }

    #[test]
    fn meter_drains_and_follows_only_large_steps_back() {
        for (now_ms, level, at_ms) in [
            (1_000, 600, 1_000),
            (1_001, 598, 1_001),
            (1_299, 2, 1_299),
            (1_300, 0, 1_300),
            (9_000, 0, 9_000),
            (999, 600, 1_000),
            (0, 600, 1_000),
            (-1, 600, -1),
        ] {
            let mut found = meter(600, 1_000, 2);
            assert_eq!(found.is_used(now_ms), level > 0, "{now_ms}");
            found.drain(now_ms);
            assert_eq!(found, meter(level, at_ms, 2), "{now_ms}");
        }
    }

    #[test]
    fn limit_allows_exactly_its_requests() {
        let mut full = Meter::empty(3, 0);
        let allowed = |remaining, reset_ms| Ok(Allowance { remaining, reset_ms });
        assert_eq!(full.take(0), allowed(2, 20_000));
        assert_eq!(full.take(0), allowed(1, 40_000));
        assert_eq!(full.take(0), allowed(0, 60_000));
        let refused = RateLimit { limit: 3, retry_after_ms: 20_000, reset_ms: 60_000 };
        assert_eq!((full.take(0), full.level), (Err(refused), capacity(3)));
        // For a thread whose clock is 7 ms behind, the wait is 7 ms longer.
        assert_eq!(full.take(-7), Err(RateLimit { retry_after_ms: 20_007, reset_ms: 60_007, ..refused }));
        full.drain(19_999);
        assert_eq!(full.take(19_999), Err(RateLimit { retry_after_ms: 1, reset_ms: 40_001, ..refused }));
        full.drain(20_000);
        assert_eq!(full.take(20_000), allowed(0, 60_000));
        // The wait of a rate that doesn't divide a minute is rounded up.
        let mut odd = Meter::empty(7, 0);
        assert_eq!(odd.take(0), allowed(6, 8_572));
        assert_eq!((capacity(7), Meter::empty(0, 0).per_minute), (420_000, 1));
    }

    #[test]
    fn give_back_stops_at_zero() {
        let mut found = meter(2 * REQUEST, 0, 60);
        found.give_back(1);
        assert_eq!(found, meter(REQUEST - 60, 1, 60));
        found.give_back(1);
        assert_eq!(found, meter(0, 1, 60));
    }

    #[test]
    fn changed_limit_keeps_the_used_share() {
        for (before, rate, level) in [
            (6 * REQUEST, 12, 6 * REQUEST),
            (6 * REQUEST, 24, 12 * REQUEST),
            (6 * REQUEST, 6, 3 * REQUEST),
            // The level is rounded up.
            (7, 11, 7),
            (12 * REQUEST, 1, REQUEST),
            (0, 24, 0),
        ] {
            let mut found = meter(before, 5, 12);
            found.set_rate(rate);
            assert_eq!(found, meter(level, 5, rate), "{before} {rate}");
        }
        let mut over = meter(99 * REQUEST, 5, 12);
        over.set_rate(12);
        assert_eq!(over, meter(99 * REQUEST, 5, 12), "nothing has changed");
        over.set_rate(24);
        assert_eq!(over.level, capacity(24));
    }
}
