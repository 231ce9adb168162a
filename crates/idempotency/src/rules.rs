//! The rule for a request with an idempotency key.

use crate::never;
use crate::store::Found;
use kernel::clock::Time;

/// The decision about a request with a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Claim the key and run the operation.
    Run,
    /// Send this stored response again. It is still sealed.
    Answer(Vec<u8>),
    /// Refuse the request, because another request with this key is running.
    InProgress,
    /// Refuse the request, because the key was used with different content.
    Reused,
}

/// Decides about a request with this content (docs/contract/README.md#idempotency). `found` is the row of its
/// key, if any.
pub fn decide(found: Option<Found>, content_hash: &[u8; 32], now: Time) -> Decision {
    match found {
        None => Decision::Run,
        Some(row) if row.answer.is_none() && has_ended(row.leased_until, now) => Decision::Run,
        Some(row) if row.content_hash != *content_hash => Decision::Reused,
        Some(row) => row.answer.map_or(Decision::InProgress, Decision::Answer),
    }
}

/// Returns `true` if a lease has ended. A lease that ends too far in the future was taken before the clock
/// was set back, so it doesn't count.
fn has_ended(leased_until: Time, now: Time) -> bool {
    leased_until <= now || leased_until >= never(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LEASE_MS;

    #[test]
    fn decision_follows_from_content_answer_and_lease() {
        let now = Time::from_unix_ms(1_000_000_000);
        let (mine, other) = ([1; 32], [2; 32]);
        let row = |content_hash, until_ms, answer: Option<&[u8]>| {
            let leased_until = now.plus_ms(until_ms);
            Some(Found { content_hash, leased_until, answer: answer.map(<[u8]>::to_vec) })
        };
        let answer = || Decision::Answer(b"a".to_vec());
        let cases = [
            (None, Decision::Run),
            (row(mine, 1, None), Decision::InProgress),
            (row(other, 1, None), Decision::Reused),
            (row(mine, 0, None), Decision::Run),
            (row(other, 0, None), Decision::Run),
            (row(mine, LEASE_MS, None), Decision::InProgress),
            (row(mine, 2 * LEASE_MS - 1, None), Decision::InProgress),
            (row(mine, 2 * LEASE_MS, None), Decision::Run),
            // The lease doesn't matter once the row has an answer.
            (row(mine, -1, Some(b"a")), answer()),
            (row(mine, 2 * LEASE_MS, Some(b"a")), answer()),
            (row(other, -1, Some(b"a")), Decision::Reused),
        ];
        for (found, expected) in cases {
            assert_eq!(decide(found.clone(), &mine, now), expected, "{found:?}");
        }
    }
}
