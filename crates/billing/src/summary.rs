//! How an organization stands: its wallet, and what it has used so far this month.

use crate::Billing;
use crate::bookkeeping::closing;
use crate::store;
use kernel::clock::Month;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::money::Pico;

use crate::store::wallets::{Account, Wallet};

/// How an organization stands.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The calendar month, UTC.
    pub month: Month,
    /// What was used in it so far at list price, less the volume discounts on it.
    pub total: Pico,
    /// The wallet.
    pub wallet: Wallet,
    /// The plan.
    pub plan: String,
    /// `true` while something is due of an invoice.
    pub is_past_due: bool,
}

/// Sums up an organization. In the first day of a month, while the one before is still open for what comes late, it is the
/// new month that is shown.
///
/// # Errors
/// 404 for an unknown organization; the database's, or sums that leave their bits.
pub async fn read(billing: &Billing, id: OrganizationId) -> Result<Summary, Error> {
    let month = billing.clock.now().day().month();
    let mut tx = billing.db.read().await?;
    let Account { wallet, plan, open_invoices } =
        store::wallets::account(&mut tx, id).await?.ok_or(Code::OrganizationNotFound)?;
    let used = store::months::used(&mut tx, id, month).await?;
    let bill = closing::bill(&mut tx, id, month, &used).await?;
    Ok(Summary { month, total: bill.exact, wallet, plan, is_past_due: open_invoices != 0 })
}
