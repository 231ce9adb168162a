//! POST /console/organizations/{organization_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver

use api::gate::Visit;
use kernel::error::Error;
use web::input::NoInput;
use webhooks::access::DeliveryScope;
use webhooks::deliveries;

use crate::console::Console;
use crate::notices::Done;
use crate::organizations::webhooks::webhook_link;
use crate::page::Page;

/// Deliver an event again. Sending the form twice has no further effect, because the delivery is already
/// pending.
pub async fn create(console: Console, visit: Visit<DeliveryScope>, _: NoInput) -> Result<Page, Error> {
    deliveries::redeliver(&console.webhooks, &visit.scope).await?.commit().await?;
    let link = webhook_link(&console, &visit.scope.webhook);
    Page::done(&format!("{link}/deliveries"), Done::DeliveryBegun)
}
