//! Checks of invoices, their items and their numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::{CreditRow, Drift, Invariant, LedgerSums, compare, decimal_text};
use kernel::clock::{Month, Time};
use kernel::money::{Nano, Pico};

/// A stored invoice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvoiceRow {
    pub id: String,
    pub month: Month,
    pub amount: Nano,
    pub due: Nano,
    pub status: String,
    /// An earlier debt that is part of the amount. Only earlier versions charged debts in this way.
    pub carried_over: Nano,
    /// An earlier debt that is due with this invoice; `None` for invoices of earlier versions.
    pub brought_forward: Option<Nano>,
    pub voided_at: Option<Time>,
    /// The sum of its credit notes.
    pub credited: Nano,
    pub currency: String,
    pub finalized_at: Time,
}

impl InvoiceRow {
    /// Sets the debt that the items carry over.
    pub fn carry_over(&mut self, items: &[ItemRow]) {
        let carried = items.iter().filter(|item| item.invoice_id == self.id && item.kind == "carried_over");
        let nano = carried.filter_map(|item| Nano::parse(&item.amount)).map(Nano::units);
        self.carried_over = Nano::from_units(nano.sum());
    }

    /// Returns the earlier debt that is due with this invoice.
    pub fn brought_forward(&self) -> i128 {
        self.brought_forward.map_or(0, Nano::units)
    }

    /// Returns the debt that is on no invoice because this invoice is void: the amount that the invoice had
    /// brought forward, plus the amount by which its credit notes exceeded it. The latter is at most a nano
    /// for each row that was rounded.
    pub fn owed_since_void(&self) -> i128 {
        let beyond = self.credited.units().saturating_sub(self.amount.units()).max(0);
        if self.status == "void" { self.brought_forward().saturating_add(beyond) } else { 0 }
    }

    /// Returns the debt that is part of the amount, which only invoices of earlier versions have.
    fn charged_again(&self) -> i128 {
        if self.brought_forward.is_none() { self.carried_over.units() } else { 0 }
    }
}

/// A stored item of an invoice or a credit note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ItemRow {
    /// The id of the invoice or the credit note.
    pub invoice_id: String,
    pub position: i64,
    pub kind: String,
    pub description: String,
    pub quantity: i64,
    /// A decimal.
    pub unit_price: String,
    /// A decimal.
    pub amount: String,
}

/// Checks that the amount of an item is its quantity times its price.
pub(super) fn item(invariant: Invariant, subject: &str, item: &ItemRow) -> Option<Drift> {
    let product = Pico::parse(&item.unit_price).and_then(|price| price.checked_mul(item.quantity));
    let expected = match product {
        Some(product) => product.to_string(),
        None => format!("{} × {}", item.quantity, item.unit_price),
    };
    // Amounts may be written with trailing zeros.
    let found = Pico::parse(&item.amount).map_or_else(|| item.amount.clone(), |amount| amount.to_string());
    compare(invariant, subject, expected, found)
}

/// Checks the currencies of a wallet and its invoices. `of_prices` is the currency of the catalog in force.
pub fn currencies(wallet: &str, of_prices: Option<&str>, invoices: &[InvoiceRow]) -> Vec<Drift> {
    let of_wallet = of_prices.and_then(|code| compare(Invariant::WalletCurrency, "wallet", code, wallet));
    let of_invoice = |it: &InvoiceRow| compare(Invariant::InvoiceCurrency, &it.id, wallet, &it.currency);
    of_wallet.into_iter().chain(invoices.iter().filter_map(of_invoice)).collect()
}

/// Checks an invoice and its items.
pub fn invoice(invoice: &InvoiceRow, items: &[ItemRow]) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut sum = Some(Pico::ZERO);
    for item in items.iter().filter(|item| item.invoice_id == invoice.id) {
        let amount = Pico::parse(&item.amount);
        let subject = format!("{} line {}", invoice.id, item.position);
        drifts.extend(self::item(Invariant::InvoiceItem, &subject, item));
        sum = sum.zip(amount).and_then(|(sum, amount)| sum.checked_add(amount));
    }
    let found = decimal_text::<12>(sum.map(Pico::units));
    drifts.extend(compare(Invariant::InvoiceItems, &invoice.id, invoice.amount, found));
    let due = invoice.due;
    if invoice.status != "open" {
        let expected = format!("0 ({})", invoice.status);
        let found = format!("{due} ({})", invoice.status);
        drifts.extend(compare(Invariant::InvoiceDue, &invoice.id, expected, found));
    } else if due <= Nano::ZERO {
        drifts.extend(compare(Invariant::InvoiceDue, &invoice.id, "more than 0", due));
    }
    drifts
}

