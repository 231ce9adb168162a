//! Checks this machine's clock. Every operation that can't be undone checks the clock here first.
//!
//! The wall clock is compared with the machine's monotonic clock, with the database's on PostgreSQL, and with
//! the latest time at which the service ran, which replicas store every minute. While the clock isn't
//! trusted, no month is closed, nothing is removed or ended, and clients have to resend usage.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::clock_trust::{self, ClockReading, Distrust, MAX_GAP_MS, ReferenceClocks, Wait};
use crate::store;
use crate::store::service_clock::ServiceClock;
use db::{Db, Tx};
use kernel::clock::{Clock, MINUTE_MS, Time};
use kernel::error::{Code, Error};

/// The interval between checks of the clock.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The timeout of a check. The time read from the database is late by less than that, which is little
/// compared with the allowed difference.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which a running replica stores the time, in milliseconds.
const NOTE_INTERVAL_MS: i64 = MINUTE_MS;

/// Compares the clock with reference clocks, as of the last check.
pub struct ClockGuard {
    db: Db,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    references: ReferenceClocks,
    stored: Option<ServiceClock>,
    /// When the time was last stored, by the monotonic clock.
    noted_at_ms: Option<i64>,
    /// `true` once the log has a line about the distrusted clock.
    is_distrust_logged: bool,
}

/// The offsets of the clock from each reference clock, in milliseconds, positive if the clock is ahead;
/// `None` without that reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offsets {
    /// The offset from the machine's monotonic clock.
    pub steady_ms: Option<i64>,
    /// The offset from the database's clock.
    pub database_ms: Option<i64>,
}

