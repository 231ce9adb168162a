//! An invoice as a printable page: HTML without scripts and without external resources.
//!
//! Only this file writes it. Every text is escaped by [`escape`], and figures are formatted by
//! [`currencies::format`].

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use billing::invoices::{CreditNote, Document, Invoice};
use billing::rules::invoicing::{Item, ItemKind, Status};
use kernel::clock::{Month, Time};
use kernel::currencies;
use kernel::html::escape;
use kernel::money::{Nano, Pico};
use kernel::secrets::sha256;

const STYLE: &str = include_str!("invoice_page/style.css");

/// The content security policy of the page: only its own style is allowed (CSP level 3, section 2.3.1).
pub static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(sha256(STYLE.as_bytes()));
    format!("default-src 'none'; style-src 'sha256-{hash}'; form-action 'none'; base-uri 'none'")
});

/// An invoice to be rendered as HTML.
#[derive(Clone, Copy, Debug)]
pub struct PrintableInvoice<'a> {
    pub invoice: &'a Invoice,
    /// Its lines.
    pub items: &'a [Item],
    /// Its credit notes with their lines, the oldest first.
    pub notes: &'a [(CreditNote, Vec<Item>)],
}

impl<'a> From<&'a Document> for PrintableInvoice<'a> {
    fn from(document: &'a Document) -> Self {
        Self { invoice: &document.invoice, items: &document.items, notes: &document.notes }
    }
}

/// The sections of the table, in their order.
const SECTIONS: [(ItemKind, &str); 5] = [
    (ItemKind::Usage, "Usage"),
    (ItemKind::LateUsage, "Usage of earlier months, reported after their end"),
    (ItemKind::Discount, "Volume discounts"),
    (ItemKind::CarriedOver, "Owed from before"),
    (ItemKind::Rounding, "Rounding"),
];

