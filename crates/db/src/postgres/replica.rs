//! A standby that reports are read from, as long as it is near enough behind the primary.
//!
//! How far it is behind needs no clock but ours: the primary's position in its log is noted with the time, and what the standby
//! has replayed up to that position holds everything that was committed by then. As it is looked at once a second, a standby
//! that keeps up counts as behind by up to that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connect::Connector;
use super::shared::Shared;
use super::url::{self, Purpose};
use super::{Failure, POINT_READS, Postgres, SESSION_LIMITS};
use crate::Error;
use crate::statement::{Answer, Statement, Want, sql};

/// How often the standby is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a look may take.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// Looks that may fail at the start before anybody is told: not everything is up at the same instant.
const STARTING: u32 = 5;
/// Positions of the primary that are remembered: an hour's, the longest lag that can be allowed.
const REMEMBERED: usize = 3_700;

/// How far the primary's log has been written, in bytes.
const WRITTEN: &str = "SELECT CAST(pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS BIGINT) AS position";
/// How far the standby has replayed it; nothing on a server that is none.
const REPLAYED: &str = "SELECT CAST(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') AS BIGINT) AS position
     WHERE pg_is_in_recovery() AND pg_last_wal_replay_lsn() IS NOT NULL";

/// The standby, and what is known of it.
pub(crate) struct Replica {
    reads: Shared,
    most_lag: Duration,
    /// Up to when it is near enough behind, unless a look before that finds it to be so for longer; `None`: it isn't.
    good_until: watch::Sender<Option<Instant>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When the primary was where in its log, the oldest first.
    primary: VecDeque<(Instant, i64)>,
    /// When the primary was where the standby is now, at the earliest.
    reached: Option<Instant>,
    /// What the log was told last: whether reports are read here.
    told: Option<bool>,
}

impl Replica {
    /// Reads the URL; connects to nothing yet.
    pub(crate) fn new(url: &str, most_lag: Duration) -> Result<Self, Error> {
        let connector = Connector::new(&url::read(url, Purpose::Replica)?)?.with_options(SESSION_LIMITS);
        Ok(Self {
            reads: Shared::new(&connector, POINT_READS),
            most_lag,
            good_until: watch::Sender::new(None),
            seen: Mutex::default(),
        })
    }

