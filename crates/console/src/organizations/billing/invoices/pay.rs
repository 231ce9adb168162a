//! POST /console/organizations/{organization_id}/billing/invoices/{invoice_id}/pay

use api::gate::{InvoiceScope, Visit};
use http::StatusCode;
use kernel::error::{Code, Error};
use payments::payments::{self as operations, New, Target};
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::organizations::billing::payments::payment_link;
use crate::organizations::billing::payments_link;
use crate::page::Page;

/// Create the payment of an invoice, and redirect to its page.
///
/// An invoice has only one payment page at Stripe at a time, so pressing the button again finds the same
/// payment.
pub async fn create(console: Console, visit: Visit<InvoiceScope>, _: NoInput) -> Result<Page, Error> {
    let (scope, id) = (visit.scope.organization(), visit.scope.invoice().id);
    let organization_id = visit.scope.organization_id();
    let new = New { target: Target::Invoice(id), saves_card: false, request_key: None };
    let made = async {
        let made = operations::create(&console.payments, scope, new).await?;
        Ok::<_, Error>(made.commit().await?)
    };
    match made.await {
        Ok(payment) => Page::see_other(&payment_link(&console, &payment)),
        Err(error) if error.code == Code::PaymentsDisabled => {
            Page::see_other(&payments_link(&console, organization_id))
        }
        Err(error) if error.code == Code::InvoiceNotOpen => {
            let list = console.link(&format!("/organizations/{organization_id}/billing/invoices"));
            Page::done(&list, Done::NothingDue)
        }
        // The form has no field to correct.
        Err(error) if error.code.status() == StatusCode::BAD_REQUEST => {
            let message =
                "The amount due on this invoice is too small or too large for the payment processor.";
            Err(Error::new(Code::ProcessorUnavailable).message(message))
        }
        Err(error) => Err(error),
    }
}
