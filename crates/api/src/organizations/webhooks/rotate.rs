//! POST `…/webhooks/{webhook_id}/rotate`

use schemars::JsonSchema;
use serde::Serialize;

use ::webhooks::Webhooks;
use ::webhooks::access::WebhookScope;
use ::webhooks::endpoints::{self, Rotated};
use idempotency::Uncommitted;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::WebhookId;
use kernel::version::Expected;
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The new secret of a webhook, and the end of the previous secret.
#[derive(Serialize, JsonSchema)]
pub struct RotatedWebhook {
    /// The webhook's id.
    id: WebhookId,
    /// The new secret.
    secret: String,
    /// The time until which events are also signed with the previous secret.
    previous_secret_ends_at: Time,
}

pub const ROTATE: Operation = Operation::new("rotate_webhook");

/// Rotate the secret of a webhook.
///
/// For 24 hours, events are signed with both secrets, so that receivers can switch. A second rotation within
/// that time ends the oldest secret.
pub async fn rotate(
    webhooks: Webhooks,
    scope: WebhookScope,
    _: NoInput,
) -> Result<Uncommitted<Enveloped<RotatedWebhook>>, Error> {
    let rotated = endpoints::rotate(&webhooks, &scope, &Expected::Any).await?;
    Ok(rotated.map(|Rotated { secret, previous_ends_at }| {
        private(RotatedWebhook {
            id: scope.webhook_id(),
            secret: secret.expose(),
            previous_secret_ends_at: previous_ends_at,
        })
    }))
}
