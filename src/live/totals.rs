//! What projects and keys used in months that are closed, so that reading one of them adds up its open month and no more.
//!
//! Nothing is ever added to a closed month (`store::usage::totals` says why), so this needs no feed: a sum that was right stays
//! right, whichever replica closes the next month. It is let go of only where the database may be another than before.

use quick_cache::sync::Cache;

use crate::billing::Billing;
use crate::clock::Month;
use crate::db::Tx;
use crate::error::Error;
use crate::ids::{ApiKeyId, OrganizationId, ProjectId};
use crate::live::epochs::{Epochs, Stamp};
use crate::store::usage::totals::{self, ADDED_AT_ONCE, Added, Most, Part, Totals};

/// How many projects and keys are remembered at most, at about 200 bytes each with what the cache knows of those that it let go;
/// beyond it the ones least used make room.
const CAPACITY: usize = 100_000;
/// Before every month.
const FIRST: Month = Month::from_unix_months(i64::MIN);

/// Whose usage it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// A project's.
    Project(ProjectId),
    /// A key's.
    ApiKey(ApiKeyId),
}

/// What is known before rows are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    stamp: Stamp,
    /// What was used before the part.
    before: Totals,
    part: Part,
}

impl Known {
    /// The rows that are still to be added up.
    pub fn part(&self) -> Part {
        self.part
    }
}

/// The sums in memory.
pub struct UsageTotals {
    held: Cache<Subject, Known>,
}

impl UsageTotals {
    /// Remembers nothing yet.
    pub fn new() -> Self {
        Self { held: Cache::new(CAPACITY) }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of this subject, if there can be such a one: to be asked before its rows are read.
    pub fn known(&self, epochs: &Epochs, subject: Option<Subject>) -> Known {
        let held = subject.and_then(|subject| self.held.get(&subject));
        let held = held.filter(|known| epochs.holds_all(known.stamp));
        held.unwrap_or_else(|| nothing(epochs))
    }
}

impl Default for UsageTotals {
    fn default() -> Self {
        Self::new()
    }
}

fn nothing(epochs: &Epochs) -> Known {
    let part = Part { from: FIRST, most: Most::Few };
    Known { stamp: epochs.stamp(), before: Totals::default(), part }
}

/// Usage of which a part has been added up, by who may see it.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Whose.
    pub subject: Subject,
    /// Their tenant.
    pub organization_id: OrganizationId,
    /// What was known before.
    pub known: Known,
    /// What the part has come to, if it has no more rows than may be added up at once.
    pub added: Added,
}

impl Reading {
    /// Everything that was ever used. What can be kept of it is.
    ///
    /// # Errors
    /// The database can't add up what is missing, or the sum is past 64 bits.
    pub async fn total(mut self, billing: &Billing) -> Result<Totals, Error> {
        let went_back = self.added.open_month.is_some_and(|open| open < self.known.part.from);
        if went_back {
            // A standby that had not heard of the month's end is the database now: what it says is what counts.
            self.known = nothing(&billing.feed.epochs);
        }
        if went_back || self.added.rows >= self.known.part.most.rows() {
            self.added = self.add_up(&mut billing.db.read().await?).await?;
        }
        let past = || Error::internal("what was ever used is past 64 bits");
        let total = self.known.before.plus(self.added.all).ok_or_else(past)?;
        if let Some(open) = self.added.open_month {
            let before = self.known.before.plus(self.added.closed).ok_or_else(past)?;
            // So many rows are added up elsewhere in any case: one is enough to see that they are there.
            let most = if self.added.open_rows >= ADDED_AT_ONCE { Most::One } else { Most::Few };
            let known = Known { before, part: Part { from: open, most }, ..self.known };
            if known != self.known {
                billing.usage_totals.held.insert(self.subject, known);
            }
        }
        Ok(total)
    }

    async fn add_up(&self, tx: &mut Tx) -> Result<Added, Error> {
        let (organization_id, from) = (self.organization_id, self.known.part.from);
        Ok(match self.subject {
            Subject::Project(id) => totals::project(tx, organization_id, id, from).await?,
            Subject::ApiKey(id) => totals::key(tx, organization_id, id, from).await?,
        })
    }
}
