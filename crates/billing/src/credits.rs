//! Credits, as customers see them. [`bookkeeping::credits`](crate::bookkeeping::credits) adds and ends them.

use crate::{Billing, store};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::page::Page;

pub use crate::rules::books::Credit;

/// A page of an organization's credits, the newest first.
#[derive(Clone, Debug)]
pub struct CreditPage {
    pub credits: Vec<Credit>,
    /// The number of credits on all pages.
    pub total: i64,
    /// ISO 4217 code.
    pub currency: String,
}

/// Lists the credits of an organization, the newest first, including those that are used up or have expired.
///
/// # Errors
/// 404 for an unknown organization; the database fails.
pub fn list(
    billing: &Billing,
    organization_id: OrganizationId,
    page: Page,
) -> BoxFuture<'_, Result<CreditPage, Error>> {
    Box::pin(async move {
        let mut tx = billing.db().read().await?;
        let wallet =
            store::wallets::get(&mut tx, organization_id).await?.ok_or(Code::OrganizationNotFound)?;
        let total = store::credits::count(&mut tx, organization_id).await?;
        let credits = store::credits::page(&mut tx, organization_id, page).await?;
        Ok(CreditPage { credits, total, currency: wallet.currency })
    })
}
