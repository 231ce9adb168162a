//! GET and POST /console/organizations/{organization_id}/billing/payments/new

use api::gate::Visit;
use api::organizations::billing::payments::CreatePayment;
use askama::Template;
use kernel::error::{Code, Error};
use payments::forms;
use payments::payments::{self as operations, Payment};
use tenants::access::OrgScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::payment_link;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::organizations::billing::Tab;
use crate::organizations::billing::{currency, payments_link};
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

const LABELS: Labels = &[("amount", "Amount"), ("save_card", "Save the card")];

/// The name of the hidden field with the id of the form.
const NEW_ID: &str = "new_id";

#[derive(Template)]
#[template(path = "organizations/payments/new.html")]
struct NewPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    form: FormView,
    new_id: String,
    /// A hint with the minimum and maximum amounts.
    bounds: String,
    /// The currency's ISO 4217 code.
    currency: String,
    is_on: bool,
    /// `true` if tax is added to the amount.
    is_taxed: bool,
}

/// Show the form that buys credit.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let new_id = forms::new_id(&console.payments);
    show(&console, &visit, FormView::new(LABELS), new_id).await
}

/// Create the payment, and redirect to its page.
///
/// The form has an id, so that submitting the form several times makes only one payment.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<CreatePayment>,
) -> Result<Page, Error> {
    let error = match make(&console, &visit.scope, &mut form).await {
        Ok(payment) => return Page::see_other(&payment_link(&console, &payment)),
        Err(error) => error,
    };
    let new_id = match error.code {
        Code::PaymentsDisabled => {
            return Page::see_other(&payments_link(&console, visit.scope.organization_id()));
        }
        // The payment exists, so the same form finds it when it is sent again.
        Code::ProcessorUnavailable => form.sent(NEW_ID).to_owned(),
        _ => forms::new_id(&console.payments),
    };
    show(&console, &visit, FormView::refused(LABELS, &form, in_words(error))?, new_id).await
}

async fn make(
    console: &Console,
    scope: &OrgScope,
    form: &mut ObjectForm<CreatePayment>,
) -> Result<Payment, Error> {
    let Some(request_key) = forms::request_key(scope, form.sent(NEW_ID)) else {
        let sentence = "The form expired. Check your input and submit it again.";
        return Err(Error::new(Code::InvalidRequest).message(sentence));
    };
    let new = form.take()?.into_new(Some(request_key))?;
    Ok(operations::create(&console.payments, scope, new).await?.commit().await?)
}

/// Rephrases an error of the API for users who don't know its headers.
fn in_words(error: Error) -> Error {
    if error.code != Code::IdempotencyKeyReused {
        return error;
    }
    let sentence = "This form was already submitted with different values. That payment is in the list. To \
                    make another payment, submit the form again.";
    Error::new(error.code).message(sentence)
}

async fn show(
    console: &Console,
    visit: &Visit<OrgScope>,
    form: FormView,
    new_id: String,
) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let currency = currency(console, visit.scope.organization_id()).await?;
    let settings = &console.payments.settings;
    let [least, most] = [settings.minimum(&currency), settings.maximum(&currency)]
        .map(|amount| show::exact(amount, &currency));
    let page = NewPage {
        tabs: crate::organizations::billing::tabs(&shell, Tab::Payments),
        form,
        new_id,
        bounds: format!("At least {least}, and at most {most}."),
        currency,
        is_on: console.payments.is_on(),
        is_taxed: settings.stripe_tax,
        shell,
    };
    Page::with_form(&page.form, &page)
}
