//! Usage of projects and keys in closed months, held in memory: reading a total then adds up the open month
//! only.
//!
//! A closed month never changes (`crate::store::usage::totals` explains why), so this needs no feed: a sum
//! that was right stays right, whichever replica closes the next month. Sums are dropped only when the
//! database may have been replaced.

use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::store::usage::totals::{self, ADDED_AT_ONCE, Added, Part, Totals};
use cluster::epochs::{Epochs, Stamp};
use db::Db;
use kernel::clock::Month;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

/// Maximum number of cached totals, of about 200 bytes each. The least used ones make room.
const CAPACITY: usize = 100_000;
/// Before every month.
const FIRST: Month = Month::from_unix_months(i64::MIN);

/// The project or API key whose usage is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    Project(ProjectId),
    ApiKey(ApiKeyId),
}

/// A cached sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    stamp: Stamp,
    /// The usage before the range.
    before: Totals,
    /// The rows that are still to be added up.
    part: Part,
}

/// The cached totals.
pub struct UsageTotals {
    db: Db,
    epochs: Arc<Epochs>,
    held: Cache<Subject, Known>,
}

impl UsageTotals {
    pub fn new(db: Db, epochs: Arc<Epochs>) -> Self {
        Self { db, epochs, held: Cache::new(CAPACITY) }
    }

    /// Returns the number of cached totals.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all usage ever of a project or key of this organization. The caller must have checked the
    /// right to see it.
    ///
    /// # Errors
    /// The database fails, or the sum overflows 64 bits.
    pub async fn total(&self, organization_id: OrganizationId, subject: Subject) -> Result<Totals, Error> {
        let held = self.held.get(&subject).filter(|known| self.epochs.holds_all(known.stamp));
        let mut known = held.unwrap_or_else(|| self.nothing());
        let mut added = self.add_up(organization_id, subject, known.part).await?;
        if added.open_month.is_some_and(|open| open < known.part.from) {
            // The database is now a standby that hadn't received the month's end: what it says counts.
            known = self.nothing();
            added = self.add_up(organization_id, subject, known.part).await?;
        }
        let past = || Error::internal("what was ever used is past 64 bits");
        let total = known.before.plus(added.all).ok_or_else(past)?;
        if let Some(open) = added.open_month {
            let before = known.before.plus(added.closed).ok_or_else(past)?;
            let part = Part { from: open, is_large: added.open_rows >= ADDED_AT_ONCE };
            let newer = Known { before, part, ..known };
            if newer != known {
                self.held.insert(subject, newer);
            }
        }
        Ok(total)
    }

    fn nothing(&self) -> Known {
        let part = Part { from: FIRST, is_large: true };
        Known { stamp: self.epochs.stamp(), before: Totals::default(), part }
    }

    async fn add_up(
        &self,
        organization_id: OrganizationId,
        subject: Subject,
        part: Part,
    ) -> Result<Added, Error> {
        let mut tx = self.db.read().await?;
        Ok(match subject {
            Subject::Project(id) => totals::project(&mut tx, organization_id, id, part).await?,
            Subject::ApiKey(id) => totals::key(&mut tx, organization_id, id, part).await?,
        })
    }
}
