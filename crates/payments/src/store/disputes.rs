//! The table `payment_disputes`. The holder of the wallet's lock writes it.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, PaymentId};

/// A dispute whose funds were withdrawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispute {
    /// Its id at Stripe.
    pub id: String,
    pub payment_id: PaymentId,
    pub organization_id: OrganizationId,
    /// What the bank has taken.
    pub amount_minor: i64,
    /// The tax in it: the wallet has lost the rest.
    pub tax_minor: i64,
    pub withdrawn_at: Time,
    pub reinstated_at: Option<Time>,
}

db::row!(Dispute { id, payment_id, organization_id, amount_minor, tax_minor, withdrawn_at, reinstated_at });

impl Dispute {
    /// Returns the units that the wallet has lost.
    pub const fn net_minor(&self) -> i64 {
        self.amount_minor - self.tax_minor
    }
}

/// Adds a dispute.
pub async fn insert(tx: &mut Tx, new: &Dispute) -> Result<(), db::Error> {
    sql("INSERT INTO payment_disputes (id, payment_id, organization_id, amount_minor, withdrawn_at, tax_minor)
         VALUES ($1, $2, $3, $4, $5, $6)")
    .bind(new.id.as_str())
    .bind(new.payment_id)
    .bind(new.organization_id)
    .bind(new.amount_minor)
    .bind(new.withdrawn_at)
    .bind(new.tax_minor)
    .execute(tx)
    .await?;
    Ok(())
}

/// Notes that the funds are back.
pub async fn set_reinstated(tx: &mut Tx, id: &str, now: Time) -> Result<(), db::Error> {
    sql("UPDATE payment_disputes SET reinstated_at = $2 WHERE id = $1")
        .bind(id)
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}

/// Returns a dispute.
pub async fn get(tx: &mut Tx, id: &str) -> Result<Option<Dispute>, db::Error> {
    sql("SELECT id, payment_id, organization_id, amount_minor, tax_minor, withdrawn_at, reinstated_at
         FROM payment_disputes WHERE id = $1")
    .bind(id)
    .optional(tx)
    .await
}
