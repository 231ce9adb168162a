//! Leases: a job that one replica at a time is enough for. Whoever loses one half way harms nothing, because each
//! transaction of such a job looks by itself whether there is still something to do.
//!
//! A lease is kept by a heartbeat, so it ends soon after its process. It goes by the clock that replicas have in common, and a
//! replica whose clock isn't trusted takes none.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::app::App;
use crate::clock::SECOND_MS;
use crate::error::Error;
use crate::metrics::Job;
use crate::random::Random;
use crate::store;

/// How long a lease holds unless it is renewed, in milliseconds; a replica that dies with it is followed by another after that.
pub const LEASE_MS: i64 = 15 * SECOND_MS;
/// How often it is renewed, and looked whether another's has ended.
const BEAT: Duration = Duration::from_secs(5);

/// A job, as one replica would do it.
#[derive(Debug)]
pub struct Lease {
    job: Job,
    holder: String,
    is_held: AtomicBool,
}

impl Lease {
    /// For a replica that has just started: its holder is nobody else.
    pub fn new(job: Job, random: &Random) -> Self {
        let holder = format!("{:032x}", u128::from_be_bytes(random.bytes()));
        Self { job, holder, is_held: AtomicBool::new(false) }
    }

    /// Takes or renews it; whether the job is this replica's now.
    pub async fn take(&self, app: &App) -> Result<bool, Error> {
        let taken = if app.clock_guard.is_trusted() { self.try_take(app).await } else { Ok(false) };
        let is_held = matches!(taken, Ok(true));
        self.is_held.store(is_held, Ordering::Relaxed);
        if !is_held {
            app.metrics.jobs.of(self.job).note_lease(None);
        }
        taken
    }

    async fn try_take(&self, app: &App) -> Result<bool, Error> {
        let (now, job) = (app.clock_guard.shared_now(), self.job.as_str());
        let (until, never) = (now.plus_ms(LEASE_MS), now.plus_ms(2 * LEASE_MS));
        // Most replicas wait for another, and write nothing meanwhile.
        let mut read = app.db.read().await?;
        if store::job_leases::is_anothers(&mut read, job, &self.holder, now, never).await? {
            return Ok(false);
        }
        let mut tx = app.db.write().await?;
        let taken = store::job_leases::take(&mut tx, job, &self.holder, now, until, never).await?;
        tx.commit().await?;
        app.metrics.jobs.of(self.job).note_lease(taken.then_some(until));
        Ok(taken)
    }

    /// Does this work if the job is this replica's, and keeps the lease as long as that takes. None when another replica has it,
    /// or took it over meanwhile: then the work was given up.
    ///
    /// # Errors
    /// The lease can't be asked for.
    pub async fn during<T>(&self, app: &App, work: impl Future<Output = T>) -> Result<Option<T>, Error> {
        if !self.take(app).await? {
            return Ok(None);
        }
        let lost = async {
            loop {
                sleep(BEAT).await;
                // While the database can't be asked nobody else can take it either.
                if matches!(self.take(app).await, Ok(false)) {
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

    /// Waits for the job's next turn: so long, or until the lease of another has ended. Who has it keeps it meanwhile.
    pub async fn next_turn(&self, app: &App, after: Duration) {
        let until = Instant::now() + after;
        while Instant::now() < until {
            sleep(BEAT).await;
            let was_held = self.is_held.load(Ordering::Relaxed);
            if app.is_ready() && matches!(self.take(app).await, Ok(true)) && !was_held {
                return;
            }
        }
    }
}
