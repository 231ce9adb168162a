//! The arithmetic of a wallet and its credits, as pure functions.
//!
//! The positive balance of a wallet is the sum of its credits' remainders. Its debt is that sum minus the
//! posted balance. A charge is paid from credits first, and the rest is a debt. Incoming money pays debts
//! first, and the rest becomes a credit.

use std::cmp::Ordering;

use kernel::clock::Time;
use kernel::ids::CreditId;
use kernel::money::Nano;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The origin of a credit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Source {
    /// Given by the operator.
    Grant,
    /// A correction of usage that had been paid.
    Correction,
    /// A month's volume discount.
    Discount,
    /// A voided invoice.
    Void,
    Purchase,
    /// A payment of an invoice.
    Payment,
}

db::words!(Source);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credit {
    pub id: CreditId,
    pub source: Source,
    /// Unique within the organization.
    pub reference: String,
    pub amount: Nano,
    pub remaining: Nano,
    pub created_at: Time,
    /// The time from which the credit can no longer be used.
    pub expires_at: Option<Time>,
}

impl Credit {
    /// Returns `true` if the credit has expired.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|until| until <= now)
    }
}

/// Orders credits by their use: the one that expires first, then grants before purchases, then the oldest.
pub fn cmp_use_order(a: &Credit, b: &Credit) -> Ordering {
    let until = |credit: &Credit| credit.expires_at.map_or(i64::MAX, Time::unix_ms);
    let key =
        |credit: &Credit| (until(credit), credit.source, credit.created_at.unix_ms(), credit.id.as_u128());
    key(a).cmp(&key(b))
}

/// An amount that is taken from a credit, or returned to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditPart {
    pub credit_id: CreditId,
    pub amount: Nano,
    /// The remainder of the credit afterwards.
    pub remaining: Nano,
}

/// Returns the parts of credits that a charge takes, in the order of their use. Expired credits contribute at
/// most `reserved`, the amount that is kept for calls that were in progress when they expired.
pub fn charge(credits: &[Credit], amount: Nano, reserved: Nano, now: Time) -> Vec<CreditPart> {
    let mut in_order: Vec<&Credit> = credits.iter().collect();
    in_order.sort_by(|a, b| cmp_use_order(a, b));
    let (mut due, mut reserved) = (amount.units(), reserved.units());
    let mut parts = Vec::new();
    for credit in in_order {
        let usable = match credit.is_expired(now) {
            true => reserved.min(credit.remaining.units()),
            false => credit.remaining.units(),
        };
        let taken = due.min(usable);
        // The credit is used up, or the charge is paid.
        if taken <= 0 {
            continue;
        }
        due -= taken;
        if credit.is_expired(now) {
            reserved -= taken;
        }
        parts.push(CreditPart {
            credit_id: credit.id,
            amount: Nano::from_units(taken),
            remaining: Nano::from_units(credit.remaining.units() - taken),
        });
    }
    parts
}

/// Returns the parts of expired credits that end now: all of their remainders except `reserved`, which is
/// kept for calls in progress.
pub fn expiring_parts(credits: &[Credit], reserved: Nano, now: Time) -> Vec<CreditPart> {
    let mut over: Vec<&Credit> = credits.iter().filter(|credit| credit.is_expired(now)).collect();
    over.sort_by(|a, b| cmp_use_order(a, b));
    let mut reserved = reserved.units().max(0);
    let mut parts = Vec::new();
    for credit in over {
        let kept = reserved.min(credit.remaining.units());
        reserved -= kept;
        let ended = credit.remaining.units() - kept;
        if ended > 0 {
            let (amount, remaining) = (Nano::from_units(ended), Nano::from_units(kept));
            parts.push(CreditPart { credit_id: credit.id, amount, remaining });
        }
    }
    parts
}

/// Returns the debt of a wallet.
pub fn owed(posted: Nano, credits: &[Credit]) -> Nano {
    let left: i128 = credits.iter().map(|credit| credit.remaining.units()).sum();
    Nano::from_units((left - posted.units()).max(0))
}

