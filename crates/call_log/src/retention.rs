//! Removal of old rows, in slices.

use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;

use crate::{CallLog, store};

/// The number of days for which the sums of hours are kept.
pub const HOURS_DAYS: i64 = 400;
/// Maximum number of organizations that one slice looks at.
const MAX_ORGANIZATIONS: usize = 100;

/// The progress of a pass over all organizations: the number of the last one.
pub type Position = i64;

/// The result of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The number of removed rows.
    pub removed: u64,
    /// The position of the next slice; `None` at the end of the pass.
    pub next: Option<Position>,
}

impl CallLog {
    /// Returns the time from which rows are kept. Without a log, all are removed.
    pub(crate) fn oldest(&self) -> Time {
        let days = i64::from(self.settings.days);
        let now = self.clock.now();
        if days == 0 { now } else { now.plus_ms(-days.saturating_mul(DAY_MS)) }
    }

    /// Removes about `size` rows of calls that are too old, and old sums of hours, after this position.
    ///
    /// # Errors
    /// The database fails.
    pub async fn remove_old(&self, after: Position, size: i64) -> Result<Slice, Error> {
        let (oldest, oldest_hour) = (self.oldest(), self.clock.now().plus_ms(-HOURS_DAYS * DAY_MS));
        let mut organization = after;
        for _ in 0..MAX_ORGANIZATIONS {
            let mut read = self.db.read().await?;
            let next = store::retention::next_organization(&mut read, organization).await?;
            let Some(next) = next else { return Ok(Slice { removed: 0, next: None }) };
            let end = store::retention::slice_end(&mut read, next, oldest, size).await?;
            let hours = store::retention::has_old_hours(&mut read, next, oldest_hour).await?;
            // Most organizations have no old rows, so they need no write transaction.
            if end.is_some() || hours {
                let mut tx = self.db.write().await?;
                let mut removed = 0;
                if let Some(end) = end {
                    removed += store::retention::remove_calls(&mut tx, next, end).await?;
                }
                if hours {
                    removed += store::retention::remove_hours(&mut tx, next, oldest_hour).await?;
                }
                tx.commit().await?;
                // The same organization may have more of them.
                return Ok(Slice { removed, next: Some(next - 1) });
            }
            organization = next;
        }
        Ok(Slice { removed: 0, next: Some(organization) })
    }
}
