//! Forgets usage events that nothing can repeat any more; what they add up to stays in daily rows for ever.
//!
//! Every replica walks over all events once a day, and where two meet, the second finds nothing left. A replica that stops in the
//! middle starts anew.

use crate::Billing;
use crate::rules::events;
use crate::store::usage::retention::{self, Position};
use kernel::clock::Day;
use kernel::error::Error;

/// Events that one turn looks at.
const SLICE: i64 = 2_000;

/// Where the walk of this replica has come to.
#[derive(Debug, Default)]
pub struct Walk {
    /// The day on which the last one ended, or began, if it is under way.
    day: Option<Day>,
    /// While it is under way.
    after: Option<Position>,
}

/// What one turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How many events went.
    pub removed: u64,
    /// Whether there is more to do today.
    pub goes_on: bool,
}

/// Looks at the next slice of events, if there is one today.
///
/// # Errors
/// The database's; the same slice comes again then.
pub async fn turn(billing: &Billing, walk: &mut Walk) -> Result<Turn, Error> {
    turn_of(billing, walk, SLICE).await
}

/// The same with slices of another size.
///
/// # Errors
/// The database's.
pub async fn turn_of(billing: &Billing, walk: &mut Walk, size: i64) -> Result<Turn, Error> {
    let Ok(now) = billing.clock_guard.now() else { return Ok(Turn { removed: 0, goes_on: false }) };
    if walk.after.is_none() && walk.day == Some(now.day()) {
        return Ok(Turn { removed: 0, goes_on: false });
    }
    let before = events::forgettable_before(now);
    let after = walk.after.clone().unwrap_or_default();
    let mut read = billing.db.read().await?;
    let end = retention::slice_end(&mut read, &after, size).await?;
    // Most slices have nothing old, and then nobody has to wait for a writer.
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
