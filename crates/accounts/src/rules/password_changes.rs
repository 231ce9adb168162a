//! The hourly limit of password changes: a pure rule over the times of the last changes.

use crate::rules::throttling::Wait;
use kernel::clock::{HOUR_MS, MINUTE_MS, Time};

/// The maximum difference between the clocks of two replicas, in milliseconds. A stored time can be this far
/// in the future.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// Returns the start (exclusive) and the end of the period in which changes count. A change after the end was
/// recorded before the clock was set back.
pub fn counted_period(now: Time) -> (Time, Time) {
    (now.plus_ms(-HOUR_MS), now.plus_ms(CLOCK_SKEW_MS))
}

/// Checks whether another change is allowed. `times` are the changes in the counted period, newest first, and
/// `per_hour` is the maximum number of them.
///
/// # Errors
/// The wait until a change is allowed again.
pub fn check_limit(times: &[Time], per_hour: u32, now: Time) -> Result<(), Wait> {
    let nth = usize::try_from(per_hour).unwrap_or(usize::MAX).saturating_sub(1);
    match times.get(nth) {
        None => Ok(()),
        Some(oldest) => {
            let retry_after_ms = oldest.plus_ms(HOUR_MS).unix_ms() - now.unix_ms();
            Err(Wait { retry_after_ms: retry_after_ms.clamp(1, HOUR_MS), limit: per_hour })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix_ms(1_700_000_000_000);

    fn ago(ms: i64) -> Time {
        NOW.plus_ms(-ms)
    }

    #[test]
    fn changes_are_limited_per_hour() {
        let three = [ago(0), ago(MINUTE_MS), ago(HOUR_MS - 1)];
        assert_eq!(check_limit(&three, 4, NOW), Ok(()));
        assert_eq!(check_limit(&three, 3, NOW), Err(Wait { retry_after_ms: 1, limit: 3 }));
        let wait = Wait { retry_after_ms: HOUR_MS - MINUTE_MS, limit: 2 };
        assert_eq!(check_limit(&three, 2, NOW), Err(wait));
        assert_eq!(check_limit(&[], 1, NOW), Ok(()));
    }

    #[test]
    fn clock_set_back_locks_no_account_out() {
        let (since, until) = counted_period(NOW);
        assert_eq!((since, until), (ago(HOUR_MS), NOW.plus_ms(MINUTE_MS)));
        let ahead = [until];
        assert_eq!(check_limit(&ahead, 1, NOW), Err(Wait { retry_after_ms: HOUR_MS, limit: 1 }));
    }
}
