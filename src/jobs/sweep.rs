//! Forgets what has run out.

use crate::app::App;
use crate::error::Error;
use crate::rules::throttling::FORGET_MS;
use crate::store;

/// Gives memory and rows back that no rule looks at any more.
pub async fn sweep(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    app.limiter.sweep(now);
    let mut tx = app.db.write().await?;
    store::throttles::remove_older_than(&mut tx, now.plus_ms(-FORGET_MS)).await?;
    store::email_tokens::remove_expired(&mut tx, now).await?;
    tx.commit().await?;
    Ok(())
}
