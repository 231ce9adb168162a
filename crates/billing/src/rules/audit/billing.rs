//! Checks of bills by recomputation: an invoice from its rows and prices, its amount due from the credits
//! that paid, the remainder of a credit from its uses.

use std::collections::BTreeMap;

use super::{CreditRow, Drift, Invariant, InvoiceRow, ItemRow, LedgerSums, compare, decimal_text};
use crate::rules::invoicing::{Bill, Item};
use kernel::clock::{Month, Time};
use kernel::money::{Nano, Pico};

/// A part of a credit that paid for a month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditUseRow {
    pub month: Month,
    pub credit_id: String,
    pub amount: Nano,
}

/// A stored credit note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoteRow {
    pub id: String,
    pub invoice_id: String,
    /// The month of the invoice.
    pub month: Month,
    /// The month that was open when the note was made.
    pub booked_month: Month,
    /// The refunded amount; negative for a charge.
    pub amount: Nano,
}

/// The time from which every use of a credit is recorded; `None` before the first catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedSince(pub Option<Time>);

impl RecordedSince {
    /// Returns `true` if an object made at `time` is recorded completely.
    pub fn covers(self, time: Time) -> bool {
        self.0.is_some_and(|since| time >= since)
    }
}

/// Checks the items of an invoice against those computed from its month.
pub fn recomputed(invoice: &InvoiceRow, items: &[ItemRow], bill: Option<&Bill>) -> Option<Drift> {
    let line = |kind: &str, description: &str, quantity: i64, amount: &str| {
        format!("{kind} {description:?} {quantity} for {amount}")
    };
    let mut found: Vec<String> = items
        .iter()
        .filter(|item| item.invoice_id == invoice.id && item.kind != "carried_over")
        .map(|item| {
            // Amounts may be written with trailing zeros.
            let amount = Pico::parse(&item.amount).map_or_else(|| item.amount.clone(), |it| it.to_string());
            line(&item.kind, &item.description, item.quantity, &amount)
        })
        .collect();
    let computed =
        |item: &Item| line(item.kind.as_str(), &item.description, item.quantity, &item.amount.to_string());
    let Some(bill) = bill else {
        return compare(
            Invariant::InvoiceRecomputed,
            &invoice.id,
            "sums that fit in 128 bits",
            "larger sums",
        );
    };
    let mut expected: Vec<String> = bill.items.iter().map(computed).collect();
    expected.sort_unstable();
    found.sort_unstable();
    if expected == found {
        return None;
    }
    let only = |of: &[String], others: &[String]| {
        let only = of.iter().filter(|line| !others.contains(line)).cloned().collect::<Vec<_>>().join("; ");
        if only.is_empty() { "nothing else".to_owned() } else { only }
    };
    let (missing, more) = (only(&expected, &found), only(&found, &expected));
    // Lines that differ only in the number of copies are in neither list.
    let (missing, more) =
        if missing == more { (expected.join("; "), found.join("; ")) } else { (missing, more) };
    compare(Invariant::InvoiceRecomputed, &invoice.id, missing, more)
}

/// The data that the payments of invoices are checked against.
#[derive(Clone, Copy, Debug)]
pub struct InvoicePayments<'a> {
    pub uses: &'a [CreditUseRow],
    pub notes: &'a [NoteRow],
    pub invoices: &'a [InvoiceRow],
    pub ledger: &'a LedgerSums,
}

impl InvoicePayments<'_> {
    /// Returns the amount that later bills refunded. Late usage can get a discount that is worth more than
    /// its price; the surplus returns to the credits that paid for earlier months, or lowers their amounts
    /// due.
    fn returned_later(self, invoice: &InvoiceRow) -> i128 {
        let later = self.invoices.iter().filter(|other| other.month > invoice.month);
        later.map(|other| -other.amount.units().min(0)).sum()
    }

    fn of_month(self, month: Month) -> i128 {
        self.uses.iter().filter(|used| used.month == month).map(|used| used.amount.units()).sum()
    }

    /// Returns the sum of the credit notes that lowered an invoice.
    fn credited_by_notes(self, invoice: &InvoiceRow) -> i128 {
        let of_invoice = self.notes.iter().filter(|note| note.invoice_id == invoice.id);
        of_invoice.map(|note| note.amount.units().max(0)).sum()
    }

    /// Returns the charges of the credit notes made while a month was open. Credits that paid them are
    /// recorded for this month.
    fn charged_by_notes(self, booked: Month) -> i128 {
        let of_invoice = self.notes.iter().filter(|note| note.booked_month == booked);
        of_invoice.map(|note| -note.amount.units().min(0)).sum()
    }

    /// Returns the charges made while a month was open, except those for the usage of its invoice: charges of
    /// credit notes, and debts from refunds and disputes.
    pub(super) fn charged_beside(self, booked: Month) -> i128 {
        let returned = self.ledger.returned.get(&booked.unix_months()).copied().unwrap_or_default();
        self.charged_by_notes(booked).saturating_add(returned)
    }
}

