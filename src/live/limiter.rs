//! Rate limits in memory: the generic cell rate algorithm, with one minute's worth of requests as the burst.
//!
//! Each key has a meter. A request fills it by one, time empties it at the limit's rate, and a request that
//! would overfill it is refused. A meter that has run empty is the same as none, so it is forgotten without loss,
//! and memory holds only keys that were used within the last minute or so.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::digest;

use crate::clock::{MINUTE_MS, SECOND_MS, Time};
use crate::error::RateLimit;

/// What one request adds to a meter. Each millisecond takes `per_minute` away: with 60,000 milliseconds in a
/// minute every rate comes out in whole numbers, also those that don't divide a minute's nanoseconds.
const REQUEST: u64 = 60_000;
/// How far the clock may step back before a meter follows it. Threads that read the clock a moment apart look
/// like small steps back; following those would empty the meter twice for the same millisecond.
const STEP_BACK_MS: i64 = SECOND_MS;
const SHARDS: usize = 64;
/// A shard smaller than this is swept by time only.
const SWEEP_FROM: usize = 64;

/// A request that was let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Requests that would still be let through now.
    pub remaining: u32,
    /// Milliseconds until the whole limit is free again.
    pub reset_ms: i64,
}

/// The meters of this replica.
#[derive(Debug)]
pub struct Limiter {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Shard {
    meters: HashMap<u128, Meter>,
    sweep_at_len: usize,
    swept_at_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct Meter {
    /// Sixty-thousandths of a request; at most `per_minute` requests.
    level: u64,
    /// Unix milliseconds of the last change.
    at_ms: i64,
    per_minute: u32,
}

impl Default for Limiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Limiter {
    /// A limiter that has seen nobody yet.
    pub fn new() -> Self {
        let shard = || Shard { meters: HashMap::new(), sweep_at_len: SWEEP_FROM, swept_at_ms: 0 };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(), hasher: RandomState::new() }
    }

    /// Counts one request of `key` (see [`key_for`]) against `per_minute` requests a minute; 0 counts as 1.
    ///
    /// # Errors
    /// The limit is used up: `retry_after_ms` is the shortest wait after which a request is let through when
    /// nobody else takes the place. A refused request doesn't count.
    pub fn check(&self, key: u128, per_minute: u32, now: Time) -> Result<Allowed, RateLimit> {
        let Some(mut shard) = self.shard(key) else {
            // There always is a shard; were there none, refusing everybody would be the worse mistake.
            return Ok(Allowed { remaining: 0, reset_ms: 0 });
        };
        shard.sweep_when_due(now.unix_ms());
        let mut meter = match shard.meters.get(&key) {
            Some(meter) => *meter,
            None => Meter { level: 0, at_ms: now.unix_ms(), per_minute: per_minute.max(1) },
        };
        meter.set_rate(per_minute.max(1));
        meter.drain(now.unix_ms());
        let allowed = meter.take(now.unix_ms());
        shard.meters.insert(key, meter);
        allowed
    }

    /// Takes a request back that [`Limiter::check`] has let through and that came to nothing, for instance because
    /// another limit refused it: the meter is then as if it had never come.
    pub fn give_back(&self, key: u128, now: Time) {
        let Some(mut shard) = self.shard(key) else { return };
        if let Some(meter) = shard.meters.get_mut(&key) {
            meter.drain(now.unix_ms());
            // What time has taken of it meanwhile is gone already, so a meter at zero stays there.
            meter.level = meter.level.saturating_sub(REQUEST);
        }
    }

