//! Checks of documents: invoices and credit notes bill the usage at its price, minus its discounts
//! (docs/contract/billing.md#volume-discounts, #rounding, #credit-notes, #invoice).

use std::collections::{BTreeMap, BTreeSet};

use kernel::clock::{Day, Month, Time};

use super::evidence::{CreditedRow, DayRow, InvoiceRow, MovementRow, NoteRow};
use super::prices::{self, PriceList};
use super::quantities::Quantities;
use super::quantities::UseKey;
use super::{finding, nano};
use crate::rules::audit::{Drift, Invariant};

const PPM: i128 = 1_000_000;
const PICO_PER_NANO: i128 = 1_000;

/// Billed and credited usage.
#[derive(Clone, Copy)]
pub struct Billed<'a> {
    pub days: &'a [DayRow],
    pub credited: &'a [CreditedRow],
    pub prices: &'a PriceList,
}

/// Tokens of one model and kind. The key is the day of use, the time at which the price came into force, and
/// the price in picos; it determines the order. The value is the number of tokens.
type Stream = Vec<((Day, Time, i128), i128)>;

/// A discount in millionths of a pico, and the number of sums in it. Each sum is rounded up to a pico.
#[derive(Clone, Copy, Default)]
struct Discount {
    exact: i128,
    sums: i128,
}

impl Discount {
    /// Returns the smallest and the largest amount that can be credited for the discount, in whole nanos.
    fn nanos(self) -> (i128, i128) {
        let most = self.exact.saturating_add(self.sums * PPM);
        let least = self.exact.saturating_sub(self.sums * PPM);
        (prices::credited_nanos(least), prices::credited_nanos(most))
    }
}

impl Billed<'_> {
    /// Returns the tokens used in the month `of` that are known while `month` is open: the tokens billed
    /// before, minus the tokens taken back so far. `with_month` adds the tokens billed in `month` itself.
    fn known(&self, of: Month, month: Month, with_month: bool) -> BTreeMap<UseKey, Quantities> {
        let mut known: BTreeMap<UseKey, Quantities> = BTreeMap::new();
        let mut add = |row: &UseKey, used: &Quantities| known.entry(row.clone()).or_default().add(used, 1);
        for row in self.days.iter().filter(|row| row.key.day.month() == of) {
            // The rows of a month include corrections that were made while it was open.
            if row.month < month || (with_month && row.month == month) {
                add(&row.key, &row.used.quantities);
            }
        }
        if !with_month {
            let taken = self.credited.iter().filter(|row| row.booked_month == month);
            for row in taken.filter(|row| row.key.day.month() == of) {
                add(&row.key, &row.used.quantities);
            }
        }
        known
    }

    /// Returns the discount on the tokens used in a month; `None` if it exceeds 128 bits.
    fn discount(&self, of: Month, known: &BTreeMap<UseKey, Quantities>) -> Option<Discount> {
        // The tokens by model and kind, ordered by day, start of the price, and price, the cheapest first.
        // Pieces have no discount.
        let mut streams: BTreeMap<(&str, &str, bool), Stream> = BTreeMap::new();
        for (key, used) in known {
            let Some(price) = self.prices.price(&key.model, key.version) else { continue };
            for (is_completion, uses) in [(false, price.prompts(used)), (true, price.completions(used))] {
                let stream = streams.entry((&key.model, &key.kind, is_completion)).or_default();
                stream.extend(
                    uses.into_iter().map(|(count, pico)| ((key.day, price.effective_at, pico), count)),
                );
            }
        }
        let tiers = self.prices.tiers(of);
        let mut sum = Discount::default();
        for mut stream in streams.into_values() {
            stream.sort_by_key(|(order, _)| *order);
            let used = stream.into_iter().map(|((_, _, pico), count)| (count, pico));
            sum.exact = sum.exact.checked_add(prices::discount(tiers, used)?)?;
            sum.sums += 1;
        }
        Some(sum)
    }

    /// Returns the amount by which the discounts of months of use increase between two states of the books.
    fn increase(
        &self,
        months: &BTreeSet<Month>,
        month: Month,
        (before, after): (Known, Known),
    ) -> Option<Discount> {
        let mut increase = Discount::default();
        for of in months {
            let used = |known: Known| match known {
                Known::Before => {
                    let mut known = self.known(*of, month, false);
                    for row in self.credited.iter().filter(|row| row.booked_month == month) {
                        if let Some(sum) = known.get_mut(&row.key) {
                            sum.add(&row.used.quantities, -1);
                        }
                    }
                    known
                }
                Known::Corrected => self.known(*of, month, false),
                Known::Billed => self.known(*of, month, true),
            };
            let (before, after) = (self.discount(*of, &used(before))?, self.discount(*of, &used(after))?);
            increase.exact = increase.exact.checked_add(after.exact)?.checked_sub(before.exact)?;
            increase.sums += before.sums + after.sums;
        }
        // Without a discount, nothing is rounded.
        if increase.exact == 0 { Some(Discount::default()) } else { Some(increase) }
    }

    /// Returns the usage that is billed in a month, without the usage in credit notes.
    fn charged(&self, month: Month) -> Charged {
        let rows: Vec<_> = self.days.iter().filter(|row| row.month == month).collect();
        let taken: Vec<_> = self.credited.iter().filter(|row| row.booked_month == month).collect();
        let nanos =
            rows.iter().map(|row| row.nanos).sum::<i128>() - taken.iter().map(|row| row.nanos).sum::<i128>();
        let list = rows.iter().map(|row| row.used.amount).sum::<i128>()
            - taken.iter().map(|row| row.used.amount).sum::<i128>();
        Charged { nanos, list, months: rows.iter().map(|row| row.key.day.month()).collect() }
    }

    /// Returns the amount of usage that isn't billed yet, in whole nanos.
    pub fn unbilled(&self, open_month: Month) -> i128 {
        let rows = self.days.iter().filter(|row| row.month >= open_month);
        let taken = self.credited.iter().filter(|row| row.booked_month >= open_month);
        rows.map(|row| row.nanos).sum::<i128>() - taken.map(|row| row.nanos).sum::<i128>()
    }
}

