//! Forgets what has run out.

use crate::app::App;
use accounts;
use billing::reservations;
use cluster::feed::RETENTION_MS;
use kernel::error::Error;
use mail::sending;

/// Gives memory and rows back that no rule looks at any more, and takes back what a clock that was ahead has put off.
pub async fn sweep(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    app.limiter.sweep(now);
    app.keys.rates.sweep(now);
    if !app.clock_guard.is_trusted() {
        return Ok(());
    }
    let mut tx = app.db.write().await?;
    accounts::cleanup::remove_expired(&mut tx, now).await?;
    cluster::changes::remove_older_than(&mut tx, now.plus_ms(-RETENTION_MS)).await?;
    tx.commit().await?;
    app.keys.rates.remove_unused().await?;
    sending::sweep(&app.mail).await?;
    reservations::shorten(&app.billing).await
}