    /// Forgets every key whose meter has run empty; [`Limiter::check`] does it in passing, a quiet server needs
    /// the call to give memory back.
    pub fn sweep(&self, now: Time) {
        for shard in &self.shards {
            lock(shard).sweep(now.unix_ms());
        }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).meters.len()).sum()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: u128) -> Option<MutexGuard<'_, Shard>> {
        let shards = u64::try_from(self.shards.len()).ok()?;
        let index = self.hasher.hash_one(key).checked_rem(shards)?;
        self.shards.get(usize::try_from(index).ok()?).map(lock)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic between two whole assignments leaves nothing half done.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn sweep_when_due(&mut self, now_ms: i64) {
        let long_ago = now_ms.abs_diff(self.swept_at_ms) >= MINUTE_MS.unsigned_abs();
        if long_ago || self.meters.len() >= self.sweep_at_len {
            self.sweep(now_ms);
        }
    }

    fn sweep(&mut self, now_ms: i64) {
        self.meters.retain(|_, meter| {
            let mut later = *meter;
            later.drain(now_ms);
            later.level > 0
        });
        // The next sweep waits until the shard has doubled, so that its cost stays constant a request.
        self.sweep_at_len = self.meters.len().saturating_mul(2).max(SWEEP_FROM);
        self.swept_at_ms = now_ms;
        self.meters.shrink_to(self.sweep_at_len);
    }
}

impl Meter {
    /// A changed limit keeps the used part of the minute, so that nobody waits longer than a minute for it.
    fn set_rate(&mut self, per_minute: u32) {
        if per_minute != self.per_minute {
            let scaled = u128::from(self.level) * u128::from(per_minute);
            let level = scaled.div_ceil(u128::from(self.per_minute));
            self.level = u64::try_from(level).unwrap_or(u64::MAX).min(capacity(per_minute));
            self.per_minute = per_minute;
        }
    }

    fn drain(&mut self, now_ms: i64) {
        let passed = now_ms.saturating_sub(self.at_ms);
        if passed > 0 {
            let drained = passed.unsigned_abs().saturating_mul(u64::from(self.per_minute));
            self.level = self.level.saturating_sub(drained);
        }
        if !(-STEP_BACK_MS..=0).contains(&passed) {
            self.at_ms = now_ms;
        }
    }

