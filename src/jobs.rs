//! What goes on without a request: changes of other replicas are followed, mail leaves, what has been forgotten is
//! cleaned away, and the books are kept.

pub mod cleanup;
pub mod sweep;

use std::time::Duration;

use crate::app::App;
use billing::{auditing, bookkeeping, expired_reservations, retention};
use catalog::activation as catalog;
use cluster::clock_guard;
use kernel::error::Error;
use kernel::stopwatch::Stopwatch;
use mail::sending;
use metrics::Job;

/// How often the feed of changes is read at least: a change of another replica holds here within a second.
const FEED_INTERVAL: Duration = Duration::from_millis(250);
/// How soon it is read again while change comes upon change: the first after that long holds elsewhere at once, and the others
/// don't cost a reading each.
const MIN_FEED_INTERVAL: Duration = Duration::from_millis(5);

/// How often the last uses of keys are written.
const LAST_USES_INTERVAL: Duration = Duration::from_secs(3);
/// How many keys that concerns at a time. With more keys in use than that within so many seconds, decisions would suffer from
/// the writing: then their last uses are written later.
const MAX_LAST_USES: usize = 100_000;

/// How often reservations are ended whose time is over.
const RESERVATIONS_INTERVAL: Duration = Duration::from_secs(3);

/// How often months and credits are looked at, and whether the books are to be checked.
const BOOKS_INTERVAL: Duration = Duration::from_secs(60);

/// How long to leave the database to others between two slices of old events, and how often to look whether a day has begun.
const RETENTION_SLICE_PAUSE: Duration = Duration::from_millis(100);
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// How soon the catalog file is looked at again while another catalog is in force.
const CATALOG_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How often lapsed leases of request rates are given back: sooner than they count as used.
const LEASES_INTERVAL: Duration = Duration::from_millis(500);

/// Runs every job until [`App::stop`], and then until the mails that are on their way have left. A job that fails says so in
/// the log and goes on at its next turn. All but mail can be dropped at any moment: their transactions are whole or nothing.
pub async fn run(app: App) {
    let others = async {
        // The large ones each in an allocation of its own: in one piece they would cost an idle server 2 MiB, a huge page.
        tokio::join!(
            follow_changes(&app),
            app.db.watch_standby(),
            write_last_uses(&app),
            expire_reservations(&app),
            give_leases_back(&app),
            watch_clock(&app),
            Box::pin(sweep_expired(&app)),
            reload_catalog(&app),
            Box::pin(keep_books(&app)),
            Box::pin(remove_old_data(&app)),
            Box::pin(audit(&app))
        );
    };
    tokio::select! {
        () = Box::pin(send_mail(&app)) => {}
        () = others => {}
    }
}

/// Does a turn of a job and notes how it went.
async fn record_run<T, E>(app: &App, job: Job, turn: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let watch = Stopwatch::start();
    let outcome = turn.await;
    app.metrics.jobs.of(job).note(watch, app.clock.now(), &outcome);
    outcome
}

/// Learns what other replicas have changed: at once where the database can call, and by looking.
async fn follow_changes(app: &App) {
    let wakeups = app.db.wakeups();
    loop {
        let again = tokio::time::Instant::now() + MIN_FEED_INTERVAL;
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Changes, app.feed.catch_up()).await
        {
            tracing::debug!("changes: {error}");
        }
        tokio::time::sleep_until(again).await;
        tokio::select! {
            () = wakeups.next() => {}
            () = tokio::time::sleep(FEED_INTERVAL - MIN_FEED_INTERVAL) => {}
        }
    }
}

/// Sends what is due: at once when this replica put it there, and within a second what another one left.
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

/// Writes what would be lost with the process: the last thing that a server does.
pub async fn finish(app: &App) {
    if let Err(error) = app.keys.last_uses.flush(usize::MAX).await {
        tracing::warn!("the last uses of {} keys are lost: {error}", app.keys.last_uses.len());
    }
    app.keys.rates.give_leases_back(true).await;
}

