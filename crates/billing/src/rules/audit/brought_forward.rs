//! Checks of the amounts that invoices bring forward.

use super::{Drift, Invariant, InvoicePayments, InvoiceRow, compare, decimal_text};

/// Checks the amount that an invoice brings forward: at least zero, and at most the cost of corrections, the
/// used money that refunds and disputes took while its month was open, and the debts from void invoices.
pub fn brought_forward(invoice: &InvoiceRow, payments: InvoicePayments<'_>) -> Option<Drift> {
    let found = invoice.brought_forward();
    let before = payments.invoices.iter().filter(|other| other.month < invoice.month);
    let of_void: i128 = before.map(InvoiceRow::owed_since_void).sum();
    let most = payments.charged_beside(invoice.month).max(0).saturating_add(of_void);
    if (0..=most).contains(&found) {
        return None;
    }
    let nano = |units: i128| decimal_text::<9>(Some(units));
    compare(Invariant::InvoiceBroughtForward, &invoice.id, format!("0 to {}", nano(most)), nano(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::audit::{LedgerSums, NoteRow};
    use kernel::clock::{Month, Time};
    use kernel::money::Nano;

    const MAY: Month = Month::from_unix_months(676);

    fn invoice(after: i64, status: &str, brought_forward: Option<i128>) -> InvoiceRow {
        InvoiceRow {
            id: format!("invoice_{after}"),
            month: MAY.plus(after),
            amount: Nano::from_units(10),
            due: Nano::ZERO,
            status: status.into(),
            carried_over: Nano::ZERO,
            brought_forward: brought_forward.map(Nano::from_units),
            voided_at: None,
            credited: Nano::from_units(if status == "void" { 12 } else { 99 }),
            currency: "USD".into(),
            finalized_at: Time::from_unix_ms(0),
        }
    }

    #[test]
    fn what_is_brought_forward_has_a_cause() {
        let returned = [(MAY.unix_months(), 20), (MAY.plus(1).unix_months(), 500)].into();
        let ledger = LedgerSums { returned, ..LedgerSums::default() };
        let note = |booked: i64, amount| NoteRow {
            id: "note_1".into(),
            invoice_id: "invoice_0".into(),
            month: MAY,
            booked_month: MAY.plus(booked),
            amount: Nano::from_units(amount),
        };
        // A correction in May has cost 4; others refunded an amount, or were made in June.
        let notes = [note(0, -4), note(0, 300), note(1, -600)];
        // An older invoice is void, had brought 3 forward, and its notes refunded 2 more than its 10; an
        // invoice that isn't void, and a later one, don't count.
        let invoices =
            [invoice(-1, "void", Some(3)), invoice(-2, "paid", Some(1_000)), invoice(1, "void", Some(2_000))];
        let payments = InvoicePayments { uses: &[], notes: &notes, invoices: &invoices, ledger: &ledger };
        let check = |found| brought_forward(&invoice(0, "open", found), payments);
        for good in [None, Some(0), Some(20), Some(29)] {
            assert_eq!(check(good), None, "{good:?}");
        }
        for bad in [-1, 30] {
            let drift = check(Some(bad)).unwrap();
            assert_eq!(drift.invariant, Invariant::InvoiceBroughtForward);
            assert_eq!(drift.expected, "0 to 0.000000029");
        }
    }
}
