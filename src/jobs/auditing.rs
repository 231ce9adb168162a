//! The audit that the servers do by themselves: every so many hours, one replica, never more than half of the time.
//!
//! What it found stands in the database, so that every replica tells the same and a restart forgets nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::app::App;
use crate::audit::{Report, Walk};
use crate::clock::{HOUR_MS, MINUTE_MS, Time};
use crate::error::Error;
use crate::jobs::leases::{LEASE_MS, Lease};
use crate::store;
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
pub async fn run_due(app: &App, lease: &Lease) -> Result<Option<Report>, Error> {
    let every_ms = i64::from(app.config.audit.every_hours) * HOUR_MS;
    if every_ms == 0 || !lease.take(app).await? {
        return Ok(None);
    }
    let now = app.clock.now();
    let Some(state) = store::audit_state::get(&mut app.db.read().await?).await? else {
        let due_at = now.plus_ms(FIRST_AFTER_MS);
        note(app, &AuditState { due_at, ended_at: None, organizations: 0, drifts: 0 }).await?;
        return Ok(None);
    };
    // The configuration may have become more eager since it was planned.
    let due_at = state.ended_at.map_or(state.due_at, |ended_at| ended_at.plus_ms(every_ms).min(state.due_at));
    if due_at > now {
        return Ok(None);
    }
    let Some(report) = walk(app, lease, now).await? else { return Ok(None) };
    let now = app.clock.now();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let organizations = i64::try_from(report.checked.organizations).unwrap_or(i64::MAX);
    let drifts = count(report.drifts.len());
    let due_at = now.plus_ms(every_ms);
    note(app, &AuditState { due_at, ended_at: Some(now), organizations, drifts }).await?;
    tell(&report);
    Ok(Some(report))
}

/// Goes from organization to organization, and rests after each as long as it took; none when another replica has taken over.
async fn walk(app: &App, lease: &Lease, mut leased_at: Time) -> Result<Option<Report>, Error> {
    let mut walk = Walk::default();
    loop {
        let began = Instant::now();
        if !walk.next(app).await? {
            return Ok(Some(walk.finish(app).await?));
        }
        tokio::time::sleep(began.elapsed().min(LONGEST_REST)).await;
        // Well before it ends; and a replica that was asleep for longer has lost it.
        if app.clock.now().unix_ms() - leased_at.unix_ms() >= (LEASE_MS / 2).min(2 * MINUTE_MS) {
            leased_at = app.clock.now();
            if !lease.take(app).await? {
                return Ok(None);
            }
        }
    }
}

async fn note(app: &App, state: &AuditState) -> Result<(), Error> {
    let mut tx = app.db.write().await?;
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
