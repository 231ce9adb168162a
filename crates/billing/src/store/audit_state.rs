//! The schedule of the regular audit, and its last result.

use db::{Tx, sql};
use kernel::clock::Time;

/// The row of `audit_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditState {
    /// The earliest start of the next audit.
    pub due_at: Time,
    /// The end of the last audit; `None` before the first.
    pub ended_at: Option<Time>,
    /// The number of organizations that it checked.
    pub organizations: i64,
    /// The number of drifts that it found.
    pub drifts: i64,
}

db::row!(AuditState { due_at, ended_at, organizations, drifts });

/// Returns the state; `None` before the first server has scheduled an audit.
pub async fn get(tx: &mut Tx) -> Result<Option<AuditState>, db::Error> {
    sql("SELECT due_at, ended_at, organizations, drifts FROM audit_state WHERE id = 1").optional(tx).await
}

/// Stores the state.
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
