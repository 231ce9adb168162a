//! Rate limits in memory: the generic cell rate algorithm (GCRA), with a burst of one minute's worth of
//! requests.
//!
//! Each key has a meter. Each request adds one to the meter, which drains at the limit's rate. A request that
//! would overfill the meter is refused. An empty meter is equivalent to no meter, so it is dropped. Memory
//! therefore contains only keys that were used within about the last minute.
//!
//! These meters belong to one replica. They limit management calls by caller, and logins and registrations by
//! address. Limits that replicas share are leased through the database, outside of this crate.

mod shards;

use std::net::{IpAddr, Ipv6Addr};

use ring::digest;

pub use shards::Shards;

use crate::clock::Time;
use crate::error::RateLimit;
pub use crate::rates::Allowance;
use crate::rates::Meter;

/// The meters of this replica.
#[derive(Debug, Default)]
pub struct Limiter {
    shards: Shards<Meter>,
}

impl Limiter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a request of `key` (see [`key_for`]) against a limit of `per_minute` requests; 0 counts as 1.
    ///
    /// # Errors
    /// The limit is used up. `retry_after_ms` is the wait after which a request is allowed, if no other
    /// request arrives before. A refused request doesn't count.
    pub fn check(&self, key: u128, per_minute: u32, now: Time) -> Result<Allowance, RateLimit> {
        let now_ms = now.unix_ms();
        let Some(mut shard) = self.shards.of(key) else {
            // This is unreachable, because every key has a shard. Refusing every request would be worse.
            return Ok(Allowance { remaining: 0, reset_ms: 0 });
        };
        shard.sweep_when_due(now_ms, Meter::is_used);
        let meter = shard.entry(key).or_insert_with(|| Meter::empty(per_minute, now_ms));
        meter.set_rate(per_minute.max(1));
        meter.drain(now_ms);
        meter.take(now_ms)
    }

    /// Undoes a request that [`Limiter::check`] has allowed, for instance because another limit has refused
    /// it.
    pub fn give_back(&self, key: u128, now: Time) {
        let Some(mut shard) = self.shards.of(key) else { return };
        if let Some(meter) = shard.entries.get_mut(&key) {
            meter.give_back(now.unix_ms());
        }
    }

    /// Drops all empty meters. [`Limiter::check`] also drops empty meters, but without requests, only this
    /// call frees memory.
    pub fn sweep(&self, now: Time) {
        self.shards.sweep(now.unix_ms(), Meter::is_used);
    }

    /// Returns the number of keys in memory.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }
}

