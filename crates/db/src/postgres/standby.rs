//! A standby, which serves reports while its lag is small enough.
//!
//! The lag is measured only by the clock of this process, which records the primary's WAL positions with
//! their times. A standby that has replayed the WAL up to a position has everything that was committed by the
//! time of that position. Positions are recorded every second, so the measured lag of a standby that keeps up
//! is at most one second.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connect::Connector;
use super::session::{self, Begin};
use super::shared::SharedConnections;
use super::url::{self, Purpose};
use super::{Failure, POINT_READS, Postgres};
use crate::Error;
use crate::statement::{Answer, Statement, Want, sql};

/// The interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of first checks whose failures aren't logged as warnings: the standby may start after this
/// process.
const STARTUP_CHECKS: u32 = 5;
/// Maximum number of recorded positions of the primary: those of the last hour, which is the maximum allowed
/// lag.
const MAX_POSITIONS: usize = 3_700;

/// Selects the end of the primary's WAL, in bytes.
const PRIMARY_POSITION: &str =
    "SELECT CAST(pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS BIGINT) AS position";
/// Selects the position up to which the standby has replayed the WAL, in bytes; no row on a server that isn't
/// a standby.
const STANDBY_POSITION: &str =
    "SELECT CAST(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') AS BIGINT) AS position
     WHERE pg_is_in_recovery() AND pg_last_wal_replay_lsn() IS NOT NULL";

/// A standby and its lag.
pub(crate) struct Standby {
    reads: SharedConnections,
    max_lag: Duration,
    /// The end of the time for which the standby is usable, extended by each check; `None` if it isn't
    /// usable.
    usable_until: watch::Sender<Option<Instant>>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Positions of the primary with their times, the oldest first.
    primary: VecDeque<(Instant, i64)>,
    /// The time up to which the standby has all commits.
    current_at: Option<Instant>,
    /// The state in the last log line about the standby.
    logged_usable: Option<bool>,
}

impl Standby {
    /// Reads the URL. Doesn't connect.
    pub(crate) fn new(url: &str, max_lag: Duration) -> Result<Self, Error> {
        let connector =
            Connector::new(&url::read(url, Purpose::Standby)?, None)?.with_settings(session::LIMITS);
        Ok(Self {
            reads: SharedConnections::new(&connector, Begin::HeavyRead, POINT_READS),
            max_lag,
            usable_until: watch::Sender::new(None),
            progress: Mutex::default(),
        })
    }

    /// Returns `true` if the lag is small enough now.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable_until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Runs a statement; `None` if it must run on the primary instead.
    pub(crate) async fn read(&self, statement: &Statement, want: Want) -> Option<Result<Answer, Error>> {
        let mut usable_until = self.usable_until.subscribe();
        let answer = tokio::select! {
            answer = self.reads.read(statement, want) => answer,
            // A check has found in the meantime that the standby doesn't answer.
            _ = usable_until.wait_for(Option::is_none) => return None,
        };
        match answer {
            Ok(answer) => Some(Ok(answer)),
            // A statement that is canceled here (57014) would also be too slow on the primary.
            Err(Failure::Refused(Error::Unavailable(what))) if what.starts_with("57014") => {
                Some(Err(Error::Unavailable(what)))
            }
            Err(failure @ (Failure::Disconnected(_) | Failure::Unresponsive(_))) => {
                self.mark_unusable(&failure.into_error().to_string());
                None
            }
            // For instance, a conflict with replay, or a schema that isn't replayed yet.
            Err(failure) => {
                tracing::debug!("reading a report from the primary: {}", failure.into_error());
                None
            }
        }
    }

