//! The amount that a bank holds of a disputed payment, calculated from its balance movements.

use stripe::{Dispute, DisputeStatus};

/// A remainder of a won dispute smaller than `1/RATE_DIFFERENCE` counts as an exchange rate difference, if
/// the account has a different currency.
const RATE_DIFFERENCE: i128 = 10;

/// Returns the part of a dispute's amount that the bank holds, in the minor unit of the payment's currency.
///
/// This is the sum of all movements as a share of the first withdrawal, rounded down. Movements are in the
/// account's currency; their share is independent of it. An inquiry hasn't moved anything. Money may come
/// back in part, for example because a part was refunded before the dispute, and may be withdrawn again.
pub fn held_minor(dispute: &Dispute) -> i64 {
    let moved = &dispute.balance_transactions;
    let first = moved.iter().filter(|moved| moved.amount < 0).min_by_key(|moved| moved.created);
    let Some(first) = first else { return 0 };
    let withdrawn = -i128::from(first.amount);
    let left = -moved.iter().map(|moved| i128::from(moved.amount)).sum::<i128>();
    let is_converted = !first.currency.eq_ignore_ascii_case(&dispute.currency);
    let is_won = dispute.status == DisputeStatus::Won;
    if left <= 0 || (is_won && is_converted && left * RATE_DIFFERENCE < withdrawn) {
        return 0;
    }
    let held = i128::from(dispute.amount.max(0)) * left / withdrawn;
    i64::try_from(held).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns the amount that a bank holds of a dispute in USD, after movements with their times.
    fn held(amount: i64, status: &str, currency: &str, moved: &[(i64, i64)]) -> i64 {
        let moved: Vec<Value> = moved
            .iter()
            .map(|(created, amount)| {
                json!({"id": "txn_1", "amount": amount, "fee": 0, "net": amount, "currency": currency,
                    "type": "adjustment", "reporting_category": "dispute", "created": created})
            })
            .collect();
        let dispute = json!({"id": "du_1", "status": status, "amount": amount, "currency": "usd", "reason": "fraudulent",
            "created": 0, "livemode": false, "charge": "ch_1", "payment_intent": "pi_1", "balance_transactions": moved});
        held_minor(&serde_json::from_value(dispute).unwrap())
    }

    #[test]
    fn sum_of_the_movements_is_held() {
        for (moved, expected) in [
            (&[][..], 0),
            (&[(1, -10_000)], 10_000),
            (&[(1, -10_000), (2, 4_000)], 6_000),
            (&[(1, -10_000), (2, 10_000)], 0),
            (&[(1, -10_000), (2, 10_000), (3, -10_000)], 10_000),
            (&[(1, -10_000), (2, 2_500), (3, 2_500), (4, 5_000)], 0),
            // More is returned than was withdrawn, or money is returned without a withdrawal.
            (&[(1, -10_000), (2, 10_001)], 0),
            (&[(1, 500)], 0),
        ] {
            for status in ["needs_response", "won", "lost", "something_new"] {
                assert_eq!(held(10_000, status, "usd", moved), expected, "{status} {moved:?}");
            }
        }
    }

    #[test]
    fn share_is_of_the_first_withdrawal() {
        // 92.00 EUR for 100.00 USD, of which 36.80 came back: 100 x 55.20 / 92.00.
        assert_eq!(held(10_000, "lost", "eur", &[(1, -9_200), (2, 3_680)]), 6_000);
        // In any order. Withdrawn again at another rate: 100 x 93.00 / 92.00.
        assert_eq!(held(10_000, "lost", "eur", &[(3, -9_300), (2, 9_200), (1, -9_200)]), 10_108);
        // 100 x 61.34 / 92.00 = 66.673…, rounded down.
        assert_eq!(held(10_000, "lost", "eur", &[(1, -9_200), (2, 3_066)]), 6_667);
    }

    #[test]
    fn difference_of_rates_is_no_rest_of_a_won_dispute() {
        // 92.00 EUR were withdrawn, and 91.00 came back for the same 100.00 USD.
        assert_eq!(held(10_000, "won", "eur", &[(1, -9_200), (2, 9_100)]), 0);
        assert_eq!(held(10_000, "needs_response", "eur", &[(1, -9_200), (2, 9_100)]), 108);
        // A larger part isn't an exchange rate difference: 100 x 34.50 / 92.00.
        assert_eq!(held(10_000, "won", "eur", &[(1, -9_200), (2, 5_750)]), 3_750);
        // With the same currency, no exchange rate difference is possible.
        assert_eq!(held(10_000, "won", "usd", &[(1, -10_000), (2, 9_900)]), 100);
    }
}