/// Checks the amount due of an invoice, recomputed from its credit notes and the credits that paid for its
/// month.
pub fn invoice_payments(invoice: &InvoiceRow, payments: InvoicePayments<'_>) -> Option<Drift> {
    let asked = invoice.amount.units() + invoice.brought_forward();
    let rest = asked - payments.credited_by_notes(invoice) - payments.of_month(invoice.month);
    let nano = |units: i128| decimal_text::<9>(Some(units));
    let (slack, later) = (payments.charged_beside(invoice.month), payments.returned_later(invoice));
    match invoice.status.as_str() {
        "open" => {
            let due = invoice.due.units();
            let (least, most) = ((rest - later).max(0), (rest + slack).max(0));
            if (least..=most).contains(&due) {
                return None;
            }
            let expected =
                if least == most { nano(least) } else { format!("{} to {}", nano(least), nano(most)) };
            compare(Invariant::InvoiceDue, &invoice.id, expected, nano(due))
        }
        "paid" if rest > payments.ledger.dust + later => {
            let unpaid = nano(rest);
            compare(
                Invariant::InvoicePaid,
                &invoice.id,
                "payments that cover the invoice",
                format!("{unpaid} unpaid"),
            )
        }
        "uncollectible" => {
            let written_off = payments.ledger.written_off.get(&invoice.id).copied().unwrap_or_default();
            // Credit notes that charged before the write-off aren't part of it; later ones are.
            let of_invoice = payments.notes.iter().filter(|note| note.invoice_id == invoice.id);
            let charged: i128 = of_invoice.map(|note| -note.amount.units().min(0)).sum();
            if (rest - later..=rest + charged + slack).contains(&written_off) {
                return None;
            }
            compare(Invariant::InvoiceWriteOff, &invoice.id, nano(rest), nano(written_off))
        }
        _ => None,
    }
}

/// Checks the remainder of each credit against its amount, its uses, and the amounts that were ended, taken
/// back or written off.
pub fn credit_remainders(
    credits: &[CreditRow],
    uses: &[CreditUseRow],
    ledger: &LedgerSums,
    since: RecordedSince,
) -> Vec<Drift> {
    let mut used: BTreeMap<&str, i128> = BTreeMap::new();
    for part in uses {
        *used.entry(&part.credit_id).or_default() += part.amount.units();
    }
    let rest = |credit: &CreditRow| {
        let used = used.get(credit.id.as_str()).copied().unwrap_or_default();
        credit.amount.units() - used - ledger.ended.get(&credit.id).copied().unwrap_or_default()
    };
    let mut drifts = Vec::new();
    for credit in credits {
        let (rest, left) = (rest(credit), credit.remaining.units());
        let nano = |units: i128| decimal_text::<9>(Some(units));
        if since.covers(credit.created_at) {
            drifts.extend(compare(Invariant::CreditRest, &credit.id, nano(rest), nano(left)));
        } else if left > rest {
            drifts.extend(compare(
                Invariant::CreditRest,
                &credit.id,
                format!("{} or less", nano(rest)),
                nano(left),
            ));
        }
    }
    drifts
}

