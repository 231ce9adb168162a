//! Invoices of all organizations. Owners are notified of changes by e-mail.

use billing::bookkeeping::invoice_changes::{self, InvoiceChange};
use billing::invoices::{self, Invoice, Page};
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::InvoiceId;
use kernel::money::Nano;
use trail::Trail;

use crate::{OperatorError, Operators, notices};

/// A page of open invoices.
#[derive(Clone, Debug)]
pub struct OpenInvoices {
    /// The invoices, oldest first.
    pub rows: Vec<Invoice>,
    /// The number of invoices on all pages.
    pub total: i64,
}

/// Returns one page of the open invoices of all organizations, oldest first.
///
/// # Errors
/// The database fails.
pub async fn list_open(operators: &Operators, page: Page) -> Result<OpenInvoices, Error> {
    let (rows, total) = invoices::list_open(&operators.billing, page).await?;
    Ok(OpenInvoices { rows, total })
}

/// Returns an invoice; `None` if it doesn't exist.
///
/// # Errors
/// The database fails.
pub fn read(operators: &Operators, id: InvoiceId) -> BoxFuture<'_, Result<Option<Invoice>, Error>> {
    Box::pin(
        async move { Ok(invoices::read(&operators.billing, id).await?.map(|document| document.invoice)) },
    )
}

/// Marks an open invoice as paid.
///
/// # Errors
/// Those of [`invoice_changes::mark_paid`].
pub async fn mark_paid(
    operators: &Operators,
    id: InvoiceId,
    amount: Option<Nano>,
    trail: &Trail,
) -> Result<InvoiceChange, OperatorError> {
    let change = invoice_changes::mark_paid(&operators.billing, id, amount, trail).await?;
    notify_owners(operators, &change, "is paid").await;
    Ok(change)
}

/// Voids an invoice.
///
/// # Errors
/// Those of [`invoice_changes::void`].
pub async fn void(
    operators: &Operators,
    id: InvoiceId,
    trail: &Trail,
) -> Result<InvoiceChange, OperatorError> {
    let change = invoice_changes::void(&operators.billing, id, trail).await?;
    notify_owners(operators, &change, "is void: its amount is back in the balance").await;
    Ok(change)
}

/// Writes off an open invoice.
///
/// # Errors
/// Those of [`invoice_changes::give_up`].
pub async fn give_up(
    operators: &Operators,
    id: InvoiceId,
    trail: &Trail,
) -> Result<InvoiceChange, OperatorError> {
    let change = invoice_changes::give_up(&operators.billing, id, trail).await?;
    notify_owners(operators, &change, "is written off: no amount is due anymore").await;
    Ok(change)
}

async fn notify_owners(operators: &Operators, change: &InvoiceChange, words: &str) {
    if !change.was_unchanged {
        let Invoice { number, month, organization_id, .. } = &change.invoice;
        notices::notify_owners(
            operators,
            *organization_id,
            &format!("Its invoice {number} of {month} {words}."),
        )
        .await;
    }
}
