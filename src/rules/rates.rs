//! Request rates: the generic cell rate algorithm, with one minute's worth of requests as the burst.

mod pool;

pub use pool::{HOLD_MS, Loan, Pool, Report, most_of};

use crate::clock::SECOND_MS;
use crate::error::RateLimit;

/// What one request adds to a meter. Each millisecond takes `per_minute` away: with 60,000 milliseconds in a
/// minute every rate comes out in whole numbers, also those that don't divide a minute's nanoseconds.
pub const REQUEST: u64 = 60_000;
/// How far the clock may step back before a meter follows it. Threads that read the clock a moment apart look
/// like small steps back; following those would empty the meter twice for the same millisecond.
pub const STEP_BACK_MS: i64 = SECOND_MS;

/// A request that was let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Requests that would still be let through now.
    pub remaining: u32,
    /// Milliseconds until the whole limit is free again.
    pub reset_ms: i64,
}

/// How much of a limit is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meter {
    /// Sixty-thousandths of a request; at most `per_minute` requests.
    pub level: u64,
    /// Unix milliseconds of the last change.
    pub at_ms: i64,
    /// The limit.
    pub per_minute: u32,
}

impl Meter {
    /// One that nobody has used; a rate of 0 counts as 1.
    pub fn empty(per_minute: u32, now_ms: i64) -> Self {
        Self { level: 0, at_ms: now_ms, per_minute: per_minute.max(1) }
    }

    /// Whether something is left in it by now.
    pub fn is_used(&self, now_ms: i64) -> bool {
        let mut later = *self;
        later.drain(now_ms);
        later.level > 0
    }

    /// A changed limit keeps the used part of the minute, so that nobody waits longer than a minute for it.
    pub fn set_rate(&mut self, per_minute: u32) {
        if per_minute != self.per_minute {
            let scaled = u128::from(self.level) * u128::from(per_minute);
            let level = scaled.div_ceil(u128::from(self.per_minute));
            self.level = u64::try_from(level).unwrap_or(u64::MAX).min(capacity(per_minute));
            self.per_minute = per_minute;
        }
    }

    /// Empties it as far as time has.
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

    /// Counts a request, if it fits. The meter has been drained to now.
    pub fn take(&mut self, now_ms: i64) -> Result<Allowed, RateLimit> {
        let rate = u64::from(self.per_minute);
        // The meter stands a moment ahead when the clock has just stepped back: it empties from then on.
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
        Ok(Allowed { remaining, reset_ms: wait_ms(wanted) })
    }

    /// Takes a request back.
    pub fn give_back(&mut self, now_ms: i64) {
        self.drain(now_ms);
        // What time has taken of it meanwhile is gone already, so a meter at zero stays there.
        self.level = self.level.saturating_sub(REQUEST);
    }
}

/// What a meter holds.
pub fn capacity(per_minute: u32) -> u64 {
    u64::from(per_minute) * REQUEST
}
