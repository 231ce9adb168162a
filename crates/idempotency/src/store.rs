//! The table `idempotency_keys`. A row without an answer is the claim of a running request.

use crate::{LEASE_MS, never};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;

/// The row of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub content_hash: [u8; 32],
    /// The time at which the request's claim ends.
    pub leased_until: Time,
    /// The sealed response; `None` until the request has finished.
    pub answer: Option<Vec<u8>>,
}

impl FromRow for Found {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            content_hash: row.get("content_hash")?,
            leased_until: row.get("leased_until")?,
            answer: row.get("answer")?,
        })
    }
}

/// A claim to insert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub id: [u8; 32],
    pub content_hash: [u8; 32],
    pub holder: &'a str,
}

/// Returns the row of a key.
pub(crate) async fn find(tx: &mut Tx, id: [u8; 32]) -> Result<Option<Found>, db::Error> {
    sql("SELECT content_hash, leased_until, answer FROM idempotency_keys WHERE id = $1")
        .bind(id)
        .optional(tx)
        .await
}

/// Claims a key if it has no row, or its row is a claim whose lease has ended. Returns `true` if it was
/// claimed.
pub(crate) async fn claim(tx: &mut Tx, claim: &Claim<'_>, now: Time) -> Result<bool, db::Error> {
    let claimed = sql("INSERT INTO idempotency_keys (id, content_hash, holder, leased_until, created_at)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (id) DO UPDATE SET content_hash = excluded.content_hash, holder = excluded.holder,
            leased_until = excluded.leased_until, created_at = excluded.created_at
         WHERE idempotency_keys.answer IS NULL
           AND (idempotency_keys.leased_until <= $5 OR idempotency_keys.leased_until >= $6)")
    .bind(claim.id)
    .bind(claim.content_hash)
    .bind(claim.holder)
    .bind(now.plus_ms(LEASE_MS))
    .bind(now)
    .bind(never(now))
    .execute(tx)
    .await?;
    Ok(claimed == 1)
}

/// Stores the sealed response of a claim. Returns `false` if this holder no longer has the claim.
pub(crate) async fn finish(
    tx: &mut Tx,
    id: [u8; 32],
    holder: &str,
    answer: Vec<u8>,
) -> Result<bool, db::Error> {
    let finished =
        sql("UPDATE idempotency_keys SET answer = $3 WHERE id = $1 AND holder = $2 AND answer IS NULL")
            .bind(id)
            .bind(holder)
            .bind(answer)
            .execute(tx)
            .await?;
    Ok(finished == 1)
}

/// Removes a claim unless it has a response or another holder.
pub(crate) async fn release(tx: &mut Tx, id: [u8; 32], holder: &str) -> Result<(), db::Error> {
    sql("DELETE FROM idempotency_keys WHERE id = $1 AND holder = $2 AND answer IS NULL")
        .bind(id)
        .bind(holder)
        .execute(tx)
        .await?;
    Ok(())
}

/// The statement that selects the creation time of the oldest row.
pub const OLDEST: &str = "SELECT created_at FROM idempotency_keys ORDER BY created_at LIMIT 1";

/// Returns the creation time of the oldest row.
pub(crate) async fn oldest(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let row: Option<(Time,)> = sql(OLDEST).optional(tx).await?;
    Ok(row.map(|(created_at,)| created_at))
}

/// The statement that removes old rows.
pub const REMOVE: &str = "DELETE FROM idempotency_keys WHERE id IN (
     SELECT id FROM idempotency_keys WHERE created_at <= $1 ORDER BY created_at LIMIT $2)";

/// Removes up to `max_rows` rows that were created at or before this time, and returns their number.
pub(crate) async fn remove(tx: &mut Tx, before: Time, max_rows: i64) -> Result<u64, db::Error> {
    sql(REMOVE).bind(before).bind(max_rows).execute(tx).await
}

/// Returns a page of sealed responses with their rows' ids, ordered by id, that begins after the id `after`.
pub(crate) async fn fetch_sealed(
    tx: &mut Tx,
    after: &[u8],
    max_rows: i64,
) -> Result<Vec<([u8; 32], Vec<u8>)>, db::Error> {
    sql("SELECT id, answer FROM idempotency_keys WHERE id > $1 AND answer IS NOT NULL ORDER BY id LIMIT $2")
        .bind(after)
        .bind(max_rows)
        .all(tx)
        .await
}

/// Replaces a sealed response.
pub(crate) async fn set_sealed(tx: &mut Tx, id: [u8; 32], answer: Vec<u8>) -> Result<(), db::Error> {
    sql("UPDATE idempotency_keys SET answer = $2 WHERE id = $1").bind(id).bind(answer).execute(tx).await?;
    Ok(())
}
