//! Follows the feed of changes: each commit by any replica invalidates the changed rows in this replica's
//! memory.
//!
//! This replica's own changes are applied by their commit (see `Db::on_commit`), before the response is sent.
//! Changes of other replicas are in the table `changes`. [`Feed::catch_up`] reads it from the last position
//! on and applies each change in order. Applying a change twice does no harm. If positions have a gap, or no
//! position is known, everything is invalidated.
//!
//! On PostgreSQL, a successful read doesn't prove that no change is missing, because an old primary still
//! responds until it detects that it was replaced. For this reason, memory is trusted only while the
//! heartbeat changes as well ([`crate::heartbeat`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::epochs::Epochs;
use crate::heartbeat::{self, Heartbeat};
use db::{Change, Db, Tx};
use kernel::clock::{Clock, HOUR_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};

/// The time for which memory is trusted after a read of the feed, in milliseconds.
pub const TRUST_MS: i64 = 5 * SECOND_MS;
/// The maximum age of the newest heartbeat while memory is trusted, in milliseconds.
pub const FRESH_MS: i64 = 3 * SECOND_MS;
/// The age of a heartbeat at which the next one is due, in milliseconds.
const BEAT_MS: i64 = SECOND_MS;
/// The timeout of a heartbeat, whose commit waits for the standby.
const BEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of times a starting replica checks for another replica's heartbeat, and the pause before each
/// check.
const FIRST_READS: u32 = 25;
const FIRST_READS_PAUSE: Duration = Duration::from_millis(20);
/// The interval between searches for the primary while no heartbeat arrives, in milliseconds.
const LOOK_AGAIN_MS: i64 = 5 * SECOND_MS;
/// Maximum step back of the clock, in milliseconds. After a larger step, memory isn't trusted until the next
/// read.
const STEP_BACK_MS: i64 = SECOND_MS;
/// The time for which a change is kept, in milliseconds. A replica that was suspended for longer starts over.
pub const RETENTION_MS: i64 = HOUR_MS;
/// The maximum number of changes in one read.
const PAGE_SIZE: i64 = 1_000;
/// The timeout of [`Feed::catch_up`], short enough that it is retried before memory loses its trust.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// A change of the catalog in the feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatalogChange {
    /// Another catalog took effect.
    Certain,
    /// Another catalog may have taken effect unnoticed.
    Possible,
}

/// Follows the feed of changes.
pub struct Feed {
    db: Db,
    clock: Clock,
    on_catalog: Box<dyn Fn(CatalogChange) + Send + Sync>,
    /// The numbers of the latest changes, which show whether cached rows are current.
    pub epochs: Arc<Epochs>,
    /// The start of the last successful read, in Unix milliseconds; [`NEVER`] before the first.
    read_at_ms: AtomicI64,
    /// The earliest time, on the steady clock, at which the newest heartbeat can have been made; [`NEVER`]
    /// before the first.
    fresh_at_ms: AtomicI64,
    /// Locked during a read, so that positions only rise.
    follower: Mutex<Follower>,
    position: AtomicI64,
    applied: AtomicU64,
    restarts: AtomicU64,
}

const NEVER: i64 = i64::MIN;

#[derive(Default)]
struct Follower {
    /// The position of the last applied change; `None` before the first read.
    position: Option<i64>,
    /// The content of that change, which distinguishes it from others at its position; `None` if it isn't
    /// known.
    own_change: Option<String>,
    /// The number of the last heartbeat, and the start of the read that found it, on the steady clock.
    heartbeat: Option<(i64, i64)>,
    /// The time of the last search for the primary, on the steady clock.
    looked_again_at_ms: Option<i64>,
    /// `true` once the log has a line about distrusted memory.
    is_distrust_logged: bool,
}

impl Feed {
    /// Returns a feed without a position. Memory isn't trusted until the first read.
    pub fn new(db: Db, clock: Clock, on_catalog: impl Fn(CatalogChange) + Send + Sync + 'static) -> Self {
        Self {
            db,
            clock,
            on_catalog: Box::new(on_catalog),
            epochs: Arc::new(Epochs::new()),
            read_at_ms: AtomicI64::new(NEVER),
            fresh_at_ms: AtomicI64::new(NEVER),
            follower: Mutex::default(),
            position: AtomicI64::new(0),
            applied: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
        }
    }

    /// Returns `true` if cached rows may be used without a query.
    pub fn is_trusted(&self, now: Time) -> bool {
        let age_ms = now.unix_ms().saturating_sub(self.read_at_ms.load(Ordering::SeqCst));
        (-STEP_BACK_MS..TRUST_MS).contains(&age_ms) && self.is_fresh()
    }

