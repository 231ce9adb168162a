//! Events in organizations, for the webhooks that they have registered (docs/contract/webhooks.md).
//!
//! Other crates call [`emit`] in the transaction that causes an event. It queues a delivery for each webhook
//! that subscribes to the event. Deliveries are sent if and only if this transaction is committed. The crate
//! `webhooks` sends them. `webhooks` depends on `tenants`, so `tenants` can't call it and uses this crate
//! instead.
//!
//! A webhook of the installation receives the events of every organization. [`operator`] has the operator's
//! own events, and [`announcements`] ensures that each of them is sent once.

pub mod announcements;
pub mod data;
pub mod operator;
mod store;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{DeliveryId, EventId, OrganizationId, WebhookId};
use kernel::random::Random;

use crate::data::EventData;

/// The maximum size of a body, in bytes.
pub const MAX_BODY_BYTES: usize = 20_000;

/// The type of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, EnumString, IntoStaticStr, VariantArray)]
pub enum EventType {
    /// A month was closed with an invoice.
    #[serde(rename = "invoice.created")]
    #[strum(serialize = "invoice.created")]
    InvoiceCreated,
    /// An invoice was paid in full.
    #[serde(rename = "invoice.paid")]
    #[strum(serialize = "invoice.paid")]
    InvoicePaid,
    /// An invoice was voided.
    #[serde(rename = "invoice.voided")]
    #[strum(serialize = "invoice.voided")]
    InvoiceVoided,
    /// A credit was added.
    #[serde(rename = "credit.added")]
    #[strum(serialize = "credit.added")]
    CreditAdded,
    /// The rest of a credit has expired.
    #[serde(rename = "credit.expired")]
    #[strum(serialize = "credit.expired")]
    CreditExpired,
    /// A credit expires within a week.
    #[serde(rename = "credit.expiring")]
    #[strum(serialize = "credit.expiring")]
    CreditExpiring,
    /// The balance has fallen below the threshold of its alert.
    #[serde(rename = "balance.low")]
    #[strum(serialize = "balance.low")]
    BalanceLow,
    /// The balance and the credit limit are used up.
    #[serde(rename = "balance.depleted")]
    #[strum(serialize = "balance.depleted")]
    BalanceDepleted,
    /// The balance is no longer low or used up.
    #[serde(rename = "balance.recovered")]
    #[strum(serialize = "balance.recovered")]
    BalanceRecovered,
    /// A budget has reached one of its thresholds.
    #[serde(rename = "budget.threshold_reached")]
    #[strum(serialize = "budget.threshold_reached")]
    BudgetThresholdReached,
    /// The limit of a budget is used up.
    #[serde(rename = "budget.exceeded")]
    #[strum(serialize = "budget.exceeded")]
    BudgetExceeded,
    /// A payment has succeeded.
    #[serde(rename = "payment.succeeded")]
    #[strum(serialize = "payment.succeeded")]
    PaymentSucceeded,
    /// A payment has failed.
    #[serde(rename = "payment.failed")]
    #[strum(serialize = "payment.failed")]
    PaymentFailed,
    /// A bank requires the customer to confirm a charge.
    #[serde(rename = "payment.action_required")]
    #[strum(serialize = "payment.action_required")]
    PaymentActionRequired,
    /// A payment was refunded in full or in part.
    #[serde(rename = "payment.refunded")]
    #[strum(serialize = "payment.refunded")]
    PaymentRefunded,
    /// A payment was disputed, or a dispute was won.
    #[serde(rename = "payment.disputed")]
    #[strum(serialize = "payment.disputed")]
    PaymentDisputed,
    /// The automatic top-up was paused.
    #[serde(rename = "auto_top_up.paused")]
    #[strum(serialize = "auto_top_up.paused")]
    AutoTopUpPaused,
    /// An API key was created.
    #[serde(rename = "api_key.created")]
    #[strum(serialize = "api_key.created")]
    ApiKeyCreated,
    /// An API key got a new secret.
    #[serde(rename = "api_key.rotated")]
    #[strum(serialize = "api_key.rotated")]
    ApiKeyRotated,
    /// An API key expires within a week.
    #[serde(rename = "api_key.expiring")]
    #[strum(serialize = "api_key.expiring")]
    ApiKeyExpiring,
    /// An API key was deleted.
    #[serde(rename = "api_key.deleted")]
    #[strum(serialize = "api_key.deleted")]
    ApiKeyDeleted,
    /// A user became a member of the organization.
    #[serde(rename = "member.added")]
    #[strum(serialize = "member.added")]
    MemberAdded,
    /// A user is no longer a member of the organization.
    #[serde(rename = "member.removed")]
    #[strum(serialize = "member.removed")]
    MemberRemoved,
    /// The audit of the books has found a new discrepancy.
    #[serde(rename = "audit.drift")]
    #[strum(serialize = "audit.drift")]
    AuditDrift,
    /// Reported usage was refused, and isn't counted.
    #[serde(rename = "usage.refused")]
    #[strum(serialize = "usage.refused")]
    UsageRefused,
    /// A catalog file was refused when it was reloaded.
    #[serde(rename = "catalog.refused")]
    #[strum(serialize = "catalog.refused")]
    CatalogRefused,
    /// A test that an owner or an operator requested.
    #[serde(rename = "webhook.test")]
    #[strum(serialize = "webhook.test")]
    WebhookTest,
}

