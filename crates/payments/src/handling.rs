//! Processing of Stripe's events. An event only identifies the object to read.

use kernel::error::Error;
use kernel::ids::PaymentId;
use stripe::{CheckoutMode, PaymentIntent};

use crate::rules::verification::PAYMENT_ID;
use crate::store::payments::{self as store, Payment};
use crate::store::stripe_events::StripeEvent;
use crate::{Payments, cards, disputes, refunds, settlement};

/// Processes an event. Idempotent.
///
/// # Errors
/// The event's payment is unknown, possibly only for now; Stripe can't be reached; the database fails. The
/// event is then retried.
pub async fn handle(payments: &Payments, event: &StripeEvent) -> Result<(), Error> {
    let id = event.object_id.as_str();
    match event.event_type.as_str() {
        kind if kind.starts_with("checkout.session.") => session(payments, id).await,
        kind if kind.starts_with("payment_intent.") => intent(payments, id).await,
        kind if kind.starts_with("charge.dispute.") => dispute(payments, id).await,
        "charge.refunded" | "refund.created" | "refund.updated" | "refund.failed" => {
            refund(payments, id).await
        }
        "payment_method.detached" => cards::forget_detached(payments, id).await,
        _ => Ok(()),
    }
}

async fn session(payments: &Payments, id: &str) -> Result<(), Error> {
    let session = payments.processor()?.client.checkout_session(id).await;
    let session = session.map_err(|error| payments.failed("reading a Checkout session", &error))?;
    if session.mode == CheckoutMode::Setup {
        return cards::save_set_up(payments, &session).await;
    }
    match session.metadata.get(PAYMENT_ID) {
        // Belongs to another use of the same account.
        None => Ok(()),
        Some(payment_id) => {
            let payment = known(payments, payment_id).await?;
            settlement::settle_session(payments, &payment, &session).await?;
            Ok(())
        }
    }
}

async fn read_intent(payments: &Payments, id: &str) -> Result<PaymentIntent, Error> {
    let intent = payments.processor()?.client.payment_intent(id).await;
    intent.map_err(|error| payments.failed("reading a payment", &error))
}

async fn intent(payments: &Payments, id: &str) -> Result<(), Error> {
    let intent = read_intent(payments, id).await?;
    let Some(payment_id) = intent.metadata.get(PAYMENT_ID) else { return Ok(()) };
    let payment = known(payments, payment_id).await?;
    settlement::settle_intent(payments, &payment, &intent).await?;
    Ok(())
}

async fn refund(payments: &Payments, intent_id: &str) -> Result<(), Error> {
    match of_intent(payments, intent_id).await? {
        Some(payment) => refunds::read_from_stripe(payments, &payment).await,
        None => Ok(()),
    }
}

async fn dispute(payments: &Payments, id: &str) -> Result<(), Error> {
    let dispute = payments.processor()?.client.dispute(id).await;
    let dispute = dispute.map_err(|error| payments.failed("reading a dispute", &error))?;
    let Some(intent) = &dispute.payment_intent else { return Ok(()) };
    match of_intent(payments, intent.id()).await? {
        Some(payment) => disputes::book(payments, &payment, &dispute).await.map(|_| ()),
        None => Ok(()),
    }
}

/// Returns the payment of an intent after crediting it, since the event of a refund or dispute may arrive
/// first. `None` if the intent belongs to another use of the same account.
async fn of_intent(payments: &Payments, intent_id: &str) -> Result<Option<Payment>, Error> {
    if let Some(payment) = store::by_intent(&mut payments.db.read().await?, intent_id).await? {
        return Ok(Some(payment));
    }
    let intent = read_intent(payments, intent_id).await?;
    let Some(payment_id) = intent.metadata.get(PAYMENT_ID) else { return Ok(None) };
    let payment = known(payments, payment_id).await?;
    Ok(Some(settlement::settle_intent(payments, &payment, &intent).await?))
}

/// Returns the payment with this id.
///
/// # Errors
/// No such payment exists: it may be missing after a restore from a backup, or belong to another
/// installation.
async fn known(payments: &Payments, payment_id: &str) -> Result<Payment, Error> {
    let unknown =
        || Error::internal(format!("Stripe has a payment {payment_id:.40} that doesn't exist here"));
    let id = PaymentId::parse(payment_id).ok_or_else(unknown)?;
    store::get(&mut payments.db.read().await?, id).await?.ok_or_else(unknown)
}
