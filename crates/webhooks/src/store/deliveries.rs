//! The tables `webhook_deliveries` and `webhook_events`.

use db::{Page, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{DeliveryId, EventId, WebhookId};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::client::{Attempt, Outcome};

/// The state of a delivery.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    EnumString,
    IntoStaticStr,
    VariantArray,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "WebhookDeliveryState")]
pub enum State {
    /// Waiting for an attempt, or being sent.
    Pending,
    /// The receiver accepted the event.
    Succeeded,
    /// No more attempts are scheduled.
    Failed,
}

db::words!(State);

/// A delivery, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub id: DeliveryId,
    pub event_id: EventId,
    /// The event type. A later version may have stored a type that this version doesn't support.
    pub event_type: String,
    pub state: State,
    pub is_leased: bool,
    /// The number of attempts.
    pub attempts: i64,
    pub created_at: Time,
    /// Time of the next attempt of a pending delivery, or the end of the lease of one that is being sent.
    pub next_attempt_at: Time,
    pub last_attempt_at: Option<Time>,
    pub last_outcome: Option<Outcome>,
    /// The status of the last attempt's response, if any.
    pub last_status: Option<i64>,
    /// Duration of the last attempt, in milliseconds.
    pub last_duration_ms: Option<i64>,
}

db::row!(Delivery {
    id,
    event_id,
    event_type,
    state,
    is_leased,
    attempts,
    created_at,
    next_attempt_at,
    last_attempt_at,
    last_outcome,
    last_status,
    last_duration_ms
});

impl Delivery {
    /// Returns `true` if a replica is sending it.
    pub fn is_being_sent(&self, now: Time) -> bool {
        self.state == State::Pending && self.is_leased && self.next_attempt_at > now
    }
}

/// The statement of [`list`] for all states.
pub const LIST: &str =
    "SELECT d.id, d.event_id, e.event_type, d.state, d.is_leased, d.attempts, d.created_at, d.next_attempt_at, d.last_attempt_at,
            d.last_outcome, d.last_status, d.last_duration_ms
     FROM webhook_deliveries d /*+ INDEXED BY webhook_deliveries_webhook_id_id */ JOIN webhook_events e ON e.id = d.event_id
     WHERE d.webhook_id = $1 ORDER BY d.id DESC LIMIT $2 OFFSET $3";
/// The statement of [`list`] for one state.
pub const LIST_OF_STATE: &str =
    "SELECT d.id, d.event_id, e.event_type, d.state, d.is_leased, d.attempts, d.created_at, d.next_attempt_at, d.last_attempt_at,
            d.last_outcome, d.last_status, d.last_duration_ms
     FROM webhook_deliveries d /*+ INDEXED BY webhook_deliveries_webhook_id_state_id */ JOIN webhook_events e ON e.id = d.event_id
     WHERE d.webhook_id = $1 AND d.state = $4 ORDER BY d.id DESC LIMIT $2 OFFSET $3";
/// The statement that counts the deliveries of a webhook.
pub const COUNT: &str = "SELECT COUNT(*) FROM webhook_deliveries WHERE webhook_id = $1";
/// The statement that counts the deliveries of one state.
pub const COUNT_OF_STATE: &str =
    "SELECT COUNT(*) FROM webhook_deliveries WHERE webhook_id = $1 AND state = $2";

/// Returns the number of a webhook's deliveries and a page of them, newest first.
pub async fn list(
    tx: &mut Tx,
    webhook_id: WebhookId,
    state: Option<State>,
    page: Page,
) -> Result<(i64, Vec<Delivery>), db::Error> {
    let count = match state {
        None => sql(COUNT).bind(webhook_id),
        Some(state) => sql(COUNT_OF_STATE).bind(webhook_id).bind(state),
    };
    let (total,): (i64,) = count.heavy().one(tx).await?;
    if page.offset() >= total {
        return Ok((total, Vec::new()));
    }
    let statement = sql(if state.is_some() { LIST_OF_STATE } else { LIST })
        .bind(webhook_id)
        .bind(page.page_size)
        .bind(page.offset());
    let statement = match state {
        Some(state) => statement.bind(state),
        None => statement,
    };
    Ok((total, statement.heavy().all(tx).await?))
}

