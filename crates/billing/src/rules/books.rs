//! What movements do to a wallet and its credits: the arithmetic of money, without input or output.
//!
//! What a wallet has lies in its credits. What it owes is what is left of them less what is posted. So a charge takes from
//! credits first and is owed otherwise, and what comes in covers what is owed first and is left as a credit otherwise.

use std::cmp::Ordering;

use kernel::clock::Time;
use kernel::ids::CreditId;
use kernel::money::Nano;

/// Where a credit comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Given.
    Grant,
    /// Usage was corrected after it had been paid.
    Correction,
    /// A month's volume discount.
    Discount,
    /// A void invoice.
    Void,
    /// Bought.
    Purchase,
    /// A payment of an invoice.
    Payment,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Grant, Self::Correction, Self::Discount, Self::Void, Self::Purchase, Self::Payment];

    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Correction => "correction",
            Self::Discount => "discount",
            Self::Void => "void",
            Self::Purchase => "purchase",
            Self::Payment => "payment",
        }
    }
}

/// A credit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credit {
    /// Its id.
    pub id: CreditId,
    /// Where it comes from.
    pub source: Source,
    /// Unique within the organization.
    pub reference: String,
    /// What it was.
    pub amount: Nano,
    /// What is left of it.
    pub remaining: Nano,
    /// Since when.
    pub created_at: Time,
    /// Until when; then what is left of it is gone.
    pub expires_at: Option<Time>,
}

impl Credit {
    /// Returns `true` if its time is over.
    pub fn is_over(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|until| until <= now)
    }
}

/// The order in which credits are used up: what expires first goes first, then what was given before what was bought, then
/// the oldest.
pub fn in_order_of_use(a: &Credit, b: &Credit) -> Ordering {
    let until = |credit: &Credit| credit.expires_at.map_or(i64::MAX, Time::unix_ms);
    let key =
        |credit: &Credit| (until(credit), credit.source, credit.created_at.unix_ms(), credit.id.as_u128());
    key(a).cmp(&key(b))
}

/// A part of a credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The credit.
    pub credit_id: CreditId,
    /// The part that is taken or given.
    pub amount: Nano,
    /// The amount left of the credit then.
    pub remaining: Nano,
}

/// The parts of credits that a charge takes, in the order of their use. Credits whose time is over give nothing but `held`, which is
/// kept for calls that were under way when they ended.
pub fn charge(credits: &[Credit], amount: Nano, held: Nano, now: Time) -> Vec<Part> {
    let mut in_order: Vec<&Credit> = credits.iter().collect();
    in_order.sort_by(|a, b| in_order_of_use(a, b));
    let (mut due, mut held) = (amount.units(), held.units());
    let mut parts = Vec::new();
    for credit in in_order {
        let usable = match credit.is_over(now) {
            true => held.min(credit.remaining.units()),
            false => credit.remaining.units(),
        };
        let taken = due.min(usable);
        // Nothing is left of it, or nothing is due any more.
        if taken <= 0 {
            continue;
        }
        due -= taken;
        if credit.is_over(now) {
            held -= taken;
        }
        parts.push(Part {
            credit_id: credit.id,
            amount: Nano::from_units(taken),
            remaining: Nano::from_units(credit.remaining.units() - taken),
        });
    }
    parts
}

/// The parts of credits that end now: all that is left of those whose time is over, but for `held`, which is kept for calls that are
/// under way.
pub fn ending(credits: &[Credit], held: Nano, now: Time) -> Vec<Part> {
    let mut over: Vec<&Credit> = credits.iter().filter(|credit| credit.is_over(now)).collect();
    over.sort_by(|a, b| in_order_of_use(a, b));
    let mut held = held.units().max(0);
    let mut parts = Vec::new();
    for credit in over {
        let kept = held.min(credit.remaining.units());
        held -= kept;
        let ended = credit.remaining.units() - kept;
        if ended > 0 {
            let (amount, remaining) = (Nano::from_units(ended), Nano::from_units(kept));
            parts.push(Part { credit_id: credit.id, amount, remaining });
        }
    }
    parts
}

/// What a wallet owes.
pub fn owed(posted: Nano, credits: &[Credit]) -> Nano {
    let left: i128 = credits.iter().map(|credit| credit.remaining.units()).sum();
    Nano::from_units((left - posted.units()).max(0))
}

/// What is left of an amount that comes in, once what is owed is covered.
pub fn left_after_debts(owed: Nano, amount: Nano) -> Nano {
    Nano::from_units((amount.units() - owed.units()).max(0))
}

/// Whether this much more may be reserved.
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
    fn what_expires_first_is_used_first() {
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
    fn what_is_held_for_calls_outlives_its_credit() {
        let credits = [credit(1, Source::Grant, 5, Some(1_000)), credit(2, Source::Purchase, 10, None)];
        let nano = Nano::from_units;
        let ended = |held, now| -> Vec<(i128, i128)> {
            let parts = ending(&credits, nano(held), Time::from_unix_ms(now));
            parts.iter().map(|part| (part.amount.units(), part.remaining.units())).collect()
        };
        assert_eq!(ended(0, 999), []);
        assert_eq!(ended(0, 1_000), [(5, 0)]);
        assert_eq!(ended(4, 1_000), [(1, 4)]);
        assert_eq!(ended(7, 1_000), []);
        let left = |amount, held| -> Vec<i128> {
            let parts = charge(&credits, nano(amount), nano(held), Time::from_unix_ms(1_000));
            parts.iter().map(|part| part.remaining.units()).collect()
        };
        assert_eq!(left(6, 0), [4]);
        assert_eq!(left(6, 4), [1, 8]);
    }

    #[test]
    fn the_words_in_the_database_stay() {
        let words = Source::ALL.map(Source::as_str);
        assert_eq!(words, ["grant", "correction", "discount", "void", "purchase", "payment"]);
    }

    #[test]
    fn the_last_nano_can_be_reserved_and_none_more() {
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
        fn nothing_is_lost_between_credits_and_debts(moves in prop::collection::vec(-100_i128..100, 0..60)) {
            let (now, mut posted, mut credits) = (Time::from_unix_ms(0), 0_i128, Vec::<Credit>::new());
            for (number, amount) in moves.into_iter().enumerate() {
                if amount < 0 {
                    for part in charge(&credits, Nano::from_units(-amount), Nano::ZERO, now) {
                        credits.iter_mut().find(|c| c.id == part.credit_id).unwrap().remaining = part.remaining;
                    }
                } else {
                    let owed = owed(Nano::from_units(posted), &credits);
                    let left = left_after_debts(owed, Nano::from_units(amount));
                    credits.push(credit(number as u128, Source::Grant, left.units(), None));
                }
                posted += amount;
                let left: i128 = credits.iter().map(|c| c.remaining.units()).sum();
                prop_assert_eq!(left, posted.max(0));
                prop_assert_eq!(owed(Nano::from_units(posted), &credits).units(), (-posted).max(0));
            }
        }
    }
}