/// Checks the credit notes against their items, and the items against the usage that was taken back.
/// `credited` is the list price of that usage, by billed month and open month.
pub fn credit_notes(
    notes: &[NoteRow],
    items: &[ItemRow],
    credited: &[((Month, Month), Pico)],
    invoices: &[InvoiceRow],
) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut listed: BTreeMap<(Month, Month), i128> = BTreeMap::new();
    for note in notes {
        let mut sum = Some(0_i128);
        for item in items.iter().filter(|item| item.invoice_id == note.id) {
            let amount = Pico::parse(&item.amount).map(Pico::units);
            let subject = format!("{} line {}", note.id, item.position);
            drifts.extend(super::invoices::item(Invariant::CreditNoteItem, &subject, item));
            sum = sum.zip(amount).and_then(|(sum, amount)| sum.checked_add(amount));
            if item.kind == "correction" {
                *listed.entry((note.month, note.booked_month)).or_default() += amount.unwrap_or_default();
            }
        }
        let found = decimal_text::<12>(sum.and_then(i128::checked_neg));
        drifts.extend(compare(Invariant::CreditNoteItems, &note.id, note.amount, found));
    }
    let is_void = |month: &Month| invoices.iter().any(|it| it.month == *month && it.status == "void");
    let mut expected: BTreeMap<(Month, Month), i128> =
        credited.iter().map(|(months, amount)| (*months, amount.units())).collect();
    for months in listed.keys() {
        expected.entry(*months).or_default();
    }
    // A correction of a void invoice creates no credit note.
    for ((month, booked), amount) in expected.into_iter().filter(|((month, _), _)| !is_void(month)) {
        let found = listed.get(&(month, booked)).copied().unwrap_or_default();
        let (expected, found) = (decimal_text::<12>(Some(amount)), decimal_text::<12>(Some(found)));
        let subject = format!("{month} taken back in {booked}");
        drifts.extend(compare(Invariant::CreditNoteUsage, &subject, expected, found));
    }
    drifts
}

/// Checks all credit notes of an organization against the movements made for them: the usage that was taken
/// back, and its discounts. `posted` is the usage that they posted.
pub fn credit_note_sums(
    notes: &[NoteRow],
    credited: &[((Month, Month), Pico)],
    invoices: &[InvoiceRow],
    posted: i128,
    ledger: &LedgerSums,
) -> Option<Drift> {
    let is_void = |month: Month| invoices.iter().any(|it| it.month == month && it.status == "void");
    // A correction of a void invoice posts movements that cancel each other, and creates no credit note.
    if credited.iter().any(|((month, _), _)| is_void(*month)) {
        return None;
    }
    // The keys of monthly discounts contain the month; those of credit notes contain the id of the movement.
    let discounts = ledger.discounts.iter().filter(|(key, _)| key.starts_with("ltx_"));
    let moved = discounts.map(|(_, nano)| nano).sum::<i128>().checked_sub(posted);
    let found: i128 = notes.iter().map(|note| note.amount.units()).sum();
    compare(
        Invariant::CreditNoteUsage,
        "credit notes",
        decimal_text::<9>(moved),
        decimal_text::<9>(Some(found)),
    )
}

/// Checks the debt that is on no invoice: at most the charges of months that aren't billed yet. `unpaid`
/// contains those charges by month.
pub fn unbilled(
    wallet: (Nano, i64),
    invoices: &[InvoiceRow],
    credits: &[CreditRow],
    unpaid: &[(Month, Nano)],
    (notes, ledger): (&[NoteRow], &LedgerSums),
) -> Option<Drift> {
    let (posted, open_month) = wallet;
    let due: i128 = invoices.iter().map(|invoice| invoice.due.units()).sum();
    let left: i128 = credits.iter().map(|credit| credit.remaining.units()).sum();
    let beyond = left.saturating_sub(posted.units()).saturating_sub(due);
    let unpaid: i128 = unpaid.iter().map(|(_, nano)| nano.units().max(0)).sum();
    let since_then = notes.iter().filter(|note| note.booked_month.unix_months() >= open_month);
    let charged: i128 = since_then.map(|note| -note.amount.units().min(0)).sum();
    let charged = charged.saturating_add(ledger.returned_since(open_month));
    // A debt from a void invoice is on no invoice until the next invoice.
    let opened = Month::from_unix_months(open_month).start();
    let is_void = |it: &&InvoiceRow| it.voided_at.is_some_and(|at| at >= opened);
    let of_void: i128 = invoices.iter().filter(is_void).map(InvoiceRow::owed_since_void).sum();
    let charged = charged.saturating_add(of_void);
    if beyond <= unpaid + charged {
        return None;
    }
    let expected = format!("{} or less on no invoice", decimal_text::<9>(Some(unpaid + charged)));
    compare(Invariant::DebtUnbilled, "wallet", expected, decimal_text::<9>(Some(beyond)))
}

#[cfg(test)]
mod tests;
