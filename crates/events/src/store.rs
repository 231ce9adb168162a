//! The SQL for queuing events. The crate `webhooks` owns the tables and makes all other changes to them.

use db::{Lock, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{DeliveryId, EventId, OrganizationId, WebhookId};

use crate::EventType;

/// The statement of `receivers`.
pub const RECEIVERS: &str =
    "SELECT id, event_types FROM webhooks WHERE organization_id = $1 AND is_enabled = 1
     UNION ALL
     SELECT id, event_types FROM webhooks WHERE organization_id IS NULL AND is_enabled = 1
     ORDER BY id";
/// The statement of `receivers_of_installation`.
pub const RECEIVERS_OF_INSTALLATION: &str =
    "SELECT id, event_types FROM webhooks WHERE organization_id IS NULL AND is_enabled = 1 ORDER BY id";

/// Returns the webhooks of an organization, and those of the installation, that subscribe to events of this
/// type.
pub(crate) async fn receivers(
    tx: &mut Tx,
    organization_id: OrganizationId,
    event_type: EventType,
) -> Result<Vec<WebhookId>, db::Error> {
    taking(event_type, sql(RECEIVERS).bind(organization_id).all(tx).await?)
}

/// Returns the webhooks of the installation that subscribe to events of this type.
pub(crate) async fn receivers_of_installation(
    tx: &mut Tx,
    event_type: EventType,
) -> Result<Vec<WebhookId>, db::Error> {
    taking(event_type, sql(RECEIVERS_OF_INSTALLATION).all(tx).await?)
}

fn taking(event_type: EventType, enabled: Vec<(WebhookId, String)>) -> Result<Vec<WebhookId>, db::Error> {
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

/// Returns `true` if an event with this id exists.
pub(crate) async fn has_event(tx: &mut Tx, id: EventId) -> Result<bool, db::Error> {
    let found: Option<(EventId,)> =
        sql("SELECT id FROM webhook_events WHERE id = $1").bind(id).optional(tx).await?;
    Ok(found.is_some())
}

/// Adds an event with the bytes that are signed and sent. For an event without an organization,
/// `organization_id` is an empty text.
pub(crate) async fn insert_event(
    tx: &mut Tx,
    id: EventId,
    (organization_id, event_type): (Option<OrganizationId>, EventType),
    body: Vec<u8>,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO webhook_events (id, organization_id, event_type, body, created_at)
         VALUES ($1, $2, $3, $4, $5)")
    .bind(id)
    .bind(organization_id.map(|id| id.to_string()).unwrap_or_default())
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

/// Takes the lock of the installation's own data. A transaction takes this lock before any other.
pub(crate) async fn lock_installation(tx: &mut Tx) -> Result<(), db::Error> {
    sql("SELECT id FROM installation WHERE id = $1").bind(1_i64).lock(tx, Lock::Change).await?;
    Ok(())
}

/// The statement of `announced`.
pub const ANNOUNCED: &str =
    "SELECT subject FROM operator_announcements WHERE event_type = $1 ORDER BY subject";
/// The statement of `remove_announced_before`.
pub const REMOVE_ANNOUNCED_BEFORE: &str =
    "DELETE FROM operator_announcements WHERE event_type = $1 AND (announced_at <= $2 OR announced_at > $3)";

/// Returns the subjects that were announced by events of this type.
pub(crate) async fn announced(tx: &mut Tx, event_type: EventType) -> Result<Vec<String>, db::Error> {
    let rows: Vec<(String,)> = sql(ANNOUNCED).bind(event_type).all(tx).await?;
    Ok(rows.into_iter().map(|(subject,)| subject).collect())
}

/// Marks a subject as announced; returns `false` if it already was.
pub(crate) async fn announce(
    tx: &mut Tx,
    event_type: EventType,
    subject: &str,
    now: Time,
) -> Result<bool, db::Error> {
    let added =
        sql("INSERT INTO operator_announcements (event_type, subject, announced_at) VALUES ($1, $2, $3)
         ON CONFLICT (event_type, subject) DO NOTHING")
        .bind(event_type)
        .bind(subject)
        .bind(now)
        .execute(tx)
        .await?;
    Ok(added > 0)
}

/// Forgets that a subject was announced.
pub(crate) async fn remove_announced(
    tx: &mut Tx,
    event_type: EventType,
    subject: &str,
) -> Result<(), db::Error> {
    sql("DELETE FROM operator_announcements WHERE event_type = $1 AND subject = $2")
        .bind(event_type)
        .bind(subject)
        .defer(tx)
        .await
}

/// Forgets the subjects that were announced at or before `before`, and those whose time is after `now`
/// because a clock was ahead.
pub(crate) async fn remove_announced_before(
    tx: &mut Tx,
    event_type: EventType,
    before: Time,
    now: Time,
) -> Result<(), db::Error> {
    sql(REMOVE_ANNOUNCED_BEFORE).bind(event_type).bind(before).bind(now).defer(tx).await
}
