//! The rotation of an API key: how long the previous secret stays valid.

use kernel::clock::{HOUR_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use kernel::naming::Problem;

/// Maximum grace period that can be configured, in hours: 30 days.
pub const MAX_GRACE_HOURS: i64 = 30 * 24;
/// Maximum grace period that can be configured, in seconds.
pub const MAX_GRACE_SECONDS: i64 = MAX_GRACE_HOURS * HOUR_MS / SECOND_MS;

/// Checks the requested grace period of a rotation, which may be at most the configured grace period
/// (docs/contract/api-keys.md#rotation).
pub fn check_grace(grace_seconds: i64, configured_hours: u32) -> Result<(), Problem> {
    let max_seconds = i64::from(configured_hours) * HOUR_MS / SECOND_MS;
    if (0..=max_seconds).contains(&grace_seconds) {
        return Ok(());
    }
    let message = format!(
        "`grace_seconds` must be between 0 and {max_seconds}, which is this server's grace period and the \
         default."
    );
    Err(Problem::new("out_of_range", message))
}

/// Returns the end of the previous secret: after the grace period, but never later than the key itself
/// (docs/contract/api-keys.md#rotation).
///
/// # Errors
/// 409 `key_expired`, because the secret of an expired key can't be rotated.
pub fn grace_period_end(now: Time, grace_ms: i64, expires_at: Option<Time>) -> Result<Time, Error> {
    if expires_at.is_some_and(|at| at <= now) {
        return Err(Code::KeyExpired.into());
    }
    let ends = now.plus_ms(grace_ms);
    Ok(expires_at.map_or(ends, |at| at.min(ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_asks_for_at_most_the_configured_grace_period() {
        let allows = |seconds, hours| check_grace(seconds, hours).is_ok();
        assert!(allows(0, 0) && allows(0, 24) && allows(86_400, 24) && allows(MAX_GRACE_SECONDS, 720));
        for (seconds, hours) in [(1, 0), (-1, 0), (-1, 24), (86_401, 24), (i64::MAX, 720), (i64::MIN, 720)] {
            let problem = check_grace(seconds, hours).unwrap_err();
            let bound = format!("`grace_seconds` must be between 0 and {}, ", i64::from(hours) * 3_600);
            assert!(problem.code == "out_of_range" && problem.message.starts_with(&bound), "{problem:?}");
        }
    }

    #[test]
    fn grace_period_lasts_as_asked_but_not_longer_than_the_key() {
        let at = |hours: i64| Time::from_unix_ms(1_000_000).plus_ms(hours * HOUR_MS);
        let after = |hours: i64, ms: i64| Some(at(hours).plus_ms(ms));
        let cases = [
            (24, None, Some(at(24))),
            (0, None, Some(at(0))),
            (720, None, Some(at(720))),
            (24, after(48, 0), Some(at(24))),
            (24, after(24, 1), Some(at(24))),
            (24, after(24, 0), Some(at(24))),
            (24, after(24, -1), after(24, -1)),
            (24, after(0, 1), after(0, 1)),
            (0, after(0, 1), Some(at(0))),
            (24, after(0, 0), None),
            (24, after(-1, 0), None),
            (0, after(0, 0), None),
        ];
        for (hours, expires_at, expected) in cases {
            let ends = grace_period_end(at(0), hours * HOUR_MS, expires_at);
            match expected {
                Some(expected) => assert_eq!(ends.unwrap(), expected, "{hours} {expires_at:?}"),
                None => assert_eq!(ends.unwrap_err().code, Code::KeyExpired, "{hours} {expires_at:?}"),
            }
        }
    }
}
