//! Usage of projects and keys in closed months, held in memory: reading a total then adds up the open month
//! only.
//!
//! A closed month never changes (`crate::store::usage::totals` explains why), so this needs no feed: a sum
//! that was right stays right, whichever replica closes the next month. Sums are dropped only when the
//! database may have been replaced.

use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::store::usage::totals::{self, MAX_SHORT_SUM_ROWS, RangeTotals, Totals, TotalsRange};
use cluster::epochs::{Epochs, Stamp};
use db::Db;
use kernel::clock::Month;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

/// Maximum number of cached totals, of about 200 bytes each. The least used ones make room.
const CAPACITY: usize = 100_000;
/// Before every month.
const FIRST_MONTH: Month = Month::from_unix_months(i64::MIN);

/// The project or API key whose usage is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    Project(ProjectId),
    ApiKey(ApiKeyId),
}

/// A cached sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CachedTotal {
    stamp: Stamp,
    /// The usage before the range.
    before: Totals,
    /// The rows that are still to be added up.
    range: TotalsRange,
}

/// The cached totals.
pub struct UsageTotals {
    db: Db,
    epochs: Arc<Epochs>,
    cache: Cache<Subject, CachedTotal>,
}

impl UsageTotals {
    pub fn new(db: Db, epochs: Arc<Epochs>) -> Self {
        Self { db, epochs, cache: Cache::new(CAPACITY) }
    }

    /// Returns the number of cached totals.
    pub fn len(&self) -> usize {
        self.cache.len()
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
        let fresh = self.cache.get(&subject).filter(|cached| self.epochs.holds_all(cached.stamp));
        let mut cached = fresh.unwrap_or_else(|| self.initial());
        let mut added = self.add_up(organization_id, subject, cached.range).await?;
        if added.open_month.is_some_and(|open| open < cached.range.from) {
            // The database is now a standby that hadn't received the month's end: what it says counts.
            cached = self.initial();
            added = self.add_up(organization_id, subject, cached.range).await?;
        }
        let overflow = || Error::internal("what was ever used is past 64 bits");
        let total = cached.before.plus(added.all).ok_or_else(overflow)?;
        if let Some(open) = added.open_month {
            let before = cached.before.plus(added.closed).ok_or_else(overflow)?;
            let range = TotalsRange { from: open, is_large: added.open_rows >= MAX_SHORT_SUM_ROWS };
            let newer = CachedTotal { before, range, ..cached };
            if newer != cached {
                self.cache.insert(subject, newer);
            }
        }
        Ok(total)
    }

    fn initial(&self) -> CachedTotal {
        let range = TotalsRange { from: FIRST_MONTH, is_large: true };
        CachedTotal { stamp: self.epochs.stamp(), before: Totals::default(), range }
    }

    async fn add_up(
        &self,
        organization_id: OrganizationId,
        subject: Subject,
        range: TotalsRange,
    ) -> Result<RangeTotals, Error> {
        let mut tx = self.db.read().await?;
        Ok(match subject {
            Subject::Project(id) => totals::project(&mut tx, organization_id, id, range).await?,
            Subject::ApiKey(id) => totals::key(&mut tx, organization_id, id, range).await?,
        })
    }
}
