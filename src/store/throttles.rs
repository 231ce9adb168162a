//! Attempts on accounts, shared by all replicas.

use crate::clock::Time;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::rules::throttling::Attempts;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Requests for a password reset.
    ForgotPassword,
}

impl Scope {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ForgotPassword => "forgot_password",
        }
    }
}

impl FromRow for Attempts {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            count: row.get("attempts")?,
            since: row.get("since")?,
            blocked_until: row.get("blocked_until")?,
        })
    }
}

/// What is known of this subject. The row is made when there is none and stays locked until the transaction ends, so that
/// parallel attempts are counted one after the other; a fresh one has count 0.
pub async fn lock(
    tx: &mut Tx,
    scope: Scope,
    subject_hash: [u8; 32],
    now: Time,
) -> Result<Attempts, db::Error> {
    sql("INSERT INTO throttles (scope, subject_hash, attempts, since, blocked_until) VALUES ($1, $2, 0, $3, $3)
         ON CONFLICT (scope, subject_hash) DO UPDATE SET attempts = throttles.attempts
         RETURNING attempts, since, blocked_until")
    .bind(scope.as_str())
    .bind(subject_hash)
    .bind(now)
    .one(tx)
    .await
}

/// Writes what was counted.
pub async fn set(
    tx: &mut Tx,
    scope: Scope,
    subject_hash: [u8; 32],
    attempts: &Attempts,
) -> Result<(), db::Error> {
    sql("UPDATE throttles SET attempts = $3, since = $4, blocked_until = $5 WHERE scope = $1 AND subject_hash = $2")
        .bind(scope.as_str())
        .bind(subject_hash)
        .bind(attempts.count)
        .bind(attempts.since)
        .bind(attempts.blocked_until)
        .execute(tx)
        .await?;
    Ok(())
}

/// Removes what has long been forgotten; how many rows.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM throttles WHERE since < $1").bind(time).execute(tx).await
}