/// Returns a delivery of a webhook.
pub async fn get(tx: &mut Tx, webhook_id: WebhookId, id: DeliveryId) -> Result<Option<Delivery>, db::Error> {
    sql("SELECT d.id, d.event_id, e.event_type, d.state, d.is_leased, d.attempts, d.created_at, d.next_attempt_at, d.last_attempt_at,
                d.last_outcome, d.last_status, d.last_duration_ms
         FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id WHERE d.id = $1 AND d.webhook_id = $2")
    .bind(id)
    .bind(webhook_id)
    .optional(tx)
    .await
}

/// Restarts a delivery to a webhook, due now. A delivery that is being sent is unaffected.
pub async fn begin_anew(
    tx: &mut Tx,
    webhook_id: WebhookId,
    id: DeliveryId,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE webhook_deliveries SET state = 'pending', is_leased = 0, round_attempts = 0, next_attempt_at = $2
         WHERE id = $1 AND webhook_id = $3 AND (is_leased = 0 OR next_attempt_at <= $2)")
    .bind(id)
    .bind(now)
    .bind(webhook_id)
    .defer(tx)
    .await
}

/// Restarts a webhook's failed deliveries that were queued since a time. Returns their number.
pub async fn begin_failed_anew(
    tx: &mut Tx,
    webhook_id: WebhookId,
    since: Time,
    now: Time,
) -> Result<u64, db::Error> {
    // Ids sort by time.
    sql(BEGIN_FAILED_ANEW)
        .bind(webhook_id)
        .bind(DeliveryId::from_parts(since, 0))
        .bind(now)
        .heavy()
        .execute(tx)
        .await
}

/// The statement of [`begin_failed_anew`].
pub const BEGIN_FAILED_ANEW: &str =
    "UPDATE webhook_deliveries SET state = 'pending', is_leased = 0, round_attempts = 0, next_attempt_at = $3
     WHERE webhook_id = $1 AND state = 'failed' AND id >= $2";

/// Gives up the pending deliveries of a webhook.
pub async fn give_up_pending(tx: &mut Tx, webhook_id: WebhookId) -> Result<(), db::Error> {
    sql(GIVE_UP_PENDING).bind(webhook_id).defer(tx).await
}

/// The statement of [`give_up_pending`].
pub const GIVE_UP_PENDING: &str = "UPDATE webhook_deliveries SET state = 'failed', is_leased = 0 WHERE webhook_id = $1 AND state = 'pending'";

/// Deletes all deliveries of a webhook.
pub async fn remove_of(tx: &mut Tx, webhook_id: WebhookId) -> Result<(), db::Error> {
    sql(REMOVE_OF).bind(webhook_id).defer(tx).await
}

/// The statement of [`remove_of`].
pub const REMOVE_OF: &str = "DELETE FROM webhook_deliveries WHERE webhook_id = $1";

/// The statement of [`ready`]. It steps from webhook to webhook through the index of pending deliveries, so
/// the number of deliveries per webhook doesn't matter.
pub const READY: &str = "WITH RECURSIVE receivers (webhook_id) AS (
         SELECT MIN(d.webhook_id) FROM webhook_deliveries d WHERE d.state = 'pending'
         UNION ALL
         SELECT (SELECT MIN(d.webhook_id) FROM webhook_deliveries d WHERE d.state = 'pending' AND d.webhook_id > r.webhook_id)
         FROM receivers r WHERE r.webhook_id IS NOT NULL
     )
     SELECT due.webhook_id FROM (
         SELECT r.webhook_id,
                (SELECT MIN(d.next_attempt_at) FROM webhook_deliveries d
                 WHERE d.webhook_id = r.webhook_id AND d.state = 'pending') AS next_attempt_at,
                (SELECT COUNT(*) FROM webhook_deliveries d
                 WHERE d.webhook_id = r.webhook_id AND d.is_leased = 1 AND d.next_attempt_at > $1) AS leased
         FROM receivers r WHERE r.webhook_id IS NOT NULL
     ) due
     WHERE due.next_attempt_at <= $1 AND due.leased < $2
     ORDER BY due.next_attempt_at, due.webhook_id LIMIT $3";

/// Returns up to `limit` webhooks with a due delivery and fewer than `most` in progress, longest waiting
/// first.
pub async fn ready(tx: &mut Tx, now: Time, most: i64, limit: i64) -> Result<Vec<WebhookId>, db::Error> {
    let ready: Vec<(WebhookId,)> = sql(READY).bind(now).bind(most).bind(limit).all(tx).await?;
    Ok(ready.into_iter().map(|(id,)| id).collect())
}

/// A delivery to send, with its event's body.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub id: DeliveryId,
    pub event_id: EventId,
    /// Number of attempts since the (re)start of the delivery, including this one.
    pub round_attempts: i64,
    /// `None` if the event was deleted.
    pub body: Option<Vec<u8>>,
}

db::row!(Claimed { id, event_id, round_attempts, body });

/// The statement that counts a webhook's deliveries in progress.
pub const LEASED: &str = "SELECT COUNT(*) FROM webhook_deliveries WHERE webhook_id = $1 AND is_leased = 1 AND next_attempt_at > $2";
/// The statement that finds due deliveries of a webhook.
pub const DUE: &str = "SELECT id FROM webhook_deliveries
     WHERE webhook_id = $1 AND state = 'pending' AND next_attempt_at <= $2 ORDER BY next_attempt_at, id LIMIT $3";

