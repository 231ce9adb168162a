//! `/v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries` and `…/{delivery_id}/redeliver`.

pub mod redeliver;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::paging::{PageInfo, PageQuery};
use ::webhooks::Webhooks;
use ::webhooks::access::WebhookScope;
use ::webhooks::deliveries::{self, Outcome, State};
use input::fields::{Fields, Record};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{DeliveryId, EventId};
use kernel::page::Page;
use tenants::ListPage;
use web::input::Query;
use web::reply::{Enveloped, ok};
use web::route::Operation;

pub use redeliver::redeliver;

/// The query parameters of a list of deliveries.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryQuery {
    pub page: Page,
    pub state: Option<State>,
}

impl Record<Api> for DeliveryQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let state = fields.described("The state of the delivery.").optional::<State>("state");
        Some(Self { page: page?.0, state: state? })
    }
}

/// A page of deliveries.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeliveryPage {
    /// The deliveries of this page.
    deliveries: Vec<WebhookDelivery>,
    #[serde(flatten)]
    page: PageInfo,
}

/// The delivery of an event to a webhook. Of the receiver's response, only the status is stored.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookDelivery {
    /// The delivery's id.
    id: DeliveryId,
    /// The id of the event, which every attempt sends in the header `webhook-id`.
    event_id: EventId,
    /// The type of the event.
    event_type: String,
    /// The state of the delivery.
    state: State,
    /// The number of attempts.
    attempts: i64,
    /// The time of the event.
    created_at: Time,
    /// The time of the next attempt; null unless the delivery is pending.
    next_attempt_at: Option<Time>,
    /// The time of the last attempt; null before the first.
    last_attempt_at: Option<Time>,
    /// The result of the last attempt; null before the first.
    outcome: Option<Outcome>,
    /// The HTTP status of the last response; null if the last attempt got none.
    response_status: Option<i64>,
    /// The duration of the last attempt in milliseconds.
    duration_ms: Option<i64>,
}

impl From<deliveries::Delivery> for WebhookDelivery {
    fn from(row: deliveries::Delivery) -> Self {
        Self {
            id: row.id,
            event_id: row.event_id,
            event_type: row.event_type,
            state: row.state,
            attempts: row.attempts,
            created_at: row.created_at,
            next_attempt_at: (row.state == State::Pending).then_some(row.next_attempt_at),
            last_attempt_at: row.last_attempt_at,
            outcome: row.last_outcome,
            response_status: row.last_status,
            duration_ms: row.last_duration_ms,
        }
    }
}

pub const LIST: Operation =
    Operation { query: &[("state", "failed")], ..Operation::new("list_webhook_deliveries") };

/// List the deliveries of a webhook.
///
/// The newest come first. By default, the server keeps deliveries for 30 days.
pub async fn list(
    webhooks: Webhooks,
    scope: WebhookScope,
    Query(DeliveryQuery { page, state }): Query<DeliveryQuery>,
) -> Result<Enveloped<DeliveryPage>, Error> {
    let ListPage { rows, total } = deliveries::list(&webhooks, &scope, state, page).await?;
    let deliveries = rows.into_iter().map(Into::into).collect();
    Ok(ok(DeliveryPage { deliveries, page: PageInfo::new(total, page) }))
}
