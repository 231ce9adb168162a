//! What goes on without a request: changes of other replicas are followed, mail leaves, and what has been forgotten is
//! cleaned away.

pub mod outbox;
pub mod sweep;

use std::time::Duration;

use crate::app::App;
use crate::live::feed;

/// How often the feed of changes is read at least: a change of another replica holds here within a second.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// Runs every job until it is dropped. A job that fails says so in the log and goes on at its next turn.
pub async fn run(app: App) {
    tokio::join!(follow_changes(&app), send_mail(&app), clean(&app));
}

/// Learns what other replicas have changed: at once where the database can call, and by looking.
async fn follow_changes(app: &App) {
    let wakeups = app.db.wakeups();
    loop {
        if app.is_ready()
            && let Err(error) = feed::catch_up(app).await
        {
            tracing::debug!("changes: {error}");
        }
        tokio::select! {
            () = wakeups.next() => {}
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
        }
    }
}

/// Sends what is due: at once when this replica put it there, and within a second what another one left.
async fn send_mail(app: &App) {
    loop {
        if app.is_ready()
            && let Err(error) = outbox::send_due(app).await
        {
            tracing::warn!("mail: {error}");
        }
        tokio::select! {
            () = app.outbox.notified() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Cleans once a minute.
async fn clean(app: &App) {
    let mut ticks = tokio::time::interval(Duration::from_secs(60));
    loop {
        ticks.tick().await;
        if app.is_ready()
            && let Err(error) = sweep::sweep(app).await
        {
            tracing::warn!("sweep: {error}");
        }
    }
}
