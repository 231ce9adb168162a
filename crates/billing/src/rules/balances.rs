//! The conditions under which a balance is low or used up.

use events::data::BalanceChange;
use kernel::money::{Nano, Pico};

/// The number of days of usage that a balance should cover.
pub const LOW_DAYS: i64 = 7;

/// Returns `true` if a balance is low: the spendable amount is zero, or less than the list price of the last
/// [`LOW_DAYS`] days. The spendable amount is the available balance and the credit limit.
pub fn is_low(spendable: Nano, cost: Pico) -> bool {
    spendable <= Nano::ZERO || spendable.to_pico().is_some_and(|spendable| spendable < cost)
}

/// The standing of a posted balance. Webhooks get an event when it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// `true` if the balance is below the threshold of its alert.
    pub is_low: bool,
    /// `true` if the balance and the credit limit are used up.
    pub is_depleted: bool,
}

impl Standing {
    /// Returns the standing of a balance. Reserved amounts don't count as used.
    pub fn of(posted: Nano, credit_limit: Nano, alert_below: Option<Nano>) -> Self {
        Self {
            is_low: alert_below.is_some_and(|below| posted < below),
            is_depleted: posted.units().saturating_add(credit_limit.units()) <= 0,
        }
    }

    /// Returns the changes since an earlier standing. A balance has recovered when it is no longer low or
    /// used up.
    pub fn changes_since(self, before: Self) -> Vec<BalanceChange> {
        let is_bad = |standing: Self| standing.is_low || standing.is_depleted;
        [
            (BalanceChange::Low, self.is_low && !before.is_low),
            (BalanceChange::Depleted, self.is_depleted && !before.is_depleted),
            (BalanceChange::Recovered, is_bad(before) && !is_bad(self)),
        ]
        .into_iter()
        .filter_map(|(change, has_happened)| has_happened.then_some(change))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_is_that_of_the_balance_with_its_limit_and_threshold() {
        let nano = |text| Nano::parse(text).unwrap();
        let cases = [
            // Balance, credit limit, threshold: low, used up.
            ("10", "0", Some("10"), false, false),
            ("9.999999999", "0", Some("10"), true, false),
            ("0.000000001", "0", None, false, false),
            ("0", "0", None, false, true),
            ("0", "0", Some("0"), false, true),
            ("-4.999999999", "5", None, false, false),
            ("-5", "5", Some("-5"), false, true),
            ("-5.000000001", "5", Some("-5"), true, true),
        ];
        for (posted, limit, below, is_low, is_depleted) in cases {
            let found = Standing::of(nano(posted), nano(limit), below.map(nano));
            assert_eq!(found, Standing { is_low, is_depleted }, "{posted} {limit} {below:?}");
        }
    }

    #[test]
    fn each_change_of_the_standing_is_told_once() {
        use BalanceChange::{Depleted, Low, Recovered};
        let standing = |is_low, is_depleted| Standing { is_low, is_depleted };
        let [good, low, depleted, both] =
            [(false, false), (true, false), (false, true), (true, true)].map(|(l, d)| standing(l, d));
        let cases: [(Standing, Standing, &[BalanceChange]); 10] = [
            (good, good, &[]),
            (good, low, &[Low]),
            (good, both, &[Low, Depleted]),
            (low, low, &[]),
            (low, both, &[Depleted]),
            (both, low, &[]),
            (both, good, &[Recovered]),
            (low, good, &[Recovered]),
            (depleted, good, &[Recovered]),
            (depleted, both, &[Low]),
        ];
        for (before, after, changes) in cases {
            assert_eq!(after.changes_since(before), changes, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_balance_is_low_before_it_is_used_up() {
        let cases = [
            ("100", "0", false),
            ("7", "7", false),
            ("7", "7.000000000001", true),
            ("0.000000001", "0", false),
            ("0", "0", true),
            ("-1", "0", true),
        ];
        for (spendable, cost, low) in cases {
            let found = is_low(Nano::parse(spendable).unwrap(), Pico::parse(cost).unwrap());
            assert_eq!(found, low, "{spendable} {cost}");
        }
    }
}
