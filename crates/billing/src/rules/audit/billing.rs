//! Checks of bills by recomputation: an invoice from its rows and prices, its due from the credits that paid,
//! the remainder of a credit from its uses.

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
    /// The open month when it was made.
    pub booked_month: Month,
    /// The refunded amount; negative for a charge.
    pub amount: Nano,
}

/// The instant from which on every use of a credit is recorded; `None` before the first catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedSince(pub Option<Time>);

impl RecordedSince {
    /// Returns `true` if something that was made at `time` is recorded completely.
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
        return compare(Invariant::InvoiceRecomputed, &invoice.id, "sums of 128 bits", "larger ones");
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
    // The same lines in another number are in neither list.
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
    /// Returns the amount that later bills gave back. Late usage can get a discount that is worth more than
    /// its price; the surplus goes back to the credits that paid for earlier months, or lowers their dues.
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

    /// Returns the charges while a month was open that aren't of its invoice's usage: those of credit notes, and the debts
    /// that refunds and disputes have made.
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
            compare(Invariant::InvoicePaid, &invoice.id, "payments that cover it", format!("{unpaid} unpaid"))
        }
        "uncollectible" => {
            let written_off = payments.ledger.written_off.get(&invoice.id).copied().unwrap_or_default();
            // Credit notes that charged before the write-off aren't part of it; those since then are.
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

/// Checks the remainder of each credit against its amount, its uses, and what was ended, taken back or
/// written off.
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
    // A correction of a void invoice makes no credit note.
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
    // A correction of a void invoice posts movements that cancel each other, and makes no credit note.
    if credited.iter().any(|((month, _), _)| is_void(*month)) {
        return None;
    }
    // The keys of the months' discounts have the month, those of credit notes the id of the movement.
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

/// Checks the debt that is on no invoice: at most what is charged for months that aren't billed yet. `unpaid`
/// is that by month.
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
    // What is owed since an invoice is void is on no invoice until the next one.
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
mod tests {
    use super::*;
    use crate::rules::invoicing::ItemKind;

    const MAY: Month = Month::from_unix_months(676);

    fn nano(units: i128) -> Nano {
        Nano::from_units(units)
    }

    fn invoice(status: &str, amount: i128, due: i128) -> InvoiceRow {
        InvoiceRow {
            id: "invoice_1".into(),
            month: MAY,
            amount: nano(amount),
            due: nano(due),
            status: status.into(),
            currency: "USD".into(),
            finalized_at: Time::from_unix_ms(0),
            carried_over: Nano::ZERO,
            brought_forward: Some(Nano::ZERO),
            voided_at: None,
            credited: Nano::ZERO,
        }
    }

    fn words<'a>(drifts: impl IntoIterator<Item = &'a Drift>) -> Vec<String> {
        drifts
            .into_iter()
            .map(|d| format!("{} {} {} {}", d.invariant, d.subject, d.expected, d.found))
            .collect()
    }

    #[test]
    fn due_is_the_unpaid_amount() {
        let note = |amount| NoteRow {
            id: "note_1".into(),
            invoice_id: "invoice_1".into(),
            month: MAY,
            booked_month: MAY.plus(1),
            amount: nano(amount),
        };
        let check = |status, due, used: i128, notes: &[NoteRow], ledger: &LedgerSums| {
            let uses = [CreditUseRow { month: MAY, credit_id: "credit_1".into(), amount: nano(used) }];
            words(&super::invoice_payments(
                &invoice(status, 10, due),
                InvoicePayments { uses: &uses, notes, invoices: &[], ledger },
            ))
            .join("")
        };
        let none = LedgerSums::default();
        assert_eq!(check("open", 6, 4, &[], &none), "");
        assert_eq!(check("open", 5, 4, &[note(1)], &none), "");
        assert_eq!(
            check("open", 6, 4, &[note(-3)], &none),
            "",
            "a note that charges goes to the next invoice"
        );
        assert_eq!(check("open", 5, 4, &[], &none), "invoice_due invoice_1 0.000000006 0.000000005");
        assert_eq!(check("paid", 0, 10, &[], &none), "");
        // 10 and 7 that were owed before, of which 4 are paid.
        let forward = |status, due| {
            let invoice = InvoiceRow { brought_forward: Some(nano(7)), ..invoice(status, 10, due) };
            let uses = [CreditUseRow { month: MAY, credit_id: "credit_1".into(), amount: nano(4) }];
            let payments = InvoicePayments { uses: &uses, notes: &[], invoices: &[], ledger: &none };
            words(&super::invoice_payments(&invoice, payments)).join("")
        };
        assert_eq!(forward("open", 13), "");
        assert_eq!(forward("open", 6), "invoice_due invoice_1 0.000000013 0.000000006");
        assert_eq!(forward("paid", 0), "invoice_paid invoice_1 payments that cover it 0.000000013 unpaid");
        assert_eq!(
            check("paid", 0, 9, &[], &none),
            "invoice_paid invoice_1 payments that cover it 0.000000001 unpaid"
        );
        let dust = LedgerSums { dust: 1, ..LedgerSums::default() };
        assert_eq!(check("paid", 0, 9, &[], &dust), "");
        let given_up = LedgerSums {
            written_off: BTreeMap::from([("invoice_1".to_owned(), 6)]),
            ..LedgerSums::default()
        };
        assert_eq!(check("uncollectible", 0, 4, &[], &given_up), "");
        assert_eq!(
            check("uncollectible", 0, 3, &[], &given_up),
            "invoice_write_off invoice_1 0.000000007 0.000000006"
        );
    }

    /// A note of the first invoice; `booked` months after May.
    fn note(invoice_id: &str, booked: i64, amount: i128) -> NoteRow {
        NoteRow {
            id: "note_1".into(),
            invoice_id: invoice_id.into(),
            month: MAY,
            booked_month: MAY.plus(booked),
            amount: nano(amount),
        }
    }

    /// An invoice of another month, so many after May.
    fn other(after: i64, amount: i128) -> InvoiceRow {
        InvoiceRow { id: "invoice_2".into(), month: MAY.plus(after), ..invoice("open", amount, 0) }
    }

    #[test]
    fn later_bills_and_notes_widen_the_due() {
        // 10 less 4 by credits: 6 are left. June's bill gives 2 back, and a note for an earlier invoice, made in
        // May, charged 3, which credits may have paid instead.
        let invoices = [other(-1, -50), other(0, -50), other(1, -2), other(2, 50)];
        let notes = [note("invoice_0", 0, -3), note("invoice_0", 1, -50), note("invoice_0", 0, 50)];
        let uses = [
            CreditUseRow { month: MAY, credit_id: "credit_1".into(), amount: nano(4) },
            CreditUseRow { month: MAY.plus(1), credit_id: "credit_1".into(), amount: nano(50) },
        ];
        let check =
            |invoice: &InvoiceRow, invoices: &[InvoiceRow], notes: &[NoteRow], ledger: &LedgerSums| {
                words(&invoice_payments(invoice, InvoicePayments { uses: &uses, notes, invoices, ledger }))
                    .join("")
            };
        let none = LedgerSums::default();
        let open = |due| check(&invoice("open", 10, due), &invoices, &notes, &none);
        assert_eq!(open(3), "invoice_due invoice_1 0.000000004 to 0.000000009 0.000000003");
        assert_eq!([open(4), open(6), open(9)], ["", "", ""]);
        assert_eq!(open(10), "invoice_due invoice_1 0.000000004 to 0.000000009 0.00000001");

        // The bill may give back more than is left.
        let more = [other(1, -7)];
        let open = |due| check(&invoice("open", 10, due), &more, &[], &none);
        assert_eq!([open(0), open(6)], ["", ""]);
        assert_eq!(open(7), "invoice_due invoice_1 0 to 0.000000006 0.000000007");

        let paid = |amount| {
            let dust = LedgerSums { dust: 1, ..LedgerSums::default() };
            check(&invoice("paid", amount, 0), &invoices, &notes, &dust)
        };
        assert_eq!(paid(7), "", "1 of rounding and 2 given back");
        assert_eq!(paid(8), "invoice_paid invoice_1 payments that cover it 0.000000004 unpaid");

        // A note that charged for this invoice may be part of what was written off.
        let of_invoice = [note("invoice_1", 2, -5), note("invoice_0", 2, -50)];
        let notes = [&notes[..], &of_invoice].concat();
        let written_off = |amount| {
            let written_off = BTreeMap::from([("invoice_1".to_owned(), amount)]);
            let ledger = LedgerSums { written_off, ..LedgerSums::default() };
            check(&invoice("uncollectible", 10, 0), &invoices, &notes, &ledger)
        };
        assert_eq!(written_off(3), "invoice_write_off invoice_1 0.000000006 0.000000003");
        assert_eq!([written_off(4), written_off(6), written_off(14)], ["", "", ""]);
        assert_eq!(written_off(15), "invoice_write_off invoice_1 0.000000006 0.000000015");
        assert_eq!(check(&invoice("void", 10, 99), &invoices, &notes, &none), "", "checked elsewhere");
    }

    fn note_item(note: &str, kind: &str, quantity: i64, amount: &str) -> ItemRow {
        ItemRow {
            invoice_id: note.into(),
            position: 1,
            kind: kind.into(),
            description: "m".into(),
            quantity,
            unit_price: "0.000000001".into(),
            amount: amount.into(),
        }
    }

    #[test]
    fn credit_notes_list_the_usage_taken_back() {
        // Four tokens at a nano each were taken back in June, and a nano of discount with them.
        let notes = [note("invoice_1", 1, 3)];
        let items = [
            note_item("note_1", "correction", -4, "-0.000000004"),
            note_item("note_1", "discount", 1, "0.000000001"),
            note_item("note_2", "correction", -50, "-0.00000005"),
        ];
        let back = |month: i64, units: i128| ((MAY.plus(month), MAY.plus(1)), Pico::from_units(units));
        let check = |items: &[ItemRow], credited: &[((Month, Month), Pico)], invoices: &[InvoiceRow]| {
            words(&credit_notes(&notes, items, credited, invoices))
        };
        let none: [String; 0] = [];
        assert_eq!(check(&items, &[back(0, -4_000)], &[]), none);
        assert_eq!(
            check(&items, &[back(0, -5_000)], &[]),
            ["credit_note_usage 2026-05 taken back in 2026-06 -0.000000005 -0.000000004"]
        );
        assert_eq!(
            check(&items, &[], &[]),
            ["credit_note_usage 2026-05 taken back in 2026-06 0 -0.000000004"]
        );
        assert_eq!(
            check(&items[..1], &[back(0, -4_000)], &[]),
            ["credit_note_items note_1 0.000000003 0.000000004"]
        );
        let wrong = note_item("note_1", "correction", -3, "-0.000000004");
        assert_eq!(
            check(&[wrong, items[1].clone()], &[back(0, -4_000)], &[]),
            ["credit_note_item note_1 line 1 -0.000000003 -0.000000004"]
        );
        // Usage of April was taken back too: without a note, which is right only if April's invoice is void.
        let credited = [back(0, -4_000), back(-1, -7_000)];
        let april = |status: &str| InvoiceRow { status: status.into(), ..other(-1, 10) };
        assert_eq!(check(&items, &credited, &[april("void")]), none);
        assert_eq!(
            check(&items, &credited, &[april("paid"), InvoiceRow { status: "void".into(), ..other(5, 1) }]),
            ["credit_note_usage 2026-04 taken back in 2026-06 -0.000000007 0"]
        );
    }

    #[test]
    fn credit_notes_sum_to_their_movements() {
        // Notes posted 4 of usage back and 1 of discount. The discount of a month isn't theirs.
        let notes = [note("invoice_1", 1, 2), note("invoice_1", 2, 1)];
        let ledger = |discount| {
            let discounts = [("ltx_1".to_owned(), discount), ("2026-05".to_owned(), 50)];
            LedgerSums { discounts: discounts.into(), ..LedgerSums::default() }
        };
        let credited = [((MAY, MAY.plus(1)), Pico::from_units(-4_000))];
        let check = |discount, invoices: &[InvoiceRow]| {
            words(&credit_note_sums(&notes, &credited, invoices, -4, &ledger(discount))).join("")
        };
        assert_eq!(check(-1, &[]), "");
        assert_eq!(check(-2, &[]), "credit_note_usage credit notes 0.000000002 0.000000003");
        let void = |after| InvoiceRow { status: "void".into(), ..other(after, 1) };
        assert_eq!(check(-2, &[void(0)]), "", "movements of a void invoice cancel each other");
        assert_eq!(
            check(-2, &[void(1), other(0, 1)]),
            "credit_note_usage credit notes 0.000000002 0.000000003"
        );
    }

    #[test]
    fn debt_is_due_or_not_billed_yet() {
        let credit = CreditRow {
            id: "credit_1".into(),
            amount: nano(9),
            remaining: nano(1),
            created_at: Time::from_unix_ms(5),
            expires_at: None,
        };
        let invoices = [InvoiceRow { due: nano(4), ..other(0, 4) }];
        // June is open: 5 were used in it, and a note charged 2.
        let unpaid = [(MAY.plus(1), nano(5)), (MAY, nano(-3))];
        let notes = [note("invoice_1", 1, -2), note("invoice_1", 0, -50), note("invoice_1", 1, 50)];
        let check = |posted| {
            let wallet = (nano(posted), MAY.plus(1).unix_months());
            words(&unbilled(
                wallet,
                &invoices,
                std::slice::from_ref(&credit),
                &unpaid,
                (&notes, &LedgerSums::default()),
            ))
            .join("")
        };
        assert_eq!([check(5), check(-10)], ["", ""]);
        assert_eq!(check(-11), "debt_unbilled wallet 0.000000007 or less on no invoice 0.000000008");
        // An invoice that became void in June had brought 3 forward.
        let wallet = (nano(-13), MAY.plus(1).unix_months());
        let with_void = |at: Time| {
            let brought_forward = Some(nano(3));
            let void = InvoiceRow { brought_forward, voided_at: Some(at), ..invoice("void", 1, 0) };
            let invoices = [invoices[0].clone(), void];
            let credit = std::slice::from_ref(&credit);
            unbilled(wallet, &invoices, credit, &unpaid, (&notes, &LedgerSums::default())).is_none()
        };
        let june = MAY.plus(1).start();
        assert!(with_void(june) && !with_void(june.plus_ms(-1)));
    }

    #[test]
    fn credit_remainder_is_the_unused_amount() {
        let credit = |remaining| CreditRow {
            id: "credit_1".into(),
            amount: nano(10),
            remaining: nano(remaining),
            created_at: Time::from_unix_ms(5),
            expires_at: None,
        };
        let uses = [CreditUseRow { month: MAY, credit_id: "credit_1".into(), amount: nano(3) }];
        let ledger =
            LedgerSums { ended: BTreeMap::from([("credit_1".to_owned(), 2)]), ..LedgerSums::default() };
        let check = |remaining, since: i64| {
            words(&credit_remainders(
                &[credit(remaining)],
                &uses,
                &ledger,
                RecordedSince(Some(Time::from_unix_ms(since))),
            ))
        };
        assert!(check(5, 5).is_empty() && check(5, 6).is_empty());
        assert!(check(4, 6).is_empty(), "older uses weren't recorded");
        assert_eq!(check(4, 5), ["credit_rest credit_1 0.000000005 0.000000004"]);
        assert_eq!(check(6, 6), ["credit_rest credit_1 0.000000005 or less 0.000000006"]);
        assert!(!RecordedSince(None).covers(Time::from_unix_ms(5)));
    }

    #[test]
    fn invoice_lines_match_daily_rows() {
        let item = Item::single(ItemKind::Usage, "m".into(), Pico::from_units(5));
        let bill = |items: &[Item]| Bill {
            items: items.to_vec(),
            credited: Nano::ZERO,
            amount: Nano::ZERO,
            exact: Pico::ZERO,
        };
        let row = |position, kind: &str, description: &str| ItemRow {
            invoice_id: "invoice_1".into(),
            position,
            kind: kind.into(),
            description: description.into(),
            quantity: 1,
            unit_price: "0.000000000005".into(),
            amount: "0.0000000000050".into(),
        };
        let check = |rows: &[ItemRow], items: &[Item]| {
            words(&recomputed(&invoice("open", 1, 1), rows, Some(&bill(items)))).join("")
        };
        let carried = row(2, "carried_over", "debt");
        assert_eq!(check(&[row(1, "usage", "m"), carried], std::slice::from_ref(&item)), "");
        assert_eq!(
            check(&[row(1, "usage", "x")], std::slice::from_ref(&item)),
            "invoice_recomputed invoice_1 usage \"m\" 1 for 0.000000000005 usage \"x\" 1 for 0.000000000005"
        );
        assert_eq!(
            check(&[row(1, "usage", "m"), row(2, "usage", "m")], std::slice::from_ref(&item)),
            "invoice_recomputed invoice_1 usage \"m\" 1 for 0.000000000005 \
             usage \"m\" 1 for 0.000000000005; usage \"m\" 1 for 0.000000000005"
        );
        let more = Item::single(ItemKind::Usage, "n".into(), Pico::from_units(5));
        let (m, n) = (row(1, "usage", "m"), row(2, "usage", "n"));
        let drift = check(&[m.clone(), n.clone(), n.clone()], &[item.clone(), item.clone(), more.clone()]);
        assert!(drift.starts_with("invoice_recomputed"), "another line of each twice: {drift}");
        assert_eq!(check(&[m.clone(), n.clone()], &[more.clone(), item.clone()]), "", "in any order");
        assert_eq!(check(&[n, m.clone()], &[item.clone(), more.clone()]), "");
        assert_eq!(
            check(&[m], &[item, more]),
            "invoice_recomputed invoice_1 usage \"n\" 1 for 0.000000000005 nothing else"
        );
    }
}
