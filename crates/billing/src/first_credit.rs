//! Credit for a verified user's first organization.

use db::Tx;
use kernel::addresses::PlainMailbox;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::UserId;

use crate::rules::credit_limits::Credit;
use crate::store::wallets::Wallet;
use crate::{Billing, store};
use accounts::store::users::EmailVerified;

/// Gives the credit limit to the first organization of a verified user: the oldest one that they created and
/// that still exists. This happens only once per user and per mailbox. A user without an organization gets
/// the limit with the first one that they create.
///
/// This locks a wallet, so it comes after everything that locks organizations, and before e-mails are
/// counted.
///
/// # Errors
/// The database fails.
pub async fn grant(billing: &Billing, tx: &mut Tx, verified: &EmailVerified, now: Time) -> Result<(), Error> {
    let user_id = verified.user_id();
    let (credit_limit, demo) = (billing.settings.credit_limits().first, billing.demo_credit());
    accounts::store::users::lock(tx, user_id).await?;
    let mut held: Option<Wallet> = None;
    while let Some(organization_id) = tenants::store::organizations::first_without_credit(tx, user_id).await?
    {
        // A deletion also locks the wallet, so an organization that exists now still exists when this
        // transaction ends.
        if let Some(mut wallet) = held.take_if(|wallet| wallet.organization_id == organization_id) {
            accounts::store::users::set_credit_granted(tx, user_id, now).await?;
            if !takes_mailbox(tx, user_id, now).await? {
                tracing::info!(%organization_id, "another account with the same mailbox already got a credit limit");
                return Ok(());
            }
            // An operator may have set a limit in the meantime; the higher limit is kept. The demo credit is
            // given in any case.
            wallet.credit =
                Credit { granted: wallet.credit.granted.max(credit_limit), has_demo_credit: true };
            store::wallets::set_credit(tx, organization_id, wallet.credit).await?;
            store::wallets::queue_standing_events(tx, &mut wallet, demo, now, &billing.random).await?;
            let credit_limit = wallet.credit_limit(demo);
            tracing::info!(%organization_id, %credit_limit, "an organization was given its credit limit");
            return Ok(());
        }
        held = Some(store::wallets::lock_existing(tx, organization_id, &billing.clock_guard).await?);
    }
    Ok(())
}

/// Records that a user's mailbox has received its credit. Returns `false` if it already had.
async fn takes_mailbox(tx: &mut Tx, user_id: UserId, now: Time) -> Result<bool, Error> {
    let user = accounts::store::users::by_id(tx, user_id).await?;
    let user = user.ok_or_else(|| Error::internal(format!("{user_id} was deleted while it was locked")))?;
    Ok(store::first_credits::take(tx, &PlainMailbox::of(&user.email), now).await?)
}
