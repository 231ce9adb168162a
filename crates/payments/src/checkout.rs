//! Stripe pages for customer payments.

use std::collections::BTreeMap;

use billing::store::wallets;
use db::{Tx, Uncommitted};
use kernel::clock::MINUTE_MS;
use kernel::error::{Code, Detail, Error};
use stripe::{CheckoutSession, Metadata, NewPaymentSession};

use crate::processor::key;
use crate::rules::verification::{ORGANIZATION_ID, PAYMENT_ID};
use crate::store::customers::Customer;
use crate::store::payments::{self as store, Kind, Payment, Status};
use crate::{Payments, Processor, stripe_customers};

/// Interval at which a payment that waits for its customer is compared with Stripe, in milliseconds.
pub const LOOK_MS: i64 = 5 * MINUTE_MS;

/// Returns a payment's metadata for Stripe.
pub(crate) fn metadata(payment: &Payment) -> Metadata {
    BTreeMap::from([
        (PAYMENT_ID.to_owned(), payment.id.text()),
        (ORGANIZATION_ID.to_owned(), payment.organization_id.text()),
    ])
}

/// Opens a payment's page, unless it has one, and returns the payment with the page.
///
/// # Errors
/// 400 for an amount that Stripe rejects; 502 if Stripe can't be reached, in which case a retry of
/// the request gets the same page.
pub(crate) async fn open(
    payments: &Payments,
    processor: &Processor,
    payment: Payment,
) -> Result<Uncommitted<Payment>, Error> {
    if payment.session_id.is_some() || !payment.status.waits_for_customer() {
        return Ok(Uncommitted::new(payments.db.write().await?, payment));
    }
    let customer = stripe_customers::find_or_create(payments, processor, payment.organization_id).await?;
    let (customer, session) = match create_session(payments, processor, &payment, &customer).await? {
        Err(error) if error.lacks("customer") => {
            let customer = stripe_customers::replace(payments, processor, &customer).await?;
            let session = create_session(payments, processor, &payment, &customer).await?;
            (customer, session)
        }
        session => (customer, session),
    };
    let session = match session {
        Ok(session) => session,
        Err(stripe::Error::Refused(refusal)) => {
            payments.failed("opening a payment", &stripe::Error::Refused(refusal.clone()));
            return Err(refuse(payments, payment, &refusal).await?);
        }
        Err(error) => return Err(payments.failed("opening a payment", &error)),
    };
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    let stored = lock(payments, &mut tx, &payment).await?;
    if stored.session_id.is_some() || !stored.status.waits_for_customer() {
        return Ok(Uncommitted::new(tx, stored));
    }
    let opened = Payment {
        customer_id: Some(customer.customer_id),
        session_id: Some(session.id),
        checkout_url: session.url,
        next_at: Some(now.plus_ms(LOOK_MS)),
        ..stored
    };
    store::update(&mut tx, &opened, now).await?;
    Ok(Uncommitted::new(tx, opened))
}

/// Requests a payment's page from Stripe.
async fn create_session(
    payments: &Payments,
    processor: &Processor,
    payment: &Payment,
    customer: &Customer,
) -> Result<Result<CheckoutSession, stripe::Error>, Error> {
    let return_url = payments.return_url(payment.organization_id, &format!("payments/{}", payment.id));
    let product = match payment.kind {
        Kind::Credit | Kind::AutoTopUp => "Credit",
        Kind::Invoice => "Invoice",
    };
    let (id, currency) = (payment.id.text(), payment.currency.to_ascii_lowercase());
    let new = NewPaymentSession {
        customer: &customer.customer_id,
        currency: &currency,
        amount: payment.amount_minor,
        product,
        tax_code: payments.settings.stripe_tax_code.as_deref().filter(|_| payment.is_taxed),
        success_url: &return_url,
        cancel_url: &return_url,
        client_reference_id: Some(&id),
        metadata: metadata(payment),
        save_card: payment.saves_card,
        automatic_tax: payment.is_taxed,
        tax_id_collection: payment.is_taxed,
        invoice: payment.is_taxed,
        expires_at: None,
    };
    // The key includes the customer: a different customer needs a different key.
    let key = key(format!("{id}:session:{}", customer.customer_id))?;
    Ok(processor.client.create_payment_session(&new, &key).await)
}

/// Locks a payment's wallet and returns the payment's current state.
///
/// # Errors
/// The payment doesn't exist, which is impossible; the database fails.
pub(crate) async fn lock(payments: &Payments, tx: &mut Tx, payment: &Payment) -> Result<Payment, Error> {
    wallets::lock_existing(tx, payment.organization_id, &payments.clock_guard).await?;
    Ok(store::get(tx, payment.id).await?.ok_or(Code::PaymentNotFound)?)
}

/// Fails a payment that Stripe refused, and returns the error for its caller.
async fn refuse(payments: &Payments, payment: Payment, refusal: &stripe::Refusal) -> Result<Error, Error> {
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    let stored = lock(payments, &mut tx, &payment).await?;
    if stored.status == Status::Open && stored.session_id.is_none() {
        let failure_code = Some(refusal.code.clone().unwrap_or_else(|| "refused".to_owned()));
        let failed = Payment { status: Status::Failed, failure_code, next_at: None, ..stored };
        store::update(&mut tx, &failed, now).await?;
    }
    tx.commit().await?;
    let is_amount = matches!(refusal.code.as_deref(), Some("amount_too_small" | "amount_too_large"));
    if is_amount {
        let message = "This amount is too small or too large for the payment processor.".to_owned();
        let detail = Detail { param: "amount".to_owned(), code: "invalid_amount", message };
        return Ok(Error::invalid(vec![detail]));
    }
    Ok(Error::new(Code::ProcessorUnavailable).message("The payment processor has refused this payment."))
}