/// The billed usage of a month.
struct Charged {
    /// The amount in whole nanos.
    nanos: i128,
    /// The list price in picos.
    list: i128,
    /// The months in which the usage occurred.
    months: BTreeSet<Month>,
}

impl Charged {
    /// Returns the smallest and the largest amount that the invoice can have with this discount, in nanos.
    fn amounts(&self, discount: Discount) -> (i128, i128) {
        let (least, most) = discount.nanos();
        // Rounding up can't raise the credit above the charged amount, unless the discount also includes
        // other usage.
        let is_within = discount.exact <= self.list.saturating_mul(PPM);
        let least = if is_within { least.min(self.nanos.max(0)) } else { least };
        (self.nanos - most, self.nanos - least)
    }
}

/// The state of the books in which the tokens of a month are counted.
#[derive(Clone, Copy)]
enum Known {
    /// The tokens billed in earlier months.
    Before,
    /// The same, minus the tokens that were taken back since then.
    Corrected,
    /// The same, plus the tokens that are billed now.
    Billed,
}

/// Checks the amount of each month's invoice against the usage billed in the month. A month without an
/// invoice bills nothing.
pub fn invoices(billed: &Billed<'_>, invoices: &[InvoiceRow], open_month: Month) -> Vec<Drift> {
    let months: BTreeSet<Month> =
        billed.days.iter().map(|row| row.month).chain(invoices.iter().map(|invoice| invoice.month)).collect();
    let check = |month: &Month| {
        let of_month: Vec<_> = invoices.iter().filter(|invoice| invoice.month == *month).collect();
        // Invoices of older versions follow older rules.
        if of_month.iter().any(|invoice| !billed.prices.covers(invoice.finalized_at)) {
            return None;
        }
        let found: i128 = of_month.iter().map(|invoice| i128::from(invoice.amount_nano)).sum();
        let charged = billed.charged(*month);
        let increase = billed.increase(&charged.months, *month, (Known::Corrected, Known::Billed))?;
        let (least, most) = charged.amounts(increase);
        if (least..=most).contains(&found) {
            return None;
        }
        let subject = match of_month.first() {
            Some(invoice) => format!("{} of {month}", invoice.id),
            None => format!("{month}, without an invoice"),
        };
        let expected = format!("{} for the usage billed in this month", nano(least));
        Some(finding(Invariant::RecountInvoice, subject, expected, nano(found)))
    };
    months.iter().filter(|month| **month < open_month).filter_map(check).collect()
}

/// Checks the credit notes that were made while each month was open against the usage that was taken back
/// during that time. Void invoices refund nothing for corrections, so months with corrections of such
/// invoices are skipped.
pub fn notes(billed: &Billed<'_>, invoices: &[InvoiceRow], notes: &[NoteRow]) -> Vec<Drift> {
    let booked: BTreeSet<Month> = billed
        .credited
        .iter()
        .map(|row| row.booked_month)
        .chain(notes.iter().map(|note| note.booked_month))
        .collect();
    let is_void = |month: Month| invoices.iter().any(|invoice| invoice.month == month && invoice.is_void());
    let check = |month: &Month| {
        let taken: Vec<_> = billed.credited.iter().filter(|row| row.booked_month == *month).collect();
        if taken.iter().any(|row| is_void(row.month)) {
            return None;
        }
        let of = taken.iter().map(|row| row.key.day.month()).collect();
        let lost = billed.increase(&of, *month, (Known::Before, Known::Corrected))?;
        let made: Vec<_> = notes.iter().filter(|note| note.booked_month == *month).collect();
        let found: i128 = made.iter().map(|note| i128::from(note.amount_nano)).sum();
        let exact = -taken.iter().map(|row| row.nanos).sum::<i128>() + lost.exact / (PPM * PICO_PER_NANO);
        // Each note rounds its discount separately, up to a whole nano.
        let count = i128::try_from(made.len()).unwrap_or(i128::MAX).saturating_add(1);
        let within = if lost.exact == 0 { 0 } else { count };
        if (found - exact).abs() <= within {
            return None;
        }
        let expected = format!("{} for the usage that was taken back", nano(exact));
        Some(finding(
            Invariant::RecountCreditNotes,
            format!("credit notes made in {month}"),
            expected,
            nano(found),
        ))
    };
    booked.iter().filter_map(check).collect()
}

