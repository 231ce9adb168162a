//! The call log: one row for each model call, and sums of the calls of each hour.
//!
//! - [`entries`] are the calls to be logged. Charged calls are written by the transaction that charges them:
//!   [`CallLog::write`] is its last step, and [`CallLog::committed`] follows its commit. The books never read
//!   the log.
//! - [`refusals`] holds refused calls in memory, and [`hours`] the sums of the calls of each hour.
//!   [`CallLog::flush`] writes both every few seconds; a crash loses the last of them.
//! - [`calls`] lists calls, and [`performance`] reports the sums of hours.
//! - [`retention`] deletes old rows.
//!
//! No prompt, no answer and no address is kept. [`rules`] holds pure functions, [`store`] the SQL.

pub mod calls;
pub mod entries;
pub mod hour_sums;
pub mod hours;
pub mod performance;
pub mod refusals;
pub mod retention;
pub mod rules;
pub mod settings;
pub mod store;

mod names;
mod words;

use std::ops::Deref;
use std::sync::Arc;

use db::{Db, Tx};
use kernel::clock::{Clock, Day};
use kernel::error::Error;

use entries::{Adjustment, NewCall};
use hour_sums::{HourKey, HourSums};
use hours::Hours;
use names::Names;
use refusals::Refusals;
use settings::Settings;
use store::days::DaySums;

/// Maximum number of refused calls, and of rows of sums, that one transaction writes.
const ROWS_PER_TRANSACTION: usize = 1_000;

/// The handle of the log. Cloning it is cheap.
#[derive(Clone)]
pub struct CallLog(Arc<Parts>);

/// The parts of [`CallLog`].
pub struct Parts {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    /// Table `calls` of the configuration.
    pub settings: Settings,
    names: Names,
    hours: Hours,
    refusals: Refusals,
}

impl Deref for CallLog {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Rows that a transaction has written, and that count once it is committed.
#[derive(Debug, Default)]
pub struct Written {
    names: names::Found,
    hours: Vec<(HourKey, HourSums)>,
}

impl CallLog {
    pub fn new(db: Db, clock: Clock, settings: Settings) -> Self {
        let parts = Parts {
            db,
            clock,
            settings,
            names: Names::default(),
            hours: Hours::default(),
            refusals: Refusals::default(),
        };
        Self(Arc::new(parts))
    }

    /// Notes at the start of a server whether calls are logged from now on.
    ///
    /// # Errors
    /// The database fails.
    pub async fn begin(&self) -> Result<(), Error> {
        let since = store::days::since(&mut self.db.read().await?).await?;
        if since.is_some() == self.is_on() {
            return Ok(());
        }
        let mut tx = self.db.write().await?;
        match self.is_on() {
            true => store::days::begin(&mut tx, self.clock.now()).await?,
            false => store::days::end(&mut tx).await?,
        }
        tx.commit().await?;
        Ok(())
    }

    /// Returns the sums of an organization's calls on the last full day; `None` if not all calls of that day
    /// were logged and kept.
    ///
    /// # Errors
    /// The database fails.
    pub async fn last_day(
        &self,
        tx: &mut Tx,
        organization: &str,
    ) -> Result<Option<(Day, DaySums)>, db::Error> {
        let day = self.clock.now().day().plus(-1);
        let since = store::days::since(tx).await?;
        if !self.is_on() || since.is_none_or(|since| since.max(self.oldest()) > day.start()) {
            return Ok(None);
        }
        Ok(Some((day, store::days::of_day(tx, organization, day).await?)))
    }

    /// Returns `true` if calls are logged.
    pub fn is_on(&self) -> bool {
        self.settings.days > 0
    }

    /// Adds rows of calls, and adds later charges and corrections to the rows of their calls. The caller's
    /// transaction ends with this, because rows of names may wait for other transactions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn write(
        &self,
        tx: &mut Tx,
        calls: &[&NewCall],
        adjustments: &[Adjustment],
    ) -> Result<Written, db::Error> {
        if !self.is_on() || calls.is_empty() && adjustments.is_empty() {
            return Ok(Written::default());
        }
        let oldest = self.oldest();
        let calls: Vec<_> = calls.iter().copied().filter(|call| call.time() >= oldest).collect();
        let texts = calls.iter().flat_map(|call| call.names());
        let texts = texts.chain(adjustments.iter().flat_map(Adjustment::names));
        let names = self.names.find(tx, texts).await?;
        let mut hours = Vec::with_capacity(calls.len() + adjustments.len());
        let mut rows = Vec::with_capacity(calls.len());
        for call in calls {
            let numbers = names.numbers_of(call);
            hours.push((HourKey::of(call, numbers), HourSums::of(call)));
            rows.push((call, numbers));
        }
        store::calls::insert(tx, &rows).await?;
        for adjustment in adjustments {
            let organization = names.number(adjustment.organization_id.short_text().as_str());
            store::calls::adjust(tx, organization, adjustment).await?;
            if adjustment.id.created_at() >= oldest {
                hours.push(names.hour_of(adjustment));
            }
        }
        Ok(Written { names, hours })
    }

    /// Counts the rows of a transaction that is committed.
    pub fn committed(&self, written: Written) {
        self.names.remember(written.names);
        for (key, sums) in written.hours {
            self.hours.add(key, sums);
        }
    }

    /// Notes a refused call, which a later [`CallLog::flush`] writes.
    pub fn note_refusal(&self, call: NewCall) {
        if self.is_on() {
            self.refusals.note(call);
        }
    }

    /// Writes refused calls and sums of hours. Returns the number of rows.
    ///
    /// # Errors
    /// The database fails. What wasn't written waits for the next call.
    pub async fn flush(&self) -> Result<u64, Error> {
        let mut rows = 0;
        loop {
            let waiting = self.refusals.take(ROWS_PER_TRANSACTION, self.clock.now());
            if waiting.is_empty() {
                break;
            }
            let mut tx = self.db.write_behind().await?;
            let calls: Vec<_> = waiting.calls().collect();
            let mut written = self.write(&mut tx, &calls, &[]).await?;
            let repeats: Vec<_> = waiting.repeats().collect();
            let texts = repeats.iter().flat_map(|(call, _)| call.names());
            let names = self.names.find(&mut tx, texts).await?;
            for (call, count) in &repeats {
                let numbers = names.numbers_of(call);
                store::calls::add_repeats(&mut tx, numbers.organization, call.id, *count).await?;
                let sums = HourSums { calls: *count, ..HourSums::default() };
                written.hours.push((HourKey::of(call, numbers), sums));
            }
            tx.commit().await?;
            rows += calls.len() + repeats.len();
            waiting.done();
            self.committed(written);
            self.names.remember(names);
        }
        loop {
            let waiting = self.hours.take(ROWS_PER_TRANSACTION);
            if waiting.is_empty() {
                break;
            }
            let mut tx = self.db.write_behind().await?;
            store::hours::add(&mut tx, waiting.rows()).await?;
            tx.commit().await?;
            rows += waiting.rows().len();
            waiting.done();
        }
        Ok(u64::try_from(rows).unwrap_or(u64::MAX))
    }
}
