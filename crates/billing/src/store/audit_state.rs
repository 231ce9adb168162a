//! When the servers check the books next, and what the last check found.

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;

/// The row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditState {
    /// When the next check may begin.
    pub due_at: Time,
    /// When the last one ended; none before the first.
    pub ended_at: Option<Time>,
    /// How many organizations it has checked.
    pub organizations: i64,
    /// How much wasn't as it must be.
    pub drifts: i64,
}

impl FromRow for AuditState {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            due_at: row.get("due_at")?,
            ended_at: row.get("ended_at")?,
            organizations: row.get("organizations")?,
            drifts: row.get("drifts")?,
        })
    }
}

/// What is known; none before the first server has planned a check.
pub async fn get(tx: &mut Tx) -> Result<Option<AuditState>, db::Error> {
    sql("SELECT due_at, ended_at, organizations, drifts FROM audit_state WHERE id = 1").optional(tx).await
}

/// Plans a check, or notes one that has ended.
pub async fn put(tx: &mut Tx, state: &AuditState) -> Result<(), db::Error> {
    sql("INSERT INTO audit_state (id, due_at, ended_at, organizations, drifts) VALUES (1, $1, $2, $3, $4)
         ON CONFLICT (id) DO UPDATE SET due_at = excluded.due_at, ended_at = excluded.ended_at,
         organizations = excluded.organizations, drifts = excluded.drifts")
    .bind(state.due_at)
    .bind(state.ended_at)
    .bind(state.organizations)
    .bind(state.drifts)
    .execute(tx)
    .await?;
    Ok(())
}
