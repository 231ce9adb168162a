//! The table `stripe_tasks`: pending requests to Stripe.

use db::{Tx, sql};
use kernel::clock::Time;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The action on an object at Stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TaskKind {
    /// Expire a Checkout session, so that it can no longer be paid.
    ExpireSession,
    /// Detach a card from its customer, so that it can no longer be charged.
    DetachMethod,
}

db::words!(TaskKind);

/// A pending request to Stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    pub kind: TaskKind,
    pub object_id: String,
    pub attempts: i64,
}

db::row!(Task { kind, object_id, attempts });

/// Inserts a task that is due now.
pub async fn insert(tx: &mut Tx, kind: TaskKind, object_id: &str, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO stripe_tasks (kind, object_id, next_at) VALUES ($1, $2, $3) ON CONFLICT (kind, object_id) DO NOTHING")
        .bind(kind)
        .bind(object_id)
        .bind(now)
        .defer(tx)
        .await
}

/// The statement of [`due`].
pub const DUE: &str =
    "SELECT kind, object_id, attempts FROM stripe_tasks WHERE next_at <= $1 ORDER BY next_at LIMIT $2";

/// Returns tasks that are due.
pub async fn due(tx: &mut Tx, now: Time, limit: i64) -> Result<Vec<Task>, db::Error> {
    sql(DUE).bind(now).bind(limit).all(tx).await
}

/// Deletes a completed task.
pub async fn remove(tx: &mut Tx, task: &Task) -> Result<(), db::Error> {
    sql("DELETE FROM stripe_tasks WHERE kind = $1 AND object_id = $2")
        .bind(task.kind)
        .bind(task.object_id.as_str())
        .defer(tx)
        .await
}

/// Records why a task failed, and when to retry it.
pub async fn set_failed(tx: &mut Tx, task: &Task, next_at: Time, error: &str) -> Result<(), db::Error> {
    sql("UPDATE stripe_tasks SET attempts = attempts + 1, next_at = $3, last_error = $4
         WHERE kind = $1 AND object_id = $2")
    .bind(task.kind)
    .bind(task.object_id.as_str())
    .bind(next_at)
    .bind(error)
    .defer(tx)
    .await
}
