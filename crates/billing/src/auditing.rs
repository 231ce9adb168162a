//! The audit that the servers do by themselves: every so many hours, one replica, never more than half of the time.
//!
//! What it found stands in the database, so that every replica tells the same and a restart forgets nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::Billing;
use crate::audit::{Report, Walk};
use crate::store;
use cluster::leases::Lease;
use kernel::clock::HOUR_MS;
use kernel::error::Error;

use crate::store::audit_state::AuditState;

/// When the first check of all begins after the first start, in milliseconds: who has just installed us has other things to do.
const FIRST_AFTER_MS: i64 = HOUR_MS;
/// Drifts that the log names one by one.
const NAMED: usize = 20;
/// The longest rest between two organizations.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Checks all books if that is due and no other replica is at it; the report, if it came to one.
///
/// # Errors
/// The database's; the check begins anew at the next turn.
pub async fn run_due(billing: &Billing, lease: &Lease) -> Result<Option<Report>, Error> {
    let every_ms = i64::from(billing.audit.every_hours) * HOUR_MS;
    if every_ms == 0 {
        return Ok(None);
    }
    lease.run_with_lease(Box::pin(run(billing, every_ms))).await?.unwrap_or(Ok(None))
}

async fn run(billing: &Billing, every_ms: i64) -> Result<Option<Report>, Error> {
    let now = billing.clock.now();
    let Some(state) = store::audit_state::get(&mut billing.db.read().await?).await? else {
        let due_at = now.plus_ms(FIRST_AFTER_MS);
        note(billing, &AuditState { due_at, ended_at: None, organizations: 0, drifts: 0 }).await?;
        return Ok(None);
    };
    // The configuration may have become more eager since it was planned.
    let due_at = state.ended_at.map_or(state.due_at, |ended_at| ended_at.plus_ms(every_ms).min(state.due_at));
    if due_at > now {
        return Ok(None);
    }
    let report = walk(billing).await?;
    let now = billing.clock.now();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let organizations = i64::try_from(report.checked.organizations).unwrap_or(i64::MAX);
    let drifts = count(report.drifts.len());
    let due_at = now.plus_ms(every_ms);
    note(billing, &AuditState { due_at, ended_at: Some(now), organizations, drifts }).await?;
    tell(&report);
    Ok(Some(report))
}

/// Goes from organization to organization, and rests after each as long as it took.
async fn walk(billing: &Billing) -> Result<Report, Error> {
    let mut walk = Walk::default();
    loop {
        let began = Instant::now();
        if !walk.next(billing).await? {
            return walk.finish(billing).await;
        }
        tokio::time::sleep(began.elapsed().min(LONGEST_REST)).await;
    }
}

async fn note(billing: &Billing, state: &AuditState) -> Result<(), Error> {
    let mut tx = billing.db.write().await?;
    store::audit_state::put(&mut tx, state).await?;
    Ok(tx.commit().await?)
}

fn tell(report: &Report) {
    let (organizations, drifts) = (report.checked.organizations, report.drifts.len());
    if report.is_clean() {
        tracing::info!(organizations, "the books were checked: everything adds up");
        return;
    }
    for drift in report.drifts.iter().take(NAMED) {
        tracing::error!("the books don't add up: {drift}");
    }
    tracing::error!(
        organizations,
        drifts,
        "the books were checked and don't add up: `tollkeeper audit` tells everything, and it is worth a report"
    );
}