/// Checks the amounts due of all invoices against the debt of the wallet. Usage of an open month is owed too,
/// but isn't due on an invoice yet.
pub fn invoice_dues(invoices: &[InvoiceRow], posted: Nano, credits: &[CreditRow]) -> Option<Drift> {
    let due: i128 = invoices.iter().map(|invoice| invoice.due.units()).sum();
    let left: i128 = credits.iter().map(|credit| credit.remaining.units()).sum();
    let owed = left.saturating_sub(posted.units()).max(0);
    let expected = format!("{} or less", decimal_text::<9>(Some(owed)));
    if due > owed {
        compare(Invariant::InvoicesDue, "invoices", expected, decimal_text::<9>(Some(due)))
    } else {
        None
    }
}

/// Checks that void invoices were refunded completely, and that no other invoice was refunded. An invoice
/// with a negative amount can't be voided.
pub fn void_invoices(invoices: &[InvoiceRow], ledger: &LedgerSums) -> Vec<Drift> {
    let expected: BTreeMap<&str, i128> = invoices
        .iter()
        .filter(|invoice| invoice.status == "void" && invoice.amount != Nano::ZERO)
        .map(|invoice| (invoice.id.as_str(), invoice.amount.units() - invoice.credited.units()))
        .collect();
    let ids: BTreeSet<&str> =
        expected.keys().copied().chain(ledger.void_invoices.keys().map(String::as_str)).collect();
    let nano = |amount: Option<&i128>| decimal_text::<9>(Some(amount.copied().unwrap_or_default()));
    ids.into_iter()
        .filter_map(|id| {
            compare(Invariant::InvoiceVoid, id, nano(expected.get(id)), nano(ledger.void_invoices.get(id)))
        })
        .collect()
}

/// The posted amounts of each month.
#[derive(Clone, Copy, Debug)]
pub struct MonthSums<'a> {
    /// The posted amounts by billed month.
    pub posted: &'a BTreeMap<Month, i128>,
    pub ledger: &'a LedgerSums,
    /// The first month that isn't closed, counted from 1970-01; `None` without a wallet.
    pub open_month: Option<i64>,
}

/// Checks all invoices of an organization against the amounts billed in each month.
pub fn invoice_months(invoices: &[InvoiceRow], sums: MonthSums<'_>) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut seen = BTreeSet::new();
    let is_closed = |month: &Month| sums.open_month.is_some_and(|open| month.unix_months() < open);
    for invoice in invoices {
        let month = invoice.month;
        let subject = format!("{} of {month}", invoice.id);
        let discount = sums.ledger.discounts.get(&month.to_string()).copied().unwrap_or_default();
        let posted = sums.posted.get(&month).copied().unwrap_or_default();
        let expected = posted.checked_sub(discount).and_then(|net| net.checked_add(invoice.charged_again()));
        let expected = decimal_text::<9>(expected);
        drifts.extend(compare(Invariant::InvoiceAmount, &subject, expected, invoice.amount));
        if !seen.insert(month) {
            drifts.extend(compare(
                Invariant::InvoiceMonth,
                &subject,
                "one invoice for the month",
                "a second invoice",
            ));
        }
        if sums.open_month.is_some() && !is_closed(&month) {
            drifts.extend(compare(
                Invariant::InvoiceMonth,
                &subject,
                "no invoice for an open month",
                "an invoice",
            ));
        }
    }
    let billed = sums.posted.iter().filter(|(month, posted)| is_closed(month) && **posted != 0);
    for (month, posted) in billed.filter(|(month, _)| !seen.contains(month)) {
        let expected = format!("an invoice for {}", decimal_text::<9>(Some(*posted)));
        drifts.extend(compare(Invariant::InvoiceMonth, &month.to_string(), expected, "no invoice"));
    }
    drifts
}