/// Leases due deliveries of a webhook, so that at most `most` are in progress. The caller holds the webhook's
/// lock. Other replicas don't claim them before `leased_until`; after that, the holder is presumed dead.
pub async fn claim(
    tx: &mut Tx,
    webhook_id: WebhookId,
    most: i64,
    now: Time,
    leased_until: Time,
) -> Result<Vec<Claimed>, db::Error> {
    let (leased,): (i64,) = sql(LEASED).bind(webhook_id).bind(now).one(tx).await?;
    let places = most.saturating_sub(leased);
    if places <= 0 {
        return Ok(Vec::new());
    }
    let due: Vec<(DeliveryId,)> = sql(DUE).bind(webhook_id).bind(now).bind(places).all(tx).await?;
    let mut claimed = Vec::with_capacity(due.len());
    for (id,) in due {
        sql("UPDATE webhook_deliveries SET is_leased = 1, attempts = attempts + 1, round_attempts = round_attempts + 1,
                    next_attempt_at = $2 WHERE id = $1")
        .bind(id)
        .bind(leased_until)
        .defer(tx)
        .await?;
        claimed.extend(
            sql("SELECT d.id, d.event_id, d.round_attempts, e.body
                 FROM webhook_deliveries d LEFT JOIN webhook_events e ON e.id = d.event_id WHERE d.id = $1")
            .bind(id)
            .optional::<Claimed>(tx)
            .await?,
        );
    }
    Ok(claimed)
}

/// The changes that an attempt makes to a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Attempted {
    pub id: DeliveryId,
    /// The end of the lease under which it was sent.
    pub leased_until: Time,
    pub state: State,
    /// Time of the next attempt of a pending delivery, or else the time of this attempt.
    pub next_attempt_at: Time,
    pub attempt: Attempt,
    pub at: Time,
    pub duration_ms: i64,
}

/// Stores the result of an attempt. Returns `false` if the lease has expired and another replica claimed the
/// delivery, or if it was given up in the meantime.
pub async fn finish(tx: &mut Tx, attempted: &Attempted) -> Result<bool, db::Error> {
    let Attempted { id, leased_until, state, next_attempt_at, attempt, at, duration_ms } = *attempted;
    let changed = sql(
        "UPDATE webhook_deliveries SET state = $3, is_leased = 0, next_attempt_at = $4, last_attempt_at = $5,
                last_outcome = $6, last_status = $7, last_duration_ms = $8
         WHERE id = $1 AND is_leased = 1 AND next_attempt_at = $2",
    )
    .bind(id)
    .bind(leased_until)
    .bind(state)
    .bind(next_attempt_at)
    .bind(at)
    .bind(attempt.outcome)
    .bind(attempt.status.map(i64::from))
    .bind(duration_ms)
    .execute(tx)
    .await?;
    Ok(changed > 0)
}

/// Deletes a delivery.
pub async fn remove(tx: &mut Tx, id: DeliveryId) -> Result<(), db::Error> {
    sql("DELETE FROM webhook_deliveries WHERE id = $1").bind(id).defer(tx).await
}

/// Reschedules deliveries to now if their next attempt is after `latest`, which means that a clock was set
/// back.
pub async fn recall(tx: &mut Tx, now: Time, latest: Time) -> Result<u64, db::Error> {
    sql("UPDATE webhook_deliveries SET next_attempt_at = $1, is_leased = 0 WHERE state = 'pending' AND next_attempt_at > $2")
        .bind(now)
        .bind(latest)
        .execute(tx)
        .await
}

/// Deletes up to `limit` deliveries queued before a time. Returns their number.
pub async fn remove_before(tx: &mut Tx, before: Time, limit: i64) -> Result<u64, db::Error> {
    sql(REMOVE_BEFORE).bind(DeliveryId::from_parts(before, 0)).bind(limit).execute(tx).await
}

/// The statement of [`remove_before`].
pub const REMOVE_BEFORE: &str = "DELETE FROM webhook_deliveries WHERE id IN
     (SELECT id FROM webhook_deliveries WHERE id < $1 ORDER BY id LIMIT $2)";

/// Deletes up to `limit` events from before a time. Returns their number.
pub async fn remove_events_before(tx: &mut Tx, before: Time, limit: i64) -> Result<u64, db::Error> {
    sql(REMOVE_EVENTS_BEFORE).bind(EventId::from_parts(before, 0)).bind(limit).execute(tx).await
}

/// The statement of [`remove_events_before`].
pub const REMOVE_EVENTS_BEFORE: &str = "DELETE FROM webhook_events WHERE id IN
     (SELECT id FROM webhook_events WHERE id < $1 ORDER BY id LIMIT $2)";

/// Returns the number of pending deliveries.
pub async fn count_pending(tx: &mut Tx) -> Result<i64, db::Error> {
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM webhook_deliveries WHERE state = 'pending'").one(tx).await?;
    Ok(count)
}
