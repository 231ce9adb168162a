//! A row that one of the replicas changes every second. The changes prove that reads use the current primary.
//!
//! An old primary that hasn't detected its replacement still serves reads, with increasingly stale data.
//! While it has a synchronous standby, it can't commit a change, because the standby follows the new primary.

use db::{FromRow, Row, Tx, sql};

/// The heartbeat and the position of the feed of changes, read together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The position of the newest committed change; 0 before the first.
    pub position: i64,
    /// A counter of the row's changes.
    pub number: i64,
    /// The primary's timeline, as reported by the replica that made the change; 0 if it was unknown.
    pub timeline: i64,
    /// The content of the change at the reader's position; `None` if no change has that position.
    pub own_change: Option<String>,
}

impl FromRow for Heartbeat {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            position: row.get("position")?,
            number: row.get("number")?,
            timeline: row.get("timeline")?,
            own_change: row.get("own_change")?,
        })
    }
}

/// Returns the heartbeat, for a reader at this position.
pub async fn get(tx: &mut Tx, position: i64) -> Result<Heartbeat, db::Error> {
    sql("SELECT p.position, h.number, h.timeline,
             (SELECT c.kind || ' ' || c.subject || ' ' || CAST(c.changed_at AS TEXT) FROM changes c WHERE c.position = $1)
                 AS own_change
         FROM change_position p, heartbeat h WHERE p.id = 1 AND h.id = 1")
    .bind(position)
    .one(tx)
    .await
}

/// Changes the row, on PostgreSQL, if it still has this number and no other replica is changing it. Returns
/// `true` if the row was changed.
pub async fn beat(tx: &mut Tx, number: i64, timeline: i64) -> Result<bool, db::Error> {
    let changed = sql("UPDATE heartbeat SET number = number + 1, timeline = CAST($2 AS BIGINT)
         WHERE id = (SELECT id FROM heartbeat WHERE id = 1 AND number = $1 FOR UPDATE SKIP LOCKED)")
    .bind(number)
    .bind(timeline)
    .execute(tx)
    .await?;
    Ok(changed == 1)
}