    /// Whether it is near enough behind the primary now.
    pub(crate) fn is_good(&self) -> bool {
        self.good_until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Runs a statement here. `None`: the primary has to be asked.
    pub(crate) async fn read(&self, statement: &Statement, want: Want) -> Option<Result<Answer, Error>> {
        let mut good_until = self.good_until.subscribe();
        let answer = tokio::select! {
            answer = self.reads.read_alone(statement, want) => answer,
            // Nobody waits for a standby of which the look has found that it doesn't answer.
            _ = good_until.wait_for(Option::is_none) => return None,
        };
        match answer {
            Ok(answer) => Some(Ok(answer)),
            // What takes too long here would take too long there as well.
            Err(Failure::Refused(Error::Unavailable(what))) if what.starts_with("57014") => {
                Some(Err(Error::Unavailable(what)))
            }
            Err(failure @ (Failure::Gone(_) | Failure::Silent(_))) => {
                self.is_bad(&failure.into_error().to_string());
                None
            }
            // Such as a conflict with what it replays, or a schema that it hasn't got yet.
            Err(failure) => {
                tracing::debug!("a report is read from the primary: {}", failure.into_error());
                None
            }
        }
    }

    /// Looks at the standby once a second until it is dropped.
    pub(crate) async fn watch(&self, primary: Arc<Postgres>) {
        let mut looks: u32 = 0;
        loop {
            looks = looks.saturating_add(1);
            let looked = timeout(LOOK_PATIENCE, self.look(&primary)).await;
            let looked = looked.unwrap_or_else(|_| Err("the replica doesn't answer".to_owned()));
            match looked {
                Ok(()) => {}
                Err(why) if looks < STARTING && self.seen().told.is_none() => {
                    tracing::debug!("the replica can't be used yet: {why}");
                }
                Err(why) => self.is_bad(&why),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&self, primary: &Postgres) -> Result<(), String> {
        let now = Instant::now();
        // Without the primary nothing new is known, and what is known grows old.
        if let Ok(Some(written)) =
            position(timeout(LOOK_PATIENCE / 2, primary.read(sql(WRITTEN), Want::First)).await)
        {
            self.seen().primary_is_at(now, written);
        }
        let answer = self.reads.read(sql(REPLAYED), Want::First).await.map_err(Failure::into_error);
        let replayed = position(Ok(answer)).map_err(|error| error.to_string())?;
        let replayed = replayed.ok_or("the replica is no standby")?;
        let reached = self.seen().standby_is_at(replayed);
        let reached = reached.ok_or("how far the replica is behind is not known yet")?;
        let until = reached + self.most_lag;
        if until <= Instant::now() {
            return Err(format!("the replica is more than {} s behind", self.most_lag.as_secs()));
        }
        self.good_until.send_replace(Some(until));
        if self.seen().told.replace(true) != Some(true) {
            tracing::info!("reports are read from the replica");
        }
        Ok(())
    }

    fn is_bad(&self, why: &str) {
        self.good_until.send_replace(None);
        if self.seen().told.replace(false) != Some(false) {
            tracing::warn!("reports are read from the primary until the replica can be used: {why}");
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // A panic between whole operations leaves nothing half done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one number of an answer, where there is one.
fn position(
    answer: Result<Result<Answer, Error>, tokio::time::error::Elapsed>,
) -> Result<Option<i64>, Error> {
    let answer = answer.map_err(|_| Error::Unavailable("the server doesn't answer".to_owned()))??;
    answer.rows.first().map(|row| row.get("position")).transpose()
}

impl Seen {
    fn primary_is_at(&mut self, now: Instant, written: i64) {
        if self.primary.back().is_some_and(|(_, before)| *before > written) {
            // Another history than before, such as a restored backup's.
            self.primary.clear();
            self.reached = None;
        }
        if self.primary.len() >= REMEMBERED {
            self.primary.pop_front();
        }
        self.primary.push_back((now, written));
    }

    /// The newest time at which the primary was no further than this, as far as it is known.
    fn standby_is_at(&mut self, replayed: i64) -> Option<Instant> {
        while let Some((at, written)) =
            self.primary.front().copied().filter(|(_, written)| *written <= replayed)
        {
            self.reached = Some(at);
            self.primary.pop_front();
            if self.primary.is_empty() {
                // Kept, for a history that goes back is seen by it.
                self.primary.push_back((at, written));
                break;
            }
        }
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_as_old_as_what_it_has_replayed() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut seen = Seen::default();
        assert_eq!(seen.standby_is_at(100), None, "nothing is known of the primary");
        for (second, written) in [(0, 100), (1, 100), (2, 200), (3, 300)] {
            seen.primary_is_at(at(second), written);
        }
        assert_eq!(seen.standby_is_at(99), None);
        assert_eq!(seen.standby_is_at(150), Some(at(1)));
        assert_eq!(seen.standby_is_at(150), Some(at(1)), "it has stopped");
        assert_eq!(seen.standby_is_at(300), Some(at(3)));
        assert_eq!(seen.standby_is_at(300), Some(at(3)), "the primary isn't seen any more");
        seen.primary_is_at(at(9), 300);
        assert_eq!(seen.standby_is_at(300), Some(at(9)), "nothing happens");
        seen.primary_is_at(at(10), 50);
        assert_eq!(seen.standby_is_at(40), None, "another history");
        assert_eq!(seen.standby_is_at(60), Some(at(10)));
        for second in 0..10_000 {
            seen.primary_is_at(at(second), 1_000);
        }
        assert_eq!(seen.primary.len(), REMEMBERED);
    }
}
