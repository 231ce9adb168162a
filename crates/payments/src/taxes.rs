//! Tax on payments, as calculated by Stripe: before a saved card is charged, and on Stripe's pages.

use kernel::clock::HOUR_MS;
use kernel::currencies::ChargeUnit;
use kernel::error::Error;
use stripe::{Calculation, CheckoutSession, NewCalculation, PaymentIntent};

use crate::Payments;
use crate::processor::key;
use crate::rules::top_ups::fitting;
use crate::rules::verification::{self, ATTEMPT, Mismatch};
use crate::store::payments::{Payment, Status};

/// Stripe's error code for a customer without an address from which tax can be calculated.
const NO_LOCATION: &str = "customer_tax_location_invalid";
/// Maximum number of calculations per charge. Each one is for a smaller amount, because the total with tax
/// exceeded the monthly cap.
const MAX_CALCULATIONS: usize = 4;
/// Maximum length of a receipt's URL, in bytes.
const MAX_URL_BYTES: usize = 2_048;

/// A charge whose tax must be calculated.
#[derive(Debug)]
pub(crate) struct Quote {
    pub payment: Payment,
    pub customer_id: String,
    /// Maximum charge, including tax.
    pub most_minor: Option<i64>,
}

/// The state of the tax calculation for a charge.
#[derive(Clone, Debug)]
pub(crate) enum Tax {
    /// The tax hasn't been requested from Stripe.
    Unknown,
    /// The amount and tax to charge.
    Calculated { calculation_id: String, amount_minor: i64, tax_minor: i64 },
    /// The total with tax would exceed the monthly cap.
    OverCap,
    /// Stripe has no usable address of the customer.
    NoLocation,
    /// Stripe doesn't have the customer.
    NoCustomer,
}

/// Requests the tax on a charge from Stripe. Reduces the amount until it fits under the monthly cap including
/// tax.
///
/// # Errors
/// Stripe can't be reached, refuses for a reason other than the customer's address, or returns
/// something that doesn't add up.
pub(crate) async fn calculate(payments: &Payments, quote: &Quote) -> Result<Tax, Error> {
    let unit = ChargeUnit::of(&quote.payment.currency);
    let least = unit.covering(payments.settings.minimum(&quote.payment.currency)).unwrap_or(i64::MAX);
    let mut amount_minor = quote.payment.amount_minor;
    for _ in 0..MAX_CALCULATIONS {
        let calculation = match request(payments, quote, amount_minor).await? {
            Ok(calculation) => calculation,
            Err(stripe::Error::Refused(refusal)) if refusal.code.as_deref() == Some(NO_LOCATION) => {
                tracing::warn!(payment_id = %quote.payment.id, organization_id = %quote.payment.organization_id,
                    "can't calculate the tax on an automatic top-up: {refusal}");
                return Ok(Tax::NoLocation);
            }
            Err(stripe::Error::Refused(refusal)) if refusal.lacks("customer") => return Ok(Tax::NoCustomer),
            // Nothing is charged without a known tax. Problems with the account must be fixed by the
            // operator.
            Err(error) => return Err(payments.failed("calculating a tax", &error)),
        };
        let total = calculation.amount_total;
        match quote.most_minor {
            Some(most) if total > most => amount_minor = fitting(amount_minor, total, most, unit),
            _ => return check(payments, quote, amount_minor, &calculation),
        }
        if amount_minor < least {
            return Ok(Tax::OverCap);
        }
    }
    // A real tax doesn't need this many calculations. The owners are notified that nothing is charged.
    Ok(Tax::OverCap)
}

