//! Credit for a verified user's first organization.

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::Nano;
use kernel::random::Random;

use crate::store;
use crate::store::wallets::Wallet;
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
    random: &Random,
) -> Result<(), Error> {
    let user_id = verified.user_id();
    accounts::store::users::lock(tx, user_id).await?;
    let mut held: Option<Wallet> = None;
    while let Some(organization_id) = tenants::store::organizations::first_without_credit(tx, user_id).await?
    {
        // A deletion locks the wallet too: an organization that still exists now does so until this
        // transaction ends.
        if let Some(mut wallet) = held.take_if(|wallet| wallet.organization_id == organization_id) {
            store::wallets::raise_credit_limit(tx, organization_id, credit_limit).await?;
            wallet.credit_limit = wallet.credit_limit.max(credit_limit);
            store::wallets::tell_standing(tx, &mut wallet, now, random).await?;
            accounts::store::users::set_credit_granted(tx, user_id, now).await?;
            tracing::info!(%organization_id, %credit_limit, "an organization was given its credit limit");
            return Ok(());
        }
        held = Some(store::wallets::lock_existing(tx, organization_id, now).await?);
    }
    Ok(())
}
