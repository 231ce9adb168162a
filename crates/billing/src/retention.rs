//! Deletes usage events that are too old to be reported again. Their sums stay in daily rows forever.
//!
//! Each replica goes over all events once a day. Where two do so at the same time, the second finds nothing
//! left. A replica that stops in the middle starts over.

use crate::Billing;
use crate::rules::events;
use crate::store::usage::retention::{self, Position};
use kernel::clock::Day;
use kernel::error::Error;

/// Number of events that one step looks at.
const SLICE: i64 = 2_000;

/// The progress of this replica.
#[derive(Debug, Default)]
pub struct Walk {
    /// The day of the last pass over all events, or of the one in progress.
    day: Option<Day>,
    /// The last event that was looked at, during a pass.
    after: Option<Position>,
}

/// The result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The number of deleted events.
    pub removed: u64,
    /// There is more to do today.
    pub goes_on: bool,
}

/// Looks at the next slice of events, if there is one today.
///
/// # Errors
/// The database fails. The next step looks at the same slice again.
pub async fn turn(billing: &Billing, walk: &mut Walk) -> Result<Turn, Error> {
    turn_of(billing, walk, SLICE).await
}

/// Does the same as [`turn`] with slices of another size.
///
/// # Errors
/// The database fails.
pub async fn turn_of(billing: &Billing, walk: &mut Walk, size: i64) -> Result<Turn, Error> {
    let Ok(now) = billing.clock_guard.now() else { return Ok(Turn { removed: 0, goes_on: false }) };
    if walk.after.is_none() && walk.day == Some(now.day()) {
        return Ok(Turn { removed: 0, goes_on: false });
    }
    let before = events::forgettable_before(now);
    let after = walk.after.clone().unwrap_or_default();
    let mut read = billing.db.read().await?;
    let end = retention::slice_end(&mut read, &after, size).await?;
    // Most slices have nothing old, and then no write transaction is needed.
    let older = retention::count_older(&mut read, &after, end.as_ref(), before).await?;
    let mut removed = 0;
    if older > 0 {
        let mut tx = billing.db.write().await?;
        retention::raise(&mut tx, before).await?;
        removed = retention::remove_older(&mut tx, &after, end.as_ref(), before).await?;
        tx.commit().await?;
    }
    walk.day = Some(now.day());
    walk.after = end;
    Ok(Turn { removed, goes_on: walk.after.is_some() })
}
