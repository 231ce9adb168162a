//! The amounts that an organization may use and spend.

use std::sync::Arc;

use crate::{Billing, store};
use catalog::Model;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::money::Nano;

use crate::store::wallets::Wallet;

/// The limits of an organization.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The offered models with their limits for each organization, in the order of the catalog.
    pub models: Vec<Arc<Model>>,
    pub wallet: Wallet,
    /// The amount by which the balance may currently go below zero.
    pub credit_limit: Nano,
    /// The amount that can be spent, including the credit limit.
    pub spendable: Nano,
}

/// Returns the limits of an organization.
///
/// # Errors
/// 404 for an unknown organization; the database fails.
pub fn read(billing: &Billing, organization_id: OrganizationId) -> BoxFuture<'_, Result<Limits, Error>> {
    Box::pin(async move {
        let wallet = store::wallets::get(&mut billing.db().read().await?, organization_id).await?;
        let wallet = wallet.ok_or(Code::OrganizationNotFound)?;
        let demo = billing.demo_credit();
        Ok(Limits {
            models: billing.catalog.now().models().cloned().collect(),
            credit_limit: wallet.credit_limit(demo),
            spendable: wallet.spendable(demo),
            wallet,
        })
    })
}
