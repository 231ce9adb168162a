//! What projects and keys used in months that are closed, so that reading one of them adds up its open month and no more.
//!
//! Nothing is ever added to a closed month (`store::usage::totals` says why), so this needs no feed: a sum that was right stays
//! right, whichever replica closes the next month. It is let go of only where the database may be another than before.

use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::store::usage::totals::{self, ADDED_AT_ONCE, Added, Part, Totals};
use cluster::epochs::{Epochs, Stamp};
use db::Db;
use kernel::clock::Month;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

/// How many projects and keys are remembered at most, at about 200 bytes each with what the cache knows of those that it let go;
/// beyond it the ones least used make room.
const CAPACITY: usize = 100_000;
/// Before every month.
const FIRST: Month = Month::from_unix_months(i64::MIN);

/// A project or an API key, as far as its usage is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// A project.
    Project(ProjectId),
    /// An API key.
    ApiKey(ApiKeyId),
}

/// What is known before rows are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    stamp: Stamp,
    /// What was used before the part.
    before: Totals,
    /// The rows that are still to be added up.
    part: Part,
}

/// The sums in memory.
pub struct UsageTotals {
    db: Db,
    epochs: Arc<Epochs>,
    held: Cache<Subject, Known>,
}

impl UsageTotals {
    /// Remembers nothing yet.
    pub fn new(db: Db, epochs: Arc<Epochs>) -> Self {
        Self { db, epochs, held: Cache::new(CAPACITY) }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns everything that was ever used by a project or a key of this organization. To be asked once it is clear that the
    /// caller may see it.
    ///
    /// # Errors
    /// The database can't add up what is missing, or the sum is past 64 bits.
    pub async fn total(&self, organization_id: OrganizationId, subject: Subject) -> Result<Totals, Error> {
        let held = self.held.get(&subject).filter(|known| self.epochs.holds_all(known.stamp));
        let mut known = held.unwrap_or_else(|| self.nothing());
        let mut added = self.add_up(organization_id, subject, known.part).await?;
        if added.open_month.is_some_and(|open| open < known.part.from) {
            // A standby that had not heard of the month's end is the database now: what it says is what counts.
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
