//! The table `payment_refunds`. Rows are written only while the wallet is locked.

use std::sync::LazyLock;

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, PaymentId, RefundId};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The state of a refund. In every state except `Failed`, the money is deducted from the wallet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// Stripe's response isn't known yet.
    Pending,
    Succeeded,
    /// The money was returned to the wallet.
    Failed,
}

db::words!(Status);

/// A refund of a payment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refund {
    pub id: RefundId,
    pub payment_id: PaymentId,
    pub organization_id: OrganizationId,
    /// The amount returned to the payer.
    pub amount_minor: i64,
    /// The tax part of the amount. The wallet has lost the rest.
    pub tax_minor: i64,
    pub status: Status,
    /// The refund's id at Stripe.
    pub stripe_id: Option<String>,
    /// Time at which a job requests the refund from Stripe again.
    pub next_at: Option<Time>,
    pub created_at: Time,
}

db::row!(Refund {
    id,
    payment_id,
    organization_id,
    amount_minor,
    tax_minor,
    status,
    stripe_id,
    next_at,
    created_at
});

impl Refund {
    /// Returns the units that the wallet loses.
    pub const fn net_minor(&self) -> i64 {
        self.amount_minor - self.tax_minor
    }
}

const COLUMNS: &str =
    "id, payment_id, organization_id, amount_minor, tax_minor, status, stripe_id, next_at, created_at";

fn select(rest: &str) -> String {
    format!("SELECT {COLUMNS} FROM payment_refunds {rest}")
}

/// Adds a refund.
pub async fn insert(tx: &mut Tx, new: &Refund) -> Result<(), db::Error> {
    sql("INSERT INTO payment_refunds (id, payment_id, organization_id, amount_minor, status, stripe_id, next_at, created_at,
             updated_at, tax_minor)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)")
    .bind(new.id)
    .bind(new.payment_id)
    .bind(new.organization_id)
    .bind(new.amount_minor)
    .bind(new.status)
    .bind(new.stripe_id.as_deref())
    .bind(new.next_at)
    .bind(new.created_at)
    .bind(new.tax_minor)
    .execute(tx)
    .await?;
    Ok(())
}

/// Updates the state of a refund.
pub async fn update(tx: &mut Tx, refund: &Refund, now: Time) -> Result<(), db::Error> {
    sql(
        "UPDATE payment_refunds SET status = $2, stripe_id = $3, next_at = $4, updated_at = $5 WHERE id = $1",
    )
    .bind(refund.id)
    .bind(refund.status)
    .bind(refund.stripe_id.as_deref())
    .bind(refund.next_at)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}

static ONE: LazyLock<String> = LazyLock::new(|| select("WHERE id = $1"));

/// Returns a refund.
pub async fn get(tx: &mut Tx, id: RefundId) -> Result<Option<Refund>, db::Error> {
    sql(ONE.as_str()).bind(id).optional(tx).await
}

/// The statement of [`of_payment`].
pub static OF_PAYMENT: LazyLock<String> = LazyLock::new(|| select("WHERE payment_id = $1 ORDER BY id"));

/// Returns the refunds of a payment, oldest first.
pub async fn of_payment(tx: &mut Tx, payment_id: PaymentId) -> Result<Vec<Refund>, db::Error> {
    sql(OF_PAYMENT.as_str()).bind(payment_id).all(tx).await
}

/// The statement of [`due`].
pub static DUE: LazyLock<String> =
    LazyLock::new(|| select("WHERE next_at IS NOT NULL AND next_at <= $1 ORDER BY next_at, id LIMIT $2"));

/// Returns refunds with an unknown outcome that are due for a request to Stripe.
pub async fn due(tx: &mut Tx, now: Time, limit: i64) -> Result<Vec<Refund>, db::Error> {
    sql(DUE.as_str()).bind(now).bind(limit).all(tx).await
}

/// Schedules the next request to Stripe for a pending refund. Needs no lock.
pub async fn postpone(tx: &mut Tx, id: RefundId, next_at: Option<Time>) -> Result<(), db::Error> {
    sql("UPDATE payment_refunds SET next_at = $2 WHERE id = $1 AND status = 'pending'")
        .bind(id)
        .bind(next_at)
        .defer(tx)
        .await
}
