//! Throttling of login attempts (docs/contract/accounts.md#throttling): a state machine. The caller passes in
//! the time.
//!
//! An attempt is counted before its outcome is known, so that parallel attempts don't get around the limit.
//! No account is ever locked permanently: an attacker who keeps guessing makes the owner wait at most 15
//! minutes, and not at all on a network from which the owner has logged in recently.

use kernel::clock::{DAY_MS, MINUTE_MS, SECOND_MS, Time};

/// The time without attempts after which all attempts are forgotten, in milliseconds.
pub const FORGET_AFTER_MS: i64 = DAY_MS;
/// The first wait after too many failed logins, in milliseconds. Each further wait is twice as long.
const FIRST_WAIT_MS: i64 = SECOND_MS;
/// The longest wait after failed logins, in milliseconds.
const MAX_WAIT_MS: i64 = 15 * MINUTE_MS;

/// The attempts on one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempts {
    /// The number of attempts.
    pub count: i64,
    /// The time of the last attempt.
    pub since: Time,
    /// Attempts before this time are refused.
    pub blocked_until: Time,
}

/// The refusal of an attempt, with the time to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The remaining wait, in milliseconds.
    pub retry_after_ms: i64,
    /// The number of attempts that are allowed without a wait.
    pub limit: u32,
}

/// The maximum difference between the clocks of two replicas, in milliseconds. A stored time that is further
/// in the future was written before the clock was set back.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// Counts one login attempt. The first `free` attempts cause no wait. After them, each wait is twice as long
/// as the previous one, up to 15 minutes.
///
/// # Errors
/// The remaining wait. The refused attempt isn't counted.
pub fn count_login(before: Option<Attempts>, free: u32, now: Time) -> Result<Attempts, Wait> {
    let before = before.filter(|attempts| now < attempts.since.plus_ms(FORGET_AFTER_MS));
    let waits_ms = before.map_or(0, |attempts| attempts.blocked_until.unix_ms() - now.unix_ms());
    // A longer wait comes from a clock that was wrong. It is ignored, so that it doesn't lock the account.
    if (1..=MAX_WAIT_MS + CLOCK_SKEW_MS).contains(&waits_ms) {
        return Err(Wait { retry_after_ms: waits_ms.min(MAX_WAIT_MS), limit: free });
    }
    let count = before.map_or(0, |attempts| attempts.count).saturating_add(1);
    let over = count - i64::from(free);
    let wait_ms = match u32::try_from(over) {
        // 2^20 seconds is much longer than the longest wait.
        Ok(over) => FIRST_WAIT_MS.saturating_mul(1_i64 << over.min(20)).min(MAX_WAIT_MS),
        Err(_) => 0,
    };
    Ok(Attempts { count, since: now, blocked_until: now.plus_ms(wait_ms) })
}

/// The attempts on one account that count for a client on one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginAttempts {
    /// Attempts from this network.
    pub network: Attempts,
    /// Attempts from all unknown networks: those from which the account hasn't logged in recently.
    pub unknown_networks: Attempts,
}

/// The numbers of attempts that are allowed without a wait.
#[derive(Clone, Copy, Debug)]
pub struct FreeAttempts {
    /// Attempts from one network.
    pub network: u32,
    /// Attempts from all unknown networks: those from which the account hasn't logged in recently.
    pub unknown_networks: u32,
}

