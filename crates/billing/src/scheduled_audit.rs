//! The regular audit. One replica runs it every `audit.every_hours` hours. After each organization, it pauses
//! for as long as the check took.
//!
//! The result is stored in the database, so that all replicas report the same and a restart loses nothing.
//! The same transaction queues the events about new drifts for the operator's webhooks.

use std::time::Duration;

use tokio::time::Instant;

use crate::audit::{FullAudit, Report};
use crate::{Billing, audit_events, store};
use cluster::leases::Lease;
use kernel::clock::HOUR_MS;
use kernel::error::Error;

use crate::store::audit_state::AuditState;

/// Delay of the first audit after the first start, in milliseconds, because a new installation is busy.
const FIRST_DELAY_MS: i64 = HOUR_MS;
/// Maximum number of drifts that are logged one by one.
const MAX_LOGGED_DRIFTS: usize = 20;
/// Maximum pause between two organizations.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Runs the audit if it is due and no other replica runs it. Returns its report, if it ran to the end.
///
/// # Errors
/// The database fails. The audit starts over at the next call.
pub async fn run_due(billing: &Billing, lease: &Lease) -> Result<Option<Report>, Error> {
    let every_ms = i64::from(billing.audit.every_hours) * HOUR_MS;
    if every_ms == 0 {
        return Ok(None);
    }
    lease.run_with_lease(Box::pin(run(billing, every_ms))).await?.unwrap_or(Ok(None))
}

async fn run(billing: &Billing, every_ms: i64) -> Result<Option<Report>, Error> {
    let now = billing.clock.now();
    let Some(state) = store::audit_state::get(&mut billing.db().read().await?).await? else {
        let due_at = now.plus_ms(FIRST_DELAY_MS);
        let mut tx = billing.db().write().await?;
        let state = AuditState { due_at, ended_at: None, organizations: 0, drifts: 0 };
        store::audit_state::put(&mut tx, &state).await?;
        tx.commit().await?;
        return Ok(None);
    };
    // The interval in the configuration may have become shorter.
    let due_at = state.ended_at.map_or(state.due_at, |ended_at| ended_at.plus_ms(every_ms).min(state.due_at));
    if due_at > now {
        return Ok(None);
    }
    let report = check_all(billing).await?;
    let now = billing.clock.now();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let organizations = i64::try_from(report.checked.organizations).unwrap_or(i64::MAX);
    let drifts = count(report.drifts.len());
    let due_at = now.plus_ms(every_ms);
    let state = AuditState { due_at, ended_at: Some(now), organizations, drifts };
    let mut tx = billing.db().write().await?;
    audit_events::announce(&mut tx, &report, now, &billing.random).await?;
    store::audit_state::put(&mut tx, &state).await?;
    tx.commit().await?;
    log_report(&report);
    Ok(Some(report))
}

/// Checks all organizations, and pauses after each for as long as its check took.
async fn check_all(billing: &Billing) -> Result<Report, Error> {
    let mut audit = FullAudit::default();
    loop {
        let began = Instant::now();
        if !audit.check_next(billing).await? {
            return audit.finish(billing).await;
        }
        tokio::time::sleep(began.elapsed().min(MAX_PAUSE)).await;
    }
}

fn log_report(report: &Report) {
    let (organizations, drifts) = (report.checked.organizations, report.drifts.len());
    if report.is_clean() {
        tracing::info!(organizations, "the books were checked: everything adds up");
        return;
    }
    for drift in report.drifts.iter().take(MAX_LOGGED_DRIFTS) {
        tracing::error!("the books don't add up: {drift}");
    }
    tracing::error!(
        organizations,
        drifts,
        "the books were checked and don't add up: run `tollkeeper audit` for all findings, and report them \
         as a bug"
    );
}
