//! The table `stripe_events`: received events and whether they were processed.

use db::{Tx, sql};
use kernel::clock::Time;

/// A received event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeEvent {
    pub id: String,
    pub event_type: String,
    /// The object to read from Stripe.
    pub object_id: String,
    pub received_at: Time,
    pub attempts: i64,
}

db::row!(StripeEvent { id, event_type, object_id, received_at, attempts });

/// Inserts an event that is due now, unless it was already received. Returns `true` if it's new.
pub async fn insert(
    tx: &mut Tx,
    id: &str,
    event_type: &str,
    object_id: &str,
    now: Time,
) -> Result<bool, db::Error> {
    let added = sql("INSERT INTO stripe_events (id, event_type, object_id, received_at, next_at)
         VALUES ($1, $2, $3, $4, $4) ON CONFLICT (id) DO NOTHING")
    .bind(id)
    .bind(event_type)
    .bind(object_id)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(added > 0)
}

/// Returns `true` if an event was already received.
pub async fn is_known(tx: &mut Tx, id: &str) -> Result<bool, db::Error> {
    let row: Option<(String,)> =
        sql("SELECT id FROM stripe_events WHERE id = $1").bind(id).optional(tx).await?;
    Ok(row.is_some())
}

/// The statement of [`due`].
pub const DUE: &str = "SELECT id, event_type, object_id, received_at, attempts FROM stripe_events
     WHERE done_at IS NULL AND next_at <= $1 ORDER BY next_at, id LIMIT $2";

/// Returns events that are due.
pub async fn due(tx: &mut Tx, now: Time, limit: i64) -> Result<Vec<StripeEvent>, db::Error> {
    sql(DUE).bind(now).bind(limit).all(tx).await
}

/// Marks an event as processed.
pub async fn set_done(tx: &mut Tx, id: &str, now: Time) -> Result<(), db::Error> {
    sql("UPDATE stripe_events SET done_at = $2, last_error = NULL WHERE id = $1")
        .bind(id)
        .bind(now)
        .defer(tx)
        .await
}

/// Records why processing an event failed, and when to retry it.
pub async fn set_failed(tx: &mut Tx, id: &str, next_at: Time, error: &str) -> Result<(), db::Error> {
    sql("UPDATE stripe_events SET attempts = attempts + 1, next_at = $2, last_error = $3
         WHERE id = $1 AND done_at IS NULL")
    .bind(id)
    .bind(next_at)
    .bind(error)
    .defer(tx)
    .await
}

/// The statement of [`stuck`].
pub const STUCK: &str = "SELECT id, event_type, COALESCE(last_error, '') AS last_error FROM stripe_events
     WHERE done_at IS NULL AND received_at < $1 ORDER BY id LIMIT $2";

/// Returns the id, type, and error of unprocessed events received before a time.
pub async fn stuck(
    tx: &mut Tx,
    before: Time,
    limit: i64,
) -> Result<Vec<(String, String, String)>, db::Error> {
    sql(STUCK).bind(before).bind(limit).heavy().all(tx).await
}

/// The statement of [`remove_done`].
pub const REMOVE_DONE: &str = "DELETE FROM stripe_events WHERE id IN
     (SELECT id FROM stripe_events WHERE done_at IS NOT NULL AND done_at < $1 ORDER BY done_at LIMIT $2)";

/// Deletes events processed before a time. Returns their number.
pub async fn remove_done(tx: &mut Tx, before: Time, limit: i64) -> Result<u64, db::Error> {
    sql(REMOVE_DONE).bind(before).bind(limit).execute(tx).await
}