impl ClockGuard {
    /// Returns a guard of this clock, with this database as a reference. It doesn't query the database yet.
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock, state: Mutex::default() }
    }

    /// Returns the time, if it can be trusted.
    ///
    /// # Errors
    /// The reason not to trust it.
    pub fn now(&self) -> Result<Time, Distrust> {
        let clock = &self.clock;
        let now = clock.now();
        if clock.is_fixed() {
            return Ok(now);
        }
        self.state().references.judge(now, clock.steady_ms()).map_or(Ok(now), Err)
    }

    /// Returns `true` if the time can be trusted.
    pub fn is_trusted(&self) -> bool {
        self.now().is_ok()
    }

    /// Refuses a decision that couldn't be undone if the time is wrong.
    ///
    /// # Errors
    /// 503 `clock_not_trusted`.
    pub fn require(&self) -> Result<(), Error> {
        self.now().map(|_| ()).map_err(|_| Code::ClockNotTrusted.into())
    }

    /// Returns the time to use when a transaction ends or extends something: see [`ReferenceClocks::time`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn time_in(&self, tx: &mut Tx) -> Result<Time, db::Error> {
        Ok(self.time(tx.server_time().await?))
    }

    /// Returns the same as [`ClockGuard::time_in`] for a transaction that has read [`db::SERVER_TIME`].
    pub fn time(&self, server_time: Option<Time>) -> Time {
        let clock = &self.clock;
        let now = clock.now();
        if clock.is_fixed() {
            return now;
        }
        self.state().references.time(now, server_time, clock.steady_ms())
    }

    /// Returns this machine's clock.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Checks that the service has been up long enough to close months and to remove data.
    ///
    /// # Errors
    /// The reason to wait.
    pub fn check_up(&self) -> Result<(), Wait> {
        if self.clock.is_fixed() {
            return Ok(());
        }
        let stored = self.stored().ok_or(Wait::Down)?;
        let database = self.state().references.database.map(|mark| mark.now(self.clock.steady_ms()));
        clock_trust::check_up(stored.last_seen_at, stored.up_since_at, self.time(database))
    }

    /// Returns the offsets of the clock from its references.
    pub fn offsets(&self) -> Offsets {
        let (now, steady_ms) = (self.clock.now(), self.clock.steady_ms());
        let references = self.state().references;
        let off = |mark: ClockReading| now.unix_ms().saturating_sub(mark.now(steady_ms).unix_ms());
        Offsets { steady_ms: references.anchor.map(off), database_ms: references.database.map(off) }
    }

    /// Returns the stored row, as of the last check.
    pub fn stored(&self) -> Option<ServiceClock> {
        self.state().stored
    }

    /// Reads the database's time and the latest time at which the service ran, and updates the reference
    /// clocks. A clock that tests move by hand has no references.
    ///
    /// # Errors
    /// The database fails; the earlier references stay in use.
    pub async fn check(&self) -> Result<(), Error> {
        let clock = &self.clock;
        if clock.is_fixed() {
            return Ok(());
        }
        let outcome = timeout(DATABASE_TIMEOUT, self.read_references()).await;
        let asked = outcome
            .unwrap_or_else(|_| Err(Error::new(Code::DatabaseUnavailable).message("no answer in time")));
        let (now, steady_ms) = (clock.now(), clock.steady_ms());
        let mut state = self.state();
        let asked = asked.map(|asked| state.take(&asked));
        state.references.settle(now, steady_ms, asked.is_ok());
        asked
    }

    /// Checks the clock, logs when it becomes distrusted and when it is trusted again, and once per minute
    /// stores the time at which the service ran.
    ///
    /// # Errors
    /// The database fails.
    pub async fn turn(&self) -> Result<(), Error> {
        let outcome = self.check().await;
        let trusted = self.now();
        self.log_trust(trusted.err());
        outcome?;
        let steady_ms = self.clock.steady_ms();
        let is_due = self.state().noted_at_ms.is_none_or(|at_ms| steady_ms - at_ms >= NOTE_INTERVAL_MS);
        if self.clock.is_fixed() || trusted.is_err() || !is_due {
            return Ok(());
        }
        let mut tx = self.db.write().await?;
        let now = self.time_in(&mut tx).await?;
        store::service_clock::note(&mut tx, now, now.plus_ms(-MAX_GAP_MS)).await?;
        let stored = store::service_clock::get(&mut tx).await?;
        tx.commit().await?;
        let mut state = self.state();
        state.stored = stored;
        state.noted_at_ms = Some(steady_ms);
        Ok(())
    }

    async fn read_references(&self) -> Result<DatabaseTimes, Error> {
        let mut tx = self.db.read().await?;
        let database = tx.server_time().await?;
        let database = database.map(|at| ClockReading { at, steady_ms: self.clock.steady_ms() });
        let stored = store::service_clock::get(&mut tx).await?;
        let last_seen_at = match stored {
            Some(stored) => Some(stored.last_seen_at),
            // Before the first row exists, use the time of the newest audit entry.
            None => trail::newest(&mut tx).await?,
        };
        Ok(DatabaseTimes { database, stored, last_seen_at })
    }

    /// Logs each change of trust once.
    fn log_trust(&self, distrust: Option<Distrust>) {
        let was_logged = std::mem::replace(&mut self.state().is_distrust_logged, distrust.is_some());
        match distrust {
            Some(distrust) if !was_logged => tracing::error!(
                "the clock isn't trusted: until it is, no month is closed, nothing expires or is deleted, \
                 and usage is refused: {distrust}"
            ),
            None if was_logged => tracing::info!("the clock is trusted again"),
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each update of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The times that the database returned.
struct DatabaseTimes {
    database: Option<ClockReading>,
    stored: Option<ServiceClock>,
    last_seen_at: Option<Time>,
}

impl State {
    fn take(&mut self, times: &DatabaseTimes) {
        let accepted_at = |stored: Option<ServiceClock>| stored.and_then(|stored| stored.accepted_at);
        if accepted_at(times.stored) != accepted_at(self.stored) {
            self.references.forget_anchor();
        }
        self.stored = times.stored;
        self.references.last_seen_at = times.last_seen_at;
        self.references.database = times.database;
    }
}
