//! `tollkeeper webhook deliveries`, `tollkeeper webhook redeliver`

use serde::Serialize;

use super::{One, PAGE_SIZE, What, report};
use db::Page;
use kernel::clock::Time;
use kernel::ids::{DeliveryId, EventId};
use trail::Trail;
use webhooks::Webhooks;
use webhooks::deliveries::{self as operations, Delivery, State};
use webhooks::targets::{Target, TargetDelivery};

/// The JSON output for a delivery.
#[derive(Serialize)]
struct DeliveryLine<'a> {
    id: DeliveryId,
    event_id: EventId,
    event_type: &'a str,
    state: &'static str,
    attempts: i64,
    created_at: Time,
    next_attempt_at: Option<Time>,
    last_attempt_at: Option<Time>,
    outcome: Option<&'static str>,
    response_status: Option<i64>,
    duration_ms: Option<i64>,
}

fn print(delivery: &Delivery, as_json: bool) -> Result<(), String> {
    let line = DeliveryLine {
        id: delivery.id,
        event_id: delivery.event_id,
        event_type: &delivery.event_type,
        state: delivery.state.as_str(),
        attempts: delivery.attempts,
        created_at: delivery.created_at,
        next_attempt_at: Some(delivery.next_attempt_at).filter(|_| delivery.state == State::Pending),
        last_attempt_at: delivery.last_attempt_at,
        outcome: delivery.last_outcome.map(|outcome| outcome.word()),
        response_status: delivery.last_status,
        duration_ms: delivery.last_duration_ms,
    };
    report(as_json, &line, || {
        let mut text = format!(
            "{}  {}  {}  {} after {} attempts",
            line.id, line.created_at, line.event_type, line.state, line.attempts
        );
        if let Some(outcome) = line.outcome {
            text += &format!(", {outcome}");
        }
        if let Some(status) = line.response_status {
            text += &format!(" ({status})");
        }
        text
    })
}

/// Prints the newest deliveries of a webhook.
pub async fn list(
    webhooks: &Webhooks,
    One { id, json }: &One,
    state: Option<State>,
    limit: i64,
    trail: &Trail,
) -> Result<(), String> {
    let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
    for page in 1.. {
        let page = Page { page, page_size: PAGE_SIZE };
        let listed = operations::list(webhooks, Target::of_installation(*id, trail), state, page).await;
        let rows = listed.map_err(|error| error.to_string())?.rows;
        for row in rows.iter().take(left) {
            print(row, *json)?;
        }
        left = left.saturating_sub(rows.len());
        if rows.is_empty() || left == 0 {
            break;
        }
    }
    Ok(())
}

/// The JSON output of `redeliver` for all failed deliveries.
#[derive(Serialize)]
struct Redelivered {
    deliveries: u64,
}

/// Redelivers one delivery, or all that failed since a time.
pub async fn redeliver(
    webhooks: &Webhooks,
    One { id, json }: &One,
    what: &What,
    trail: &Trail,
) -> Result<(), String> {
    if let Some(delivery_id) = what.delivery {
        let target = TargetDelivery::of_installation(*id, delivery_id, trail);
        let begun = operations::redeliver(webhooks, target).await.map_err(|error| error.to_string())?;
        let begun = begun.commit().await.map_err(|error| error.to_string())?;
        return print(&begun, *json);
    }
    let since = what.since.ok_or("name a delivery, or a time")?;
    let begun = operations::redeliver_failed(webhooks, Target::of_installation(*id, trail), since).await;
    let deliveries =
        begun.map_err(|error| error.to_string())?.commit().await.map_err(|error| error.to_string())?;
    report(*json, &Redelivered { deliveries }, || {
        format!("A running server delivers {deliveries} events again.")
    })
}
