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
    drifts.into_iter().map(|d| format!("{} {} {} {}", d.invariant, d.subject, d.expected, d.found)).collect()
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
    assert_eq!(check("open", 6, 4, &[note(-3)], &none), "", "a note that charges goes to the next invoice");
    assert_eq!(check("open", 5, 4, &[], &none), "invoice_due invoice_1 0.000000006 0.000000005");
    assert_eq!(check("paid", 0, 10, &[], &none), "");
    // 10 and 7 of earlier debts, of which 4 are paid.
    let forward = |status, due| {
        let invoice = InvoiceRow { brought_forward: Some(nano(7)), ..invoice(status, 10, due) };
        let uses = [CreditUseRow { month: MAY, credit_id: "credit_1".into(), amount: nano(4) }];
        let payments = InvoicePayments { uses: &uses, notes: &[], invoices: &[], ledger: &none };
        words(&super::invoice_payments(&invoice, payments)).join("")
    };
    assert_eq!(forward("open", 13), "");
    assert_eq!(forward("open", 6), "invoice_due invoice_1 0.000000013 0.000000006");
    assert_eq!(
        forward("paid", 0),
        "invoice_paid invoice_1 payments that cover the invoice 0.000000013 unpaid"
    );
    assert_eq!(
        check("paid", 0, 9, &[], &none),
        "invoice_paid invoice_1 payments that cover the invoice 0.000000001 unpaid"
    );
    let dust = LedgerSums { dust: 1, ..LedgerSums::default() };
    assert_eq!(check("paid", 0, 9, &[], &dust), "");
    let given_up =
        LedgerSums { written_off: BTreeMap::from([("invoice_1".to_owned(), 6)]), ..LedgerSums::default() };
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

/// An invoice of another month, this number of months after May.
fn other(after: i64, amount: i128) -> InvoiceRow {
    InvoiceRow { id: "invoice_2".into(), month: MAY.plus(after), ..invoice("open", amount, 0) }
}

#[test]
fn later_bills_and_notes_widen_the_due() {
    // 10 less 4 by credits: 6 are left. June's bill refunds 2, and a note for an earlier invoice, made in
    // May, charged 3, which credits may have paid instead.
    let invoices = [other(-1, -50), other(0, -50), other(1, -2), other(2, 50)];
    let notes = [note("invoice_0", 0, -3), note("invoice_0", 1, -50), note("invoice_0", 0, 50)];
    let uses = [
        CreditUseRow { month: MAY, credit_id: "credit_1".into(), amount: nano(4) },
        CreditUseRow { month: MAY.plus(1), credit_id: "credit_1".into(), amount: nano(50) },
    ];
    let check = |invoice: &InvoiceRow, invoices: &[InvoiceRow], notes: &[NoteRow], ledger: &LedgerSums| {
        words(&invoice_payments(invoice, InvoicePayments { uses: &uses, notes, invoices, ledger })).join("")
    };
    let none = LedgerSums::default();
    let open = |due| check(&invoice("open", 10, due), &invoices, &notes, &none);
    assert_eq!(open(3), "invoice_due invoice_1 0.000000004 to 0.000000009 0.000000003");
    assert_eq!([open(4), open(6), open(9)], ["", "", ""]);
    assert_eq!(open(10), "invoice_due invoice_1 0.000000004 to 0.000000009 0.00000001");

    // The bill may refund more than the remaining amount.
    let more = [other(1, -7)];
    let open = |due| check(&invoice("open", 10, due), &more, &[], &none);
    assert_eq!([open(0), open(6)], ["", ""]);
    assert_eq!(open(7), "invoice_due invoice_1 0 to 0.000000006 0.000000007");

    let paid = |amount| {
        let dust = LedgerSums { dust: 1, ..LedgerSums::default() };
        check(&invoice("paid", amount, 0), &invoices, &notes, &dust)
    };
    assert_eq!(paid(7), "", "1 of rounding and a refund of 2");
    assert_eq!(paid(8), "invoice_paid invoice_1 payments that cover the invoice 0.000000004 unpaid");

    // A note that charged for this invoice may be part of the written-off amount.
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
    assert_eq!(check(&items, &[], &[]), ["credit_note_usage 2026-05 taken back in 2026-06 0 -0.000000004"]);
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
    assert_eq!(check(-2, &[void(1), other(0, 1)]), "credit_note_usage credit notes 0.000000002 0.000000003");
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
    let ledger = LedgerSums { ended: BTreeMap::from([("credit_1".to_owned(), 2)]), ..LedgerSums::default() };
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