/// Checks the numbers of all invoices or credit notes: their count, the first and the last, and the last one
/// that was assigned.
pub fn numbers(
    invariant: Invariant,
    count: i64,
    first: Option<i64>,
    last: Option<i64>,
    given: i64,
) -> Option<Drift> {
    let found = match (first, last) {
        (Some(first), Some(last)) => format!("{count} numbers from {first} to {last}"),
        _ => "no numbers".to_owned(),
    };
    let expected =
        if given == 0 { "no numbers".to_owned() } else { format!("{given} numbers from 1 to {given}") };
    let subject = if invariant == Invariant::InvoiceNumber { "invoices" } else { "credit notes" };
    compare(invariant, subject, expected, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: &str, amount: i128, due: i128) -> InvoiceRow {
        InvoiceRow {
            id: "invoice_1".into(),
            month: Month::from_unix_months(672),
            amount: Nano::from_units(amount),
            due: Nano::from_units(due),
            status: status.into(),
            carried_over: Nano::ZERO,
            brought_forward: Some(Nano::ZERO),
            voided_at: None,
            credited: Nano::ZERO,
            currency: "USD".into(),
            finalized_at: Time::from_unix_ms(0),
        }
    }

    fn item(position: i64, quantity: i64, unit_price: &str, amount: &str) -> ItemRow {
        let (unit_price, amount) = (unit_price.into(), amount.into());
        ItemRow {
            invoice_id: "invoice_1".into(),
            position,
            kind: "usage".into(),
            description: "m".into(),
            quantity,
            unit_price,
            amount,
        }
    }

    fn words(drifts: &[Drift]) -> Vec<String> {
        drifts.iter().map(|d| format!("{} {} {} {}", d.invariant, d.subject, d.expected, d.found)).collect()
    }

    #[test]
    fn items_sum_to_the_amount_exactly() {
        let items =
            [item(1, 3, "0.5", "1.50"), item(2, 1, "-0.25", "-0.25"), item(3, 1, "0.0000000000", "0")];
        assert_eq!(invoice(&row("paid", 1_250_000_000, 0), &items), []);
        let others = ItemRow { invoice_id: "invoice_2".into(), ..item(1, 1, "7", "8") };
        assert_eq!(invoice(&row("paid", 1_250_000_000, 0), &[&items[..], &[others]].concat()), []);
        let off = [item(1, 3, "0.5", "1.5"), item(2, 1, "-0.000000000001", "-0.000000000001")];
        assert_eq!(
            words(&invoice(&row("paid", 1_500_000_000, 0), &off)),
            ["invoice_items invoice_1 1.5 1.499999999999"]
        );
        assert_eq!(
            words(&invoice(&row("paid", 2_000_000_000, 0), &[item(1, 3, "0.5", "2")])),
            ["invoice_item invoice_1 line 1 1.5 2"]
        );
        let unreadable = words(&invoice(&row("paid", 0, 0), &[item(1, 3, "half", "x")]));
        assert_eq!(unreadable[0], "invoice_item invoice_1 line 1 3 × half x");
    }

    #[test]
    fn carried_debt_is_that_of_its_items() {
        let carried = |invoice_id: &str, amount: &str| ItemRow {
            invoice_id: invoice_id.into(),
            kind: "carried_over".into(),
            ..item(1, 1, amount, amount)
        };
        let mut invoice = row("open", 10, 10);
        invoice.carry_over(&[
            item(1, 1, "7", "7"),
            carried("invoice_1", "0.000000003"),
            carried("invoice_2", "5"),
        ]);
        assert_eq!(invoice.carried_over, Nano::from_units(3));
        // Only earlier versions charged the debt again.
        let posted = [(invoice.month, 7)].into();
        let sums = MonthSums { posted: &posted, ledger: &LedgerSums::default(), open_month: None };
        assert_eq!(
            words(&invoice_months(&[invoice.clone()], sums)),
            ["invoice_amount invoice_1 of 2026-01 0.000000007 0.00000001"]
        );
        assert_eq!(invoice_months(&[InvoiceRow { brought_forward: None, ..invoice }], sums), []);
    }

    #[test]
    fn only_open_invoices_have_something_due() {
        let items = [item(1, 1, "0.000000005", "0.000000005")];
        let check = |status, due| words(&invoice(&row(status, 5, due), &items)).join(" ");
        assert!(check("open", 5).is_empty() && check("open", 1).is_empty() && check("void", 0).is_empty());
        assert!(check("open", 6).is_empty(), "an earlier credited amount is due again");
        assert_eq!(check("paid", 1), "invoice_due invoice_1 0 (paid) 0.000000001 (paid)");
        assert_eq!(check("open", 0), "invoice_due invoice_1 more than 0 0");
        assert!(check("open", -1).starts_with("invoice_due"));
    }

    #[test]
    fn only_void_invoices_are_refunded() {
        let check = |status, amount, back: &[(&str, i128)]| {
            let mut ledger = LedgerSums::default();
            ledger.void_invoices.extend(back.iter().map(|(id, nano)| ((*id).to_owned(), *nano)));
            words(&void_invoices(&[row(status, amount, 0)], &ledger))
        };
        assert!(check("void", 5, &[("invoice_1", 5)]).is_empty() && check("void", 0, &[]).is_empty());
        assert!(check("paid", 5, &[]).is_empty());
        assert_eq!(check("void", 5, &[]), ["invoice_void invoice_1 0.000000005 0"]);
        assert_eq!(check("void", 5, &[("invoice_1", 4)]), ["invoice_void invoice_1 0.000000005 0.000000004"]);
        assert_eq!(check("paid", 5, &[("invoice_1", 5)]), ["invoice_void invoice_1 0 0.000000005"]);
        assert_eq!(check("paid", 5, &[("invoice_2", 5)]), ["invoice_void invoice_2 0 0.000000005"]);
        // Credit notes have already refunded 2 of the amount.
        let credited = InvoiceRow { credited: Nano::from_units(2), ..row("void", 5, 0) };
        let refunded = |nano: i128| {
            let mut ledger = LedgerSums::default();
            ledger.void_invoices.insert("invoice_1".to_owned(), nano);
            words(&void_invoices(std::slice::from_ref(&credited), &ledger))
        };
        assert!(refunded(3).is_empty());
        assert_eq!(refunded(5), ["invoice_void invoice_1 0.000000003 0.000000005"]);
    }

    #[test]
    fn dues_do_not_exceed_the_debt() {
        let credit = |remaining| CreditRow {
            id: "credit_1".into(),
            amount: Nano::from_units(10),
            remaining: Nano::from_units(remaining),
            created_at: Time::from_unix_ms(0),
            expires_at: None,
        };
        let check = |each: &[i128], posted, left| {
            let invoices: Vec<_> = each.iter().map(|due| row("open", 5, *due)).collect();
            let drift = invoice_dues(&invoices, Nano::from_units(posted), &[credit(left)]);
            words(&drift.into_iter().collect::<Vec<_>>())
        };
        assert!(
            check(&[], 3, 3).is_empty() && check(&[4, 1], -5, 0).is_empty() && check(&[5], -9, 0).is_empty()
        );
        assert!(check(&[5], -3, 2).is_empty(), "the remainder of an expired credit");
        assert_eq!(check(&[4, 2], -5, 0), ["invoices_due invoices 0.000000005 or less 0.000000006"]);
        assert_eq!(check(&[1], 3, 3), ["invoices_due invoices 0 or less 0.000000001"]);
    }

    #[test]
    fn currencies_agree() {
        let check = |wallet, of_prices| words(&currencies(wallet, of_prices, &[row("paid", 5, 0)]));
        assert!(check("USD", Some("USD")).is_empty() && check("USD", None).is_empty());
        assert_eq!(
            check("EUR", Some("USD")),
            ["wallet_currency wallet USD EUR", "invoice_currency invoice_1 EUR USD"]
        );
    }

    #[test]
    fn only_closed_months_have_an_invoice() {
        let month = Month::from_unix_months(672);
        let mut ledger = LedgerSums::default();
        ledger.discounts.insert("2026-01".to_owned(), 2);
        let check = |invoices: &[InvoiceRow], posted: i128, open_month| {
            let posted = BTreeMap::from([(month, posted), (month.plus(1), 9)]);
            words(&invoice_months(
                invoices,
                MonthSums { posted: &posted, ledger: &ledger, open_month: Some(open_month) },
            ))
        };
        assert!(check(&[row("void", 5, 0)], 7, 673).is_empty());
        assert!(check(&[], 0, 673).is_empty() && check(&[], 7, 672).is_empty());
        assert_eq!(
            check(&[row("paid", 5, 0)], 8, 673),
            ["invoice_amount invoice_1 of 2026-01 0.000000006 0.000000005"]
        );
        assert_eq!(check(&[], 7, 673), ["invoice_month 2026-01 an invoice for 0.000000007 no invoice"]);
        assert_eq!(
            check(&[row("paid", 5, 0)], 7, 672),
            ["invoice_month invoice_1 of 2026-01 no invoice for an open month an invoice"]
        );
        let twice = [row("paid", 5, 0), row("paid", 5, 0)];
        assert_eq!(
            check(&twice, 7, 673),
            ["invoice_month invoice_1 of 2026-01 one invoice for the month a second invoice"]
        );
    }

    #[test]
    fn numbers_have_no_gaps() {
        let numbers =
            |count, first, last, given| numbers(Invariant::InvoiceNumber, count, first, last, given);
        assert!(numbers(0, None, None, 0).is_none() && numbers(3, Some(1), Some(3), 3).is_none());
        for (count, first, last, given) in [
            (2, Some(1), Some(3), 3),
            (3, Some(2), Some(4), 3),
            (3, Some(1), Some(3), 4),
            (0, None, None, 1),
            (1, Some(1), Some(1), 0),
        ] {
            assert!(numbers(count, first, last, given).is_some(), "{count} {given}");
        }
        let subject = |invariant| super::numbers(invariant, 0, None, None, 1).unwrap().subject;
        assert_eq!(subject(Invariant::InvoiceNumber), "invoices");
        assert_eq!(subject(Invariant::CreditNoteNumber), "credit notes");
    }
}
