//! Comparison of Stripe's events with those received. Undelivered events are processed anyway, and the
//! operator is notified of the types that the webhook doesn't receive.

use std::collections::BTreeMap;

use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;
use kernel::ids::{OrganizationId, PaymentId};
use stripe::{Client, Created, Event, WebhookEndpoint};

use crate::Payments;
use crate::inbound::{EVENT_TYPES, object_id};
use crate::rules::verification::{ORGANIZATION_ID, PAYMENT_ID};
use crate::store::findings::{self, Finding};
use crate::store::payments as payment_store;
use crate::store::{customers, stripe_events};

/// The path of the endpoint that receives events.
pub(crate) const PATH: &str = "/v1/billing/stripe/events";
/// Maximum age of events to request, in milliseconds. Stripe keeps them for 30 days.
const KEPT_MS: i64 = 29 * DAY_MS;

/// Undelivered events of one type.
#[derive(Default)]
struct Undelivered {
    count: u64,
    last_id: String,
}

/// Queues undelivered events, and records the types of events that the webhook doesn't receive.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn compare(payments: &Payments, (from, until): (Time, Time)) -> Result<(), Error> {
    let from = from.max(payments.clock.now().plus_ms(-KEPT_MS));
    let undelivered = take(payments, (from, until)).await?;
    for (event_type, Undelivered { count, last_id }) in &undelivered {
        tracing::warn!(
            event_type,
            count,
            last_event_id = last_id,
            "events from Stripe weren't delivered and are processed now: check the webhook in Stripe's dashboard"
        );
    }
    let endpoints = endpoints(payments).await?;
    for event_type in EVENT_TYPES {
        let count = undelivered.get(event_type).map_or(0, |undelivered| undelivered.count);
        if let Some(found) = missing(endpoints.as_deref(), event_type, count) {
            note(payments, event_type, found).await?;
        }
    }
    Ok(())
}

/// Returns why the webhook doesn't receive events of a type; `None` if it does, or if no problem is known.
fn missing(endpoints: Option<&[WebhookEndpoint]>, event_type: &str, undelivered: u64) -> Option<String> {
    match endpoints {
        Some(endpoints) if !endpoints.is_empty() => {
            let is_sent = endpoints.iter().any(|endpoint| endpoint.gets(event_type));
            let ids: Vec<_> = endpoints.iter().map(|endpoint| endpoint.id.as_str()).collect();
            (!is_sent).then(|| format!("it isn't enabled for {}", ids.join(", ")))
        }
        // Events may be forwarded by other means, such as `stripe listen`.
        _ if undelivered == 0 => None,
        Some(_) => Some(format!("no webhook has a URL that ends with {PATH}")),
        None => Some(format!("{undelivered} weren't delivered")),
    }
}

/// Stores undelivered events of an interval that concern our payments, as if they arrived now. Returns them
/// by type.
async fn take(
    payments: &Payments,
    (from, until): (Time, Time),
) -> Result<BTreeMap<String, Undelivered>, Error> {
    let mut undelivered: BTreeMap<String, Undelivered> = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let created = Created {
            from: Some(from.unix_seconds()),
            until: Some(until.unix_seconds()),
            after: after.as_deref(),
        };
        let page = match payments.processor()?.client.events(&EVENT_TYPES, &created).await {
            Err(error) if error.is_forbidden() => {
                tracing::warn!("can't search for undelivered events: {error}");
                break;
            }
            page => page.map_err(|error| payments.failed("comparing events", &error))?,
        };
        for event in &page.data {
            let Some(id) = object_id(event) else { continue };
            let is_known = stripe_events::is_known(&mut payments.db.read().await?, &event.id).await?;
            if is_known || !concerns_payments(payments, event).await? {
                continue;
            }
            let mut tx = payments.db.write().await?;
            stripe_events::insert(&mut tx, &event.id, &event.kind, id, payments.clock.now()).await?;
            tx.commit().await?;
            let of_type = undelivered.entry(event.kind.clone()).or_default();
            of_type.count += 1;
            // The newest event is first.
            if of_type.last_id.is_empty() {
                of_type.last_id.clone_from(&event.id);
            }
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => break,
        }
    }
    if !undelivered.is_empty() {
        payments.notify_one();
    }
    Ok(undelivered)
}

