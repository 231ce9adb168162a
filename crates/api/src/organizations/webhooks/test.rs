//! POST `…/webhooks/{webhook_id}/test`

use schemars::JsonSchema;
use serde::Serialize;

use ::webhooks::Webhooks;
use ::webhooks::access::WebhookScope;
use ::webhooks::endpoints;
use idempotency::Uncommitted;
use kernel::error::{Code, Error};
use kernel::ids::{DeliveryId, EventId};
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

/// A test that was queued.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueuedTest {
    /// The id of the test event, which is sent in the header `webhook-id`.
    event_id: EventId,
    /// The id of the test's delivery.
    delivery_id: DeliveryId,
}

pub const TEST: Operation = Operation { errors: &[Code::WebhookDisabled], ..Operation::new("test_webhook") };

/// Test a webhook.
///
/// The webhook receives an event of the type `webhook.test`, even if it isn't subscribed to it. The list of
/// deliveries shows the result.
pub async fn test(
    webhooks: Webhooks,
    scope: WebhookScope,
    _: NoInput,
) -> Result<Uncommitted<Enveloped<QueuedTest>>, Error> {
    let queued = endpoints::test(&webhooks, &scope, None).await?;
    Ok(queued.map(|(event_id, delivery_id)| ok(QueuedTest { event_id, delivery_id })))
}
