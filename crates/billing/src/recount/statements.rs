//! Comparison of Stripe's statements with the stored payments (docs/contract/payments.md#the-promise,
//! #refunds-and-disputes).

use std::collections::BTreeMap;

use super::evidence::{PaymentRow, ReturnRow, StatementRow};
use super::finding;
use crate::rules::audit::{Drift, Invariant};

/// If less than one part in this many is left of a won dispute, it is a difference of exchange rates.
const RATE_DIFFERENCE: i128 = 10;

/// Checks the stored payments, refunds and disputes against Stripe's statements about them, in Stripe's
/// units.
pub fn check(statements: &[StatementRow], paid: &[PaymentRow], returns: &[ReturnRow]) -> Vec<Drift> {
    let paid: BTreeMap<_, _> = paid.iter().map(|payment| (&payment.id, payment)).collect();
    let returns: BTreeMap<_, _> =
        returns.iter().filter_map(|back| Some((back.stripe_id.as_ref()?, back))).collect();
    let check = |statement: &StatementRow| {
        let back = returns.get(&statement.object_id);
        let credited = paid.get(&statement.payment_id).filter(|payment| payment.status == "succeeded");
        // A refund or a dispute of a payment that isn't credited doesn't affect the wallet.
        if credited.is_none() && statement.kind != "payment" {
            return None;
        }
        let (invariant, expected, found) = match statement.kind.as_str() {
            "payment" => {
                let found =
                    credited.map_or(0, |payment| payment.amount_minor.saturating_add(payment.tax_minor));
                (Invariant::RecountReceived, i128::from(statement.amount_minor), found)
            }
            "refund" => {
                let amount = if statement.state == "failed" { 0 } else { statement.amount_minor };
                (Invariant::RecountRefund, amount.into(), back.map_or(0, |back| back.amount_minor))
            }
            _ => (Invariant::RecountDispute, held(statement), back.map_or(0, |back| back.amount_minor)),
        };
        if expected == i128::from(found) {
            return None;
        }
        let StatementRow { object_id, payment_id, moved, .. } = statement;
        let because = if moved.is_empty() { String::new() } else { format!(", after {moved}") };
        let expected = format!("{expected} in Stripe's minor units, as Stripe reported{because}");
        Some(finding(invariant, format!("{object_id} of {payment_id}"), expected, found))
    };
    statements.iter().filter_map(check).collect()
}

/// Returns the amount of a disputed payment that the bank holds: the share of the first withdrawal that is
/// left after all movements, rounded down.
fn held(statement: &StatementRow) -> i128 {
    let mut moved: Vec<(i64, i128, &str)> = Vec::new();
    for word in statement.moved.split_whitespace() {
        let mut parts = word.splitn(3, ':');
        let (time, amount) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (Ok(time), Ok(amount)) = (time.parse(), amount.parse()) else { continue };
        moved.push((time, amount, parts.next().unwrap_or_default()));
    }
    moved.sort_by_key(|(time, ..)| *time);
    let Some((_, first, currency)) = moved.iter().find(|(_, amount, _)| *amount < 0) else { return 0 };
    let (taken, kept) = (-first, -moved.iter().map(|(_, amount, _)| amount).sum::<i128>());
    let is_other_currency = !currency.eq_ignore_ascii_case(&statement.currency);
    if kept <= 0 || (statement.state == "won" && is_other_currency && kept * RATE_DIFFERENCE < taken) {
        return 0;
    }
    i128::from(statement.amount_minor) * kept / taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_of(moved: &str, state: &str) -> i128 {
        let (object_id, payment_id) = ("du_1".to_owned(), "payment_1".to_owned());
        let (state, currency, moved) = (state.to_owned(), "USD".to_owned(), moved.to_owned());
        let kind = "dispute".to_owned();
        held(&StatementRow { object_id, payment_id, kind, state, amount_minor: 10_000, currency, moved })
    }

    #[test]
    fn bank_has_the_share_that_its_movements_leave() {
        assert_eq!(held_of("", "made"), 0);
        // 40 of 100 come back; all comes back, and is taken again.
        assert_eq!(held_of("1:-10000:usd 2:4000:usd", "made"), 6_000);
        assert_eq!(held_of("1:-10000:usd 2:10000:usd", "won"), 0);
        assert_eq!(held_of("3:-10000:usd 1:-10000:usd 2:10000:usd", "won"), 10_000);
        // 92.00 EUR for 100.00 USD; 30.66 come back: 100 x 61.34 / 92.00 = 66.673, rounded down.
        assert_eq!(held_of("1:-9200:eur 2:3066:eur", "made"), 6_667);
        // A difference of exchange rates doesn't count as a remainder of a won dispute.
        assert_eq!(
            (held_of("1:-9200:eur 2:9100:eur", "won"), held_of("1:-9200:eur 2:9100:eur", "made")),
            (0, 108)
        );
    }
}