async fn request(
    payments: &Payments,
    quote: &Quote,
    amount: i64,
) -> Result<Result<Calculation, stripe::Error>, Error> {
    let id = quote.payment.id.text();
    let new = NewCalculation {
        customer: &quote.customer_id,
        currency: &quote.payment.currency,
        amount,
        reference: &id,
        tax_code: payments.settings.stripe_tax_code.as_deref(),
    };
    // Another tax code needs another key. Stripe replays its own errors for a day, so the key changes every
    // hour. An unused calculation costs little and charges nothing.
    let hour = payments.clock.now().unix_ms() / HOUR_MS;
    let key = key(format!("{id}:tax:{amount}:{}:{hour}", new.tax_code.unwrap_or_default()))?;
    Ok(payments.processor()?.client.calculate_tax(&new, &key).await)
}

/// Checks a calculation against its request.
fn check(
    payments: &Payments,
    quote: &Quote,
    amount_minor: i64,
    calculation: &Calculation,
) -> Result<Tax, Error> {
    let tax_minor = calculation.tax_amount_exclusive;
    let is_good = tax_minor >= 0
        && amount_minor.checked_add(tax_minor) == Some(calculation.amount_total)
        && calculation.currency.eq_ignore_ascii_case(&quote.payment.currency)
        && calculation.livemode == payments.processor()?.client.is_live();
    match calculation.id.clone() {
        Some(calculation_id) if is_good => Ok(Tax::Calculated { calculation_id, amount_minor, tax_minor }),
        _ => Err(Error::internal(format!(
            "the tax of {} doesn't add up: {calculation:?} of {amount_minor}",
            quote.payment.id
        ))),
    }
}

/// The tax paid with a payment, and Stripe's invoice for it.
#[derive(Debug)]
pub(crate) struct Paid {
    pub tax_minor: i64,
    invoice_id: Option<String>,
}

/// Returns the tax paid with a payment intent, from the intent's Checkout session (`session`, or as read from
/// Stripe), or from the calculation of its charge.
///
/// # Errors
/// Stripe can't be reached. The inner error is a difference from the request.
pub(crate) async fn paid(
    payments: &Payments,
    payment: &Payment,
    intent: &PaymentIntent,
    session: Option<&CheckoutSession>,
) -> Result<Result<Paid, Mismatch>, Error> {
    let known = |tax_minor| Ok(Ok(Paid { tax_minor, invoice_id: None }));
    if !payment.is_taxed {
        return known(0);
    }
    let is_settled = payment.status == Status::Succeeded && payment.intent_id.as_ref() == Some(&intent.id);
    let is_charge = intent.metadata.contains_key(ATTEMPT);
    if let Some(tax_minor) = payment.tax_minor.filter(|_| is_settled || is_charge) {
        return known(tax_minor);
    }
    let found;
    let session = match session {
        Some(session) => Some(session),
        None => {
            let read = payments.processor()?.client.checkout_session_of(&intent.id).await;
            found = read.map_err(|error| payments.failed("reading a Checkout session", &error))?;
            found.as_ref()
        }
    };
    let Some(session) = session else {
        let expected = "a Checkout session with the tax".to_owned();
        return Ok(Err(Mismatch { expected, found: format!("none ({})", intent.id) }));
    };
    Ok(verification::tax_of(payment, session, intent).map(|tax_minor| Paid {
        tax_minor,
        invoice_id: session.invoice.as_ref().map(|invoice| invoice.id().to_owned()),
    }))
}

/// Returns Stripe's page with the invoice or receipt of a payment.
pub(crate) async fn receipt_url(
    payments: &Payments,
    paid: &Paid,
    intent: &PaymentIntent,
) -> Result<Option<String>, Error> {
    let mut url = None;
    if let Some(id) = &paid.invoice_id {
        match payments.processor()?.client.invoice(id).await {
            Ok(invoice) => url = invoice.hosted_invoice_url,
            // A missing receipt is no reason to withhold the credit.
            Err(error) => drop(payments.failed("reading an invoice of Stripe", &error)),
        }
    }
    let charge = intent.latest_charge.as_ref().and_then(|charge| charge.object());
    let url = url.or_else(|| charge.and_then(|charge| charge.receipt_url.clone()));
    let is_page = |url: &String| {
        url.len() <= MAX_URL_BYTES && ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme))
    };
    Ok(url.filter(is_page))
}
