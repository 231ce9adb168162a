//! GET /console/installation/invoices

pub mod mark_paid;
pub mod void;

use api::gate::{OperatorScope, Visit};
use api::paging::PageQuery;
use askama::Template;
use billing::invoices::Invoice;
use kernel::error::Error;
use kernel::ids::InvoiceId;
use kernel::money::Nano;
use operators::invoices;
use web::forms::Filters;

use super::found;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, SharedColumn};

#[derive(Template)]
#[template(path = "installation/invoices.html")]
struct ListPage {
    shell: Shell,
    invoices: Vec<Invoice>,
    /// The formats of the amounts and of the amounts due.
    amounts: SharedColumn,
    dues: SharedColumn,
    listing: Listing,
}

/// List the open invoices of all organizations.
pub async fn list(
    console: Console,
    visit: Visit<OperatorScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    let page = query.fields.0;
    let listed = invoices::list_open(&console.operators, page).await?;
    let column = |amount: fn(&Invoice) -> Nano| {
        SharedColumn::owed(listed.rows.iter().map(|invoice| (amount(invoice), invoice.currency.as_str())))
    };
    Page::new(&ListPage {
        shell: Shell::read(&console, &visit.person).await?,
        amounts: column(|invoice| invoice.amount),
        dues: column(|invoice| invoice.due),
        invoices: listed.rows,
        listing: Listing::new(page, listed.total, &query.sent),
    })
}

/// Returns the invoice in the path.
async fn one(console: &Console, visit: &Visit<OperatorScope>) -> Result<Invoice, Error> {
    let id = found(InvoiceId::parse(visit.person.target().parameter("invoice_id")))?;
    found(invoices::read(&console.operators, id).await?)
}

const LABELS: Labels = &[("name", "Organization name")];

/// A change of an invoice that the operator must confirm.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The last part of the path.
    path: &'static str,
    title: &'static str,
    /// The effect of the change.
    words: &'static str,
}

#[derive(Template)]
#[template(path = "installation/invoice_question.html")]
struct QuestionPage {
    shell: Shell,
    form: FormView,
    question: Question,
    invoice: Invoice,
}

/// Shows the page that asks for a confirmation.
async fn ask(
    console: &Console,
    visit: &Visit<OperatorScope>,
    question: Question,
    form: FormView,
) -> Result<Page, Error> {
    let invoice = one(console, visit).await?;
    let page = QuestionPage { shell: Shell::read(console, &visit.person).await?, form, question, invoice };
    Page::with_form(&page.form, &page)
}
