//! The table `payment_disputes`. Rows are written only while the wallet is locked.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, PaymentId};

/// A dispute for which a bank holds, or held, funds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispute {
    /// The dispute's id at Stripe.
    pub id: String,
    pub payment_id: PaymentId,
    pub organization_id: OrganizationId,
    /// The amount that the bank holds; after `reinstated_at`, the amount it held before.
    pub amount_minor: i64,
    /// The tax part of the amount. The wallet has lost the rest.
    pub tax_minor: i64,
    pub withdrawn_at: Time,
    /// The time at which the bank reinstated the funds.
    pub reinstated_at: Option<Time>,
    /// Number of bookings. The latest number is part of the keys of its movements.
    pub bookings: i64,
}

db::row!(Dispute {
    id,
    payment_id,
    organization_id,
    amount_minor,
    tax_minor,
    withdrawn_at,
    reinstated_at,
    bookings
});

impl Dispute {
    /// Returns the units that the bank holds.
    pub fn held_minor(&self) -> i64 {
        if self.reinstated_at.is_none() { self.amount_minor } else { 0 }
    }

    /// Returns the tax part of the amount that the bank holds, in units.
    pub fn held_tax_minor(&self) -> i64 {
        if self.reinstated_at.is_none() { self.tax_minor } else { 0 }
    }
}

/// Adds a dispute.
pub async fn insert(tx: &mut Tx, new: &Dispute) -> Result<(), db::Error> {
    sql("INSERT INTO payment_disputes (id, payment_id, organization_id, amount_minor, withdrawn_at, tax_minor, bookings)
         VALUES ($1, $2, $3, $4, $5, $6, $7)")
    .bind(new.id.as_str())
    .bind(new.payment_id)
    .bind(new.organization_id)
    .bind(new.amount_minor)
    .bind(new.withdrawn_at)
    .bind(new.tax_minor)
    .bind(new.bookings)
    .execute(tx)
    .await?;
    Ok(())
}

/// Updates the amount that the bank holds.
pub async fn update(tx: &mut Tx, dispute: &Dispute) -> Result<(), db::Error> {
    sql("UPDATE payment_disputes SET amount_minor = $2, tax_minor = $3, reinstated_at = $4, bookings = $5
         WHERE id = $1")
    .bind(dispute.id.as_str())
    .bind(dispute.amount_minor)
    .bind(dispute.tax_minor)
    .bind(dispute.reinstated_at)
    .bind(dispute.bookings)
    .execute(tx)
    .await?;
    Ok(())
}

/// Returns a dispute.
pub async fn get(tx: &mut Tx, id: &str) -> Result<Option<Dispute>, db::Error> {
    sql("SELECT id, payment_id, organization_id, amount_minor, tax_minor, withdrawn_at, reinstated_at, bookings
         FROM payment_disputes WHERE id = $1")
    .bind(id)
    .optional(tx)
    .await
}
