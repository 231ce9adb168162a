//! Leases: a job that one replica at a time is enough for. Whoever loses one half way harms nothing, because each
//! transaction of such a job looks by itself whether there is still something to do.

use crate::app::App;
use crate::clock::MINUTE_MS;
use crate::error::Error;
use crate::metrics::Job;
use crate::random::Random;
use crate::store;

/// How long a lease holds unless it is renewed, in milliseconds; a replica that dies with it is followed by another after that.
pub const LEASE_MS: i64 = 5 * MINUTE_MS;

/// A job, as one replica would do it.
#[derive(Clone, Debug)]
pub struct Lease {
    job: Job,
    holder: String,
}

impl Lease {
    /// For a replica that has just started: its holder is nobody else.
    pub fn new(job: Job, random: &Random) -> Self {
        Self { job, holder: format!("{:032x}", u128::from_be_bytes(random.bytes())) }
    }

    /// Takes or renews it; whether the job is this replica's now.
    pub async fn take(&self, app: &App) -> Result<bool, Error> {
        let now = app.clock.now();
        let mut tx = app.db.write().await?;
        let (until, never) = (now.plus_ms(LEASE_MS), now.plus_ms(2 * LEASE_MS));
        let taken =
            store::job_leases::take(&mut tx, self.job.as_str(), &self.holder, now, until, never).await?;
        tx.commit().await?;
        app.metrics.jobs.of(self.job).note_lease(taken.then_some(until));
        Ok(taken)
    }
}
