//! The table `job_leases`: the replica that runs each job.

use std::sync::LazyLock;

use db::{SERVER_TIME, Tx, sql};
use kernel::clock::Time;

static OTHER: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {SERVER_TIME}, (SELECT leased_until FROM job_leases WHERE job = $1 AND holder <> $2)")
});

/// Returns the server's time, and the end of another holder's lease, if one has it.
pub async fn other(tx: &mut Tx, job: &str, holder: &str) -> Result<(Option<Time>, Option<Time>), db::Error> {
    sql(OTHER.as_str()).bind(job).bind(holder).one(tx).await
}

/// Takes or renews the lease of a job; returns `true` if `holder` has it now. Another holder's lease is
/// respected until it ends. A lease that ends at or after `never` is ignored: it was taken before a clock was
/// set back.
pub async fn take(
    tx: &mut Tx,
    job: &str,
    holder: &str,
    now: Time,
    until: Time,
    never: Time,
) -> Result<bool, db::Error> {
    let taken = sql("INSERT INTO job_leases (job, holder, leased_until) VALUES ($1, $2, $3)
         ON CONFLICT (job) DO UPDATE SET holder = excluded.holder, leased_until = excluded.leased_until
         WHERE job_leases.holder = excluded.holder OR job_leases.leased_until <= $4
            OR job_leases.leased_until >= $5")
    .bind(job)
    .bind(holder)
    .bind(until)
    .bind(now)
    .bind(never)
    .execute(tx)
    .await?;
    Ok(taken == 1)
}