/// Returns `true` if an event is about one of our payments or cards, and not about another use of the
/// account.
async fn concerns_payments(payments: &Payments, event: &Event) -> Result<bool, Error> {
    let object = &event.data.object;
    let mut tx = payments.db.read().await?;
    if let Some(id) = object.metadata.get(PAYMENT_ID) {
        let Some(id) = PaymentId::parse(id) else { return Ok(false) };
        return Ok(payment_store::get(&mut tx, id).await?.is_some());
    }
    if let Some(intent_id) = object.payment_intent_id() {
        return Ok(payment_store::by_intent(&mut tx, intent_id).await?.is_some());
    }
    if let Some(id) = object.metadata.get(ORGANIZATION_ID) {
        let Some(id) = OrganizationId::parse(id) else { return Ok(false) };
        return Ok(customers::get(&mut tx, id).await?.is_some());
    }
    let Some(id) = object.id.as_deref().filter(|_| event.kind.starts_with("payment_method.")) else {
        return Ok(false);
    };
    Ok(customers::by_method(&mut tx, id).await?.is_some())
}

/// Returns the enabled webhook endpoints with our URL; `None` if the key may not read them.
///
/// # Errors
/// Stripe can't be reached.
async fn endpoints(payments: &Payments) -> Result<Option<Vec<WebhookEndpoint>>, Error> {
    match read_endpoints(&payments.processor()?.client).await {
        Ok(endpoints) => Ok(Some(endpoints.into_iter().filter(WebhookEndpoint::is_enabled).collect())),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(payments.failed("reading webhook endpoints", &error)),
    }
}

/// Returns the webhook endpoints with our URL, including disabled ones.
///
/// # Errors
/// Stripe can't be reached, or the key may not read them.
pub(crate) async fn read_endpoints(client: &Client) -> Result<Vec<WebhookEndpoint>, stripe::Error> {
    let mut endpoints = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let created = Created { after: after.as_deref(), ..Created::default() };
        let page = client.webhook_endpoints(&created).await?;
        let last = page.data.last().map(|last| last.id.clone());
        endpoints.extend(page.data.into_iter().filter(leads_here));
        match last {
            Some(last) if page.has_more => after = Some(last),
            _ => return Ok(endpoints),
        }
    }
}

/// Returns `true` if an endpoint's URL is that of the endpoint that receives events.
fn leads_here(endpoint: &WebhookEndpoint) -> bool {
    endpoint.url.trim_end_matches('/').ends_with(PATH)
}

/// Records for the audit a type of event that the webhook doesn't receive.
async fn note(payments: &Payments, event_type: &str, found: String) -> Result<(), Error> {
    tracing::warn!(event_type, "Stripe's webhook doesn't receive all required events: {found}");
    let expected = format!("{event_type} to be sent to the webhook");
    let finding = Finding { object_id: event_type.to_owned(), organization_id: None, expected, found };
    let mut tx = payments.db.write().await?;
    findings::put(&mut tx, &finding, payments.clock.now()).await?;
    Ok(tx.commit().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(events: &[&str]) -> WebhookEndpoint {
        WebhookEndpoint {
            id: "we_1".into(),
            url: format!("https://tollkeeper.example.com{PATH}"),
            status: "enabled".into(),
            enabled_events: events.iter().map(|event| (*event).to_owned()).collect(),
            api_version: None,
            livemode: false,
        }
    }

    #[test]
    fn what_the_webhook_does_not_get_is_missing() {
        let check = |endpoints: Option<&[WebhookEndpoint]>, count| {
            missing(endpoints, "refund.created", count).unwrap_or_default()
        };
        let [all, some, other] = [&["*"][..], &["refund.created"], &["refund.failed"]].map(endpoint);
        for good in [&all, &some] {
            assert_eq!(
                check(Some(std::slice::from_ref(good)), 5),
                "",
                "it was sent, so the network has lost it"
            );
        }
        assert_eq!(check(Some(&[other.clone(), some]), 0), "", "one of two gets it");
        assert_eq!(check(Some(&[other]), 0), "it isn't enabled for we_1");
        assert_eq!([check(Some(&[]), 0), check(None, 0)], ["", ""]);
        assert!(check(Some(&[]), 2).starts_with("no webhook has"));
        assert_eq!(check(None, 2), "2 weren't delivered");
    }

    #[test]
    fn webhook_is_known_by_its_path() {
        let with_url = |url: &str| leads_here(&WebhookEndpoint { url: url.into(), ..endpoint(&[]) });
        assert!(with_url("https://hooks.example.com/v1/billing/stripe/events"));
        assert!(with_url("https://example.com/api/v1/billing/stripe/events/"));
        assert!(!with_url("https://example.com/v1/billing/stripe"));
    }
}
