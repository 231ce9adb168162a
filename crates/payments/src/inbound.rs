//! Receipt of events from Stripe. An event is stored and acknowledged; a job processes it, so nothing is lost
//! if processing fails.

use kernel::error::{Code, Error};
use stripe::{Event, signature};

use crate::Payments;
use crate::counters::Handling;
use crate::store::stripe_events;

/// The types of events that are handled, to be selected in Stripe's dashboard.
pub const EVENT_TYPES: [&str; 15] = [
    "charge.dispute.closed",
    "charge.dispute.created",
    "charge.dispute.funds_reinstated",
    "charge.dispute.funds_withdrawn",
    "charge.refunded",
    "checkout.session.async_payment_failed",
    "checkout.session.async_payment_succeeded",
    "checkout.session.completed",
    "checkout.session.expired",
    "payment_intent.payment_failed",
    "payment_intent.succeeded",
    "payment_method.detached",
    "refund.created",
    "refund.failed",
    "refund.updated",
];

/// Maximum length of a stored id or type, in bytes.
const MAX_WORD_BYTES: usize = 255;

/// Returns the id of the object to read for an event. Refunds and charges are read through their payment.
/// `None` if the event isn't handled.
pub(crate) fn object_id(event: &Event) -> Option<&str> {
    let object = &event.data.object;
    let id = if event.kind.starts_with("refund.") || event.kind == "charge.refunded" {
        object.payment_intent_id()
    } else {
        object.id.as_deref()
    };
    id.filter(|_| EVENT_TYPES.contains(&event.kind.as_str()))
}

/// Stores an event, if the webhook's secret signed it within the last five minutes and its type is handled.
/// The payload isn't trusted: a job reads the object from Stripe.
///
/// # Errors
/// 400 without a valid signature, or for a body that isn't an event; 403 if payments are off; the
/// database fails.
pub async fn receive(payments: &Payments, header: Option<&str>, body: &[u8]) -> Result<(), Error> {
    let processor = payments.processor()?;
    let now = payments.clock.now();
    let checked = signature::verify(header.unwrap_or_default(), body, &processor.webhook_secret, now);
    if let Err(why) = checked {
        if let Some(refused) = payments.counters.refuse_event(payments.clock.steady_ms()) {
            tracing::warn!(refused, "refused events from Stripe, most recently because {why}");
        }
        return Err(Code::InvalidSignature.into());
    }
    let unreadable =
        || Error::new(Code::InvalidJson).param("body").message("The body is not an event of Stripe.");
    let event = Event::parse(body).ok_or_else(unreadable)?;
    let Some(object_id) = object_id(&event) else {
        payments.counters.count_event(Handling::Done);
        return Ok(());
    };
    if [event.id.as_str(), object_id].iter().any(|word| word.len() > MAX_WORD_BYTES) {
        return Err(unreadable());
    }
    let mut tx = payments.db.write().await?;
    let is_new = stripe_events::insert(&mut tx, &event.id, &event.kind, object_id, now).await?;
    tx.commit().await?;
    if is_new {
        payments.counters.count_event(Handling::Received);
        payments.notify_one();
    }
    Ok(())
}
