//! POST `…/webhooks/{webhook_id}/redeliver`

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use ::webhooks::Webhooks;
use ::webhooks::access::WebhookScope;
use ::webhooks::deliveries;
use idempotency::Uncommitted;
use input::record;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, ok};
use web::route::Operation;

record! {
    /// The range of failed deliveries to repeat.
    #[derive(Debug)]
    pub struct RedeliverFailed in Api {
        /// The earliest time at which a delivery was queued, inclusive.
        since: Time = required,
    }
}

/// The number of deliveries that will be repeated.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Redelivered {
    /// The number of deliveries that will be repeated.
    deliveries: u64,
}

pub const REDELIVER: Operation = Operation {
    errors: &[Code::WebhookDisabled],
    example: r#"{
  "since": "2026-01-31T09:30:00Z"
}"#,
    ..Operation::new("redeliver_failed_events")
};

/// Redeliver failed events.
///
/// Repeats every failed delivery that was queued at or after `since`.
pub async fn redeliver(
    webhooks: Webhooks,
    scope: WebhookScope,
    Body(body): Body<RedeliverFailed>,
) -> Result<Uncommitted<Enveloped<Redelivered>>, Error> {
    let redelivered = deliveries::redeliver_failed(&webhooks, &scope, body.since).await?;
    Ok(redelivered.map(|deliveries| ok(Redelivered { deliveries })))
}