/// Checks that no debt is brought forward twice: up to each invoice, the sum brought forward is at most the
/// debts that had arisen. The debt that a void invoice brought forward is brought forward again by the next
/// invoice.
pub fn brought_forward(invoices: &[InvoiceRow], notes: &[NoteRow], ledger: &[MovementRow]) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut forwarded = 0_i128;
    for invoice in invoices.iter().filter(|invoice| !invoice.is_void()) {
        let here = i128::from(invoice.brought_forward_nano) + invoice.carried_over / PICO_PER_NANO;
        if here == 0 {
            continue;
        }
        let before = i128::from(invoice.brought_forward_nano).saturating_add(forwarded);
        forwarded += here;
        let costs =
            notes.iter().filter(|note| note.created_at <= invoice.finalized_at && note.amount_nano < 0);
        let costs: i128 = costs.map(|note| -i128::from(note.amount_nano)).sum();
        let came_about = costs + returned_debts(ledger, invoice.month) + owed_since_void(invoices, notes);
        if forwarded > came_about {
            let expected = format!("at most {} in total", nano(came_about));
            let found = format!(
                "{}, after {} on earlier invoices",
                nano(here),
                nano(before - i128::from(invoice.brought_forward_nano))
            );
            drifts.push(finding(Invariant::RecountBroughtForward, &invoice.id, expected, found));
        }
    }
    drifts
}

/// Returns the debts from void invoices: the amounts by which their credit notes exceeded them, at most a
/// nano for each row that was rounded.
fn owed_since_void(invoices: &[InvoiceRow], notes: &[NoteRow]) -> i128 {
    let beyond = |invoice: &InvoiceRow| {
        let own = notes.iter().filter(|note| note.invoice_id == invoice.id);
        let given_back: i128 = own.map(|note| i128::from(note.amount_nano)).sum();
        (given_back - i128::from(invoice.amount_nano)).max(0)
    };
    invoices.iter().filter(|invoice| invoice.is_void()).map(beyond).sum()
}

/// Returns the debts that refunds and disputes had caused by the time a month was closed.
fn returned_debts(ledger: &[MovementRow], until: Month) -> i128 {
    let debt = |row: &&MovementRow| {
        let month = row.idempotency_key.split(':').find_map(|part| part.strip_prefix("debt-"));
        let month = month.and_then(|month| month.parse().ok()).map(Month::from_unix_months);
        row.kind == "payment" && month.is_some_and(|month| month <= until)
    };
    ledger.iter().filter(debt).map(|row| -i128::from(row.to_wallet_nano)).sum()
}

/// Checks that corrections of a written-off invoice lower the written-off amount first. A part of it may be
/// left only if the corrections were smaller.
pub fn written_off(invoices: &[InvoiceRow], notes: &[NoteRow], ledger: &[MovementRow]) -> Vec<Drift> {
    let check = |invoice: &InvoiceRow| {
        let key = format!("write_off:{}", invoice.id);
        let given_up = ledger.iter().find(|row| row.idempotency_key == key)?;
        let later = format!("{key}:");
        let lowered = ledger.iter().filter(|row| row.idempotency_key.starts_with(&later));
        let left = i128::from(given_up.to_wallet_nano)
            + lowered.map(|row| i128::from(row.to_wallet_nano)).sum::<i128>();
        let corrected = notes.iter().filter(|note| note.invoice_id == invoice.id);
        let corrected = corrected.filter(|note| note.created_at > given_up.happened_at);
        let corrected: Vec<_> = corrected.map(|note| i128::from(note.amount_nano)).collect();
        let most =
            corrected.iter().fold(i128::from(given_up.to_wallet_nano), |left, note| (left - note).max(0));
        if left <= most {
            return None;
        }
        let corrected = nano(corrected.iter().sum());
        let expected = format!("at most {} written off, after corrections of {corrected}", nano(most));
        Some(finding(Invariant::RecountWriteOff, &invoice.id, expected, nano(left)))
    };
    invoices.iter().filter_map(check).collect()
}
