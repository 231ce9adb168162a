//! Holds this machine's clock against others: everything that can't be undone asks here first.
//!
//! The wall clock is held against the machine's steady one, against the database's on PostgreSQL, and against the newest time by
//! which the service ran, which replicas note once a minute. While it isn't trusted, months don't close, nothing is forgotten
//! or ended, and usage is to be sent again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::clock_trust;
use crate::clock_trust::{Distrust, GAP_MS, Mark, Wait, Witnesses};
use crate::store;
use crate::store::service_clock::ServiceClock;
use db::Db;
use kernel::clock::{Clock, MINUTE_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};

/// How often it is looked.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long the database may take for that.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long its answer may take for its time to count, in milliseconds.
const MOST_ROUND_TRIP_MS: i64 = 2 * SECOND_MS;
/// How often it is noted that the service runs, in milliseconds.
const NOTE_EVERY_MS: i64 = MINUTE_MS;

/// The other clocks, as of the last look.
pub struct ClockGuard {
    db: Db,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    witnesses: Witnesses,
    stored: Option<ServiceClock>,
    /// By the steady clock.
    noted_at_ms: Option<i64>,
    /// `true` if the log says that it isn't trusted.
    is_told: bool,
}

/// How far the clock is ahead of what it is held against, in milliseconds; none where there is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offsets {
    /// Time as it has passed.
    pub steady_ms: Option<i64>,
    /// The database's clock.
    pub database_ms: Option<i64>,
}

impl ClockGuard {
    /// Guards this clock with the help of this database. Nothing is asked yet.
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock, state: Mutex::default() }
    }

    /// The time, if it can be trusted.
    ///
    /// # Errors
    /// The reason not to trust it.
    pub fn now(&self) -> Result<Time, Distrust> {
        let clock = &self.clock;
        let now = clock.now();
        if clock.is_fixed() {
            return Ok(now);
        }
        self.state().witnesses.judge(now, clock.steady_ms()).map_or(Ok(now), Err)
    }

    /// Returns `true` if the time can be trusted.
    pub fn is_trusted(&self) -> bool {
        self.now().is_ok()
    }

    /// Refuses what would be decided for good by a wrong time.
    ///
    /// # Errors
    /// 503 `clock_not_trusted`.
    pub fn require(&self) -> Result<(), Error> {
        self.now().map(|_| ()).map_err(|_| Code::ClockNotTrusted.into())
    }

    /// The time that replicas have in common, as close as this one knows it, see [`Witnesses::shared_now`]. It waits for nobody.
    pub fn shared_now(&self) -> Time {
        let clock = &self.clock;
        let now = clock.now();
        if clock.is_fixed() {
            return now;
        }
        self.state().witnesses.shared_now(now, clock.steady_ms())
    }

    /// Checks that the service has been up for long enough to close months and to forget.
    ///
    /// # Errors
    /// How long to wait.
    pub fn check_up(&self) -> Result<(), Wait> {
        if self.clock.is_fixed() {
            return Ok(());
        }
        let now = self.shared_now();
        let stored = self.state().stored.ok_or(Wait::Down)?;
        clock_trust::check_up(stored.last_seen_at, stored.up_since_at, now)
    }

    /// How far the clock is off.
    pub fn offsets(&self) -> Offsets {
        let (now, steady_ms) = (self.clock.now(), self.clock.steady_ms());
        let witnesses = self.state().witnesses;
        let off = |mark: Mark| now.unix_ms().saturating_sub(mark.now(steady_ms).unix_ms());
        Offsets { steady_ms: witnesses.anchor.map(off), database_ms: witnesses.database.map(off) }
    }

    /// The row as of the last look.
    pub fn stored(&self) -> Option<ServiceClock> {
        self.state().stored
    }

    /// Asks the database for its time and for the newest that the service has run at, and goes on from there. A clock that is moved by hand
    /// is held against nothing.
    ///
    /// # Errors
    /// The database's; what was known before still counts.
    pub async fn look(&self) -> Result<(), Error> {
        let clock = &self.clock;
        if clock.is_fixed() {
            return Ok(());
        }
        let asked = timeout(PATIENCE, self.ask()).await;
        let asked =
            asked.unwrap_or_else(|_| Err(Error::new(Code::DatabaseUnavailable).message("no answer in time")));
        let (now, steady_ms) = (clock.now(), clock.steady_ms());
        let mut state = self.state();
        let mut has_time = false;
        let asked = asked.map(|asked| {
            has_time = asked.database.is_some();
            state.take(&asked);
        });
        state.witnesses.settle(now, steady_ms, has_time);
        asked
    }

    /// Looks, tells the log when trust ends and when it is back, and notes once a minute that the service runs.
    ///
    /// # Errors
    /// The database's.
    pub async fn turn(&self) -> Result<(), Error> {
        let looked = self.look().await;
        let judged = self.now();
        self.tell(judged.err());
        looked?;
        let steady_ms = self.clock.steady_ms();
        let is_due = self.state().noted_at_ms.is_none_or(|at_ms| steady_ms - at_ms >= NOTE_EVERY_MS);
        if self.clock.is_fixed() || judged.is_err() || !is_due {
            return Ok(());
        }
        let now = self.shared_now();
        let mut tx = self.db.write().await?;
        store::service_clock::note(&mut tx, now, now.plus_ms(-GAP_MS)).await?;
        let stored = store::service_clock::get(&mut tx).await?;
        tx.commit().await?;
        let mut state = self.state();
        state.stored = stored;
        state.noted_at_ms = Some(steady_ms);
        Ok(())
    }

    async fn ask(&self) -> Result<Asked, Error> {
        let began_ms = self.clock.steady_ms();
        let database = self.db.clock().await?;
        let ended_ms = self.clock.steady_ms();
        let took_ms = ended_ms - began_ms;
        let mark = |at: Time| Mark { at: at.plus_ms(took_ms / 2), steady_ms: ended_ms };
        let mut tx = self.db.read().await?;
        let stored = store::service_clock::get(&mut tx).await?;
        let last_seen_at = match stored {
            Some(stored) => Some(stored.last_seen_at),
            // Before the first note, the newest entry of the trail says as much.
            None => trail::newest(&mut tx).await?,
        };
        Ok(Asked {
            database: database.filter(|_| took_ms <= MOST_ROUND_TRIP_MS).map(mark),
            stored,
            last_seen_at,
        })
    }

    /// Once for each change.
    fn tell(&self, distrust: Option<Distrust>) {
        let was_told = std::mem::replace(&mut self.state().is_told, distrust.is_some());
        match distrust {
            Some(distrust) if !was_told => tracing::error!(
                "the clock isn't trusted, so no month closes, nothing is forgotten or ended, and usage is refused for now: {distrust}"
            ),
            None if was_told => tracing::info!("the clock is trusted again"),
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of it is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The database's answers.
struct Asked {
    database: Option<Mark>,
    stored: Option<ServiceClock>,
    last_seen_at: Option<Time>,
}

impl State {
    fn take(&mut self, asked: &Asked) {
        let accepted_at = |stored: Option<ServiceClock>| stored.and_then(|stored| stored.accepted_at);
        if accepted_at(asked.stored) != accepted_at(self.stored) {
            self.witnesses.forget_anchor();
        }
        self.stored = asked.stored;
        self.witnesses.last_seen_at = asked.last_seen_at;
        self.witnesses.database = asked.database.or(self.witnesses.database);
    }
}
