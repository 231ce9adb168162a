//! Checks of payments against their movements.

use std::collections::BTreeMap;

use super::{Drift, Invariant, LedgerSums, compare, decimal_text};
use kernel::currencies::ChargeUnit;

/// A payment, or a refund or dispute of one, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaymentRow {
    pub payment_id: String,
    /// The id of the refund or dispute; empty for the payment itself.
    pub cause: String,
    /// The units that the wallet gained by it: 0 if it has no effect, negative if money went back.
    pub units: i64,
    /// ISO 4217 code.
    pub currency: String,
}

/// What the last comparison with the payment processor has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The id of the payment, or that of the object at the processor.
    pub object_id: String,
    pub expected: String,
    pub found: String,
}

/// Checks that each payment, refund and dispute moved its amount, and that nothing else was moved for any.
pub fn payments(rows: &[PaymentRow], ledger: &LedgerSums) -> Vec<Drift> {
    let mut expected: BTreeMap<(String, String), i128> = BTreeMap::new();
    for row in rows {
        let amount = ChargeUnit::of(&row.currency).amount(row.units).units();
        *expected.entry((row.payment_id.clone(), row.cause.clone())).or_default() += amount;
    }
    for key in ledger.payments.keys() {
        expected.entry(key.clone()).or_default();
    }
    let drift = |(key, expected): (&(String, String), &i128)| {
        let (payment, cause) = key;
        let subject = if cause.is_empty() { payment.clone() } else { format!("{payment} {cause}") };
        let found = ledger.payments.get(key).copied().unwrap_or_default();
        let nano = |units: i128| decimal_text::<9>(Some(units));
        compare(Invariant::PaymentBooked, &subject, nano(*expected), nano(found))
    };
    expected.iter().filter_map(drift).collect()
}

/// Returns the findings of the last comparison with the payment processor.
pub fn findings(rows: &[Finding]) -> Vec<Drift> {
    let drift =
        |row: &Finding| compare(Invariant::PaymentAtProcessor, &row.object_id, &row.expected, &row.found);
    rows.iter().filter_map(drift).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::audit::MovementRow;
    use kernel::money::Nano;

    fn row(cause: &str, units: i64) -> PaymentRow {
        PaymentRow { payment_id: "payment_1".into(), cause: cause.into(), units, currency: "USD".into() }
    }

    fn ledger(movements: &[(&str, &str)]) -> LedgerSums {
        let mut sums = LedgerSums::default();
        for (key, amount) in movements {
            sums.add(&MovementRow {
                id: "ltx_1".into(),
                kind: "payment".into(),
                idempotency_key: (*key).into(),
                entries: 2,
                foreign_entries: 0,
                sum: Nano::ZERO,
                to_wallet: Nano::parse(amount).unwrap(),
            });
        }
        sums
    }

    fn words(drifts: &[Drift]) -> Vec<String> {
        drifts.iter().map(|d| format!("{} {} {}", d.subject, d.expected, d.found)).collect()
    }

    #[test]
    fn each_payment_moves_its_amount_once() {
        let moved = ledger(&[
            ("payment:payment_1", "25"),
            ("payment:payment_1:refund_1:credit_1", "-4"),
            ("payment:payment_1:refund_1:debt-672", "-1"),
            ("payment:payment_1:dp_1:credit_1", "-20"),
            ("payment:payment_1:dp_1:back", "20"),
            ("payment:invoice_7", "3"),
        ]);
        let rows = [row("", 2_500), row("refund_1", -500), row("dp_1", 0)];
        assert_eq!(payments(&rows, &moved), []);
        assert_eq!(moved.ended.get("credit_1"), Some(&24_000_000_000));
        assert_eq!((moved.returned_since(672), moved.returned_since(673)), (1_000_000_000, 0));
        assert_eq!(words(&payments(&rows[..2], &ledger(&[]))), ["payment_1 25 0", "payment_1 refund_1 -5 0"]);
        assert_eq!(words(&payments(&[], &ledger(&[("payment:payment_1", "25")]))), ["payment_1 0 25"]);
    }

    #[test]
    fn findings_are_drifts() {
        let finding =
            Finding { object_id: "pi_1".into(), expected: "a payment".into(), found: "none".into() };
        assert_eq!(words(&findings(&[finding])), ["pi_1 a payment none"]);
    }
}
