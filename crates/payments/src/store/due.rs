//! A check for due work in all tables of payments.

use db::{Tx, sql};
use kernel::clock::Time;

/// The statement of [`is_anything`].
pub const ANYTHING: &str = "SELECT CASE WHEN
         EXISTS (SELECT 1 FROM stripe_events WHERE done_at IS NULL AND next_at <= $1)
         OR EXISTS (SELECT 1 FROM payments WHERE next_at IS NOT NULL AND next_at <= $1)
         OR EXISTS (SELECT 1 FROM payment_refunds WHERE next_at IS NOT NULL AND next_at <= $1)
         OR EXISTS (SELECT 1 FROM stripe_tasks WHERE next_at <= $1)
         OR EXISTS (SELECT 1 FROM auto_top_ups WHERE next_try_at IS NOT NULL AND next_try_at <= $1)
         OR NOT EXISTS (SELECT 1 FROM payment_comparisons WHERE compared_at > $2)
     THEN 1 ELSE 0 END AS is_due";

/// Returns `true` if any work is due now, or if payments were last compared with Stripe at `compared_before`
/// or earlier.
pub async fn is_anything(tx: &mut Tx, now: Time, compared_before: Time) -> Result<bool, db::Error> {
    let (is_due,): (i64,) = sql(ANYTHING).bind(now).bind(compared_before).one(tx).await?;
    Ok(is_due == 1)
}
