//! The time by which the service is known to have run.

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;

/// The row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceClock {
    /// The newest time by which a replica ran; it only rises, but by an operator's word.
    pub last_seen_at: Time,
    /// Since when some replica has run, without a longer gap.
    pub up_since_at: Time,
    /// When an operator last said that the time was right.
    pub accepted_at: Option<Time>,
}

impl FromRow for ServiceClock {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            last_seen_at: row.get("last_seen_at")?,
            up_since_at: row.get("up_since_at")?,
            accepted_at: row.get("accepted_at")?,
        })
    }
}

/// The stored times; none before the first server.
pub async fn get(tx: &mut Tx) -> Result<Option<ServiceClock>, db::Error> {
    sql("SELECT last_seen_at, up_since_at, accepted_at FROM service_clock WHERE id = 1").optional(tx).await
}

/// Notes that a replica runs at this time. Unless one has run since `without_gap_since`, the service is up from now on only.
pub async fn note(tx: &mut Tx, now: Time, without_gap_since: Time) -> Result<(), db::Error> {
    sql("INSERT INTO service_clock (id, last_seen_at, up_since_at) VALUES (1, $1, $1)
         ON CONFLICT (id) DO UPDATE SET
         up_since_at = CASE WHEN service_clock.last_seen_at < $2 THEN excluded.last_seen_at
                            ELSE service_clock.up_since_at END,
         last_seen_at = CASE WHEN service_clock.last_seen_at < excluded.last_seen_at THEN excluded.last_seen_at
                             ELSE service_clock.last_seen_at END")
    .bind(now)
    .bind(without_gap_since)
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes this time for right, whatever was seen before.
pub async fn accept(tx: &mut Tx, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO service_clock (id, last_seen_at, up_since_at, accepted_at) VALUES (1, $1, $1, $1)
         ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at, up_since_at = excluded.up_since_at,
         accepted_at = excluded.accepted_at")
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}
