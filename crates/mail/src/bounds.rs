//! Limits on the number of e-mails within an hour, for each account, client address and recipient.
//!
//! An hour begins with the first e-mail that is counted in it. Password resets and verifications have
//! separate counters for each recipient, so that many other e-mails can't block them.

use kernel::clock::{HOUR_MS, MINUTE_MS, Time};
use kernel::limits::Limits;
use strum::{EnumString, IntoStaticStr};

/// The length of a counting period, in milliseconds.
pub const WINDOW_MS: i64 = HOUR_MS;
/// The maximum difference between the clocks of two replicas, in milliseconds. If a period starts further in
/// the future, its start was written before the clock was set back, and is ignored.
pub const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// The hourly limit of each counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The limit of [`Counter::Account`].
    pub account: u32,
    /// The limit of [`Counter::Address`].
    pub address: u32,
    /// The limit of [`Counter::Recipient`].
    pub recipient: u32,
    /// The limit of [`Counter::PasswordReset`].
    pub password_resets: u32,
    /// The limit of [`Counter::Verification`].
    pub verifications: u32,
}

impl Bounds {
    /// Returns the limits in the table `limits` of the configuration; `None` if limits are disabled.
    pub fn from_limits(limits: &Limits) -> Option<Self> {
        limits.enabled.then_some(Self {
            account: limits.mails_per_account_hour,
            address: limits.mails_per_address_hour,
            recipient: limits.mails_per_recipient_hour,
            password_resets: limits.password_resets_per_hour,
            verifications: limits.verifications_per_hour,
        })
    }

    /// Returns the limit of a counter.
    pub const fn of(&self, counter: Counter) -> u32 {
        match counter {
            Counter::Account => self.account,
            Counter::Address => self.address,
            Counter::Recipient => self.recipient,
            Counter::PasswordReset => self.password_resets,
            Counter::Verification => self.verifications,
        }
    }
}

/// A counter of e-mails. Counters are locked in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Counter {
    /// E-mails caused by a user, including the user's API keys.
    Account,
    /// E-mails caused from a client address.
    Address,
    /// E-mails to a recipient, except password resets and verifications.
    Recipient,
    /// Password resets to a recipient.
    PasswordReset,
    /// Links that verify the recipient's address, including the new address of an account.
    Verification,
}

db::words!(Counter);

impl Counter {
    /// Returns the configuration key of the counter's limit.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Account => "limits.mails_per_account_hour",
            Self::Address => "limits.mails_per_address_hour",
            Self::Recipient => "limits.mails_per_recipient_hour",
            Self::PasswordReset => "limits.password_resets_per_hour",
            Self::Verification => "limits.verifications_per_hour",
        }
    }
}

/// Returns the number of the `added` e-mails that are within `bound`. `counted` is the counter after they
/// were added.
pub fn fitting(counted: i64, added: i64, bound: u32) -> i64 {
    i64::from(bound).saturating_sub(counted.saturating_sub(added)).clamp(0, added.max(0))
}

/// Returns the time until the end of a period that began at `since`, in milliseconds.
pub fn retry_after_ms(since: Time, now: Time) -> i64 {
    (since.unix_ms().saturating_add(WINDOW_MS)).saturating_sub(now.unix_ms()).clamp(1, WINDOW_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_unix_ms(1_700_000_000_000);

    #[test]
    fn a_counter_takes_as_many_as_its_bound() {
        let cases = [
            // The counter with the added e-mails, their number, the bound, and the number within the bound.
            (1, 1, 5, 1),
            (5, 1, 5, 1),
            (6, 1, 5, 0),
            (900, 1, 5, 0),
            (7, 7, 5, 5),
            (7, 4, 5, 2),
            (0, 0, 5, 0),
            (i64::MAX, 1, u32::MAX, 0),
        ];
        for (counted, added, bound, expected) in cases {
            assert_eq!(fitting(counted, added, bound), expected, "{counted} {added} {bound}");
        }
    }

    #[test]
    fn the_wait_ends_with_the_hour() {
        assert_eq!(retry_after_ms(START, START.plus_ms(10 * MINUTE_MS)), 50 * MINUTE_MS);
        assert_eq!(retry_after_ms(START, START.plus_ms(HOUR_MS)), 1);
        // The clock is half a minute behind that of another replica.
        assert_eq!(retry_after_ms(START, START.plus_ms(-30_000)), HOUR_MS);
    }

    proptest::proptest! {
        #[test]
        fn no_sequence_passes_the_bound(batches in proptest::collection::vec(0_i64..50, 0..40), bound in 1_u32..100) {
            let (mut counted, mut sent) = (0, 0);
            for added in batches {
                counted += added;
                sent += fitting(counted, added, bound);
            }
            proptest::prop_assert_eq!(sent, counted.min(i64::from(bound)));
        }
    }
}
