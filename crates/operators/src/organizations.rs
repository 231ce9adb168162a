//! Organizations with their balances and credits. Owners are notified of changes by e-mail.

use billing::bookkeeping::credits::{self, AddedCredit, NewCredit};
use billing::wallets::{self, CreditLimitChange, WalletOverview};
use db::Page;
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::shown::{self, Rounding};
use tenants::store::organization_members::{self, Member};
use tenants::store::organizations::{self, OrganizationDetail};
use trail::Trail;

use crate::{OperatorError, Operators, notices};

/// The maximum number of members in an [`Overview`].
const MAX_MEMBERS: i64 = 200;

/// A page of organizations with their balances.
#[derive(Clone, Debug)]
pub struct OrganizationPage {
    /// The organizations, newest first.
    pub rows: Vec<WalletOverview>,
    /// The number of organizations on all pages.
    pub total: i64,
}

/// Returns one page of the organizations whose folded name contains the text, newest first. Deleted
/// organizations are left out.
///
/// # Errors
/// The database fails.
pub fn list<'a>(
    operators: &'a Operators,
    search_folded: &'a str,
    page: Page,
) -> BoxFuture<'a, Result<OrganizationPage, Error>> {
    Box::pin(async move {
        let (rows, total) = wallets::page(&operators.billing, search_folded, page).await?;
        Ok(OrganizationPage { rows, total })
    })
}

/// An organization with its wallet and its members.
#[derive(Clone, Debug)]
pub struct Overview {
    pub wallet: WalletOverview,
    /// `None` if the organization is deleted.
    pub detail: Option<OrganizationDetail>,
    /// At most 200 members, newest first.
    pub members: Vec<Member>,
}

/// Returns an organization; `None` if it never existed.
///
/// # Errors
/// The database fails.
pub fn read(operators: &Operators, id: OrganizationId) -> BoxFuture<'_, Result<Option<Overview>, Error>> {
    Box::pin(async move {
        let Some(wallet) = wallets::read(&operators.billing, id).await? else { return Ok(None) };
        let mut tx = operators.db.read().await?;
        let detail = organizations::detail(&mut tx, id).await?;
        let filter = organization_members::Filter { group: id, search_folded: String::new(), role: None };
        let page = Page { page: 1, page_size: MAX_MEMBERS };
        let (_, members) = organization_members::list(&mut tx, &filter, page).await?;
        Ok(Some(Overview { wallet, detail, members }))
    })
}

/// Sets the credit limit: the amount by which an organization's balance may go below zero.
///
/// # Errors
/// Those of [`wallets::set_credit_limit`].
pub fn set_credit_limit<'a>(
    operators: &'a Operators,
    id: OrganizationId,
    amount: Nano,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<CreditLimitChange, OperatorError>> {
    Box::pin(async move {
        let change = wallets::set_credit_limit(&operators.billing, id, amount, trail).await?;
        if change.before != amount {
            let currency = &change.organization.wallet.currency;
            let [after, before] = [amount, change.before].map(|amount| figure(amount, currency));
            let words = format!("Its credit limit is now {after} {currency}; it was {before}.");
            notices::notify_owners(operators, id, &words).await;
        }
        Ok(change)
    })
}

/// Adds a credit unless a credit with its reference exists.
///
/// # Errors
/// Those of [`credits::add`].
pub fn add_credit<'a>(
    operators: &'a Operators,
    new: &'a NewCredit,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<AddedCredit, OperatorError>> {
    Box::pin(async move {
        let added = credits::add(&operators.billing, new, trail).await?;
        if !added.existed {
            let currency = &added.wallet.currency;
            let amount = figure(added.credit.amount, currency);
            let words =
                format!("A credit of {amount} {currency} was added, with the reference {}.", new.reference);
            notices::notify_owners(operators, new.organization_id, &words).await;
        }
        Ok(added)
    })
}

/// Returns an amount that an organization has, as people read it in an e-mail.
fn figure(amount: Nano, currency: &str) -> String {
    shown::amount(amount.to_pico().unwrap_or_default(), currency, Rounding::Down)
}
