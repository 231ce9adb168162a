//! GET /console/installation/mail

pub mod retry;
pub mod test;

use api::gate::{OperatorScope, Visit};
use api::paging::PageQuery;
use askama::Template;
use kernel::error::Error;
use operators::mails::{self, WaitingMail};
use web::forms::Filters;

use crate::console::Console;
use crate::form_view::FormView;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "installation/mail.html")]
struct MailPage {
    shell: Shell,
    form: FormView,
    mails: Vec<WaitingMail>,
    listing: Listing,
}

/// List the queued e-mails.
pub async fn list(
    console: Console,
    visit: Visit<OperatorScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    show(&console, &visit, query.fields, &query.sent, FormView::new(test::LABELS)).await
}

async fn show(
    console: &Console,
    visit: &Visit<OperatorScope>,
    PageQuery(page): PageQuery,
    sent: &[(String, String)],
    form: FormView,
) -> Result<Page, Error> {
    let waiting = mails::list(&console.operators, page).await?;
    let page = MailPage {
        shell: Shell::read(console, &visit.person).await?,
        form,
        mails: waiting.rows,
        listing: Listing::new(page, waiting.total, sent),
    };
    Page::with_form(&page.form, &page)
}
