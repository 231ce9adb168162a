//! Leases: a job that one replica at a time is enough for. Whoever loses one half way harms nothing, because each
//! transaction of such a job looks by itself whether there is still something to do.
//!
//! A lease is kept by a heartbeat, so it ends soon after its process. It goes by the clock that replicas have in common, and a
//! replica whose clock isn't trusted takes none.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::clock_guard::ClockGuard;
use crate::store;
use db::Db;
use kernel::clock::SECOND_MS;
use kernel::error::Error;
use kernel::random::Random;
use metrics::{Job, Jobs};

/// How long a lease holds unless it is renewed, in milliseconds; a replica that dies with it is followed by another after that.
pub const LEASE_MS: i64 = 15 * SECOND_MS;
/// How often it is renewed, and looked whether another's has ended.
const BEAT: Duration = Duration::from_secs(5);

/// Everything that a lease needs; cheap to clone.
#[derive(Clone)]
pub struct Leases {
    db: Db,
    clock_guard: Arc<ClockGuard>,
    random: Random,
    jobs: Arc<Jobs>,
}

impl Leases {
    /// Leases in this database, by the clock that replicas have in common; `jobs` counts them.
    pub fn new(db: &Db, clock_guard: &Arc<ClockGuard>, random: &Random, jobs: &Arc<Jobs>) -> Self {
        let (db, random) = (db.clone(), random.clone());
        Self { db, clock_guard: Arc::clone(clock_guard), random, jobs: Arc::clone(jobs) }
    }

    /// A lease of this job, not taken yet; its holder is another than any before.
    pub fn lease(&self, job: Job) -> Lease {
        let holder = format!("{:032x}", u128::from_be_bytes(self.random.bytes()));
        Lease { leases: self.clone(), job, holder, is_held: AtomicBool::new(false) }
    }
}

/// A job, as one replica would do it.
pub struct Lease {
    leases: Leases,
    job: Job,
    holder: String,
    is_held: AtomicBool,
}

impl Lease {
    /// Takes or renews it; returns `true` if the job is this replica's now.
    ///
    /// # Errors
    /// The database's.
    pub async fn take(&self) -> Result<bool, Error> {
        let taken = if self.leases.clock_guard.is_trusted() { self.try_take().await } else { Ok(false) };
        let is_held = matches!(taken, Ok(true));
        self.is_held.store(is_held, Ordering::Relaxed);
        if !is_held {
            self.leases.jobs.of(self.job).note_lease(None);
        }
        taken
    }

    async fn try_take(&self) -> Result<bool, Error> {
        let (now, job) = (self.leases.clock_guard.shared_now(), self.job.as_str());
        let (until, never) = (now.plus_ms(LEASE_MS), now.plus_ms(2 * LEASE_MS));
        // Most replicas wait for another, and write nothing meanwhile.
        let mut read = self.leases.db.read().await?;
        if store::job_leases::is_anothers(&mut read, job, &self.holder, now, never).await? {
            return Ok(false);
        }
        let mut tx = self.leases.db.write().await?;
        let taken = store::job_leases::take(&mut tx, job, &self.holder, now, until, never).await?;
        tx.commit().await?;
        self.leases.jobs.of(self.job).note_lease(taken.then_some(until));
        Ok(taken)
    }

    /// Does this work if the job is this replica's, and keeps the lease as long as that takes. None when another replica has it,
    /// or took it over meanwhile: then the work was given up.
    ///
    /// # Errors
    /// The lease can't be asked for.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<Option<T>, Error> {
        if !self.take().await? {
            return Ok(None);
        }
        let lost = async {
            loop {
                sleep(BEAT).await;
                // While the database can't be asked nobody else can take it either.
                if matches!(self.take().await, Ok(false)) {
                    return;
                }
            }
        };
        let work = pin!(work);
        tokio::select! {
            done = work => Ok(Some(done)),
            () = lost => Ok(None),
        }
    }

    /// Waits for the job's next turn: so long, or until the lease of another replica has ended. It is kept meanwhile, and taken
    /// while the server `is_ready`.
    pub async fn next_turn(&self, after: Duration, is_ready: impl Fn() -> bool) {
        let until = Instant::now() + after;
        while Instant::now() < until {
            sleep(BEAT).await;
            let was_held = self.is_held.load(Ordering::Relaxed);
            if is_ready() && matches!(self.take().await, Ok(true)) && !was_held {
                return;
            }
        }
    }
}
