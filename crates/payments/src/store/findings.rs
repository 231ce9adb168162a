//! The tables `payment_findings` and `payment_comparisons`: results of comparisons with Stripe.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::OrganizationId;

/// A difference between Stripe and this service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The id of the payment, or of the object at Stripe.
    pub object_id: String,
    /// `None` if no known organization is affected.
    pub organization_id: Option<OrganizationId>,
    pub expected: String,
    pub found: String,
}

/// Inserts or updates a difference.
pub async fn put(tx: &mut Tx, finding: &Finding, now: Time) -> Result<(), db::Error> {
    let Finding { object_id, organization_id, expected, found } = finding;
    sql("INSERT INTO payment_findings (object_id, organization_id, expected, found, found_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (object_id) DO UPDATE SET expected = excluded.expected, found = excluded.found,
             found_at = excluded.found_at")
    .bind(object_id.as_str())
    .bind(organization_id.map(|id| id.text()).unwrap_or_default())
    .bind(expected.as_str())
    .bind(found.as_str())
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}

/// Removes the difference for an object.
pub async fn remove(tx: &mut Tx, object_id: &str) -> Result<(), db::Error> {
    sql("DELETE FROM payment_findings WHERE object_id = $1").bind(object_id).defer(tx).await
}

/// Removes the differences that were last found before `time`, because later comparisons no longer find them.
pub async fn remove_before(tx: &mut Tx, time: Time) -> Result<(), db::Error> {
    sql("DELETE FROM payment_findings WHERE found_at < $1").bind(time).defer(tx).await
}

/// Returns the time of the last comparison.
pub async fn compared_at(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let row: Option<(Time,)> =
        sql("SELECT compared_at FROM payment_comparisons WHERE name = 'intents'").optional(tx).await?;
    Ok(row.map(|(at,)| at))
}

/// Records the time of a comparison.
pub async fn set_compared_at(tx: &mut Tx, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO payment_comparisons (name, compared_at) VALUES ('intents', $1)
         ON CONFLICT (name) DO UPDATE SET compared_at = excluded.compared_at")
    .bind(now)
    .defer(tx)
    .await
}