    /// Checks the standby every second, until the future is dropped.
    pub(crate) async fn watch(&self, primary: Arc<Postgres>) {
        let mut checks: u32 = 0;
        loop {
            checks = checks.saturating_add(1);
            let checked = timeout(CHECK_TIMEOUT, self.check(&primary)).await;
            let checked = checked.unwrap_or_else(|_| Err("the standby doesn't answer".to_owned()));
            match checked {
                Ok(()) => {}
                Err(why) if checks < STARTUP_CHECKS && self.progress().logged_usable.is_none() => {
                    tracing::debug!("the standby can't be used yet: {why}");
                }
                Err(why) => self.mark_unusable(&why),
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    async fn check(&self, primary: &Postgres) -> Result<(), String> {
        let now = Instant::now();
        // Without the primary's position, the measured lag grows.
        if let Ok(Some(written)) =
            position(timeout(CHECK_TIMEOUT / 2, primary.read(sql(PRIMARY_POSITION), Want::First)).await)
        {
            self.progress().record_primary(now, written);
        }
        let answer = self.reads.read(&sql(STANDBY_POSITION), Want::First).await.map_err(Failure::into_error);
        let replayed = position(Ok(answer)).map_err(|error| error.to_string())?;
        let replayed = replayed.ok_or("the server isn't a standby")?;
        let current_at = self.progress().record_standby(replayed);
        let current_at = current_at.ok_or("the lag of the standby is not known yet")?;
        let until = current_at + self.max_lag;
        if until <= Instant::now() {
            return Err(format!("the standby is more than {} s behind", self.max_lag.as_secs()));
        }
        self.usable_until.send_replace(Some(until));
        if self.progress().logged_usable.replace(true) != Some(true) {
            tracing::info!("reports are read from the standby");
        }
        Ok(())
    }

    fn mark_unusable(&self, why: &str) {
        self.usable_until.send_replace(None);
        if self.progress().logged_usable.replace(false) != Some(false) {
            tracing::warn!("reports are read from the primary until the standby can be used: {why}");
        }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        // The state is consistent even after a panic.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the column `position` of the first row, if any.
fn position(
    answer: Result<Result<Answer, Error>, tokio::time::error::Elapsed>,
) -> Result<Option<i64>, Error> {
    let answer = answer.map_err(|_| Error::Unavailable("the server doesn't answer".to_owned()))??;
    answer.rows.first().map(|row| row.get("position")).transpose()
}

impl Progress {
    fn record_primary(&mut self, now: Instant, written: i64) {
        if self.primary.back().is_some_and(|(_, before)| *before > written) {
            // The WAL position went back, for instance because a backup was restored.
            self.primary.clear();
            self.current_at = None;
        }
        if self.primary.len() >= MAX_POSITIONS {
            self.primary.pop_front();
        }
        self.primary.push_back((now, written));
    }

    /// Records the standby's position. Returns the time of the latest primary position that the standby has
    /// reached.
    fn record_standby(&mut self, replayed: i64) -> Option<Instant> {
        while let Some((at, written)) =
            self.primary.front().copied().filter(|(_, written)| *written <= replayed)
        {
            self.current_at = Some(at);
            self.primary.pop_front();
            if self.primary.is_empty() {
                // Kept, to detect a WAL position that goes back.
                self.primary.push_back((at, written));
                break;
            }
        }
        self.current_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_is_as_old_as_what_it_has_replayed() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut progress = Progress::default();
        assert_eq!(progress.record_standby(100), None, "no position of the primary");
        for (second, written) in [(0, 100), (1, 100), (2, 200), (3, 300)] {
            progress.record_primary(at(second), written);
        }
        assert_eq!(progress.record_standby(99), None);
        assert_eq!(progress.record_standby(150), Some(at(1)));
        assert_eq!(progress.record_standby(150), Some(at(1)), "it has stopped");
        assert_eq!(progress.record_standby(300), Some(at(3)));
        assert_eq!(progress.record_standby(300), Some(at(3)), "no new position of the primary");
        progress.record_primary(at(9), 300);
        assert_eq!(progress.record_standby(300), Some(at(9)), "an idle primary");
        progress.record_primary(at(10), 50);
        assert_eq!(progress.record_standby(40), None, "the WAL went back");
        assert_eq!(progress.record_standby(60), Some(at(10)));
        for second in 0..10_000 {
            progress.record_primary(at(second), 1_000);
        }
        assert_eq!(progress.primary.len(), MAX_POSITIONS);
    }
}
