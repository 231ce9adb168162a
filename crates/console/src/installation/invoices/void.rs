//! GET and POST /console/installation/invoices/{invoice_id}/void

use api::gate::{OperatorScope, Visit};
use kernel::error::Error;
use operators::invoices;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::{LABELS, Question, ask, one};
use crate::console::Console;
use crate::form_view::FormView;
use crate::installation::{TypedName, check_typed, refusal};
use crate::notices::Done;
use crate::page::Page;

const QUESTION: Question = Question {
    path: "void",
    title: "Void the invoice",
    words: "The amount is returned to the balance, and the invoice number isn't reused. Owners are notified by e-mail.",
};

/// Ask whether to void an invoice.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    ask(&console, &visit, QUESTION, FormView::new(LABELS)).await
}

/// Void an invoice.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<TypedName>,
) -> Result<Page, Error> {
    let invoice = one(&console, &visit).await?;
    let trail = visit.scope.trail();
    let changed = async {
        let TypedName { name } = form.take()?;
        check_typed(&name.0, &invoice.organization_name)?;
        invoices::void(&console.operators, invoice.id, trail).await.map_err(refusal)
    };
    match changed.await {
        Ok(_) => Page::done(&console.link("/installation/invoices"), Done::InvoiceVoided),
        Err(error) => ask(&console, &visit, QUESTION, FormView::refused(LABELS, &form, error)?).await,
    }
}