    /// Returns `true` if the newest heartbeat is recent enough. Always `true` on SQLite, which needs none.
    fn is_fresh(&self) -> bool {
        !self.db.is_postgres() || self.heartbeat_age_ms() < FRESH_MS
    }

    fn heartbeat_age_ms(&self) -> i64 {
        self.clock.steady_ms().saturating_sub(self.fresh_at_ms.load(Ordering::SeqCst))
    }

    /// Returns the age of the last read, in milliseconds; `None` before the first.
    pub fn age_ms(&self, now: Time) -> Option<i64> {
        let read_at_ms = self.read_at_ms.load(Ordering::SeqCst);
        (read_at_ms != NEVER).then(|| now.unix_ms().saturating_sub(read_at_ms).max(0))
    }

    /// Returns the position of the last applied change; 0 before the first.
    pub fn position(&self) -> i64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Returns the number of changes applied since the start.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Returns the number of times that everything was invalidated since the start, not counting the start
    /// itself.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Applies the changes committed since the last call. Memory is then trusted for [`TRUST_MS`], and on
    /// PostgreSQL only while the heartbeat is younger than [`FRESH_MS`]. If the heartbeat is older than a
    /// second, this makes a new one.
    ///
    /// # Errors
    /// The feed can't be read. The loss of trust in memory is logged once, and so is its return.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let mut follower = self.follower.lock().await;
        let began = self.clock.now();
        let outcome =
            match tokio::time::timeout(CATCH_UP_TIMEOUT, self.read_new(&mut follower)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::new(Code::DatabaseUnavailable)
                    .message("Reading the feed of changes takes too long.")),
            };
        if outcome.is_ok() {
            self.read_at_ms.store(began.unix_ms(), Ordering::SeqCst);
        }
        self.look_for_primary(&mut follower);
        self.log_trust(&mut follower, outcome.as_ref().err());
        outcome
    }

    /// Logs each change of trust once.
    fn log_trust(&self, follower: &mut Follower, error: Option<&Error>) {
        let is_trusted = self.is_trusted(self.clock.now());
        if is_trusted == follower.is_distrust_logged {
            let has_started = self.read_at_ms.load(Ordering::SeqCst) != NEVER;
            match error {
                _ if is_trusted => tracing::info!(
                    position = self.position(),
                    "the feed of changes is read again: memory is trusted"
                ),
                _ if !has_started => return,
                Some(error) => tracing::warn!(
                    "the feed of changes can't be read: until it can, sessions and keys are read from the \
                     database on each request: {error}"
                ),
                None => tracing::warn!(
                    "the database has committed no heartbeat for {} s, so it may not be the primary: sessions and keys are read \
                     on each request, and new connections look for the primary",
                    FRESH_MS / SECOND_MS
                ),
            }
            follower.is_distrust_logged = !is_trusted;
        }
    }

    async fn read_new(&self, follower: &mut Follower) -> Result<(), Error> {
        let read = self.read_once(follower).await?;
        if !self.db.is_postgres() || self.heartbeat_age_ms() < BEAT_MS {
            return Ok(());
        }
        // Freshness depends on the reads and not on the write, because reads may use another connection.
        if self.beat(read.number).await {
            self.read_once(follower).await?;
        } else if self.fresh_at_ms.load(Ordering::SeqCst) == NEVER {
            // Replicas are starting together, and another one is making the first heartbeat.
            for _ in 0..FIRST_READS {
                tokio::time::sleep(FIRST_READS_PAUSE).await;
                self.read_once(follower).await?;
                if self.is_fresh() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Makes new connections look for the primary while no heartbeat arrives.
    fn look_for_primary(&self, follower: &mut Follower) {
        let now_ms = self.clock.steady_ms();
        let is_due = follower.looked_again_at_ms.is_none_or(|at_ms| now_ms - at_ms >= LOOK_AGAIN_MS);
        if !self.is_fresh() && is_due {
            follower.looked_again_at_ms = Some(now_ms);
            self.db.look_again();
        }
    }

    /// Makes a heartbeat. Returns `true` if it was committed.
    async fn beat(&self, number: i64) -> bool {
        let beat = async {
            let mut tx = self.db.write().await?;
            let is_made = heartbeat::beat(&mut tx, number, self.db.timeline().map_or(0, i64::from)).await?;
            tx.commit().await?;
            Ok::<_, db::Error>(is_made)
        };
        match tokio::time::timeout(BEAT_TIMEOUT, beat).await {
            Ok(Ok(is_made)) => is_made,
            Ok(Err(error)) => {
                tracing::debug!("no heartbeat: {error}");
                false
            }
            Err(_) => {
                tracing::debug!("no heartbeat: the commit takes too long");
                false
            }
        }
    }

    /// Reads the heartbeat, and applies the changes up to the position that was read with it.
    async fn read_once(&self, follower: &mut Follower) -> Result<Heartbeat, Error> {
        let began_ms = self.clock.steady_ms();
        let mut tx = self.db.read().await?;
        let read = heartbeat::get(&mut tx, follower.position.unwrap_or_default()).await?;
        self.look_back(follower, &read);
        let before = follower.position;
        self.apply_up_to(&mut tx, follower, &read).await?;
        follower.own_change = match follower.position {
            Some(position) if before != Some(position) => heartbeat::get(&mut tx, position).await?.own_change,
            _ => read.own_change.clone(),
        };
        // Noted after the changes were applied, because without them, memory is no fresher than before.
        self.note_heartbeat(follower, &read, began_ms);
        Ok(read)
    }

    /// Ends trust in memory if the heartbeat is older than the previously read one: this server is then
    /// behind the server of the previous read.
    fn look_back(&self, follower: &Follower, read: &Heartbeat) {
        if let Ok(timeline) = u32::try_from(read.timeline) {
            self.db.note_timeline(timeline);
        }
        if follower.heartbeat.is_some_and(|(number, _)| read.number < number) {
            self.fresh_at_ms.store(NEVER, Ordering::SeqCst);
            self.db.look_again();
        }
    }

    /// Notes whether the heartbeat has changed. If so, it was made after the start of the previous read.
    fn note_heartbeat(&self, follower: &mut Follower, read: &Heartbeat, began_ms: i64) {
        if let Some((number, previous_ms)) = follower.heartbeat
            && read.number > number
        {
            self.fresh_at_ms.store(previous_ms, Ordering::SeqCst);
        }
        follower.heartbeat = Some((read.number, began_ms));
    }

    /// Applies the changes up to the newest. If some are missing, everything is invalidated.
    async fn apply_up_to(&self, tx: &mut Tx, follower: &mut Follower, read: &Heartbeat) -> Result<(), Error> {
        let newest = read.position;
        let Some(position) = follower.position else {
            self.start_at(follower, newest);
            return Ok(());
        };
        // If our position has another change, or the feed ends before it, the feed has another history: a
        // backup was restored, or a failover lost changes that had been readable. The changes that replaced
        // them are unknown.
        let is_other = follower.own_change.is_some()
            && read.own_change.is_some()
            && follower.own_change != read.own_change;
        if is_other || position > newest || !self.read_to(tx, follower, position, newest).await? {
            tracing::warn!(
                position,
                newest,
                "the feed of changes has a gap: everything in memory is read again"
            );
            self.restarts.fetch_add(1, Ordering::Relaxed);
            self.start_at(follower, newest);
        }
        Ok(())
    }

    /// Starts at the newest position and invalidates everything, because earlier changes are unknown. Loads
    /// in progress also become outdated.
    fn start_at(&self, follower: &mut Follower, newest: i64) {
        self.epochs.invalidate_all();
        (self.on_catalog)(CatalogChange::Possible);
        follower.position = Some(newest);
        self.position.store(newest, Ordering::Relaxed);
    }

    /// Applies the changes up to `newest`; returns `false` if one of them is missing because its row was
    /// removed.
    async fn read_to(
        &self,
        tx: &mut Tx,
        follower: &mut Follower,
        mut position: i64,
        newest: i64,
    ) -> Result<bool, Error> {
        while position < newest {
            let page = crate::changes::fetch_after(tx, position, PAGE_SIZE).await?;
            if page.is_empty() {
                return Ok(false);
            }
            for recorded in page {
                if recorded.position != position + 1 {
                    return Ok(false);
                }
                match recorded.change {
                    // Reading the catalog file may be slow, so the feed doesn't wait for it.
                    Some(Change::Catalog) => (self.on_catalog)(CatalogChange::Certain),
                    Some(change) => self.epochs.apply(change),
                    // A change by a newer version, with an unknown subject.
                    None => self.epochs.invalidate_all(),
                }
                position = recorded.position;
                follower.position = Some(position);
                self.position.store(position, Ordering::Relaxed);
                self.applied.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(true)
    }
}
