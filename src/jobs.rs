//! Background jobs: the feed of changes, mail and event delivery, removal of expired data, and bookkeeping.

pub mod cleanup;
pub mod sweep;

use std::time::Duration;

use crate::app::App;
use billing::usage_refusals::Timing;
use billing::{
    balance_alerts, bookkeeping, budget_alerts, expired_reservations, exports, retention, scheduled_audit,
    usage_refusals,
};
use catalog::activation as catalog;
use cluster::clock_guard;
use kernel::error::Error;
use kernel::stopwatch::Stopwatch;
use mail::sending;
use metrics::Job;

/// Interval at which the feed is read. Changes from other replicas take effect within a second.
const FEED_INTERVAL: Duration = Duration::from_millis(200);

/// Interval at which the last uses of keys are written.
const LAST_USES_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of keys whose last use is written at a time. Writing more would slow down decisions; the
/// others are written later.
const MAX_LAST_USES: usize = 100_000;

/// Interval at which refused calls and the sums of the call log are written.
const CALL_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which expired reservations are ended.
const RESERVATIONS_INTERVAL: Duration = Duration::from_secs(3);
/// Delay after a failed attempt to end reservations, so that active gateways can first extend theirs when the
/// database comes back.
const RESERVATIONS_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between checks for due payments.
const PAYMENTS_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between checks for crossed thresholds.
const ALERTS_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between checks for months to close, expired credits, and a due audit.
const BOOKS_INTERVAL: Duration = Duration::from_secs(60);

/// Delay between two slices of old data, and interval between checks for a new day.
const RETENTION_SLICE_PAUSE: Duration = Duration::from_millis(100);
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before the catalog file is read again while another catalog is in force.
const CATALOG_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between checks for provider documents that are due for a refresh.
const PROVIDERS_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which unused leases of request rates are returned, before they count as used.
const LEASES_INTERVAL: Duration = Duration::from_millis(500);

/// Runs all jobs until [`App::stop`], then waits for mail and events in delivery. A job that fails logs the
/// error and continues at its next run. All jobs except these two can be dropped at any time: their
/// transactions are atomic.
pub async fn run(app: App) {
    let others = async {
        // The large futures are boxed: together they would cost an idle server 2 MiB, a huge page.
        tokio::join!(
            follow_changes(&app),
            app.db.watch_standby(),
            app.db.watch_primary(),
            write_last_uses(&app),
            expire_reservations(&app),
            return_leases(&app),
            write_call_log(&app),
            watch_clock(&app),
            Box::pin(sweep_expired(&app)),
            reload_catalog(&app),
            Box::pin(refresh_providers(&app)),
            Box::pin(keep_books(&app)),
            Box::pin(send_alerts(&app)),
            Box::pin(settle_payments(&app)),
            Box::pin(remove_old_data(&app)),
            Box::pin(audit(&app)),
            Box::pin(write_exports(&app))
        );
    };
    tokio::select! {
        _ = Box::pin(async { tokio::join!(send_mail(&app), send_events(&app)) }) => {}
        () = others => {}
    }
}

/// Runs a job once and records the result in the metrics.
async fn record_run<T, E>(app: &App, job: Job, turn: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let watch = Stopwatch::start();
    let outcome = turn.await;
    app.metrics.jobs.note(job, watch, app.clock.now(), &outcome);
    outcome
}

/// Applies changes from other replicas.
async fn follow_changes(app: &App) {
    loop {
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Changes, app.feed.catch_up()).await
        {
            tracing::debug!("changes: {error}");
        }
        tokio::time::sleep(FEED_INTERVAL).await;
    }
}

/// Sends due mail: immediately if this replica queued it, within a second otherwise.
async fn send_mail(app: &App) {
    let mail = &app.mail;
    while !mail.is_stopping() {
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Mail, sending::send_due(mail)).await
        {
            tracing::warn!("mail: {error}");
        }
        tokio::select! {
            () = mail.outbox.notified() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Sends due events to webhooks within a second.
async fn send_events(app: &App) {
    let webhooks = &app.webhooks;
    while !webhooks.is_stopping() {
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Webhooks, webhooks::sending::send_due(webhooks)).await
        {
            tracing::warn!("webhooks: {error}");
        }
        tokio::select! {
            () = webhooks.notified() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Saves data that would otherwise be lost when the process exits.
pub async fn finish(app: &App) {
    if let Err(error) = app.keys.last_uses.flush(usize::MAX).await {
        tracing::warn!("the last uses of {} keys are lost: {error}", app.keys.last_uses.len());
    }
    app.keys.rates.return_leases(true).await;
    if let Err(error) = app.billing.call_log.flush().await {
        tracing::warn!("the last refused calls and sums of the call log are lost: {error}");
    }
    if let Err(error) = usage_refusals::announce(&app.billing, Timing::Now).await {
        tracing::warn!("webhook events about the last refused usage are lost: {error}");
    }
}

/// Writes the last uses of keys.
async fn write_last_uses(app: &App) {
    loop {
        tokio::time::sleep(LAST_USES_INTERVAL).await;
        if let Err(error) = record_run(app, Job::LastUses, app.keys.last_uses.flush(MAX_LAST_USES)).await {
            tracing::warn!("last uses of keys: {error}");
        }
    }
}

/// Ends expired reservations.
async fn expire_reservations(app: &App) {
    let mut pause = RESERVATIONS_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        pause = RESERVATIONS_INTERVAL;
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Reservations, expired_reservations::expire_due(&app.billing)).await
        {
            tracing::warn!("reservations: {error}");
            pause = RESERVATIONS_RETRY_INTERVAL;
        }
    }
}

/// Writes refused calls and the sums of the call log.
async fn write_call_log(app: &App) {
    loop {
        tokio::time::sleep(CALL_LOG_INTERVAL).await;
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::CallLog, app.billing.call_log.flush()).await
        {
            tracing::warn!("call log: {error}");
        }
    }
}

/// Returns unused parts of leased request rates to other replicas.
async fn return_leases(app: &App) {
    loop {
        tokio::time::sleep(LEASES_INTERVAL).await;
        app.keys.rates.return_leases(false).await;
    }
}

/// Compares the machine's clock with others.
async fn watch_clock(app: &App) {
    loop {
        if app.frame.is_ready()
            && let Err(error) = app.clock_guard.turn().await
        {
            tracing::debug!("clock: {error}");
        }
        tokio::time::sleep(clock_guard::CHECK_INTERVAL).await;
    }
}

/// Rereads the providers file on request, and refreshes due documents of the providers.
async fn refresh_providers(app: &App) {
    let providers = &app.accounts.providers;
    loop {
        providers.refresh().await;
        tokio::select! {
            () = providers.reload_requested() => {
                if let Err(mistakes) = providers.reload() {
                    tracing::error!("the providers file was rejected, and the providers are unchanged: {mistakes}");
                }
            }
            () = tokio::time::sleep(PROVIDERS_INTERVAL) => {}
        }
    }
}

/// Reloads the catalog file on request: by a signal, a command, or after a gap in the feed. Retries while
/// another catalog is in force, or after a failure.
async fn reload_catalog(app: &App) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = app.catalog.reload_requested() => {}
            () = tokio::time::sleep(CATALOG_RETRY_INTERVAL), if has_failed || app.catalog.is_outdated() => {}
        }
        has_failed = !app.frame.is_ready();
        if app.frame.is_ready()
            && let Err(error) = catalog::reload(&app.catalogs).await
        {
            has_failed = true;
            tracing::warn!("the catalog was not reloaded: {error}");
        }
    }
}

