//! Removes expired rows and cache entries.

use crate::app::App;
use billing::usage_refusals::Timing;
use billing::{reservations, usage_refusals};
use cluster::feed::RETENTION_MS;
use kernel::error::Error;
use mail::sending;

/// Removes expired rows and cache entries, shortens reservations that a fast clock made too long, and queues
/// webhook events for keys that expire soon and for refused usage.
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
    idempotency::remove_expired(&app.api.idempotency).await?;
    sending::sweep(&app.mail).await?;
    webhooks::sending::sweep(&app.webhooks).await?;
    keys::expiring::announce_due(&app.keys).await?;
    usage_refusals::announce(&app.billing, Timing::OnceAnHour).await?;
    payments::jobs::sweep(&app.payments).await?;
    reservations::shorten(&app.billing).await
}
