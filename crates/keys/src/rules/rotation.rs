//! The rotation of an API key: how long the previous secret stays valid.

use kernel::clock::{HOUR_MS, Time};
use kernel::error::{Code, Error};

/// The longest grace period that can be configured, in hours: 30 days.
pub const MAX_GRACE_HOURS: i64 = 30 * 24;

/// Returns when the previous secret ends: after the grace period, but never later than the key itself
/// (docs/contract/api-keys.md#rotation).
///
/// # Errors
/// 409 `key_expired`: an expired key gets no new secret.
pub fn grace_period_end(now: Time, grace_hours: u32, expires_at: Option<Time>) -> Result<Time, Error> {
    if expires_at.is_some_and(|at| at <= now) {
        return Err(Code::KeyExpired.into());
    }
    let ends = now.plus_ms(i64::from(grace_hours).saturating_mul(HOUR_MS));
    Ok(expires_at.map_or(ends, |at| at.min(ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_period_lasts_as_configured_but_not_longer_than_the_key() {
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
            let ends = grace_period_end(at(0), hours, expires_at);
            match expected {
                Some(expected) => assert_eq!(ends.unwrap(), expected, "{hours} {expires_at:?}"),
                None => assert_eq!(ends.unwrap_err().code, Code::KeyExpired, "{hours} {expires_at:?}"),
            }
        }
    }
}
