//! The SQL of queuing. The tables are the crate `webhooks`'s, which changes them otherwise.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{DeliveryId, EventId, OrganizationId, WebhookId};

use crate::EventType;

/// The statement of `receivers`.
pub const RECEIVERS: &str =
    "SELECT id, event_types FROM webhooks WHERE organization_id = $1 AND is_enabled = 1 ORDER BY id";

/// Returns the webhooks of an organization that take events of this type.
pub(crate) async fn receivers(
    tx: &mut Tx,
    organization_id: OrganizationId,
    event_type: EventType,
) -> Result<Vec<WebhookId>, db::Error> {
    let enabled: Vec<(WebhookId, String)> = sql(RECEIVERS).bind(organization_id).all(tx).await?;
    let mut receivers = Vec::with_capacity(enabled.len());
    for (id, event_types) in enabled {
        let words: Vec<String> = serde_json::from_str(&event_types)
            .map_err(|error| db::Error::Internal(format!("the events of a webhook: {error}")))?;
        if words.iter().any(|word| word == event_type.as_str()) {
            receivers.push(id);
        }
    }
    Ok(receivers)
}

/// Returns `true` if there is an event with this id.
pub(crate) async fn has_event(tx: &mut Tx, id: EventId) -> Result<bool, db::Error> {
    let found: Option<(EventId,)> =
        sql("SELECT id FROM webhook_events WHERE id = $1").bind(id).optional(tx).await?;
    Ok(found.is_some())
}

/// Adds an event with the bytes that are signed and sent.
pub(crate) async fn insert_event(
    tx: &mut Tx,
    id: EventId,
    (organization_id, event_type): (OrganizationId, EventType),
    body: Vec<u8>,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO webhook_events (id, organization_id, event_type, body, created_at)
         VALUES ($1, $2, $3, $4, $5)")
    .bind(id)
    .bind(organization_id)
    .bind(event_type)
    .bind(body)
    .bind(now)
    .defer(tx)
    .await
}

/// Adds a delivery that is due now.
pub(crate) async fn insert_delivery(
    tx: &mut Tx,
    id: DeliveryId,
    webhook_id: WebhookId,
    event_id: EventId,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO webhook_deliveries (id, webhook_id, event_id, state, created_at, next_attempt_at)
         VALUES ($1, $2, $3, 'pending', $4, $4)")
    .bind(id)
    .bind(webhook_id)
    .bind(event_id)
    .bind(now)
    .defer(tx)
    .await
}
