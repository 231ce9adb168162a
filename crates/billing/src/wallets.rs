//! Wallets for operators: lists, and credit limits.

use serde_json::json;

use crate::bookkeeping::{OperatorError, check_payable};
use crate::rules::credit_limits::Credit;
use crate::{Billing, store};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::page::Page;

use trail::{Action, Event, Trail};

pub use crate::store::wallets::Wallet;

/// An organization as operators see it, possibly a deleted one whose books are still kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalletOverview {
    pub wallet: Wallet,
    /// The amount by which the balance may currently go below zero.
    pub credit_limit: Nano,
    /// The name, or the former name of a deleted organization.
    pub name: Option<String>,
    /// `None` if the organization is deleted.
    pub created_at: Option<Time>,
    /// The number of open invoices.
    pub open_invoices: i64,
}

impl WalletOverview {
    fn new(billing: &Billing, row: store::wallets::WalletOverview) -> Self {
        let store::wallets::WalletOverview { wallet, name, created_at, open_invoices } = row;
        let credit_limit = wallet.credit_limit(billing.demo_credit());
        Self { wallet, credit_limit, name, created_at, open_invoices }
    }
}

/// Number of organizations on a page.
const PAGE_SIZE: i64 = 500;

/// Lists organizations with their wallets, oldest first, starting after the organization `after`. Includes
/// deleted organizations while their books are kept. Returns an empty list after the last page.
///
/// # Errors
/// The database fails.
pub async fn list(billing: &Billing, after: Option<OrganizationId>) -> Result<Vec<WalletOverview>, Error> {
    let rows = store::wallets::overviews(&mut billing.db().read().await?, after, PAGE_SIZE).await?;
    Ok(rows.into_iter().map(|row| WalletOverview::new(billing, row)).collect())
}

/// Returns an organization with its wallet; `None` if it never existed.
///
/// # Errors
/// The database fails.
pub async fn read(billing: &Billing, id: OrganizationId) -> Result<Option<WalletOverview>, Error> {
    let row = store::wallets::overview(&mut billing.db().read().await?, id).await?;
    Ok(row.map(|row| WalletOverview::new(billing, row)))
}

/// Returns one page of the organizations whose folded name contains the text, newest first, and their total
/// number. Omits deleted organizations.
///
/// # Errors
/// The database fails.
pub async fn page(
    billing: &Billing,
    search_folded: &str,
    page: Page,
) -> Result<(Vec<WalletOverview>, i64), Error> {
    let mut tx = billing.db().read().await?;
    let total = store::wallets::count(&mut tx, search_folded).await?;
    let rows = store::wallets::page(&mut tx, search_folded, page).await?;
    Ok((rows.into_iter().map(|row| WalletOverview::new(billing, row)).collect(), total))
}

/// A change of a credit limit.
#[derive(Clone, Debug)]
pub struct CreditLimitChange {
    /// The organization before the change.
    pub organization: WalletOverview,
    /// The limit before the change.
    pub before: Nano,
}

/// Sets the amount by which an organization's balance may go below zero, from the next call on.
///
/// # Errors
/// The organization doesn't exist, or the amount can't be a limit in its currency; the database fails.
pub async fn set_credit_limit(
    billing: &Billing,
    id: OrganizationId,
    amount: Nano,
    trail: &Trail,
) -> Result<CreditLimitChange, OperatorError> {
    let unknown = || OperatorError::Invalid(format!("organization {id} doesn't exist"));
    let now = billing.clock.now();
    let mut tx = billing.db().write().await?;
    let mut wallet = store::wallets::lock(&mut tx, id, &billing.clock_guard).await?.ok_or_else(unknown)?;
    let organization = store::wallets::overview(&mut tx, id).await?;
    let organization =
        organization.filter(|organization| organization.created_at.is_some()).ok_or_else(unknown)?;
    check_limit(amount, &wallet.currency).map_err(OperatorError::Invalid)?;
    let demo = billing.demo_credit();
    let before = wallet.credit_limit(demo);
    // Demo credit ends with the demo, but a limit that an operator sets must not.
    let credit = Credit { granted: amount, has_demo_credit: false };
    if wallet.credit != credit {
        store::wallets::set_credit(&mut tx, id, credit).await?;
        wallet.credit = credit;
        store::wallets::queue_standing_events(&mut tx, &mut wallet, demo, now, &billing.random).await?;
        let event =
            Event { action: Action::CreditLimitSet, target: id.to_string(), organization_id: Some(id) };
        let detail = json!({"before": before.to_string(), "after": amount.to_string()});
        trail::record_with(&mut tx, trail, &event, &detail, now, &billing.random).await?;
        tx.commit().await?;
    }
    Ok(CreditLimitChange { organization: WalletOverview::new(billing, organization), before })
}

/// Refuses an amount that can't be a limit in this currency.
fn check_limit(amount: Nano, currency: &str) -> Result<(), String> {
    if amount < Nano::ZERO {
        return Err(format!("--amount {amount} is negative: use 0 if calls must be paid in advance"));
    }
    check_payable(amount, currency)?;
    if amount.to_i64().is_none() {
        let max = Nano::from_units(i64::MAX.into());
        return Err(format!("--amount {amount} is too large: the maximum limit is {max}"));
    }
    Ok(())
}