/// Removes expired data every minute.
async fn sweep_expired(app: &App) {
    let mut ticks = tokio::time::interval(Duration::from_secs(60));
    loop {
        ticks.tick().await;
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Sweep, sweep::sweep(app)).await
        {
            tracing::warn!("sweep: {error}");
        }
    }
}

/// Closes due months and ends expired credits. Checks every minute.
async fn keep_books(app: &App) {
    let lease = app.leases.lease(Job::Billing);
    loop {
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Billing, bookkeeping::run_due(&app.billing, &lease)).await
        {
            tracing::warn!("billing: {error}");
        }
        lease.wait_for_turn(BOOKS_INTERVAL, || app.frame.is_ready()).await;
    }
}

/// Queues mail about crossed thresholds of budgets and about low balances.
async fn send_alerts(app: &App) {
    loop {
        tokio::time::sleep(ALERTS_INTERVAL).await;
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Alerts, queue_alerts(app)).await
        {
            tracing::warn!("alerts: {error}");
        }
    }
}

/// Returns the number of budgets and balances for which mail was queued.
async fn queue_alerts(app: &App) -> Result<u64, Error> {
    let budgets = budget_alerts::mail_due(&app.billing, &app.mail.outbox).await?;
    Ok(budgets + balance_alerts::mail_due(&app.billing, &app.mail.outbox).await?)
}

/// Runs due work of payments within a second, or immediately if this replica caused it.
async fn settle_payments(app: &App) {
    let lease = app.leases.lease(Job::Payments);
    while app.payments.is_on() {
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Payments, payments::jobs::run_leased(&app.payments, &lease)).await
        {
            tracing::warn!("payments: {error}");
        }
        tokio::select! {
            () = app.payments.notified() => {}
            () = tokio::time::sleep(PAYMENTS_INTERVAL) => {}
        }
    }
    std::future::pending::<()>().await;
}

/// Audits the books when due. Checks every minute.
async fn audit(app: &App) {
    let lease = app.leases.lease(Job::Audit);
    loop {
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Audit, scheduled_audit::run_due(&app.billing, &lease)).await
        {
            tracing::warn!("audit: {error}");
        }
        lease.wait_for_turn(BOOKS_INTERVAL, || app.frame.is_ready()).await;
    }
}

/// Writes the files in `exports.folder` when due. Checks every minute.
async fn write_exports(app: &App) {
    if app.billing.exports.folder.is_none() {
        return;
    }
    let lease = app.leases.lease(Job::Exports);
    loop {
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Exports, exports::folder::run_due(&app.billing, &lease)).await
        {
            tracing::warn!("exports: {error}");
        }
        lease.wait_for_turn(BOOKS_INTERVAL, || app.frame.is_ready()).await;
    }
}

/// Removes old usage events and other old data daily, once the service has been up for a while.
async fn remove_old_data(app: &App) {
    let (mut events, mut others) = (retention::Progress::default(), cleanup::Progress::default());
    loop {
        let mut has_more = false;
        if app.frame.is_ready() {
            let turns = async {
                if app.clock_guard.check_up().is_err() {
                    return Ok(false);
                }
                // A failure of one must not stop the other.
                let turns =
                    (retention::step(&app.billing, &mut events).await, cleanup::step(app, &mut others).await);
                Ok::<_, Error>(turns.0?.has_more | turns.1?.has_more)
            };
            match record_run(app, Job::Retention, turns).await {
                Ok(more) => has_more = more,
                Err(error) => tracing::warn!("retention: {error}"),
            }
        }
        tokio::time::sleep(if has_more { RETENTION_SLICE_PAUSE } else { RETENTION_INTERVAL }).await;
    }
}
