//! Removal of old deliveries.

use kernel::clock::Time;
use kernel::error::Error;

use crate::{Webhooks, store};

/// Deletes up to `max_rows` deliveries and up to `max_rows` events from before a time. Returns the number of
/// deleted deliveries, and whether more may remain.
///
/// # Errors
/// The database fails.
pub async fn remove_before(webhooks: &Webhooks, before: Time, max_rows: i64) -> Result<(u64, bool), Error> {
    let mut tx = webhooks.db.write().await?;
    let removed = store::deliveries::remove_before(&mut tx, before, max_rows).await?;
    let events = store::deliveries::remove_events_before(&mut tx, before, max_rows).await?;
    tx.commit().await?;
    let is_full = |removed: u64| i64::try_from(removed).is_ok_and(|removed| removed >= max_rows);
    Ok((removed, is_full(removed) || is_full(events)))
}
