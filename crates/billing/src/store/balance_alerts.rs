//! The alerts of balances: columns of `wallets`. [`super::wallets::write`] compares each balance that it
//! writes.

use crate::store::wallets::nano;
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::OrganizationId;
use kernel::money::Nano;

/// The alert of an organization's balance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BalanceAlert {
    /// The threshold; `None` without an alert.
    pub below: Option<Nano>,
    /// The time at which the balance dropped below the threshold; `None` if it isn't below.
    pub low_since: Option<Time>,
    /// The posted balance.
    pub balance: Nano,
    /// ISO 4217 code.
    pub currency: String,
}

db::row!(BalanceAlert { below: "alert_below_nano", low_since: "low_at", balance: "posted_nano", currency });

/// Returns the alert of an organization.
pub async fn get(tx: &mut Tx, organization_id: OrganizationId) -> Result<Option<BalanceAlert>, db::Error> {
    sql("SELECT alert_below_nano, low_at, posted_nano, currency FROM wallets WHERE organization_id = $1")
        .bind(organization_id)
        .optional(tx)
        .await
}

/// Sets the threshold of a locked wallet, which the caller writes afterwards.
pub async fn set_below(
    tx: &mut Tx,
    organization_id: OrganizationId,
    below: Option<Nano>,
) -> Result<(), db::Error> {
    sql("UPDATE wallets SET alert_below_nano = $2 WHERE organization_id = $1")
        .bind(organization_id)
        .bind(below.map(nano).transpose()?)
        .defer(tx)
        .await
}

/// A balance that has fallen below its threshold and has no e-mail yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueAlert {
    pub organization_id: OrganizationId,
    pub below: Nano,
    /// The balance when it fell below the threshold.
    pub balance: Nano,
    /// ISO 4217 code.
    pub currency: String,
}

db::row!(DueAlert { organization_id, below: "alert_below_nano", balance: "low_posted_nano", currency });

/// The statement of [`due`].
pub const DUE: &str = "SELECT organization_id, alert_below_nano, low_posted_nano, currency FROM wallets
     WHERE low_at IS NOT NULL AND low_mailed_at IS NULL ORDER BY low_at LIMIT $1";

/// Returns balances that have fallen below their thresholds and have no e-mail yet.
pub async fn due(tx: &mut Tx, at_most: i64) -> Result<Vec<DueAlert>, db::Error> {
    sql(DUE).bind(at_most).all(tx).await
}

/// Marks the alert of a balance as mailed. Returns `false` if it already was, or if the balance is no longer
/// low.
pub async fn set_mailed(tx: &mut Tx, organization_id: OrganizationId, now: Time) -> Result<bool, db::Error> {
    let changed = sql("UPDATE wallets SET low_mailed_at = $2
         WHERE organization_id = $1 AND low_at IS NOT NULL AND low_mailed_at IS NULL")
    .bind(organization_id)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(changed > 0)
}
