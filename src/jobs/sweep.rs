//! Forgets what has run out.

use crate::accounts;
use crate::app::App;
use crate::billing::reservations;
use crate::clock::MINUTE_MS;
use crate::error::Error;
use crate::jobs::outbox::LATEST_MS;
use crate::live::feed::KEEP_MS;
use crate::rules::mail_bounds::WINDOW_MS;
use crate::store;

/// How long a shared rate is kept that nobody uses, in milliseconds: it has been empty for a while by then.
const RATES_KEPT_MS: i64 = 2 * MINUTE_MS;

/// Gives memory and rows back that no rule looks at any more, and takes back what a clock that was ahead has put off.
pub async fn sweep(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    app.limiter.sweep(now);
    app.keys.rates.sweep(now);
    if !app.clock_guard.is_trusted() {
        return Ok(());
    }
    let mut tx = app.db.write().await?;
    store::mail_counters::remove_older_than(&mut tx, now.plus_ms(-WINDOW_MS)).await?;
    accounts::cleanup::remove_expired(&mut tx, now).await?;
    store::changes::remove_older_than(&mut tx, now.plus_ms(-KEEP_MS)).await?;
    store::rate_meters::remove_unused_since(&mut tx, now.plus_ms(-RATES_KEPT_MS)).await?;
    store::outbox::recall(&mut tx, now, now.plus_ms(LATEST_MS)).await?;
    tx.commit().await?;
    reservations::shorten(&app.billing).await
}