/// The subject that a limit counts.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// An id as a number.
    Id(u128),
    /// A string, for instance an e-mail address.
    Text(&'a str),
    /// A string that belongs to an id, for instance a model of an organization.
    Within(u128, &'a str),
    /// A client's address. An IPv6 address counts as its /64, the smallest network that a customer of a
    /// provider gets, because a client could use a new address for each attempt. All clients without a known
    /// address count as one.
    Address(Option<IpAddr>),
}

/// Returns the limiter's key for a limit and a subject: 128 bits of SHA-256, so that no caller can
/// deliberately collide with another. Ids are random and can't be chosen, so they don't need a digest.
pub fn key_for(scope: &str, subject: Subject<'_>) -> u128 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(scope.as_bytes());
    // The tag also terminates the scope, which contains no control characters.
    match subject {
        Subject::Id(id) => return id ^ fnv1a(scope),
        Subject::Text(text) => {
            context.update(&[2]);
            context.update(text.as_bytes());
        }
        Subject::Within(id, text) => {
            context.update(&[4]);
            context.update(&id.to_be_bytes());
            context.update(text.as_bytes());
        }
        Subject::Address(address) => {
            context.update(&[3]);
            match address.map(|address| address.to_canonical()) {
                None => {}
                Some(IpAddr::V4(v4)) => context.update(&v4.octets()),
                Some(IpAddr::V6(v6)) => context.update(&subnet_64(v6).to_be_bytes()),
            }
        }
    }
    let mut key = [0; 16];
    for (to, from) in key.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    u128::from_be_bytes(key)
}

/// Returns the FNV-1a hash of a scope, which gives the same id different keys in different limits.
fn fnv1a(scope: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    scope.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

fn subnet_64(address: Ipv6Addr) -> u128 {
    address.to_bits() >> 64 << 64
}

#[cfg(test)]
mod tests {
    use super::shards::{MIN_SWEEP_LEN, SHARDS};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const START: i64 = 1_700_000_000_000;

    fn at(ms: i64) -> Time {
        Time::from_unix_ms(START + ms)
    }

    #[test]
    fn burst_of_one_minute_then_even_rate() {
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
    fn rates_are_exact_over_an_hour() {
        for per_minute in [1_u32, 7, 60, 61, 500] {
            let limiter = Limiter::new();
            let allowed = (0..=3_600_000)
                .step_by(100)
                .filter(|ms| limiter.check(1, per_minute, at(*ms)).is_ok())
                .count();
            assert_eq!(allowed, 61 * usize::try_from(per_minute).unwrap(), "{per_minute}");
        }
    }

    #[test]
    fn million_per_minute_is_exact() {
        let limiter = Limiter::new();
        let count = |ms: i64| {
            let mut allowed = 0;
            while limiter.check(1, 1_000_000, at(ms)).is_ok() {
                allowed += 1;
            }
            allowed
        };
        assert_eq!(count(0), 1_000_000);
        // The rate is 16 2/3 requests per millisecond, or 50 in every three milliseconds.
        assert_eq!((1..=30).map(count).sum::<u32>(), 500);
        assert_eq!(count(60_030), 1_000_000);
    }

    #[test]
    fn keys_are_independent() {
        let limiter = Limiter::new();
        assert!(limiter.check(1, 1, at(0)).is_ok());
        assert!(limiter.check(1, 1, at(0)).is_err());
        assert!(limiter.check(2, 1, at(0)).is_ok());
    }

    #[test]
    fn meter_follows_large_steps_back_of_the_clock() {
        let limiter = Limiter::new();
        assert!(limiter.check(1, 2, at(10_000_000)).is_ok());
        // After a large step back, the meter follows the clock, so the wait is the usual one.
        assert!(limiter.check(1, 2, at(0)).is_ok());
        assert_eq!(limiter.check(1, 2, at(0)).unwrap_err().retry_after_ms, 30_000);
        assert!(limiter.check(1, 2, at(29_999)).is_err());
        assert!(limiter.check(1, 2, at(30_000)).is_ok());
    }

    #[test]
    fn clock_skew_between_threads_gains_no_requests() {
        let limiter = Limiter::new();
        let allowed = (0..60_000).filter(|turn| limiter.check(1, 60, at(1_000 + turn % 2)).is_ok()).count();
        assert_eq!(allowed, 60);
        let refused = limiter.check(1, 60, at(1_000)).unwrap_err();
        assert!(limiter.check(1, 60, at(1_000 + refused.retry_after_ms - 1)).is_err());
        assert!(limiter.check(1, 60, at(1_000 + refused.retry_after_ms)).is_ok());
    }

    #[test]
    fn changed_limit_keeps_the_used_share() {
        let limiter = Limiter::new();
        for _ in 0..500 {
            limiter.check(1, 1_000, at(0)).unwrap();
        }
        assert_eq!(limiter.check(1, 10, at(0)), Ok(Allowance { remaining: 4, reset_ms: 36_000 }));
        assert_eq!(limiter.check(1, 1_000, at(0)).map(|a| a.remaining), Ok(399));
        assert!(limiter.check(2, 0, at(0)).is_ok());
        assert_eq!(limiter.check(2, 0, at(0)).unwrap_err().limit, 1);
    }

    #[test]
    fn give_back_undoes_check() {
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
            // A request is undone after part of it has drained.
            limiter.check(2, 60, at(ms)).unwrap();
            limiter.give_back(2, at(ms + 500));
            assert_eq!(limiter.check(2, 60, at(ms + 500)).map(|allowed| allowed.remaining), Ok(59));
            limiter.give_back(2, at(ms + 500));
        }
    }

    #[test]
    fn drained_keys_are_dropped() {
        let limiter = Limiter::new();
        for key in 0..200_000 {
            limiter.check(key, 60, at(i64::try_from(key).unwrap())).unwrap();
        }
        // At 60 requests per minute, one request has drained after a second, when 1,000 newer keys exist.
        assert!(limiter.len() <= SHARDS * MIN_SWEEP_LEN, "{}", limiter.len());
        limiter.sweep(at(300_000));
        assert!(limiter.is_empty());
    }

    #[test]
    fn flood_of_keys_stays_within_the_limit_of_entries() {
        let (limiter, max) = (Limiter::new(), shards::SHARDS * shards::MAX_ENTRIES);
        let last = u128::try_from(max).unwrap() + 299_999;
        for key in 0..=last {
            limiter.check(key, 60, at(0)).unwrap();
        }
        assert!((max * 9 / 10..=max).contains(&limiter.len()), "{}", limiter.len());
        // Keys that remain in memory are still counted.
        let refused = (0..61).filter(|_| limiter.check(last, 60, at(0)).is_err()).count();
        assert!((1..=2).contains(&refused), "{refused}");
    }

    #[test]
    fn concurrent_checks_allow_exactly_the_limit() {
        let limiter = Arc::new(Limiter::new());
        let allowed = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if limiter.check(1, 500, at(0)).is_ok() {
                            allowed.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(allowed.load(Ordering::SeqCst), 500);
    }

    #[test]
    fn keys_differ_by_scope_kind_and_subject() {
        let address = |text: &str| Subject::Address(Some(text.parse().unwrap()));
        let keys = [
            key_for("login", address("203.0.113.7")),
            key_for("register", address("203.0.113.7")),
            key_for("login", address("203.0.113.8")),
            key_for("login", Subject::Text("203.0.113.7")),
            key_for("login", Subject::Id(7)),
            key_for("register", Subject::Id(7)),
            key_for("login", Subject::Id(8)),
            key_for("login", Subject::Within(7, "")),
            key_for("login", Subject::Within(7, "203.0.113.7")),
            key_for("login", Subject::Within(8, "203.0.113.7")),
            key_for("login", address("2001:db8::1")),
            key_for("login", address("2001:db8:0:1::1")),
            key_for("login", Subject::Address(None)),
            key_for("register", Subject::Address(None)),
        ];
        let different: std::collections::HashSet<_> = keys.into_iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(keys[0], key_for("login", address("::ffff:203.0.113.7")));
        assert_eq!(keys[10], key_for("login", address("2001:db8::ffff:2")));
    }

    /// GCRA in its textbook form, with the theoretical arrival time. Its unit is a nanosecond divided by the
    /// rate, so that it isn't rounded.
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

    /// The test vectors are from the algorithm's authors.
    #[test]
    fn scopes_have_known_hashes() {
        assert_eq!(fnv1a(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    proptest! {
        #[test]
        fn agrees_with_textbook_gcra(
            rate in 1_u32..200,
            steps in prop::collection::vec(0_i64..3_000, 1..400),
        ) {
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
        fn retry_after_is_exact(rate in 1_u32..1_000_000, used in 0_u32..3_000, later in 0_i64..100) {
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
