//! Credit for a verified user's first organization.

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::Nano;

use crate::store;
use accounts::store::users::EmailVerified;

/// Gives the credit limit to the first organization of a verified user: the oldest one that they created and
/// that still exists, and only once per user. A user without an organization gets it with the first that they
/// create.
///
/// This locks a wallet, so it comes after everything that locks organizations, and before mails are counted.
///
/// # Errors
/// The database fails.
pub async fn grant(
    tx: &mut Tx,
    verified: &EmailVerified,
    credit_limit: Nano,
    now: Time,
) -> Result<(), Error> {
    let user_id = verified.user_id();
    accounts::store::users::lock(tx, user_id).await?;
    let mut held = None;
    while let Some(organization_id) = tenants::store::organizations::first_without_credit(tx, user_id).await?
    {
        // A deletion locks the wallet too: an organization that still exists now does so until this
        // transaction ends.
        if held == Some(organization_id) {
            store::wallets::raise_credit_limit(tx, organization_id, credit_limit).await?;
            accounts::store::users::set_credit_granted(tx, user_id, now).await?;
            tracing::info!(%organization_id, %credit_limit, "an organization was given its credit limit");
            return Ok(());
        }
        store::wallets::lock(tx, organization_id, now).await?;
        held = Some(organization_id);
    }
    Ok(())
}
