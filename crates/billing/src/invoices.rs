//! Invoices with their lines and credit notes.

use crate::rules::invoicing::{Item, Status};
use crate::{Billing, store};
use db::Tx;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{InvoiceId, OrganizationId};

pub use crate::store::credit_notes::CreditNote;
pub use crate::store::invoices::Invoice;
pub use db::Page;

/// An invoice with its lines and credit notes.
#[derive(Clone, Debug)]
pub struct Document {
    pub invoice: Invoice,
    pub items: Vec<Item>,
    /// The credit notes with their lines, the oldest first.
    pub notes: Notes,
}

/// Credit notes with their lines.
pub type Notes = Vec<(CreditNote, Vec<Item>)>;

/// A page of an organization's invoices, the newest first.
#[derive(Clone, Debug)]
pub struct InvoicePage {
    pub documents: Vec<Document>,
    /// The number of invoices on all pages.
    pub total: i64,
}

/// Finds an invoice of an organization.
///
/// # Errors
/// 404 `invoice_not_found`.
pub async fn find(
    billing: &Billing,
    organization_id: OrganizationId,
    invoice_id: Option<InvoiceId>,
) -> Result<Invoice, Error> {
    let invoice_id = invoice_id.ok_or(Code::InvoiceNotFound)?;
    let mut tx = billing.db().read().await?;
    let invoice = store::invoices::get(&mut tx, invoice_id).await?;
    let invoice = invoice.filter(|invoice| invoice.organization_id == organization_id);
    Ok(invoice.ok_or(Code::InvoiceNotFound)?)
}

/// Lists the invoices of an organization, the newest first. With `status`, lists only invoices with this
/// status.
///
/// # Errors
/// The database fails.
pub fn list(
    billing: &Billing,
    organization_id: OrganizationId,
    status: Option<Status>,
    page: Page,
) -> BoxFuture<'_, Result<InvoicePage, Error>> {
    Box::pin(async move {
        let mut tx = billing.db().reports().await?;
        let total = store::invoices::count(&mut tx, organization_id, status).await?;
        let invoices = store::invoices::list(&mut tx, organization_id, status, page).await?;
        let documents = complete_all(&mut tx, organization_id, invoices).await?;
        Ok(InvoicePage { documents, total })
    })
}

/// Lists the invoices of an organization from the primary database; `None` if the organization never existed.
///
/// # Errors
/// The database fails.
pub async fn list_latest(
    billing: &Billing,
    organization_id: OrganizationId,
    page: Page,
) -> Result<Option<Vec<Document>>, Error> {
    let mut tx = billing.db().read().await?;
    if store::wallets::get(&mut tx, organization_id).await?.is_none() {
        return Ok(None);
    }
    let invoices = store::invoices::list(&mut tx, organization_id, None, page).await?;
    Ok(Some(complete_all(&mut tx, organization_id, invoices).await?))
}

/// Returns one page of the open invoices of all organizations, the oldest first, and their total number.
///
/// # Errors
/// The database fails.
pub async fn list_open(billing: &Billing, page: Page) -> Result<(Vec<Invoice>, i64), Error> {
    let mut tx = billing.db().read().await?;
    let total = store::invoices::count_open(&mut tx).await?;
    Ok((store::invoices::list_open(&mut tx, page).await?, total))
}

/// Returns the invoice with this id; `None` if it doesn't exist.
///
/// # Errors
/// The database fails.
pub fn read(billing: &Billing, id: InvoiceId) -> BoxFuture<'_, Result<Option<Document>, Error>> {
    Box::pin(async move {
        let invoice = store::invoices::get(&mut billing.db().read().await?, id).await?;
        match invoice {
            Some(invoice) => Ok(Some(complete(billing, invoice).await?)),
            None => Ok(None),
        }
    })
}

/// Adds its lines and credit notes to an invoice.
///
/// # Errors
/// The database fails.
pub fn complete(billing: &Billing, invoice: Invoice) -> BoxFuture<'_, Result<Document, Error>> {
    Box::pin(async move {
        let mut tx = billing.db().read().await?;
        let document = complete_all(&mut tx, invoice.organization_id, vec![invoice]).await?.pop();
        document.ok_or_else(|| Error::internal("an invoice was read without its items"))
    })
}

fn complete_all(
    tx: &mut Tx,
    organization_id: OrganizationId,
    invoices: Vec<Invoice>,
) -> BoxFuture<'_, Result<Vec<Document>, db::Error>> {
    Box::pin(async move {
        let items = store::invoices::items(tx, organization_id, &invoices).await?;
        let notes = notes(tx, organization_id, &invoices).await?;
        let documents = invoices.into_iter().zip(items).zip(notes);
        Ok(documents.map(|((invoice, items), notes)| Document { invoice, items, notes }).collect())
    })
}

/// Returns the credit notes on each of these invoices of an organization.
async fn notes(
    tx: &mut Tx,
    organization_id: OrganizationId,
    invoices: &[Invoice],
) -> Result<Vec<Notes>, db::Error> {
    let months = || invoices.iter().map(|invoice| invoice.month);
    let (Some(first), Some(last)) = (months().min(), months().max()) else { return Ok(Vec::new()) };
    let mut all = store::credit_notes::between(tx, organization_id, first, last).await?;
    let of = |invoice: &Invoice| all.extract_if(.., |(note, _)| note.invoice_id == invoice.id).collect();
    Ok(invoices.iter().map(of).collect())
}
