//! The sums below the table of an invoice. They are whole units of the currency, and add up. If each
//! were rounded separately, their sum could differ from the total by a few of these units.

use billing::invoices::{CreditNote, Invoice};
use billing::rules::invoicing::{Item, ItemKind, Status};
use kernel::currencies;
use kernel::money::{Nano, Pico};
use kernel::shown::{self, Rounding};

use super::taken_back;

/// A line below the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    pub(super) name: &'static str,
    pub(super) figure: String,
    /// The exact amount, if the figure is rounded.
    pub(super) exact: Option<String>,
    /// The CSS class.
    pub(super) class: &'static str,
}

/// Returns the figure of an amount that is owed: the smallest payable amount that covers it.
pub(super) fn whole(amount: Nano, currency: &str) -> Pico {
    shown::payable(amount.to_pico().unwrap_or_default(), currency, Rounding::Up)
}

/// Returns the sums of an invoice with these lines and credit notes.
pub(super) fn of(invoice: &Invoice, items: &[Item], notes: &[(CreditNote, Vec<Item>)]) -> Vec<Sum> {
    let writer = Writer { currency: &invoice.currency };
    let (mut sums, total) = writer.parts(invoice.amount, items);
    sums.push(Sum { class: "total", ..writer.sum("Total", nano(invoice.amount), total) });

    let credited: i128 = notes.iter().map(|(note, _)| note.amount.units()).sum();
    let notes = notes.iter().map(|(note, _)| whole(taken_back(note), &invoice.currency).units()).sum();
    if credited != 0 {
        sums.push(writer.sum("Credit notes", nano(Nano::from_units(-credited)), Pico::from_units(notes)));
    }
    let forward = whole(invoice.brought_forward, &invoice.currency);
    if invoice.brought_forward > Nano::ZERO {
        sums.push(writer.sum("Balance brought forward", nano(invoice.brought_forward), forward));
    }
    let due = whole(invoice.due, &invoice.currency);
    if matches!(invoice.status, Status::Open | Status::Paid | Status::Draft) {
        let asked = invoice.amount.units() + invoice.brought_forward.units();
        let paid = nano(Nano::from_units(asked - credited - invoice.due.units()));
        let shown = total.units() + notes + forward.units();
        let figure = writer.fitting(paid, shown - due.units());
        // Refunds by corrections were credited when they were made, not with this invoice.
        let name = if paid < Pico::ZERO { "Credited before" } else { "Paid" };
        let [paid, figure_size] = [paid, figure].map(|amount| Pico::from_units(amount.units().abs()));
        sums.push(writer.sum(name, paid, figure_size));
        sums.extend(writer.rounding(due.units() - (shown - figure.units())));
    }
    sums.push(Sum { class: "total", ..writer.sum("Amount due", nano(invoice.due), due) });
    sums
}

fn nano(amount: Nano) -> Pico {
    amount.to_pico().unwrap_or_default()
}

/// The format of amounts in a currency.
#[derive(Clone, Copy)]
struct Writer<'a> {
    currency: &'a str,
}

impl Writer<'_> {
    /// Returns the parts of the total, and the figure of the total. Usage alone is the total.
    fn parts(self, amount: Nano, items: &[Item]) -> (Vec<Sum>, Pico) {
        let of_kinds = |kinds: &[ItemKind]| {
            let items = items.iter().filter(|item| kinds.contains(&item.kind));
            Pico::from_units(items.map(|item| item.amount.units()).sum())
        };
        let list = of_kinds(&[ItemKind::Usage, ItemKind::LateUsage]);
        let others = [("Volume discounts", ItemKind::Discount), ("Carried over", ItemKind::CarriedOver)]
            .map(|(name, kind)| (name, of_kinds(&[kind])))
            .map(|(name, exact)| (name, exact, self.nearest(exact)));
        let total = whole(amount, self.currency);
        let rest = total.units() - others.iter().map(|(_, _, figure)| figure.units()).sum::<i128>();
        let list_figure = self.fitting(list, rest);
        let rounding = self.rounding(rest - list_figure.units());
        let others = others.into_iter().filter(|(_, exact, _)| *exact != Pico::ZERO);
        let others: Vec<_> = others.map(|(name, exact, figure)| self.sum(name, exact, figure)).collect();
        let mut parts = Vec::new();
        if !others.is_empty() || rounding.is_some() {
            parts.push(self.sum("Usage at list price", list, list_figure));
            parts.extend(others.into_iter().chain(rounding));
        }
        (parts, total)
    }

    fn nearest(self, exact: Pico) -> Pico {
        shown::payable(exact, self.currency, Rounding::Nearest)
    }

    /// Returns an amount rounded down or up to the figure that adds up with the others. If neither does,
    /// returns the nearest figure.
    fn fitting(self, exact: Pico, wanted: i128) -> Pico {
        let wanted = Pico::from_units(wanted);
        let is_near = [Rounding::Down, Rounding::Up]
            .iter()
            .any(|rounding| shown::payable(exact, self.currency, *rounding) == wanted);
        if is_near { wanted } else { self.nearest(exact) }
    }

    /// Returns the line of a rest that makes the others add up; `None` if they do.
    fn rounding(self, rest: i128) -> Option<Sum> {
        let rest = Pico::from_units(rest);
        (rest != Pico::ZERO).then(|| self.sum("Rounding", rest, rest))
    }

    fn sum(self, name: &'static str, exact: Pico, figure: Pico) -> Sum {
        let format = |amount| currencies::format(amount, self.currency);
        let exact = (exact != figure).then(|| format!("{} {}", format(exact), self.currency));
        Sum { name, figure: format(figure), exact, class: "" }
    }
}