db::words!(EventType);

impl EventType {
    /// The types that a webhook of an organization can subscribe to, in the order of the contract. A test is
    /// sent to any webhook.
    pub const SUBSCRIBABLE: &[Self] = &[
        Self::InvoiceCreated,
        Self::InvoicePaid,
        Self::InvoiceVoided,
        Self::CreditAdded,
        Self::CreditExpiring,
        Self::CreditExpired,
        Self::BalanceLow,
        Self::BalanceDepleted,
        Self::BalanceRecovered,
        Self::BudgetThresholdReached,
        Self::BudgetExceeded,
        Self::PaymentSucceeded,
        Self::PaymentFailed,
        Self::PaymentActionRequired,
        Self::PaymentRefunded,
        Self::PaymentDisputed,
        Self::AutoTopUpPaused,
        Self::ApiKeyCreated,
        Self::ApiKeyRotated,
        Self::ApiKeyExpiring,
        Self::ApiKeyDeleted,
        Self::MemberAdded,
        Self::MemberRemoved,
    ];

    /// The operator's own types, which only webhooks of the installation can subscribe to, in the order of
    /// the contract.
    pub const OPERATOR: &[Self] = &[Self::AuditDrift, Self::UsageRefused, Self::CatalogRefused];

    /// Returns the types that a webhook of the installation can subscribe to, in the order of the contract.
    pub fn of_installation() -> impl Iterator<Item = Self> {
        Self::SUBSCRIBABLE.iter().chain(Self::OPERATOR).copied()
    }
}

impl JsonSchema for EventType {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WebhookEventType".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<_> = Self::SUBSCRIBABLE.iter().map(|of| of.as_str()).collect();
        json_schema!({"type": "string", "title": "WebhookEventType", "enum": words})
    }
}

/// The body of an event, the same for each delivery.
#[derive(Serialize)]
struct Body<'a, D> {
    #[serde(rename = "type")]
    event_type: EventType,
    timestamp: Time,
    data: &'a D,
}

/// Queues an event for the subscribed webhooks of its organization and of the installation. If no webhook
/// subscribes to it, nothing is written.
///
/// # Errors
/// The body is too large, which is impossible, or the database fails.
pub async fn emit<D: EventData>(tx: &mut Tx, data: &D, now: Time, random: &Random) -> Result<(), db::Error> {
    let (organization_id, event_type) = (data.organization_id(), data.event_type());
    let receivers = store::receivers(tx, organization_id, event_type).await?;
    if receivers.is_empty() {
        return Ok(());
    }
    let id = EventId::new(now, random);
    queue(tx, id, (Some(organization_id), event_type), data, &receivers, now, random).await?;
    Ok(())
}

/// Returns `true` if a webhook of the organization or of the installation subscribes to events of this type.
///
/// # Errors
/// The database fails.
pub async fn has_receivers(
    tx: &mut Tx,
    organization_id: OrganizationId,
    event_type: EventType,
) -> Result<bool, db::Error> {
    Ok(!store::receivers(tx, organization_id, event_type).await?.is_empty())
}

/// Queues a test for one webhook; returns the ids of the event and its delivery, or `None` if an event with
/// this id exists.
///
/// # Errors
/// The database fails.
pub async fn emit_test(
    tx: &mut Tx,
    id: EventId,
    data: &data::WebhookTest,
    now: Time,
    random: &Random,
) -> Result<Option<(EventId, DeliveryId)>, Error> {
    if store::has_event(tx, id).await? {
        return Ok(None);
    }
    let of = (data.organization_id, EventType::WebhookTest);
    let deliveries = queue(tx, id, of, data, &[data.webhook_id], now, random).await?;
    let delivery_id =
        deliveries.first().copied().ok_or_else(|| Error::internal("a test without a delivery"))?;
    Ok(Some((id, delivery_id)))
}

