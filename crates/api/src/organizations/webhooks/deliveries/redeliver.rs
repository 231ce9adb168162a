//! POST `…/deliveries/{delivery_id}/redeliver`

use super::WebhookDelivery;
use ::webhooks::Webhooks;
use ::webhooks::access::DeliveryScope;
use ::webhooks::deliveries;
use idempotency::Uncommitted;
use kernel::error::{Code, Error};
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

pub const REDELIVER: Operation =
    Operation { errors: &[Code::WebhookDisabled], ..Operation::new("redeliver_event") };

/// Deliver an event again.
///
/// The event keeps its id. Has no effect on a delivery that is being sent.
pub async fn redeliver(
    webhooks: Webhooks,
    scope: DeliveryScope,
    _: NoInput,
) -> Result<Uncommitted<Enveloped<WebhookDelivery>>, Error> {
    let redelivered = deliveries::redeliver(&webhooks, &scope).await?;
    Ok(redelivered.map(|delivery| ok(delivery.into())))
}