/// Writes when and from where keys were used last.
async fn write_last_uses(app: &App) {
    loop {
        tokio::time::sleep(LAST_USES_INTERVAL).await;
        if let Err(error) = record_run(app, Job::LastUses, app.keys.last_uses.flush(MAX_LAST_USES)).await {
            tracing::warn!("last uses of keys: {error}");
        }
    }
}

/// Ends reservations that nobody captured, released or extended.
async fn expire_reservations(app: &App) {
    loop {
        tokio::time::sleep(RESERVATIONS_INTERVAL).await;
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Reservations, expired_reservations::expire_due(&app.billing)).await
        {
            tracing::warn!("reservations: {error}");
        }
    }
}

/// Gives other replicas what this one has borrowed of a rate and not used.
async fn give_leases_back(app: &App) {
    loop {
        tokio::time::sleep(LEASES_INTERVAL).await;
        app.keys.rates.give_leases_back(false).await;
    }
}

/// Holds the machine's clock against others.
async fn watch_clock(app: &App) {
    loop {
        if app.frame.is_ready()
            && let Err(error) = app.clock_guard.turn().await
        {
            tracing::debug!("clock: {error}");
        }
        tokio::time::sleep(clock_guard::LOOK_EVERY).await;
    }
}

/// Reads the catalog file again whenever that is wanted: by a signal, by the command, or after a gap in the feed. While another
/// catalog is in force, or the database couldn't say, it looks again by itself.
async fn reload_catalog(app: &App) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = app.catalog.asked() => {}
            () = tokio::time::sleep(CATALOG_RETRY_INTERVAL), if has_failed || app.catalog.is_outdated() => {}
        }
        has_failed = !app.frame.is_ready();
        if app.frame.is_ready()
            && let Err(error) = catalog::reload(&app.catalogs).await
        {
            has_failed = true;
            tracing::warn!("the catalog was not read again: {error}");
        }
    }
}

/// Cleans once a minute.
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

/// Looks once a minute whether a month is to be closed or a credit's time is over.
async fn keep_books(app: &App) {
    let lease = app.leases.lease(Job::Billing);
    loop {
        if app.frame.is_ready()
            && let Err(error) =
                record_run(app, Job::Billing, bookkeeping::run_due(&app.billing, &lease)).await
        {
            tracing::warn!("billing: {error}");
        }
        lease.next_turn(BOOKS_INTERVAL, || app.frame.is_ready()).await;
    }
}

/// Looks once a minute whether the books are to be checked.
async fn audit(app: &App) {
    let lease = app.leases.lease(Job::Audit);
    loop {
        if app.frame.is_ready()
            && let Err(error) = record_run(app, Job::Audit, auditing::run_due(&app.billing, &lease)).await
        {
            tracing::warn!("audit: {error}");
        }
        lease.next_turn(BOOKS_INTERVAL, || app.frame.is_ready()).await;
    }
}

/// Forgets old usage events and removes what would only grow, once a day and not before the service has been up for a while.
async fn remove_old_data(app: &App) {
    let (mut events, mut others) = (retention::Walk::default(), cleanup::Walk::default());
    loop {
        let mut goes_on = false;
        if app.frame.is_ready() {
            let turns = async {
                if app.clock_guard.check_up().is_err() {
                    return Ok(false);
                }
                // What keeps one of them from its work is none of the other's.
                let turns =
                    (retention::turn(&app.billing, &mut events).await, cleanup::turn(app, &mut others).await);
                Ok::<_, Error>(turns.0?.goes_on | turns.1?.goes_on)
            };
            match record_run(app, Job::Retention, turns).await {
                Ok(more) => goes_on = more,
                Err(error) => tracing::warn!("what is old: {error}"),
            }
        }
        tokio::time::sleep(if goes_on { RETENTION_SLICE_PAUSE } else { RETENTION_INTERVAL }).await;
    }
}
