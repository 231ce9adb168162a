//! Requests of automatic top-ups: rows of `payments`, added in the transaction that lowers a wallet below its
//! threshold. The crate `payments` charges them, and makes all other writes to these tables. Billing can't
//! call `payments`, because `payments` depends on billing.

use crate::store::wallets::{Wallet, nano};
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::currencies::ChargeUnit;
use kernel::ids::{OrganizationId, PaymentId};
use kernel::money::Nano;

/// Sets the threshold below which a locked wallet requests a top-up; `None` while it requests none.
pub async fn set_threshold(
    tx: &mut Tx,
    organization_id: OrganizationId,
    below: Option<Nano>,
) -> Result<(), db::Error> {
    sql("UPDATE wallets SET top_up_below_nano = $2 WHERE organization_id = $1")
        .bind(organization_id)
        .bind(below.map(nano).transpose()?)
        .defer(tx)
        .await
}

/// Adds the payment that restores the balance of a locked wallet, and clears the threshold, so that no other
/// top-up is requested before this payment has ended. Adds nothing if a payment is in progress.
pub async fn request(tx: &mut Tx, wallet: &Wallet, id: PaymentId, now: Time) -> Result<(), db::Error> {
    let organization_id = wallet.organization_id;
    set_threshold(tx, organization_id, None).await?;
    let restore_to: Option<(Nano,)> = sql("SELECT restore_to_nano FROM auto_top_ups
         WHERE organization_id = $1 AND is_enabled = 1 AND paused_reason IS NULL")
    .bind(organization_id)
    .optional(tx)
    .await?;
    let Some((restore_to,)) = restore_to else { return Ok(()) };
    let gap = Nano::from_units(restore_to.units() - wallet.available().units());
    let Some(units) = ChargeUnit::of(&wallet.currency).covering(gap).filter(|units| *units > 0) else {
        return Ok(());
    };
    sql("INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, next_at, caller, created_at, updated_at)
         VALUES ($1, $2, 'auto_top_up', $3, $4, 'processing', $5, 'system', $5, $5) ON CONFLICT DO NOTHING")
    .bind(id)
    .bind(organization_id)
    .bind(units)
    .bind(wallet.currency.as_str())
    .bind(now)
    .defer(tx)
    .await
}

/// Deletes the top-ups of an organization that is deleted.
pub async fn remove(tx: &mut Tx, organization_id: OrganizationId) -> Result<(), db::Error> {
    set_threshold(tx, organization_id, None).await?;
    sql("DELETE FROM auto_top_ups WHERE organization_id = $1").bind(organization_id).defer(tx).await
}
