//! GET /metrics, for Prometheus; needs the service token.

use crate::access::ServiceScope;
use crate::app::App;
use crate::error::Error;
use crate::input::Nothing;
use crate::reply::PlainText;
use crate::store;

/// The counters of this process, the length of the outbox, and how far this replica has followed the feed of changes.
pub async fn metrics(app: App, _: ServiceScope, _: Nothing) -> Result<PlainText, Error> {
    let mut tx = app.db.read().await?;
    let waiting = store::outbox::count(&mut tx).await?;
    let newest = store::changes::newest(&mut tx).await?;
    let (position, now) = (app.feed.position(), app.clock.now());
    let (keys, key_bytes) = app.keyring.size();
    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let gauges = [
        ("tollkeeper_mails_waiting", "Mails in the outbox.", waiting),
        ("tollkeeper_changes_position", "The last change that this replica has applied.", position),
        ("tollkeeper_changes_lag", "Changes that this replica has not applied yet.", newest - position),
        (
            "tollkeeper_memory_trusted",
            "1 while the feed is read; 0 while sessions and keys are read on each request.",
            i64::from(app.feed.is_trusted(now)),
        ),
        (
            "tollkeeper_catalog_refused",
            "1 while the catalog file is refused and the catalog before goes on.",
            i64::from(app.catalog.is_refused()),
        ),
        ("tollkeeper_keys_held", "API keys in memory.", i64::try_from(keys).unwrap_or(i64::MAX)),
        ("tollkeeper_keys_held_bytes", "What they take, in bytes, about.", whole(key_bytes)),
    ];
    Ok(PlainText(app.metrics.render(&app.feed, &app.catalog, &gauges)))
}
