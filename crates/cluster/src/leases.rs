//! Leases of jobs that run on only one replica at a time. Losing a lease halfway does no harm, because each
//! transaction of such a job checks whether work is left.
//!
//! A lease is renewed by a heartbeat, so it ends soon after its process does. Its times come from the
//! database's clock. A replica whose clock isn't trusted takes no lease.

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

/// The duration of a lease that isn't renewed, in milliseconds. If the replica that has it dies, another one
/// takes over after this time.
pub const LEASE_MS: i64 = 15 * SECOND_MS;
/// The interval at which a lease is renewed, or requested again while another replica has it.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Creates leases; cheap to clone.
#[derive(Clone)]
pub struct Leases {
    db: Db,
    clock_guard: Arc<ClockGuard>,
    random: Random,
    jobs: Arc<Jobs>,
}

impl Leases {
    /// Returns the leases in this database; `jobs` counts them.
    pub fn new(db: &Db, clock_guard: &Arc<ClockGuard>, random: &Random, jobs: &Arc<Jobs>) -> Self {
        let (db, random) = (db.clone(), random.clone());
        Self { db, clock_guard: Arc::clone(clock_guard), random, jobs: Arc::clone(jobs) }
    }

    /// Returns a lease of this job, not taken yet, with a new holder id.
    pub fn lease(&self, job: Job) -> Lease {
        let holder = format!("{:032x}", u128::from_be_bytes(self.random.bytes()));
        Lease { leases: self.clone(), job, holder, is_held: AtomicBool::new(false) }
    }
}

/// A lease of a job.
pub struct Lease {
    leases: Leases,
    job: Job,
    holder: String,
    is_held: AtomicBool,
}

impl Lease {
    /// Takes or renews the lease; returns `true` if this replica has it now.
    ///
    /// # Errors
    /// The database fails.
    pub async fn take(&self) -> Result<bool, Error> {
        let outcome = if self.leases.clock_guard.is_trusted() { self.try_take().await } else { Ok(false) };
        let is_held = matches!(outcome, Ok(true));
        self.is_held.store(is_held, Ordering::Relaxed);
        if !is_held {
            self.leases.jobs.note_lease(self.job, None);
        }
        outcome
    }

    async fn try_take(&self) -> Result<bool, Error> {
        let (clock_guard, job) = (&self.leases.clock_guard, self.job.as_str());
        let until_ms = clock_guard.clock().steady_ms() + LEASE_MS;
        let mut read = self.leases.db.read().await?;
        let (server_time, other_until) = store::job_leases::other(&mut read, job, &self.holder).await?;
        let now = clock_guard.time(server_time);
        let (until, never) = (now.plus_ms(LEASE_MS), now.plus_ms(2 * LEASE_MS));
        // Most replicas are waiting for the lease of another one, and write nothing in the meantime.
        if other_until.is_some_and(|other_until| other_until > now && other_until < never) {
            return Ok(false);
        }
        let mut tx = self.leases.db.write().await?;
        let taken = store::job_leases::take(&mut tx, job, &self.holder, now, until, never).await?;
        tx.commit().await?;
        self.leases.jobs.note_lease(self.job, taken.then_some(until_ms));
        Ok(taken)
    }

    /// Runs `work` if this replica has the lease, and renews the lease in the meantime. Returns `None` if
    /// another replica has it or takes it over, in which case `work` is dropped.
    ///
    /// # Errors
    /// The lease can't be read.
    pub async fn run_with_lease<T>(&self, work: impl Future<Output = T>) -> Result<Option<T>, Error> {
        if !self.take().await? {
            return Ok(None);
        }
        let lost = async {
            loop {
                sleep(HEARTBEAT).await;
                // While the database can't be reached, no other replica can take the lease either.
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

    /// Waits for the job's next turn: for this duration, or until another replica's lease has ended. In the
    /// meantime, renews this replica's lease, and takes a free one while the server `is_ready`.
    pub async fn wait_for_turn(&self, after: Duration, is_ready: impl Fn() -> bool) {
        let until = Instant::now() + after;
        while Instant::now() < until {
            sleep(HEARTBEAT).await;
            let was_held = self.is_held.load(Ordering::Relaxed);
            if is_ready() && matches!(self.take().await, Ok(true)) && !was_held {
                return;
            }
        }
    }
}
