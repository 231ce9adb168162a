//! The feed of changes, followed: what any replica commits is let go of here.
//!
//! A change of this replica's own is applied by its commit (see `Db::on_commit`), before the answer leaves. Those of others
//! stand in the table `changes`; [`Feed::catch_up`] reads on from the last position and applies each, in its order. Applying
//! twice does no harm. Where the order has a gap, or nothing is known of the order, everything is let go of.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::epochs::Epochs;
use db::{Change, Db, Tx};
use kernel::clock::{Clock, HOUR_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};

/// After so long without a reading of the feed, memory is not trusted, in milliseconds.
pub const TRUST_MS: i64 = 5 * SECOND_MS;
/// How far the clock may step back before memory is not trusted until the next reading, in milliseconds.
const STEP_BACK_MS: i64 = SECOND_MS;
/// How old a change gets before its row is removed, in milliseconds: a replica that has slept longer starts over.
pub const KEEP_MS: i64 = HOUR_MS;
/// Changes that are read at a time.
const AT_ONCE: i64 = 1_000;
/// How long one catching up may take: it is tried again sooner than memory loses its trust.
const PATIENCE: Duration = Duration::from_secs(2);

/// News of the catalog in the feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatalogChange {
    /// Another one was put in force.
    Known,
    /// Another one may have been put in force unnoticed.
    Possible,
}

/// How far this replica has followed.
pub struct Feed {
    db: Db,
    clock: Clock,
    on_catalog: Box<dyn Fn(CatalogChange) + Send + Sync>,
    /// The numbers of the last changes, by which memory is judged.
    pub epochs: Arc<Epochs>,
    /// Unix milliseconds at the start of the last good reading; [`NEVER`] before the first.
    read_at_ms: AtomicI64,
    /// One reads at a time, so that positions only go forward.
    follower: Mutex<Follower>,
    position: AtomicI64,
    applied: AtomicU64,
    restarts: AtomicU64,
}

const NEVER: i64 = i64::MIN;

#[derive(Default)]
struct Follower {
    /// The last change that was applied; none before the first reading.
    position: Option<i64>,
    /// `true` once the log says that memory is not trusted.
    told: bool,
}

impl Feed {
    /// Knows no position yet, so nothing is trusted.
    pub fn new(db: Db, clock: Clock, on_catalog: impl Fn(CatalogChange) + Send + Sync + 'static) -> Self {
        Self {
            db,
            clock,
            on_catalog: Box::new(on_catalog),
            epochs: Arc::new(Epochs::new()),
            read_at_ms: AtomicI64::new(NEVER),
            follower: Mutex::default(),
            position: AtomicI64::new(0),
            applied: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
        }
    }

    /// Returns `true` if memory may be used without asking the database.
    pub fn is_trusted(&self, now: Time) -> bool {
        let age_ms = now.unix_ms().saturating_sub(self.read_at_ms.load(Ordering::SeqCst));
        (-STEP_BACK_MS..TRUST_MS).contains(&age_ms)
    }

    /// How old what was last read is, in milliseconds; none before the first reading.
    pub fn age_ms(&self, now: Time) -> Option<i64> {
        let read_at_ms = self.read_at_ms.load(Ordering::SeqCst);
        (read_at_ms != NEVER).then(|| now.unix_ms().saturating_sub(read_at_ms).max(0))
    }

    /// The last change that was applied; 0 before the first.
    pub fn position(&self) -> i64 {
        self.position.load(Ordering::Relaxed)
    }

    /// How many changes were read and applied since the start.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// How often everything was let go of since the start; the start itself doesn't count.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Applies what has been committed since the last time. From then on, for [`TRUST_MS`], memory is trusted.
    ///
    /// # Errors
    /// The feed can't be read. The log says once when that has gone on for too long, and once when it is over.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let mut follower = self.follower.lock().await;
        let began = self.clock.now();
        let outcome =
            match tokio::time::timeout(PATIENCE, self.read_on(&mut follower)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::new(Code::DatabaseUnavailable)
                    .message("Reading the feed of changes takes too long.")),
            };
        match &outcome {
            Ok(()) => {
                self.read_at_ms.store(began.unix_ms(), Ordering::SeqCst);
                if std::mem::take(&mut follower.told) {
                    tracing::info!(
                        position = self.position(),
                        "the feed of changes is read again: memory is trusted"
                    );
                }
            }
            Err(error) => {
                let started = self.read_at_ms.load(Ordering::SeqCst) != NEVER;
                if started
                    && !self.is_trusted(self.clock.now())
                    && !std::mem::replace(&mut follower.told, true)
                {
                    tracing::warn!(
                        "the feed of changes can't be read: sessions and keys are read on each request until it can: {error}"
                    );
                }
            }
        }
        outcome
    }

    async fn read_on(&self, follower: &mut Follower) -> Result<(), Error> {
        let mut tx = self.db.read().await?;
        let newest = crate::changes::newest(&mut tx).await?;
        let Some(position) = follower.position else {
            self.start_at(follower, newest);
            return Ok(());
        };
        // A position that lies ahead is of another database than this, such as a restored backup.
        if position > newest || !self.read_to(&mut tx, follower, position, newest).await? {
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

    /// Nothing is known of what came before: what is held is let go of. Loads that are under way come out as old.
    fn start_at(&self, follower: &mut Follower, newest: i64) {
        self.epochs.drop_everything();
        (self.on_catalog)(CatalogChange::Possible);
        follower.position = Some(newest);
        self.position.store(newest, Ordering::Relaxed);
    }

    /// Applies one change after the other; false when one of them is missing, because its row has been removed.
    async fn read_to(
        &self,
        tx: &mut Tx,
        follower: &mut Follower,
        mut position: i64,
        newest: i64,
    ) -> Result<bool, Error> {
        while position < newest {
            let page = crate::changes::after(tx, position, AT_ONCE).await?;
            if page.is_empty() {
                return Ok(false);
            }
            for recorded in page {
                if recorded.position != position + 1 {
                    return Ok(false);
                }
                match recorded.change {
                    // The file is on a disk, and may be slow: the feed doesn't wait for it.
                    Some(Change::Catalog) => (self.on_catalog)(CatalogChange::Known),
                    Some(change) => self.epochs.apply(change),
                    // From a newer version: what it concerns isn't known.
                    None => self.epochs.drop_everything(),
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
