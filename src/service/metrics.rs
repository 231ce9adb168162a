//! GET /metrics, for Prometheus; needs the service token.

use crate::access::ServiceScope;
use crate::app::App;
use crate::error::Error;
use crate::input::Nothing;
use crate::reply::PlainText;
use crate::store;

/// The counters of this process and the length of the outbox.
pub async fn metrics(app: App, _: ServiceScope, _: Nothing) -> Result<PlainText, Error> {
    let mut tx = app.db.read().await?;
    let waiting = store::outbox::count(&mut tx).await?;
    Ok(PlainText(app.metrics.render(waiting)))
}
