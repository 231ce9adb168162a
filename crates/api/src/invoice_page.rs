//! An invoice as a printable page: HTML without scripts and without external resources.
//!
//! The page is `templates/invoice.html`, which escapes every string. Figures are rounded
//! (docs/contract/console.md#amounts); lines named `Rounding` make them add up.

mod sums;

use std::borrow::Borrow;
use std::iter;
use std::sync::LazyLock;

use askama::Template;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use billing::invoices::{CreditNote, Document, Invoice};
use billing::rules::invoicing::{Item, ItemKind, Status};
use kernel::currencies;
use kernel::error::Error;
use kernel::money::{Nano, Pico};
use kernel::secrets::sha256;
use kernel::shown::{self, Rounding};

use sums::Sum;

const STYLE: &str = include_str!("invoice_page/style.css");

/// The page's content security policy, which allows only its own style (CSP level 3, section 2.3.1).
pub static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(sha256(STYLE.as_bytes()));
    format!("default-src 'none'; style-src 'sha256-{hash}'; form-action 'none'; base-uri 'none'")
});

/// An invoice to be rendered as HTML.
#[derive(Clone, Copy, Debug, Template)]
#[template(path = "invoice.html")]
pub struct PrintableInvoice<'a> {
    pub invoice: &'a Invoice,
    /// The invoice's lines.
    pub items: &'a [Item],
    /// The invoice's credit notes with their lines, oldest first.
    pub notes: &'a [(CreditNote, Vec<Item>)],
}

impl<'a> From<&'a Document> for PrintableInvoice<'a> {
    fn from(document: &'a Document) -> Self {
        Self { invoice: &document.invoice, items: &document.items, notes: &document.notes }
    }
}

/// The sections of the table, in display order. The rounding is below them.
const SECTIONS: [ItemKind; 4] =
    [ItemKind::Usage, ItemKind::LateUsage, ItemKind::Discount, ItemKind::CarriedOver];

impl PrintableInvoice<'_> {
    /// Returns the page as HTML.
    ///
    /// # Errors
    /// An internal error if the template can't be rendered.
    pub fn html(&self) -> Result<String, Error> {
        self.render().map_err(Error::internal)
    }

    /// Returns the lines below the table.
    fn sums(&self) -> Vec<Sum> {
        sums::of(self.invoice, self.items, self.notes)
    }

    /// Returns the sections that have lines, with their lines.
    fn sections(&self) -> impl Iterator<Item = (ItemKind, Vec<&Item>)> {
        let of_kind = |kind| (kind, self.items.iter().filter(|item| item.kind == kind).collect::<Vec<_>>());
        SECTIONS.into_iter().map(of_kind).filter(|(_, items)| !items.is_empty())
    }

    /// Returns the tables of the page: the lines of the invoice and of each credit note, with their sum.
    fn tables(&self) -> impl Iterator<Item = (&[Item], Nano)> {
        let of_notes = self.notes.iter().map(|(note, items)| (items.as_slice(), taken_back(note)));
        iter::once((self.items, self.invoice.amount)).chain(of_notes)
    }

    /// Returns the number of decimals of the column of prices.
    fn price_decimals(&self) -> usize {
        let items = self.tables().flat_map(|(items, _)| printed(items));
        items.map(|item| decimals(&self.exact(item.unit_price))).max().unwrap_or(0)
    }

    /// Returns the number of decimals of the column of amounts.
    fn amount_decimals(&self) -> usize {
        let figures = self.tables().flat_map(|(items, sum)| {
            let rounding = self.rounding(items, sum);
            printed(items).map(move |item| self.figure(item.amount)).chain(rounding)
        });
        figures.map(|figure| decimals(&self.exact(figure))).max().unwrap_or(0)
    }

    /// Returns the month, for example `January 2026`.
    fn month(&self) -> String {
        const NAMES: &str =
            "January February March April May June July August September October November December";
        let month = self.invoice.month;
        let (year, index) = (month.unix_months().div_euclid(12) + 1970, month.unix_months().rem_euclid(12));
        let name =
            usize::try_from(index).ok().and_then(|index| NAMES.split(' ').nth(index)).unwrap_or_default();
        format!("{name} {year}")
    }

    /// Returns an amount with all its digits.
    fn exact(&self, amount: impl Borrow<Pico>) -> String {
        currencies::format(*amount.borrow(), &self.invoice.currency)
    }

    /// Returns the exact amount as the title of a figure; empty if the figure is exact.
    fn title(&self, exact: Pico, shown: Pico) -> String {
        if exact == shown {
            return String::new();
        }
        format!("{} {}", self.exact(exact), self.invoice.currency)
    }

    /// Returns the figure of a line's amount.
    fn figure(&self, amount: Pico) -> Pico {
        shown::rounded(amount, &self.invoice.currency, Rounding::Nearest)
    }

    /// Returns the difference between the figure of a sum and those of its lines; `None` if they add up.
    fn rounding(&self, items: &[Item], sum: Nano) -> Option<Pico> {
        let figures: i128 = printed(items).map(|item| self.figure(item.amount).units()).sum();
        let rest = sums::whole(sum, &self.invoice.currency).units() - figures;
        (rest != 0).then_some(Pico::from_units(rest))
    }

    /// Returns the amount to pay if the amount due has more decimals than a payment can have.
    fn payment(&self) -> Option<String> {
        let Invoice { due, currency, .. } = self.invoice;
        (!currencies::is_payable(*due, currency)).then(|| self.exact(sums::whole(*due, currency)))
    }
}

/// Returns the lines that the page shows: all except the rounding to the units of the balance, which is part
/// of the rounding of the figures.
fn printed(items: &[Item]) -> impl Iterator<Item = &Item> {
    items.iter().filter(|item| item.kind != ItemKind::Rounding)
}

/// Returns the amount of a credit note as a change of its invoice.
fn taken_back(note: &CreditNote) -> Nano {
    Nano::from_units(-note.amount.units())
}

/// Returns the number of decimals of a figure.
fn decimals(figure: &str) -> usize {
    figure.split_once('.').map_or(0, |(_, fraction)| fraction.len())
}

#[cfg(test)]
mod tests;