async fn queue<D: Serialize>(
    tx: &mut Tx,
    id: EventId,
    (organization_id, event_type): (Option<OrganizationId>, EventType),
    data: &D,
    receivers: &[WebhookId],
    now: Time,
    random: &Random,
) -> Result<Vec<DeliveryId>, db::Error> {
    let body = body(event_type, data, now)?;
    store::insert_event(tx, id, (organization_id, event_type), body, now).await?;
    let mut deliveries = Vec::with_capacity(receivers.len());
    for webhook_id in receivers {
        let delivery_id = DeliveryId::new(now, random);
        store::insert_delivery(tx, delivery_id, *webhook_id, id, now).await?;
        deliveries.push(delivery_id);
    }
    Ok(deliveries)
}

fn body<D: Serialize>(event_type: EventType, data: &D, timestamp: Time) -> Result<Vec<u8>, db::Error> {
    let body = serde_json::to_vec(&Body { event_type, timestamp, data });
    let body = body.map_err(|error| db::Error::Internal(format!("body of an event: {error}")))?;
    if body.len() > MAX_BODY_BYTES {
        return Err(db::Error::Internal(format!("a body of {} bytes is too large", body.len())));
    }
    Ok(body)
}

/// The statements whose plans are checked.
pub mod statements {
    pub use crate::store::{ANNOUNCED, RECEIVERS, RECEIVERS_OF_INSTALLATION, REMOVE_ANNOUNCED_BEFORE};
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::ids::InvoiceId;
    use kernel::money::Nano;

    #[test]
    fn words_are_those_of_the_contract() {
        let words: Vec<_> = EventType::SUBSCRIBABLE.iter().map(|of| of.as_str()).collect();
        assert_eq!(
            words,
            [
                "invoice.created",
                "invoice.paid",
                "invoice.voided",
                "credit.added",
                "credit.expiring",
                "credit.expired",
                "balance.low",
                "balance.depleted",
                "balance.recovered",
                "budget.threshold_reached",
                "budget.exceeded",
                "payment.succeeded",
                "payment.failed",
                "payment.action_required",
                "payment.refunded",
                "payment.disputed",
                "auto_top_up.paused",
                "api_key.created",
                "api_key.rotated",
                "api_key.expiring",
                "api_key.deleted",
                "member.added",
                "member.removed"
            ]
        );
        for of in EventType::VARIANTS {
            assert_eq!(of.as_str().parse(), Ok(*of));
            assert_eq!(serde_json::to_string(of).unwrap(), format!("\"{}\"", of.as_str()));
            let is_operators = EventType::OPERATOR.contains(of);
            let is_subscribable = *of != EventType::WebhookTest && !is_operators;
            assert_eq!(EventType::SUBSCRIBABLE.contains(of), is_subscribable, "{of:?}");
            let is_of_installation = EventType::of_installation().any(|other| other == *of);
            assert_eq!(is_of_installation, *of != EventType::WebhookTest, "{of:?}");
        }
        let words: Vec<_> = EventType::OPERATOR.iter().map(|of| of.as_str()).collect();
        assert_eq!(words, ["audit.drift", "usage.refused", "catalog.refused"]);
    }

    #[test]
    fn body_is_type_time_and_data_with_exact_amounts() {
        let now = Time::from_unix_ms(1_769_851_800_123);
        let data = data::InvoiceChanged {
            change: data::InvoiceChange::Paid,
            organization_id: OrganizationId::from_parts(now, 1),
            invoice_id: InvoiceId::from_parts(now, 2),
            number: 7,
            status: "paid",
            month: "2026-01".to_owned(),
            currency: "EUR".to_owned(),
            amount: Nano::from_units(12_345_678_901_000_000_001),
        };
        let body = String::from_utf8(body(data.event_type(), &data, now).unwrap()).unwrap();
        let (organization_id, invoice_id) = (data.organization_id, data.invoice_id);
        assert_eq!(
            body,
            format!(
                "{{\"type\":\"invoice.paid\",\"timestamp\":\"2026-01-31T09:30:00.123Z\",\
                 \"data\":{{\"organization_id\":\"{organization_id}\",\"invoice_id\":\"{invoice_id}\",\
                 \"number\":7,\"status\":\"paid\",\"month\":\"2026-01\",\"currency\":\"EUR\",\
                 \"amount\":12345678901.000000001}}}}"
            )
        );
    }
}
