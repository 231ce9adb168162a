//! Deletion of usage events that are too old to be reported again. Their sums stay in daily rows forever.
//!
//! Each replica scans all events once a day. If two replicas do so at the same time, the second one finds
//! nothing to delete. A replica that stops in the middle starts over.

use crate::Billing;
use crate::rules::events;
use crate::store::usage::retention::{self, Position};
use kernel::clock::Day;
use kernel::error::Error;

/// Number of events that one step scans.
const SLICE_SIZE: i64 = 2_000;

/// The progress of this replica.
#[derive(Debug, Default)]
pub struct Progress {
    /// The day of the last pass over all events, or of the one in progress.
    day: Option<Day>,
    /// The last scanned event, during a pass.
    after: Option<Position>,
}

/// The result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The number of deleted events.
    pub removed: u64,
    /// `true` if more work is left today.
    pub has_more: bool,
}

/// Scans the next slice of events, if one is left today, and deletes old events.
///
/// # Errors
/// The database fails. The next step scans the same slice again.
pub async fn step(billing: &Billing, progress: &mut Progress) -> Result<Step, Error> {
    step_with_size(billing, progress, SLICE_SIZE).await
}

/// Runs a step like [`step`], with slices of another size.
///
/// # Errors
/// The database fails.
pub async fn step_with_size(billing: &Billing, progress: &mut Progress, size: i64) -> Result<Step, Error> {
    let Ok(now) = billing.clock_guard.now() else { return Ok(Step { removed: 0, has_more: false }) };
    if progress.after.is_none() && progress.day == Some(now.day()) {
        return Ok(Step { removed: 0, has_more: false });
    }
    let before = events::deletable_before(now);
    let after = progress.after.clone().unwrap_or_default();
    let mut read = billing.db().read().await?;
    let end = retention::slice_end(&mut read, &after, size).await?;
    // Most slices have no old events, so they need no write transaction.
    let older = retention::count_older(&mut read, &after, end.as_ref(), before).await?;
    let mut removed = 0;
    if older > 0 {
        let mut tx = billing.db().write().await?;
        retention::allow_deletion(&mut tx, before).await?;
        removed = retention::remove_older(&mut tx, &after, end.as_ref(), before).await?;
        tx.commit().await?;
    }
    progress.day = Some(now.day());
    progress.after = end;
    Ok(Step { removed, has_more: progress.after.is_some() })
}
