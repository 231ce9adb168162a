//! Payments: each payment is credited once with the purchased amount, and returned money consists of net and
//! tax in the payment's proportion (docs/contract/payments.md#the-promise, #tax, #refunds-and-disputes).

use std::collections::BTreeMap;

use kernel::clock::{HOUR_MS, Time};
use kernel::currencies::ChargeUnit;

use super::evidence::{InvoiceRow, MovementRow, PaymentRow, ReturnRow, Returns};
use super::{finding, nano};
use crate::rules::audit::{Drift, Invariant};

/// The time for which the payment page of a settled invoice may still be paid, in milliseconds, because
/// Stripe may be unreachable.
const PAGE_ENDS_MS: i64 = 24 * HOUR_MS;

/// Checks the amounts that were moved by payments, refunds and disputes.
pub fn credited(paid: &[PaymentRow], returns: &Returns<'_>, ledger: &[MovementRow]) -> Vec<Drift> {
    let mut moved: BTreeMap<(&str, &str), i128> = BTreeMap::new();
    for row in ledger.iter().filter(|row| row.kind == "payment") {
        let mut words = row.idempotency_key.split(':').skip(1);
        let (payment, cause) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if payment.starts_with("payment_") {
            *moved.entry((payment, cause)).or_default() += i128::from(row.to_wallet_nano);
        }
    }
    let mut drifts = Vec::new();
    let mut compare = |subject: String, expected: i128, found: i128| {
        if expected != found {
            drifts.push(finding(Invariant::RecountPayment, subject, nano(expected), nano(found)));
        }
    };
    for payment in paid {
        let unit = ChargeUnit::of(&payment.currency);
        let amount =
            if payment.status == "succeeded" { unit.amount(payment.amount_minor).units() } else { 0 };
        compare(payment.id.clone(), amount, moved.remove(&(&payment.id, "")).unwrap_or(0));
        for back in returns.get(payment.id.as_str()).into_iter().flatten() {
            let amount = -unit.amount(back.amount_minor - back.tax_minor).units();
            let found = moved.remove(&(&payment.id, &back.id)).unwrap_or(0);
            compare(format!("{} of {}", back.id, payment.id), amount, found);
        }
    }
    for ((payment, cause), found) in moved {
        compare(format!("{payment} {cause}, which isn't known"), 0, found);
    }
    drifts
}

/// Checks that the returned money of each payment consists of net and tax in the payment's proportion, and is
/// recorded with the payment.
pub fn returned(paid: &[PaymentRow], returns: &Returns<'_>) -> Vec<Drift> {
    let check = |payment: &PaymentRow| {
        let of_payment = returns.get(payment.id.as_str()).map_or(&[][..], Vec::as_slice);
        let sum =
            |of: fn(&ReturnRow) -> i64| of_payment.iter().map(|back| i128::from(of(back))).sum::<i128>();
        let (all, tax) = (sum(|back| back.amount_minor), sum(|back| back.tax_minor));
        let (amount, whole) = (
            i128::from(payment.amount_minor),
            i128::from(payment.amount_minor) + i128::from(payment.tax_minor),
        );
        let net = amount * all / whole.max(1);
        // Each part is rounded by the running sum. A part that comes in again returns the amount that it
        // took.
        let within = if payment.tax_minor == 0 { 0 } else { sum(|back| back.bookings) };
        let is_noted =
            i128::from(payment.returned_minor) == all - tax && i128::from(payment.returned_tax_minor) == tax;
        if (all - tax - net).abs() <= within && is_noted {
            return None;
        }
        let expected = format!("{net} and {} of tax, of {all} returned, in Stripe's minor units", all - net);
        let found = format!(
            "{} and {tax} of tax; recorded with the payment: {} and {}",
            all - tax,
            payment.returned_minor,
            payment.returned_tax_minor
        );
        Some(finding(Invariant::RecountReturned, &payment.id, expected, found))
    };
    paid.iter().filter_map(check).collect()
}

/// Checks that payments made after the organization was deleted were returned completely.
pub fn orphans(paid: &[PaymentRow], deleted_at: Option<Time>) -> Vec<Drift> {
    let Some(deleted_at) = deleted_at else { return Vec::new() };
    let is_late = |payment: &&PaymentRow| {
        payment.status == "succeeded"
            && payment.paid_at.is_some_and(|paid_at| paid_at > deleted_at)
            && payment.amount_minor > payment.returned_minor
    };
    let orphan = |payment: &PaymentRow| {
        let left = ChargeUnit::of(&payment.currency).amount(payment.amount_minor - payment.returned_minor);
        let expected = format!("no remainder, because the organization was deleted at {deleted_at}");
        finding(Invariant::RecountOrphan, &payment.id, expected, left)
    };
    paid.iter().filter(is_late).map(orphan).collect()
}

/// Checks that no invoice was paid by card more than a day after it was paid in another way, voided or
/// written off, because its payment page should have expired.
pub fn invoices(paid: &[PaymentRow], invoices: &[InvoiceRow]) -> Vec<Drift> {
    let check = |payment: &PaymentRow| {
        let paid_at = payment.paid_at.filter(|_| payment.status == "succeeded")?;
        let invoice = invoices.iter().find(|invoice| Some(&invoice.id) == payment.invoice_id.as_ref())?;
        let over_at = [invoice.paid_at, invoice.voided_at].into_iter().flatten().min()?;
        if over_at.plus_ms(PAGE_ENDS_MS) > paid_at {
            return None;
        }
        let expected =
            format!("no payment of {}, which was paid, voided or written off at {over_at}", invoice.id);
        Some(finding(Invariant::RecountInvoicePage, &payment.id, expected, format!("a payment at {paid_at}")))
    };
    paid.iter().filter_map(check).collect()
}