    fn take(&mut self, now_ms: i64) -> Result<Allowed, RateLimit> {
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
}

fn capacity(per_minute: u32) -> u64 {
    u64::from(per_minute) * REQUEST
}

/// Whom a limit counts.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    /// An id as a number.
    Id(u128),
    /// Anything that is known by its text, for instance an e-mail address.
    Text(&'a str),
    /// Something known by its text inside something with an id, for instance a model in an organization.
    Within(u128, &'a str),
    /// A client. An IPv6 client counts by its /64, the smallest network that one customer gets: it could take
    /// a fresh address for each attempt.
    Address(IpAddr),
}

/// The limiter's key for this limit and this caller: 128 bits of a SHA-256, so that nobody can aim at another's.
pub fn key_for(scope: &str, who: Who<'_>) -> u128 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(scope.as_bytes());
    // The tag also closes the scope: no scope holds a control character.
    match who {
        Who::Id(id) => {
            context.update(&[1]);
            context.update(&id.to_be_bytes());
        }
        Who::Text(text) => {
            context.update(&[2]);
            context.update(text.as_bytes());
        }
        Who::Within(id, text) => {
            context.update(&[4]);
            context.update(&id.to_be_bytes());
            context.update(text.as_bytes());
        }
        Who::Address(address) => {
            context.update(&[3]);
            match address.to_canonical() {
                IpAddr::V4(v4) => context.update(&v4.octets()),
                IpAddr::V6(v6) => context.update(&network(v6).to_be_bytes()),
            }
        }
    }
    let mut key = [0; 16];
    for (to, from) in key.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    u128::from_be_bytes(key)
}

fn network(address: Ipv6Addr) -> u128 {
    address.to_bits() >> 64 << 64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const START: i64 = 1_700_000_000_000;

    fn at(ms: i64) -> Time {
        Time::from_unix_ms(START + ms)
    }

    #[test]
    fn a_minute_s_worth_at_once_then_the_even_rate() {
        for per_minute in [1, 2, 7, 60, 999_983, 1_000_000] {
            let limiter = Limiter::new();
            for used in 1..=per_minute {
                let allowed = limiter.check(1, per_minute, at(0)).unwrap();
                assert_eq!(allowed.remaining, per_minute - used);
            }
            let refused = limiter.check(1, per_minute, at(0)).unwrap_err();
            let interval = (60_000 + i64::from(per_minute) - 1) / i64::from(per_minute);
            assert_eq!(refused, RateLimit { limit: per_minute, retry_after_ms: interval, reset_ms: 60_000 });
            if interval > 1 {
                assert!(limiter.check(1, per_minute, at(interval - 1)).is_err());
            }
            assert!(limiter.check(1, per_minute, at(interval)).is_ok());
        }
    }

    #[test]
    fn no_rate_loses_or_gains_a_request_over_an_hour() {
        for per_minute in [1_u32, 7, 60, 61, 500] {
            let limiter = Limiter::new();
            let let_through = (0..=3_600_000)
                .step_by(100)
                .filter(|ms| limiter.check(1, per_minute, at(*ms)).is_ok())
                .count();
            assert_eq!(let_through, 61 * usize::try_from(per_minute).unwrap(), "{per_minute}");
        }
    }

    #[test]
    fn a_million_a_minute_is_exact() {
        let limiter = Limiter::new();
        let count = |ms: i64| {
            let mut let_through = 0;
            while limiter.check(1, 1_000_000, at(ms)).is_ok() {
                let_through += 1;
            }
            let_through
        };
        assert_eq!(count(0), 1_000_000);
        // 16 and two thirds a millisecond: fifty in every three.
        assert_eq!((1..=30).map(count).sum::<u32>(), 500);
        assert_eq!(count(60_030), 1_000_000);
    }

    #[test]
    fn keys_do_not_share() {
        let limiter = Limiter::new();
        assert!(limiter.check(1, 1, at(0)).is_ok());
        assert!(limiter.check(1, 1, at(0)).is_err());
        assert!(limiter.check(2, 1, at(0)).is_ok());
    }

    #[test]
    fn a_clock_that_goes_back_harms_nobody() {
        let limiter = Limiter::new();
        assert!(limiter.check(1, 2, at(10_000_000)).is_ok());
        // Far back: the meter follows the clock, so the wait is the usual one.
        assert!(limiter.check(1, 2, at(0)).is_ok());
        assert_eq!(limiter.check(1, 2, at(0)).unwrap_err().retry_after_ms, 30_000);
        assert!(limiter.check(1, 2, at(29_999)).is_err());
        assert!(limiter.check(1, 2, at(30_000)).is_ok());
    }

    #[test]
    fn two_threads_with_clocks_a_moment_apart_gain_nothing() {
        let limiter = Limiter::new();
        let let_through =
            (0..60_000).filter(|turn| limiter.check(1, 60, at(1_000 + turn % 2)).is_ok()).count();
        assert_eq!(let_through, 60);
        let refused = limiter.check(1, 60, at(1_000)).unwrap_err();
        assert!(limiter.check(1, 60, at(1_000 + refused.retry_after_ms - 1)).is_err());
        assert!(limiter.check(1, 60, at(1_000 + refused.retry_after_ms)).is_ok());
    }

    #[test]
    fn a_changed_limit_keeps_the_used_part_of_the_minute() {
        let limiter = Limiter::new();
        for _ in 0..500 {
            limiter.check(1, 1_000, at(0)).unwrap();
        }
        assert_eq!(limiter.check(1, 10, at(0)), Ok(Allowed { remaining: 4, reset_ms: 36_000 }));
        assert_eq!(limiter.check(1, 1_000, at(0)).map(|a| a.remaining), Ok(399));
        assert!(limiter.check(2, 0, at(0)).is_ok());
        assert_eq!(limiter.check(2, 0, at(0)).unwrap_err().limit, 1);
    }

    #[test]
    fn what_is_given_back_was_never_there() {
        let (limiter, reference) = (Limiter::new(), Limiter::new());
        limiter.give_back(1, at(0));
        assert!(limiter.is_empty());
        for ms in [0, 10, 400, 401, 30_000, 90_000] {
            for _ in 0..7 {
                if limiter.check(1, 60, at(ms)).is_ok() {
                    limiter.give_back(1, at(ms));
                }
                let (taken, due) = (limiter.check(1, 60, at(ms)), reference.check(1, 60, at(ms)));
                assert_eq!(taken, due, "{ms}");
            }
            // Given back later than it was taken, also when all of it has drained meanwhile.
            limiter.check(2, 60, at(ms)).unwrap();
            limiter.give_back(2, at(ms + 500));
            assert_eq!(limiter.check(2, 60, at(ms + 500)).map(|allowed| allowed.remaining), Ok(59));
            limiter.give_back(2, at(ms + 500));
        }
    }

    #[test]
    fn only_active_keys_are_remembered() {
        let limiter = Limiter::new();
        for key in 0..200_000 {
            limiter.check(key, 60, at(i64::try_from(key).unwrap())).unwrap();
        }
        // One request of 60 a minute is forgotten after a second, when 1,000 newer keys have come.
        assert!(limiter.len() <= SHARDS * SWEEP_FROM, "{}", limiter.len());
        limiter.sweep(at(300_000));
        assert!(limiter.is_empty());
    }

    #[test]
    fn one_request_is_let_through_once_however_many_ask() {
        let limiter = Arc::new(Limiter::new());
        let let_through = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if limiter.check(1, 500, at(0)).is_ok() {
                            let_through.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(let_through.load(Ordering::SeqCst), 500);
    }

    #[test]
    fn keys_tell_scope_kind_and_caller_apart() {
        let address = |text: &str| Who::Address(text.parse().unwrap());
        let keys = [
            key_for("login", address("203.0.113.7")),
            key_for("register", address("203.0.113.7")),
            key_for("login", address("203.0.113.8")),
            key_for("login", Who::Text("203.0.113.7")),
            key_for("login", Who::Id(7)),
            key_for("login", Who::Within(7, "")),
            key_for("login", Who::Within(7, "203.0.113.7")),
            key_for("login", Who::Within(8, "203.0.113.7")),
            key_for("login", address("2001:db8::1")),
            key_for("login", address("2001:db8:0:1::1")),
        ];
        let different: std::collections::HashSet<_> = keys.into_iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(keys[0], key_for("login", address("::ffff:203.0.113.7")));
        assert_eq!(keys[8], key_for("login", address("2001:db8::ffff:2")));
    }

    /// The textbook form: the theoretical arrival time, in 1/rate of a nanosecond so that nothing is rounded.
    struct Reference {
        rate: i128,
        arrival: i128,
    }

    impl Reference {
        fn check(&mut self, now_ms: i64) -> bool {
            let minute = 60_000_000_000_i128;
            let now = i128::from(now_ms) * 1_000_000 * self.rate;
            let next = self.arrival.max(now) + minute;
            let fits = next - now <= minute * self.rate;
            if fits {
                self.arrival = next;
            }
            fits
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_textbook(rate in 1_u32..200, steps in prop::collection::vec(0_i64..3_000, 1..400)) {
            let limiter = Limiter::new();
            let mut reference = Reference { rate: i128::from(rate), arrival: 0 };
            let mut now = 0;
            for step in steps {
                now += if step > 2_000 { 0 } else { step / 4 };
                let found = limiter.check(1, rate, at(now));
                prop_assert_eq!(found.is_ok(), reference.check(START + now));
            }
        }

        #[test]
        fn the_wait_is_true(rate in 1_u32..1_000_000, used in 0_u32..3_000, later in 0_i64..100) {
            let limiter = Limiter::new();
            for _ in 0..used {
                if limiter.check(1, rate, at(0)).is_err() { break; }
            }
            if let Err(refused) = limiter.check(1, rate, at(later)) {
                prop_assert!((1..=60_000).contains(&refused.retry_after_ms));
                prop_assert!(limiter.check(1, rate, at(later + refused.retry_after_ms - 1)).is_err());
                prop_assert!(limiter.check(1, rate, at(later + refused.retry_after_ms)).is_ok());
            }
        }
    }
}