impl PrintableInvoice<'_> {
    /// Returns the page as HTML.
    pub fn html(&self) -> String {
        let invoice = self.invoice;
        let title = format!("Invoice {}", invoice.number);
        let policy = escape(&CONTENT_SECURITY_POLICY);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
             <body>\n<main>\n{}{}{}{}</main>\n</body>\n</html>\n",
            self.head(&title),
            self.facts(),
            self.table(),
            self.foot()
        )
    }

    fn head(&self, title: &str) -> String {
        let name =
            self.invoice.issuer.name.as_deref().map(|name| format!("<strong>{}</strong>\n", escape(name)));
        let address = self.invoice.issuer.address.as_deref().unwrap_or_default();
        let address: String =
            address.lines().map(|line| format!("<span>{}</span>\n", escape(line.trim()))).collect();
        let (class, words) = self.stamp();
        format!(
            "<header>\n<div class=\"issuer\">\n{}{address}</div>\n<div class=\"title\">\n<h1>{title}</h1>\n\
             <p class=\"stamp {class}\">{words}</p>\n</div>\n</header>\n",
            name.unwrap_or_default()
        )
    }

    fn stamp(&self) -> (&'static str, &'static str) {
        match self.invoice.status {
            Status::Void => ("void", "Void"),
            Status::Paid => ("paid", "Paid"),
            Status::Open => ("open", "Open"),
            Status::Draft => ("open", "Draft"),
            Status::Uncollectible => ("void", "Uncollectible"),
        }
    }

    fn facts(&self) -> String {
        let invoice = self.invoice;
        let day = |time: Time| time.day().to_string();
        let last = invoice.month.plus(1).first_day().plus(-1);
        let mut facts = vec![
            (
                "Billed to",
                format!(
                    "{}<br><small>{}</small>",
                    escape(&invoice.organization_name),
                    invoice.organization_id
                ),
            ),
            ("Invoice number", invoice.number.to_string()),
            ("Invoice date", day(invoice.finalized_at)),
            ("Period", format!("{} to {last} (UTC)", invoice.month.first_day())),
            ("Currency", escape(&invoice.currency)),
        ];
        match (invoice.status, invoice.voided_at, invoice.paid_at) {
            (Status::Void, Some(at), _) => facts.push(("Made void on", day(at))),
            (Status::Paid, _, Some(at)) => facts.push(("Paid on", day(at))),
            _ => {}
        }
        let rows = facts.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
        format!("<dl>\n{}</dl>\n", rows.collect::<String>())
    }

    fn table(&self) -> String {
        let invoice = self.invoice;
        let currency = escape(&invoice.currency);
        let all = || self.items.iter().chain(self.notes.iter().flat_map(|(_, items)| items));
        let width = all().map(|item| self.decimals(item.amount)).max().unwrap_or(0);
        let price_width = all().map(|item| self.decimals(item.unit_price)).max().unwrap_or(0);
        let row = |item: &Item| {
            format!(
                "<tr><td>{}</td><td>{}</td>{}{}</tr>\n",
                description(&item.description),
                currencies::grouped(&item.quantity.to_string()),
                self.cell(item.unit_price, price_width),
                self.cell(item.amount, width)
            )
        };
        let section = |title: &str| {
            format!("<tr class=\"section\"><th colspan=\"4\" scope=\"rowgroup\">{title}</th></tr>\n")
        };
        let mut body = String::new();
        for (kind, title) in SECTIONS {
            let items: Vec<_> = self.items.iter().filter(|item| item.kind == kind).collect();
            if items.is_empty() {
                continue;
            }
            body.push_str("<tbody>\n");
            let title = match kind {
                ItemKind::Usage => format!("{title} in {}", month_words(invoice.month)),
                _ => title.to_owned(),
            };
            // The single line of this section needs no heading.
            if kind != ItemKind::Rounding {
                body.push_str(&section(&title));
            }
            items.into_iter().for_each(|item| body.push_str(&row(item)));
            body.push_str("</tbody>\n");
        }
        for (note, items) in self.notes {
            let (number, day, reference) = (note.number, note.created_at.day(), escape(&note.reference));
            let title = format!("Credit note {number} of {day}<br><small>{reference}</small>");
            body.push_str(&format!("<tbody>\n{}", section(&title)));
            items.iter().for_each(|item| body.push_str(&row(item)));
            body.push_str("</tbody>\n");
        }
        format!(
            "<table>\n<thead><tr class=\"running\"><td colspan=\"4\">Invoice {}</td></tr>\n\
             <tr><th scope=\"col\">Description</th><th scope=\"col\">Quantity</th>\
             <th scope=\"col\">Unit price ({currency})</th><th scope=\"col\">Amount ({currency})</th></tr></thead>\n{body}</table>\n",
            invoice.number
        )
    }

    /// Returns a table cell with a figure, padded on the right so that the decimal points of a column align.
    fn cell(&self, amount: Pico, width: usize) -> String {
        let decimals = self.decimals(amount);
        let missing = width.saturating_sub(decimals);
        match (decimals, missing) {
            // Without decimals the point is missing as well.
            (0, 1..) => format!(
                "<td class=\"pad{missing}\"><span class=\"whole\">{}</span></td>",
                self.figure(amount)
            ),
            _ => format!("<td class=\"pad{missing}\">{}</td>", self.figure(amount)),
        }
    }

    fn figure(&self, amount: Pico) -> String {
        currencies::format(amount, &self.invoice.currency)
    }

    fn decimals(&self, amount: Pico) -> usize {
        self.figure(amount).split_once('.').map_or(0, |(_, fraction)| fraction.len())
    }

    fn foot(&self) -> String {
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
        if matches!(invoice.status, Status::Open | Status::Paid | Status::Draft) {
            let paid = invoice.amount.units() - credited - invoice.due.units();
            // Refunds by corrections were credited when they were made, not with this invoice.
            let name = if paid < 0 { "Credited before" } else { "Paid" };
            rows.push((name, nano(Nano::from_units(paid.abs())), ""));
        }
        rows.push(("Amount due", nano(invoice.due), "total"));
        let currency = escape(&invoice.currency);
        let rows = rows.iter().map(|(name, amount, class)| {
            format!("<div class=\"{class}\"><dt>{name}</dt><dd>{amount} {currency}</dd></div>\n")
        });
        format!("<dl class=\"sums\">\n{}</dl>\n{}", rows.collect::<String>(), self.note())
    }

    /// Returns the note about the payment.
    fn note(&self) -> String {
        let Invoice { due, currency, status, .. } = self.invoice;
        if *status == Status::Void {
            return "<p class=\"note\">This invoice was taken back. Nothing is to be paid.</p>\n".to_owned();
        }
        if *status == Status::Uncollectible {
            return "<p class=\"note\">This invoice was given up. Nothing is to be paid.</p>\n".to_owned();
        }
        if currencies::is_payable(*due, currency) {
            return String::new();
        }
        let payable = currencies::payable(*due, currency).to_pico().unwrap_or_default();
        format!(
            "<p class=\"note\">Please pay {} {}: what is more than the amount due stays in your balance.</p>\n",
            self.figure(payable),
            escape(currency)
        )
    }
}

/// Returns a line's description; the date of a price isn't broken over lines.
fn description(text: &str) -> String {
    match text.rsplit_once(", price from ") {
        Some((what, date)) => format!("{}, <span>price from {}</span>", escape(what), escape(date)),
        None => escape(text),
    }
}

/// Returns a month as in `January 2026`.
fn month_words(month: Month) -> String {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let (year, index) = (month.unix_months().div_euclid(12) + 1970, month.unix_months().rem_euclid(12));
    let name = usize::try_from(index).ok().and_then(|index| NAMES.get(index)).unwrap_or(&"");
    format!("{name} {year}")
}

#[cfg(test)]
mod tests;
