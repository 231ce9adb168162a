//! When a balance is low.

use kernel::money::{Nano, Pico};

/// The number of days whose usage a balance should last for.
pub const LOW_DAYS: i64 = 7;

/// Returns `true` if a balance is low: nothing can be spent any more, or less than the last [`LOW_DAYS`] days cost
/// at list price. What can be spent is the available balance and the credit limit.
pub fn is_low(spendable: Nano, cost: Pico) -> bool {
    spendable <= Nano::ZERO || spendable.to_pico().is_some_and(|spendable| spendable < cost)
}

#[cfg(test)]
mod tests {
    use super::*;

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