/// Returns `true` if this amount can be reserved in addition.
pub fn may_reserve(posted: Nano, reserved: Nano, credit_limit: Nano, amount: Nano) -> bool {
    posted.units() - reserved.units() - amount.units() >= -credit_limit.units()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn credit(number: u128, source: Source, remaining: i128, expires_at: Option<i64>) -> Credit {
        Credit {
            id: CreditId::from_parts(Time::from_unix_ms(0), number),
            source,
            reference: number.to_string(),
            amount: Nano::from_units(remaining),
            remaining: Nano::from_units(remaining),
            created_at: Time::from_unix_ms(i64::try_from(number).unwrap()),
            expires_at: expires_at.map(Time::from_unix_ms),
        }
    }

    #[test]
    fn first_expiring_credit_is_used_first() {
        let credits = [
            credit(1, Source::Purchase, 10, None),
            credit(2, Source::Grant, 10, None),
            credit(3, Source::Purchase, 10, Some(2_000)),
            credit(4, Source::Grant, 10, Some(3_000)),
            credit(5, Source::Grant, 10, Some(1_000)),
        ];
        let used = |amount, now| -> Vec<(u128, i128)> {
            let parts = charge(&credits, Nano::from_units(amount), Nano::ZERO, Time::from_unix_ms(now));
            let number = |id| credits.iter().find(|c| c.id == id).unwrap().reference.parse().unwrap();
            parts.into_iter().map(|part| (number(part.credit_id), part.remaining.units())).collect()
        };
        assert_eq!(used(0, 0), []);
        assert_eq!(used(3, 0), [(5, 7)]);
        assert_eq!(used(25, 0), [(5, 0), (3, 0), (4, 5)]);
        assert_eq!(used(25, 1_000), [(3, 0), (4, 0), (2, 5)]);
        assert_eq!(used(100, 5_000), [(2, 0), (1, 0)]);
    }

    #[test]
    fn reserved_money_outlives_its_credit() {
        let credits = [credit(1, Source::Grant, 5, Some(1_000)), credit(2, Source::Purchase, 10, None)];
        let nano = Nano::from_units;
        let ended = |reserved, now| -> Vec<(i128, i128)> {
            let parts = expiring_parts(&credits, nano(reserved), Time::from_unix_ms(now));
            parts.iter().map(|part| (part.amount.units(), part.remaining.units())).collect()
        };
        assert_eq!(ended(0, 999), []);
        assert_eq!(ended(0, 1_000), [(5, 0)]);
        assert_eq!(ended(4, 1_000), [(1, 4)]);
        assert_eq!(ended(7, 1_000), []);
        let left = |amount, reserved| -> Vec<i128> {
            let parts = charge(&credits, nano(amount), nano(reserved), Time::from_unix_ms(1_000));
            parts.iter().map(|part| part.remaining.units()).collect()
        };
        assert_eq!(left(6, 0), [4]);
        assert_eq!(left(6, 4), [1, 8]);
    }

    #[test]
    fn expired_credits_share_the_reserved_money_in_order() {
        let credits = [
            credit(1, Source::Purchase, 10, None),
            credit(2, Source::Grant, 6, Some(1_500)),
            credit(3, Source::Grant, 5, Some(1_000)),
        ];
        let (nano, now) = (Nano::from_units, Time::from_unix_ms(2_000));
        let parts = |parts: Vec<CreditPart>| -> Vec<(usize, i128, i128)> {
            let part = |part: CreditPart| {
                let index = credits.iter().position(|credit| credit.id == part.credit_id).unwrap();
                (index + 1, part.amount.units(), part.remaining.units())
            };
            parts.into_iter().map(part).collect()
        };
        // 7 are reserved: 5 of them from the third credit, which expired first, and 2 from the second one.
        assert_eq!(parts(charge(&credits, nano(8), nano(7), now)), [(3, 5, 0), (2, 2, 4), (1, 1, 9)]);
        assert_eq!(parts(expiring_parts(&credits, nano(7), now)), [(2, 4, 2)]);
    }

    #[test]
    fn stored_values_never_change() {
        let words: Vec<_> = Source::VARIANTS.iter().map(|source| source.as_str()).collect();
        assert_eq!(words, ["grant", "correction", "discount", "void", "purchase", "payment"]);
    }

    #[test]
    fn last_nano_can_be_reserved() {
        let may = |posted, reserved, limit, amount| {
            let nano = Nano::from_units;
            may_reserve(nano(posted), nano(reserved), nano(limit), nano(amount))
        };
        assert!(may(10, 4, 0, 6) && !may(10, 4, 0, 7));
        assert!(may(-10, 4, 20, 6) && !may(-10, 4, 20, 7));
        assert!(may(0, 0, 0, 0) && !may(-1, 0, 0, 0));
    }

    proptest! {
        #[test]
        fn credits_less_debts_equal_the_balance(moves in prop::collection::vec(-100_i128..100, 0..60)) {
            let (now, mut posted, mut credits) = (Time::from_unix_ms(0), 0_i128, Vec::<Credit>::new());
            for (number, amount) in moves.into_iter().enumerate() {
                if amount < 0 {
                    for part in charge(&credits, Nano::from_units(-amount), Nano::ZERO, now) {
                        credits.iter_mut().find(|c| c.id == part.credit_id).unwrap().remaining = part.remaining;
                    }
                } else {
                    let owed = owed(Nano::from_units(posted), &credits);
                    let left = (amount - owed.units()).max(0);
                    credits.push(credit(number as u128, Source::Grant, left, None));
                }
                posted += amount;
                let left: i128 = credits.iter().map(|c| c.remaining.units()).sum();
                prop_assert_eq!(left, posted.max(0));
                prop_assert_eq!(owed(Nano::from_units(posted), &credits).units(), (-posted).max(0));
            }
        }
    }
}
