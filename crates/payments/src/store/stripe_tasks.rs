//! The table `stripe_tasks`: what Stripe is still to do.

use db::{Tx, sql};
use kernel::clock::Time;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// What Stripe is to do with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TaskKind {
    /// End a Checkout session: it can't be paid any more.
    ExpireSession,
    /// Take a card from its customer: it can't be charged any more.
    DetachMethod,
}

db::words!(TaskKind);

/// Something that Stripe is still to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    pub kind: TaskKind,
    pub object_id: String,
    pub attempts: i64,
}

db::row!(Task { kind, object_id, attempts });

/// Adds a task that is due now.
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

/// Removes a task that was done.
pub async fn remove(tx: &mut Tx, task: &Task) -> Result<(), db::Error> {
    sql("DELETE FROM stripe_tasks WHERE kind = $1 AND object_id = $2")
        .bind(task.kind)
        .bind(task.object_id.as_str())
        .defer(tx)
        .await
}

/// Notes why a task couldn't be done, and when it is tried again.
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
