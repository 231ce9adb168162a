//! Schedule of retries of failed deliveries (docs/contract/webhooks.md#attempts).

use kernel::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Time};

/// Delays after the first, second, … attempt, in milliseconds.
pub const WAITS_MS: [i64; 9] = [
    5 * SECOND_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    14 * HOUR_MS,
    20 * HOUR_MS,
    24 * HOUR_MS,
];

/// Maximum delay that a receiver can request, in milliseconds.
pub const MAX_RETRY_AFTER_MS: i64 = DAY_MS;

/// Period of consecutive failures after which a webhook is disabled, in milliseconds.
pub const DISABLED_AFTER_MS: i64 = 5 * DAY_MS;

/// Maximum random change of a delay, in parts per million.
const SPREAD_PPM: i64 = 200_000;

/// Returns the time of the next attempt after this number of attempts; `None` after the last one. `random`
/// changes the delay by up to ±20 %. A receiver can request a longer delay of up to a day.
pub fn next_attempt(attempts: i64, retry_after_ms: Option<i64>, random: u32, now: Time) -> Option<Time> {
    let index = usize::try_from(attempts.checked_sub(1)?).ok()?;
    let wait = WAITS_MS.get(index)?;
    let spread = i64::from(random) % (2 * SPREAD_PPM + 1) - SPREAD_PPM;
    let wait = wait + wait / 1_000_000 * spread + wait % 1_000_000 * spread / 1_000_000;
    let asked = retry_after_ms.unwrap_or(0).clamp(0, MAX_RETRY_AFTER_MS);
    Some(now.plus_ms(wait.max(asked)))
}

/// Returns the delay of a `retry-after` header in milliseconds, given in seconds or as a date.
pub fn retry_after_ms(header: &str, now: Time) -> Option<i64> {
    let header = header.trim();
    if !header.is_empty() && header.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = header.parse::<i64>().unwrap_or(i64::MAX);
        return Some(seconds.saturating_mul(SECOND_MS));
    }
    let until = Time::parse_http_date(header)?;
    Some(until.unix_ms().saturating_sub(now.unix_ms()).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix_ms(1_769_851_800_000);

    fn wait_ms(attempts: i64, retry_after_ms: Option<i64>, random: u32) -> Option<i64> {
        next_attempt(attempts, retry_after_ms, random, NOW).map(|at| at.unix_ms() - NOW.unix_ms())
    }

    #[test]
    fn there_are_ten_attempts_within_three_days() {
        // 200 000 of 400 001 values: no change.
        let waits_s: Vec<_> = (1..=10).map(|n| wait_ms(n, None, 200_000).map(|ms| ms / 1_000)).collect();
        let expected = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400].map(Some);
        assert_eq!(waits_s, [&expected[..], &[None]].concat());
        assert_eq!((wait_ms(0, None, 0), wait_ms(-1, None, 0), wait_ms(11, None, 0)), (None, None, None));
    }

    #[test]
    fn waits_are_spread_by_a_fifth() {
        assert_eq!((wait_ms(1, None, 0), wait_ms(1, None, 400_000)), (Some(4_000), Some(6_000)));
        assert_eq!(wait_ms(9, None, 0), Some(69_120_000));
        assert_eq!(wait_ms(9, None, 400_000), Some(103_680_000));
    }

    #[test]
    fn longer_wait_is_granted_up_to_a_day() {
        assert_eq!(wait_ms(1, Some(60_000), 0), Some(60_000));
        assert_eq!(wait_ms(2, Some(60_000), 200_000), Some(300_000), "ours is longer");
        assert_eq!(wait_ms(1, Some(i64::MAX), 0), Some(DAY_MS));
        assert_eq!(wait_ms(1, Some(-1), 0), Some(4_000));
        assert_eq!(wait_ms(10, Some(60_000), 0), None, "it was the last");
    }

    #[test]
    fn retry_after_is_seconds_or_a_time() {
        for (header, expected) in [
            ("120", Some(120_000)),
            (" 0 ", Some(0)),
            ("Sat, 31 Jan 2026 09:31:00 GMT", Some(60_000)),
            ("Sat, 31 Jan 2026 09:00:00 GMT", Some(0)),
            ("99999999999999999999", Some(i64::MAX)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after_ms(header, NOW), expected, "{header}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_wait_leaves_its_spread(attempts in 1_i64..=9, random: u32) {
            let wait = WAITS_MS[usize::try_from(attempts - 1).unwrap()];
            let found = wait_ms(attempts, None, random).unwrap();
            proptest::prop_assert!(found >= wait * 8 / 10 && found <= wait * 12 / 10, "{found} {wait}");
        }
    }
}
