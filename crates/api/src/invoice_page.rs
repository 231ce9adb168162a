//! An invoice as a printable page: HTML without scripts and without external resources.
//!
//! The page is `templates/invoice.html`, which escapes every string; figures are formatted by
//! [`currencies::format`].

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

/// The sections of the table, in display order.
const SECTIONS: [ItemKind; 5] =
    [ItemKind::Usage, ItemKind::LateUsage, ItemKind::Discount, ItemKind::CarriedOver, ItemKind::Rounding];

impl PrintableInvoice<'_> {
    /// Returns the page as HTML.
    ///
    /// # Errors
    /// An internal error if the template can't be rendered.
    pub fn html(&self) -> Result<String, Error> {
        self.render().map_err(Error::internal)
    }

    /// Returns the sections that have lines, with their lines.
    fn sections(&self) -> impl Iterator<Item = (ItemKind, Vec<&Item>)> {
        let of_kind = |kind| (kind, self.items.iter().filter(|item| item.kind == kind).collect::<Vec<_>>());
        SECTIONS.into_iter().map(of_kind).filter(|(_, items)| !items.is_empty())
    }

    fn all_items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().chain(self.notes.iter().flat_map(|(_, items)| items))
    }

    fn price_decimals(&self) -> usize {
        self.all_items().map(|item| self.decimals(item.unit_price)).max().unwrap_or(0)
    }

    fn amount_decimals(&self) -> usize {
        self.all_items().map(|item| self.decimals(item.amount)).max().unwrap_or(0)
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

    fn figure(&self, amount: Pico) -> String {
        currencies::format(amount, &self.invoice.currency)
    }

    fn decimals(&self, amount: Pico) -> usize {
        self.figure(amount).split_once('.').map_or(0, |(_, fraction)| fraction.len())
    }

    /// Returns the lines below the table: name, amount and CSS class.
    fn sums(&self) -> Vec<(&'static str, String, &'static str)> {
        let invoice = self.invoice;
        let nano = |amount: Nano| self.figure(amount.to_pico().unwrap_or_default());
        let of_kind = |kind| {
            let items = self.items.iter().filter(move |item| item.kind == kind);
            Pico::from_units(items.map(|item| item.amount.units()).sum())
        };
        let list = of_kind(ItemKind::Usage).units() + of_kind(ItemKind::LateUsage).units();
        let mut rows = Vec::new();
        let parts = [
            ("Volume discounts", of_kind(ItemKind::Discount)),
            ("Carried over", of_kind(ItemKind::CarriedOver)),
            ("Rounding", of_kind(ItemKind::Rounding)),
        ];
        if parts.iter().any(|(_, amount)| *amount != Pico::ZERO) {
            rows.push(("Usage at list price", self.figure(Pico::from_units(list)), ""));
            let parts = parts.into_iter().filter(|(_, amount)| *amount != Pico::ZERO);
            rows.extend(parts.map(|(name, amount)| (name, self.figure(amount), "")));
        }
        rows.push(("Total", nano(invoice.amount), "total"));
        let credited: i128 = self.notes.iter().map(|(note, _)| note.amount.units()).sum();
        if credited != 0 {
            rows.push(("Credit notes", nano(Nano::from_units(-credited)), ""));
        }
        if invoice.brought_forward > Nano::ZERO {
            rows.push(("Balance brought forward", nano(invoice.brought_forward), ""));
        }
        if matches!(invoice.status, Status::Open | Status::Paid | Status::Draft) {
            let asked = invoice.amount.units() + invoice.brought_forward.units();
            let paid = asked - credited - invoice.due.units();
            // Refunds by corrections were credited when they were made, not with this invoice.
            let name = if paid < 0 { "Credited before" } else { "Paid" };
            rows.push((name, nano(Nano::from_units(paid.abs())), ""));
        }
        rows.push(("Amount due", nano(invoice.due), "total"));
        rows
    }

    /// Returns the amount to pay if the amount due has more decimals than a payment can have.
    fn payment(&self) -> Option<String> {
        let Invoice { due, currency, .. } = self.invoice;
        let payable = currencies::payable(*due, currency).to_pico().unwrap_or_default();
        (!currencies::is_payable(*due, currency)).then(|| self.figure(payable))
    }
}

#[cfg(test)]
mod tests;
