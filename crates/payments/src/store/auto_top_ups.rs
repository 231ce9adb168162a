//! The table `auto_top_ups`. Rows are written only while the wallet is locked.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::version::Version;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The reason why automatic charges are paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PausedReason {
    /// The card was declined.
    Declined,
    /// The bank requires the customer to confirm a charge.
    AuthenticationRequired,
    /// The monthly cap is reached. Resumes next month.
    MonthlyCap,
    /// No card is saved.
    NoPaymentMethod,
    /// Stripe has no customer address from which to calculate the tax on a charge.
    TaxLocation,
    /// A payment was refunded.
    Refunded,
    /// A payment was disputed.
    Disputed,
}

db::words!(PausedReason);

/// The automatic top-up of an organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AutoTopUp {
    pub organization_id: OrganizationId,
    pub is_enabled: bool,
    /// The available amount below which the card is charged.
    pub threshold: Nano,
    /// The available amount after a charge.
    pub restore_to: Nano,
    /// Maximum charged per month (UTC).
    pub monthly_cap: Option<Nano>,
    pub paused_reason: Option<PausedReason>,
    /// Number of declined attempts since the last successful charge.
    pub failures: i64,
    /// Time at which charges resume automatically.
    pub next_try_at: Option<Time>,
    pub created_at: Time,
    pub updated_at: Time,
}

db::row!(AutoTopUp {
    organization_id,
    is_enabled,
    threshold: "threshold_nano",
    restore_to: "restore_to_nano",
    monthly_cap: "monthly_cap_nano",
    paused_reason,
    failures,
    next_try_at,
    created_at,
    updated_at
});

impl AutoTopUp {
    /// Returns the top-up of an organization that hasn't configured one.
    pub fn none(organization_id: OrganizationId, now: Time) -> Self {
        Self {
            organization_id,
            is_enabled: false,
            threshold: Nano::ZERO,
            restore_to: Nano::ZERO,
            monthly_cap: None,
            paused_reason: None,
            failures: 0,
            next_try_at: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Returns `true` if charges are enabled and not paused.
    pub fn is_active(&self) -> bool {
        self.is_enabled && self.paused_reason.is_none()
    }

    /// Returns the version, which changes with every change an owner can make.
    ///
    /// # Errors
    /// Serialization to JSON fails.
    pub fn version(&self) -> Result<Version, Error> {
        let Self { organization_id, is_enabled, threshold, restore_to, monthly_cap, .. } = self;
        Version::of(&(organization_id, is_enabled, threshold, restore_to, monthly_cap))
    }
}

const COLUMNS: &str =
    "organization_id, is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano, paused_reason,
     failures, next_try_at, created_at, updated_at";

/// Returns the automatic top-up of an organization.
pub async fn get(tx: &mut Tx, organization_id: OrganizationId) -> Result<Option<AutoTopUp>, db::Error> {
    sql(format!("SELECT {COLUMNS} FROM auto_top_ups WHERE organization_id = $1"))
        .bind(organization_id)
        .optional(tx)
        .await
}

/// Inserts or updates an automatic top-up.
pub async fn put(tx: &mut Tx, top_up: &AutoTopUp, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO auto_top_ups (organization_id, is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano,
             paused_reason, failures, next_try_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (organization_id) DO UPDATE SET is_enabled = excluded.is_enabled,
             threshold_nano = excluded.threshold_nano, restore_to_nano = excluded.restore_to_nano,
             monthly_cap_nano = excluded.monthly_cap_nano, paused_reason = excluded.paused_reason,
             failures = excluded.failures, next_try_at = excluded.next_try_at, updated_at = excluded.updated_at")
    .bind(top_up.organization_id)
    .bind(top_up.is_enabled)
    .bind(nano(top_up.threshold)?)
    .bind(nano(top_up.restore_to)?)
    .bind(top_up.monthly_cap.map(nano).transpose()?)
    .bind(top_up.paused_reason)
    .bind(top_up.failures)
    .bind(top_up.next_try_at)
    .bind(top_up.created_at)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}

fn nano(amount: Nano) -> Result<i64, db::Error> {
    amount.to_i64().ok_or_else(|| db::Error::Internal(format!("{amount} doesn't fit in 64 bits as nanos")))
}

/// The statement of [`due`].
pub const DUE: &str = "SELECT organization_id FROM auto_top_ups
     WHERE next_try_at IS NOT NULL AND next_try_at <= $1 ORDER BY next_try_at LIMIT $2";

/// Returns the organizations whose paused top-ups resume now.
pub async fn due(tx: &mut Tx, now: Time, limit: i64) -> Result<Vec<OrganizationId>, db::Error> {
    let rows: Vec<(OrganizationId,)> = sql(DUE).bind(now).bind(limit).all(tx).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}
