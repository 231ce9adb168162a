//! The table `service_clock`: the times at which the service ran.

use db::{Tx, sql};
use kernel::clock::Time;

/// The row of `service_clock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceClock {
    /// The latest time at which a replica ran. It only rises, except when an operator accepts a time.
    pub last_seen_at: Time,
    /// The start of the current uptime: at least one replica has run since then, without a long gap.
    pub up_since_at: Time,
    /// The time at which an operator last accepted the clock.
    pub accepted_at: Option<Time>,
}

db::row!(ServiceClock { last_seen_at, up_since_at, accepted_at });

/// Returns the stored times; `None` before the first server.
pub async fn get(tx: &mut Tx) -> Result<Option<ServiceClock>, db::Error> {
    sql("SELECT last_seen_at, up_since_at, accepted_at FROM service_clock WHERE id = 1").optional(tx).await
}

/// Stores that a replica is running at this time. If none has run since `without_gap_since`, the uptime
/// begins now.
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

/// Accepts this time as correct, regardless of what was stored before.
pub async fn accept(tx: &mut Tx, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO service_clock (id, last_seen_at, up_since_at, accepted_at) VALUES (1, $1, $1, $1)
         ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at, up_since_at = excluded.up_since_at,
         accepted_at = excluded.accepted_at")
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}
