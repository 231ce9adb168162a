//! `/console/organizations/{organization_id}/billing/invoices` and `…/{invoice_id}`

pub mod pay;

use std::iter;

use api::gate::{InvoiceScope, Visit};
use api::invoice_page::{CONTENT_SECURITY_POLICY, PrintableInvoice};
use api::organizations::billing::invoices::InvoiceQuery;
use askama::Template;
use billing::invoices::{self, Document};
use billing::rules::invoicing::Status;
use kernel::error::Error;
use kernel::money::Nano;
use tenants::access::OrgScope;
use web::forms::Filters;
use web::input::NoInput;

use super::Tab;
use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, SharedColumn};

/// The statuses that an invoice can have, with their labels.
const STATUSES: &[(&str, &str)] =
    &[("open", "Open"), ("paid", "Paid"), ("void", "Void"), ("uncollectible", "Uncollectible")];

#[derive(Template)]
#[template(path = "organizations/invoices.html")]
struct InvoicesPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    status: String,
    documents: Vec<Document>,
    /// The formats of the amounts of invoices and credit notes, and of the amounts due.
    amounts: SharedColumn,
    dues: SharedColumn,
    listing: Listing,
    here: String,
    /// The link to the file with the charges of a month, without the month.
    charges: String,
    may_pay: bool,
}

/// List an organization's invoices.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<InvoiceQuery>,
) -> Result<Page, Error> {
    let status = query.sent("status").to_owned();
    let InvoiceQuery { page, status: filter } = query.fields;
    let listed = invoices::list(&console.billing, visit.scope.organization_id(), filter, page).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let here = shell.organization_link("/billing/invoices");
    Page::new(&InvoicesPage {
        tabs: super::tabs(&shell, Tab::Invoices),
        may_pay: super::may_pay(&console, &shell),
        status,
        amounts: SharedColumn::owed(listed.documents.iter().flat_map(amounts)),
        dues: SharedColumn::owed(listed.documents.iter().map(|document| {
            let invoice = &document.invoice;
            (invoice.due, invoice.currency.as_str())
        })),
        documents: listed.documents,
        listing: Listing::new(page, listed.total, &query.sent),
        charges: shell.organization_link("/billing/export"),
        shell,
        here,
    })
}

/// Show an invoice as a printable page.
pub async fn read(console: Console, visit: Visit<InvoiceScope>, _: NoInput) -> Result<Page, Error> {
    let document = invoices::complete(&console.billing, visit.scope.invoice().clone()).await?;
    let policy = format!("{}; frame-ancestors 'none'", *CONTENT_SECURITY_POLICY);
    Page::document(PrintableInvoice::from(&document).html()?, &policy)
}

/// Returns `true` if an invoice with this status has an amount due.
fn is_open(status: Status) -> bool {
    status == Status::Open
}

/// Returns the amounts of an invoice and its credit notes, with their currency.
fn amounts(document: &Document) -> impl Iterator<Item = (Nano, &str)> {
    let Document { invoice, notes, .. } = document;
    let of_notes = notes.iter().map(|(note, _)| taken_back(note.amount));
    iter::once(invoice.amount).chain(of_notes).map(|amount| (amount, invoice.currency.as_str()))
}

/// Returns the amount of a credit note as a change of its invoice.
fn taken_back(amount: Nano) -> Nano {
    Nano::from_units(amount.units().saturating_neg())
}

/// Returns the label of a status, and the kind of its badge.
fn label(status: Status) -> (&'static str, &'static str) {
    let label =
        STATUSES.iter().find(|(word, _)| *word == status.as_str()).map_or("Draft", |(_, label)| label);
    let kind = match status {
        Status::Open => "warn",
        Status::Paid => "good",
        Status::Uncollectible => "bad",
        Status::Draft | Status::Void => "",
    };
    (label, kind)
}
