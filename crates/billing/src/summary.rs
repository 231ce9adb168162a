//! The balance of an organization, and its usage so far this month.

use crate::bookkeeping::closing;
use crate::rules::invoicing::{Item, ItemKind};
use crate::{Billing, store};
use kernel::clock::Month;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::money::{Nano, Pico};

use crate::store::wallets::{Wallet, WalletAccount};

/// The balance of an organization, and its usage so far this month.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The calendar month, in UTC.
    pub month: Month,
    /// The list price of the month's usage so far, minus its volume discounts.
    pub total: Pico,
    pub wallet: Wallet,
    /// The amount by which the balance may currently go below zero.
    pub credit_limit: Nano,
    /// The amount that can be spent, including the credit limit.
    pub spendable: Nano,
    pub plan: String,
    /// `true` if an amount is due on an invoice.
    pub is_past_due: bool,
    /// The sum of the amounts that are due on open invoices.
    pub due: Nano,
    /// The volume discounts of the month so far: the discount lines of its invoice if the month were closed
    /// now.
    pub discounts: Vec<Item>,
}

/// Returns the summary of an organization. On the first day of a month, while the previous month is still
/// open for late usage, the summary covers the new month.
///
/// # Errors
/// 404 for an unknown organization; the database fails, or a sum overflows.
pub fn read(billing: &Billing, id: OrganizationId) -> BoxFuture<'_, Result<Summary, Error>> {
    Box::pin(async move {
        let month = billing.clock.now().day().month();
        let mut tx = billing.db().read().await?;
        let WalletAccount { wallet, plan, open_invoices, due } =
            store::wallets::account(&mut tx, id).await?.ok_or(Code::OrganizationNotFound)?;
        let used = store::months::billed(&mut tx, id, month).await?;
        let bill = closing::bill(&mut tx, id, month, &used).await?;
        let discounts = bill.items.into_iter().filter(|item| item.kind == ItemKind::Discount).collect();
        let demo = billing.demo_credit();
        Ok(Summary {
            month,
            total: bill.exact,
            credit_limit: wallet.credit_limit(demo),
            spendable: wallet.spendable(demo),
            wallet,
            plan,
            is_past_due: open_invoices != 0,
            due,
            discounts,
        })
    })
}
