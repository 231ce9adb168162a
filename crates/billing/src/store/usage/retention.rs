//! Deletion of old events, slice by slice along their primary key. This needs no other index, and holds no
//! lock for long. Daily rows are kept.

use db::{Tx, sql};
use kernel::clock::Time;

/// The progress of a pass over all events: the primary key of an event, which may be deleted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Position {
    organization_id: String,
    source: String,
    event_id: String,
}

db::row!(Position { organization_id, source, event_id });

/// The statement of [`slice_end`].
pub const SLICE_END: &str = "SELECT organization_id, source, event_id FROM usage_events
     WHERE (organization_id, source, event_id) > ($1, $2, $3)
     ORDER BY organization_id, source, event_id LIMIT 1 OFFSET $4";

/// Returns the last event of a slice of this size; `None` if fewer are left.
pub async fn slice_end(tx: &mut Tx, after: &Position, size: i64) -> Result<Option<Position>, db::Error> {
    sql(SLICE_END)
        .bind(after.organization_id.as_str())
        .bind(after.source.as_str())
        .bind(after.event_id.as_str())
        .bind(size.saturating_sub(1))
        .heavy()
        .optional(tx)
        .await
}

/// The statement of [`count_older`].
pub const COUNT_OLDER: &str = "SELECT COUNT(*) FROM usage_events
     WHERE (organization_id, source, event_id) > ($1, $2, $3)
       AND (organization_id, source, event_id) <= ($4, $5, $6) AND occurred_at < $7";

/// Returns the number of events of a slice that occurred before this time.
pub async fn count_older(
    tx: &mut Tx,
    after: &Position,
    end: Option<&Position>,
    before: Time,
) -> Result<i64, db::Error> {
    let (count,): (i64,) = bind_slice(COUNT_OLDER, after, end, before).heavy().one(tx).await?;
    Ok(count)
}

/// Deletes the events of a slice that occurred before this time, and returns their number. Call
/// [`allow_deletion`] first.
pub async fn remove_older(
    tx: &mut Tx,
    after: &Position,
    end: Option<&Position>,
    before: Time,
) -> Result<u64, db::Error> {
    let text = "DELETE FROM usage_events
     WHERE (organization_id, source, event_id) > ($1, $2, $3)
       AND (organization_id, source, event_id) <= ($4, $5, $6) AND occurred_at < $7";
    bind_slice(text, after, end, before).heavy().execute(tx).await
}

fn bind_slice(text: &'static str, after: &Position, end: Option<&Position>, before: Time) -> db::Statement {
    // Greater than every id, because ids begin with a letter.
    let last = || Position { organization_id: char::MAX.to_string(), ..Position::default() };
    let end = end.cloned().unwrap_or_else(last);
    sql(text)
        .bind(after.organization_id.as_str())
        .bind(after.source.as_str())
        .bind(after.event_id.as_str())
        .bind(end.organization_id)
        .bind(end.source)
        .bind(end.event_id)
        .bind(before)
}

/// Records that events before this time may be deleted. The time never decreases.
pub async fn allow_deletion(tx: &mut Tx, before: Time) -> Result<(), db::Error> {
    sql("UPDATE retention SET usage_events_before = $1 WHERE usage_events_before < $1")
        .bind(before)
        .execute(tx)
        .await?;
    Ok(())
}