/// Counts one login attempt from a network. On a known network, from which the account has logged in
/// recently, only the attempts from this network count. On any other network, the attempts from all unknown
/// networks together count as well.
///
/// # Errors
/// The longer of the remaining waits. The refused attempt isn't counted.
pub fn count_login_from(
    before: &LoginAttempts,
    free: FreeAttempts,
    is_known: bool,
    now: Time,
) -> Result<LoginAttempts, Wait> {
    let non_empty = |attempts: Attempts| (attempts.count > 0).then_some(attempts);
    let network = count_login(non_empty(before.network), free.network, now);
    let unknown_networks = if is_known {
        Ok(before.unknown_networks)
    } else {
        count_login(non_empty(before.unknown_networks), free.unknown_networks, now)
    };
    match (network, unknown_networks) {
        (Ok(network), Ok(unknown_networks)) => Ok(LoginAttempts { network, unknown_networks }),
        (Err(one), Err(other)) if other.retry_after_ms > one.retry_after_ms => Err(other),
        (Err(wait), _) | (_, Err(wait)) => Err(wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_unix_ms(1_700_000_000_000);

    #[test]
    fn waits_double_after_ten_free_attempts_up_to_15_minutes() {
        let (mut attempts, mut now, mut waits) = (None, START, Vec::new());
        for _ in 0..24 {
            let next = count_login(attempts, 10, now).unwrap();
            let wait_s = (next.blocked_until.unix_ms() - now.unix_ms()) / SECOND_MS;
            waits.push(wait_s);
            if wait_s > 0 {
                let early = count_login(Some(next), 10, next.blocked_until.plus_ms(-1)).unwrap_err();
                assert_eq!(early, Wait { retry_after_ms: 1, limit: 10 });
            }
            (attempts, now) = (Some(next), next.blocked_until);
        }
        let expected =
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900, 900, 900];
        assert_eq!(waits, expected);
    }

    const FREE: FreeAttempts = FreeAttempts { network: 10, unknown_networks: 100 };

    #[test]
    fn known_network_is_slowed_only_by_its_own_attempts() {
        let none = Attempts { count: 0, since: START, blocked_until: START };
        let blocked =
            |count, wait_ms| Attempts { count, since: START, blocked_until: START.plus_ms(wait_ms) };
        let of = |network, unknown_networks| LoginAttempts { network, unknown_networks };
        let counted = count_login_from(&of(none, blocked(120, 9_000)), FREE, true, START).unwrap();
        assert_eq!((counted.network.count, counted.unknown_networks), (1, blocked(120, 9_000)));
        let wait =
            |found: Result<LoginAttempts, Wait>| found.map_err(|wait| (wait.retry_after_ms, wait.limit));
        assert_eq!(
            wait(count_login_from(&of(none, blocked(120, 9_000)), FREE, false, START)),
            Err((9_000, 100))
        );
        // The longer of two waits is returned.
        let both = of(blocked(15, 9_001), blocked(120, 9_000));
        assert_eq!(wait(count_login_from(&both, FREE, false, START)), Err((9_001, 10)));
        let both = of(blocked(15, 9_000), blocked(120, 9_001));
        assert_eq!(wait(count_login_from(&both, FREE, false, START)), Err((9_001, 100)));
        assert_eq!(wait(count_login_from(&both, FREE, true, START)), Err((9_000, 10)));
        let counted = count_login_from(&of(none, none), FREE, false, START).unwrap();
        assert_eq!((counted.network.count, counted.unknown_networks.count), (1, 1));
    }

    #[test]
    fn a_day_without_attempts_resets_the_count() {
        let attempts = Attempts { count: 50, since: START, blocked_until: START };
        assert_eq!(count_login(Some(attempts), 10, START.plus_ms(DAY_MS - 1)).unwrap().count, 51);
        assert_eq!(count_login(Some(attempts), 10, START.plus_ms(DAY_MS)).unwrap().count, 1);
    }

    #[test]
    fn clock_set_back_locks_no_account_out() {
        let year_ms = 365 * DAY_MS;
        let in_a_year = count_login(None, 2, START.plus_ms(year_ms)).unwrap();
        let in_a_year = count_login(Some(in_a_year), 2, START.plus_ms(year_ms)).unwrap();
        assert!(in_a_year.blocked_until > START.plus_ms(year_ms));
        let back = count_login(Some(in_a_year), 2, START).unwrap();
        assert_eq!((back.count, back.since), (3, START), "counting continues from the current time");
        assert_eq!(back.blocked_until, START.plus_ms(2 * FIRST_WAIT_MS));
        // A replica whose clock is half a minute behind doesn't shorten the wait.
        let blocked = Attempts { count: 99, since: START, blocked_until: START.plus_ms(MAX_WAIT_MS) };
        let behind = START.plus_ms(-30 * SECOND_MS);
        assert_eq!(count_login(Some(blocked), 10, behind).unwrap_err().retry_after_ms, MAX_WAIT_MS);
    }

    proptest::proptest! {
        #[test]
        fn waiting_as_long_as_returned_is_enough(gaps in proptest::collection::vec(0_i64..2_000_000, 1..60)) {
            let (mut attempts, mut now) = (None, START);
            for gap in gaps {
                now = now.plus_ms(gap);
                let counted = count_login(attempts, 10, now).or_else(|wait| {
                    now = now.plus_ms(wait.retry_after_ms);
                    count_login(attempts, 10, now)
                });
                proptest::prop_assert!(counted.is_ok());
                let counted = counted.unwrap();
                proptest::prop_assert!(counted.blocked_until.unix_ms() - now.unix_ms() <= MAX_WAIT_MS);
                attempts = Some(counted);
            }
        }
    }
}
