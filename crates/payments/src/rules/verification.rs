//! Checks of a payment intent before it's credited.

use stripe::{CheckoutSession, PaymentIntent, PaymentIntentStatus};

use crate::store::payments::Payment;

/// The metadata key of a payment's id.
pub const PAYMENT_ID: &str = "payment_id";
/// The metadata key of an organization's id.
pub const ORGANIZATION_ID: &str = "organization_id";
/// The metadata key of an attempt's number.
pub const ATTEMPT: &str = "attempt";
/// The metadata key of a refund's id.
pub const REFUND_ID: &str = "refund_id";

/// A difference between a payment and Stripe's record of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    pub expected: String,
    pub found: String,
}

/// Checks that a payment intent matches its payment: status, payment id, live or test mode, currency, amount,
/// and customer. `tax_minor` is the tax paid on top of the payment's amount.
///
/// # Errors
/// The first difference.
pub fn check(
    payment: &Payment,
    intent: &PaymentIntent,
    tax_minor: i64,
    customer_id: Option<&str>,
    is_live: bool,
) -> Result<(), Mismatch> {
    let customer = intent.customer.as_ref().map(|customer| customer.id()).unwrap_or_default();
    let currency = payment.currency.to_ascii_lowercase();
    let of = intent.metadata.get(PAYMENT_ID).map(String::as_str).unwrap_or_default();
    let mode = |is_live| if is_live { "live mode" } else { "test mode" };
    let id = payment.id.text();
    let total = i128::from(payment.amount_minor) + i128::from(tax_minor);
    let pairs = [
        ("", "succeeded".to_owned(), status(intent.status).to_owned()),
        ("payment ", id, of.to_owned()),
        ("", mode(is_live).to_owned(), mode(intent.livemode).to_owned()),
        ("currency ", currency, intent.currency.clone()),
        ("amount ", total.to_string(), intent.amount_received.to_string()),
        ("customer ", customer_id.unwrap_or("of the organization").to_owned(), customer.to_owned()),
    ];
    match pairs.into_iter().find(|(_, expected, found)| expected != found) {
        Some((what, expected, found)) => {
            let found = if found.is_empty() { "none" } else { &found };
            Err(Mismatch {
                expected: format!("{what}{expected}"),
                found: format!("{what}{found} ({})", intent.id),
            })
        }
        None => Ok(()),
    }
}

/// Returns the tax of a payment from its Checkout session, which must belong to this payment and this payment
/// intent, and contain the requested amount plus tax and nothing else.
///
/// # Errors
/// The first difference.
pub fn tax_of(payment: &Payment, session: &CheckoutSession, intent: &PaymentIntent) -> Result<i64, Mismatch> {
    let number = |number: Option<i64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let details = session.total_details.as_ref();
    let tax = details.map_or(0, |details| details.amount_tax);
    let subtotal = session.amount_subtotal;
    let total = payment.amount_minor.checked_add(tax).filter(|_| tax >= 0);
    let of = session.metadata.get(PAYMENT_ID).map(String::as_str).unwrap_or_default();
    let paid_by = session.payment_intent.as_ref().map(stripe::Expandable::id).unwrap_or_default();
    let discount = details.map_or(0, |details| details.amount_discount);
    let pairs = [
        ("session of payment ", payment.id.text(), of.to_owned()),
        ("session paid by ", intent.id.clone(), paid_by.to_owned()),
        ("amount before tax ", payment.amount_minor.to_string(), number(subtotal)),
        ("discount ", "0".to_owned(), discount.to_string()),
        ("amount with tax ", number(total), number(session.amount_total)),
    ];
    match pairs.into_iter().find(|(_, expected, found)| expected != found) {
        Some((what, expected, found)) => {
            let found = if found.is_empty() { "none" } else { &found };
            Err(Mismatch {
                expected: format!("{what}{expected}"),
                found: format!("{what}{found} ({})", session.id),
            })
        }
        None => Ok(tax),
    }
}

/// Returns the name of a payment intent's status.
pub fn status(status: PaymentIntentStatus) -> &'static str {
    match status {
        PaymentIntentStatus::RequiresPaymentMethod => "requires_payment_method",
        PaymentIntentStatus::RequiresConfirmation => "requires_confirmation",
        PaymentIntentStatus::RequiresAction => "requires_action",
        PaymentIntentStatus::Processing => "processing",
        PaymentIntentStatus::RequiresCapture => "requires_capture",
        PaymentIntentStatus::Canceled => "canceled",
        PaymentIntentStatus::Succeeded => "succeeded",
        PaymentIntentStatus::Other => "an unknown state",
    }
}
