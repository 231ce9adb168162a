//! Checks of payments against their movements.

use std::collections::BTreeMap;

use super::{Drift, Invariant, LedgerSums, compare, decimal_text};
use kernel::currencies::ChargeUnit;

/// A stored payment, or a stored refund or dispute of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaymentRow {
    pub payment_id: String,
    /// The id of the refund or dispute; empty for the payment itself.
    pub cause: String,
    /// The minor units that the wallet gained: 0 without an effect, negative if money was returned.
    pub units: i64,
    /// The tax that was paid in addition; negative if it was returned.
    pub tax: i64,
    /// The returned sum of a payment, without tax; 0 for refunds and disputes.
    pub returned: i64,
    /// The returned tax of a payment; 0 for refunds and disputes.
    pub returned_tax: i64,
    /// ISO 4217 code.
    pub currency: String,
}

/// A finding of the last comparison with the payment processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The id of the payment, or that of the object at the processor.
    pub object_id: String,
    pub expected: String,
    pub found: String,
}

/// Checks that each payment, refund and dispute moved its amount, and that nothing else was moved for any of
/// them.
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

/// Checks that the returned amount of each payment is the sum of its refunds and disputes, and that it
/// consists of at most the payment's amount and tax. The total may exceed the payment, because a bank may
/// take an amount that was already refunded. In this case, the parts have no maximum.
pub fn returned(rows: &[PaymentRow]) -> Vec<Drift> {
    let mut sums: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.cause.is_empty()) {
        let (net, tax) = sums.entry(&row.payment_id).or_default();
        *net -= i128::from(row.units);
        *tax -= i128::from(row.tax);
    }
    let drift = |row: &PaymentRow| {
        let (net, tax) = sums.get(row.payment_id.as_str()).copied().unwrap_or_default();
        let text = |net: i128, tax: i128| {
            let nano = |units: i128| {
                let unit = ChargeUnit::of(&row.currency).amount(1).units();
                decimal_text::<9>(units.checked_mul(unit))
            };
            format!("{} and {} of tax", nano(net), nano(tax))
        };
        let noted = text(row.returned.into(), row.returned_tax.into());
        let (amount, of_tax) = (i128::from(row.units), i128::from(row.tax));
        let most = if net + tax <= amount + of_tax { (amount, of_tax) } else { (i128::MAX, i128::MAX) };
        let within = text(net.clamp(0, most.0.max(0)), tax.clamp(0, most.1.max(0)));
        let by = |found| compare(Invariant::PaymentReturned, &row.payment_id, &within, found);
        by(text(net, tax)).or_else(|| by(noted))
    };
    rows.iter().filter(|row| row.cause.is_empty()).filter_map(drift).collect()
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
        taxed(cause, (units, 0), (0, 0))
    }

    fn taxed(cause: &str, (units, tax): (i64, i64), (returned, returned_tax): (i64, i64)) -> PaymentRow {
        let (payment_id, cause, currency) = ("payment_1".into(), cause.into(), "USD".into());
        PaymentRow { payment_id, cause, units, tax, returned, returned_tax, currency }
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
            ("payment:payment_1:dp_1:credit_1:3", "-20"),
            ("payment:payment_1:dp_1:debt-673:3", "-2"),
            ("payment:payment_1:dp_1:back:4", "7"),
            ("payment:invoice_7", "3"),
        ]);
        // The bank has 20 - 20 + 22 - 7.
        let rows = [row("", 2_500), row("refund_1", -500), row("dp_1", -1_500)];
        assert_eq!(payments(&rows, &moved), []);
        assert_eq!(moved.ended.get("credit_1"), Some(&44_000_000_000));
        assert_eq!((moved.returned_since(672), moved.returned_since(673)), (3_000_000_000, 2_000_000_000));
        assert_eq!(words(&payments(&rows[..2], &ledger(&[]))), ["payment_1 25 0", "payment_1 refund_1 -5 0"]);
        assert_eq!(words(&payments(&[], &ledger(&[("payment:payment_1", "25")]))), ["payment_1 0 25"]);
    }

    #[test]
    fn no_more_goes_back_than_was_paid() {
        // 25.00 and 4.75.
        let paid = |returned| taxed("", (2_500, 475), returned);
        let refund = |net: i64, tax: i64| taxed("refund_1", (-net, -tax), (0, 0));
        let dispute = |net: i64, tax: i64| taxed("dp_1", (-net, -tax), (0, 0));
        assert_eq!(returned(&[paid((0, 0))]), []);
        assert_eq!(returned(&[paid((2_500, 475)), refund(1_000, 190), dispute(1_500, 285)]), []);
        // The bank also takes the amount that was already refunded.
        assert_eq!(returned(&[paid((3_500, 665)), refund(1_000, 190), dispute(2_500, 475)]), []);
        for (rows, expected) in [
            // The recorded sum differs from the returned amount.
            (vec![paid((1_000, 0)), refund(1_000, 190)], "10 and 1.9 of tax 10 and 0 of tax"),
            (vec![paid((0, 0)), dispute(1_000, 190)], "10 and 1.9 of tax 0 and 0 of tax"),
            (vec![paid((1_000, 190))], "0 and 0 of tax 10 and 1.9 of tax"),
            // The tax is returned twice, or only the net amount is.
            (vec![paid((1_000, 950)), refund(1_000, 950)], "10 and 4.75 of tax 10 and 9.5 of tax"),
            (vec![paid((2_975, 0)), refund(2_975, 0)], "25 and 0 of tax 29.75 and 0 of tax"),
            (vec![paid((2_510, -10)), refund(2_510, -10)], "25 and 0 of tax 25.1 and -0.1 of tax"),
        ] {
            assert_eq!(words(&returned(&rows)), [format!("payment_1 {expected}")]);
        }
    }

    #[test]
    fn findings_are_drifts() {
        let finding =
            Finding { object_id: "pi_1".into(), expected: "a payment".into(), found: "none".into() };
        assert_eq!(words(&findings(&[finding])), ["pi_1 a payment none"]);
    }
}
