//! Settlement: the only place where a payment adds money to a wallet. It reads the payment from Stripe,
//! checks it, and books it under the wallet's lock. The payment's row and the ledger key `payment:{id}` make
//! it safe to run repeatedly, late, or out of order.

use billing::bookkeeping::payments::{Receipt, receive};
use billing::books::booking::Booking;
use billing::store::wallets::Wallet;
use db::Tx;
use events::data::{PaymentChange, PaymentChanged};
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use stripe::{CheckoutSession, CheckoutStatus, PaymentIntent, PaymentIntentStatus};
use trail::{Action, Trail};

use crate::checkout::{self, LOOK_MS};
use crate::counters::Outcome;
use crate::rules::verification::{self, Mismatch};
use crate::store::findings::{self, Finding};
use crate::store::payments::{self as store, Kind, Payment, Status};
use crate::store::statements::{self, Statement};
use crate::store::{auto_top_ups, customers};
use crate::taxes::{self, Paid};
use crate::{Payments, Processor, cards, orphans, top_up_state};

/// Period in which opening the page of a payment may be retried, in milliseconds. Stripe remembers an
/// idempotency key for a day.
const OPENING_MS: i64 = 20 * 60 * 60 * 1_000;

/// Reads from Stripe a payment that waits for its customer, handles its state, and returns the updated
/// payment. While it still waits, another check is scheduled.
///
/// # Errors
/// Stripe can't be reached; its record doesn't match the request; the database fails.
pub async fn settle(payments: &Payments, payment: &Payment) -> Result<Payment, Error> {
    let processor = payments.processor()?;
    if let Some(session_id) = &payment.session_id {
        let session = processor.client.checkout_session(session_id).await;
        let session = session.map_err(|error| payments.failed("reading a Checkout session", &error))?;
        let settled = settle_session(payments, payment, &session).await?;
        return look_again(payments, settled).await;
    }
    if let Some(intent_id) = &payment.intent_id {
        let intent = processor.client.payment_intent(intent_id).await;
        let intent = intent.map_err(|error| payments.failed("reading a payment", &error))?;
        let settled = settle_intent(payments, payment, &intent).await?;
        return look_again(payments, settled).await;
    }
    if payment.status.waits_for_customer() {
        return reopen(payments, processor, payment).await;
    }
    Ok(payment.clone())
}

/// Opens the page of a payment whose request was interrupted, or cancels the payment, since no customer has
/// its page.
async fn reopen(payments: &Payments, processor: &Processor, payment: &Payment) -> Result<Payment, Error> {
    let now = payments.clock.now();
    if payment.status == Status::ActionRequired {
        top_up_state::ask_for_action(payments, payment).await?;
        return Ok(payment.clone());
    }
    if payment.created_at.plus_ms(OPENING_MS) > now {
        let opened = checkout::open(payments, processor, payment.clone()).await?;
        return Ok(opened.commit().await?);
    }
    give_up(payments, payment, "session_expired").await
}

/// Handles the Checkout session of a payment.
///
/// # Errors
/// Same as for [`settle`].
pub async fn settle_session(
    payments: &Payments,
    payment: &Payment,
    session: &CheckoutSession,
) -> Result<Payment, Error> {
    if let Some(intent) = session.payment_intent.as_ref().and_then(|intent| intent.object())
        && intent.status == PaymentIntentStatus::Succeeded
    {
        return settle_paid(payments, payment, intent, Some(session)).await;
    }
    if session.status == Some(CheckoutStatus::Expired) && payment.status.waits_for_customer() {
        return give_up(payments, payment, "session_expired").await;
    }
    Ok(payment.clone())
}

/// Handles the payment intent of a payment. An intent that hasn't succeeded changes nothing, however many
/// events arrive about it: [`crate::charging`] handles declines.
///
/// # Errors
/// Same as for [`settle`].
pub async fn settle_intent(
    payments: &Payments,
    payment: &Payment,
    intent: &PaymentIntent,
) -> Result<Payment, Error> {
    if intent.status != PaymentIntentStatus::Succeeded {
        return Ok(payment.clone());
    }
    settle_paid(payments, payment, intent, None).await
}

/// Credits a payment whose payment intent has succeeded, if it matches the request.
async fn settle_paid(
    payments: &Payments,
    payment: &Payment,
    intent: &PaymentIntent,
    session: Option<&CheckoutSession>,
) -> Result<Payment, Error> {
    let is_live = payments.processor()?.client.is_live();
    let customer = customers::get(&mut payments.db.read().await?, payment.organization_id).await?;
    let customer_id = payment.customer_id.as_deref().or(customer.as_ref().map(|it| it.customer_id.as_str()));
    let paid = match taxes::paid(payments, payment, intent, session).await? {
        Ok(paid) => paid,
        Err(mismatch) => return Err(report(payments, payment, mismatch).await?),
    };
    if let Err(mismatch) = verification::check(payment, intent, paid.tax_minor, customer_id, is_live) {
        return Err(report(payments, payment, mismatch).await?);
    }
    if payment.status == Status::Succeeded && payment.intent_id.as_ref() != Some(&intent.id) {
        let expected = format!("one payment ({})", payment.intent_id.as_deref().unwrap_or("unknown"));
        let mismatch = Mismatch { expected, found: format!("a second paid payment intent ({})", intent.id) };
        return Err(report(payments, payment, mismatch).await?);
    }
    credit(payments, payment, intent, &paid).await
}

/// Credits a payment that has succeeded, unless already credited.
async fn credit(
    payments: &Payments,
    payment: &Payment,
    intent: &PaymentIntent,
    tax: &Paid,
) -> Result<Payment, Error> {
    if payment.status == Status::Succeeded {
        return Ok(payment.clone());
    }
    let method = cards::of_payment(payments, payment, intent).await?;
    let receipt_url = if payment.is_taxed { taxes::receipt_url(payments, tax, intent).await? } else { None };
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, stored) = lock(&booking, &mut tx, payment).await?;
    if stored.status == Status::Succeeded {
        return Ok(stored);
    }
    let paid = Payment {
        status: Status::Succeeded,
        intent_id: Some(intent.id.clone()),
        checkout_url: None,
        is_attempt_open: false,
        next_at: None,
        failure_code: None,
        tax_minor: Some(tax.tax_minor),
        receipt_url,
        paid_at: Some(now),
        ..stored
    };
    // The payment is stored before its money is booked, because booking ends the invoice's open payments.
    store::update(&mut tx, &paid, now).await?;
    statements::put(&mut tx, &paid, &Statement::of_payment(intent), now).await?;
    let (payment_id, invoice_id) = (paid.id, paid.invoice_id);
    let receipt = Receipt { payment_id, invoice_id, cause: None, amount: paid.amount() };
    receive(&booking, &mut tx, &mut wallet, receipt).await?;
    if let Some(method) = method {
        cards::save_paid(payments, &mut tx, &paid, &method, now).await?;
    }
    if paid.kind == Kind::AutoTopUp
        && let Some(mut top_up) = auto_top_ups::get(&mut tx, paid.organization_id).await?
    {
        top_up.failures = 0;
        auto_top_ups::put(&mut tx, &top_up, top_up.updated_at).await?;
    }
    top_up_state::arm(payments, &booking, &mut tx, &mut wallet).await?;
    findings::remove(&mut tx, &paid.id.text()).await?;
    orphans::note(&mut tx, &paid, now).await?;
    payments
        .record(&mut tx, &trail, (Action::PaymentSucceeded, paid.id.text()), paid.organization_id, now)
        .await?;
    emit(payments, &mut tx, &paid, PaymentChange::Succeeded, now).await?;
    tx.commit().await?;
    payments.counters.count(Outcome::Succeeded);
    payments.notify_one();
    tracing::info!(payment_id = %paid.id, organization_id = %paid.organization_id, amount = %paid.amount(),
        tax_minor = tax.tax_minor, currency = paid.currency, "a payment was credited");
    Ok(paid)
}

/// Records a difference between a payment and Stripe for the audit, and returns the error.
async fn report(payments: &Payments, payment: &Payment, mismatch: Mismatch) -> Result<Error, Error> {
    let now = payments.clock.now();
    let Mismatch { expected, found } = mismatch;
    let message = format!("{} isn't credited: expected {expected}, found {found}", payment.id);
    let finding = Finding {
        object_id: payment.id.text(),
        organization_id: Some(payment.organization_id),
        expected,
        found,
    };
    let mut tx = payments.db.write().await?;
    findings::put(&mut tx, &finding, now).await?;
    // The difference is unlikely to change soon, and the daily comparison checks it too.
    store::look_again(&mut tx, payment.id, now.plus_ms(DAY_MS)).await?;
    tx.commit().await?;
    payments.counters.count(Outcome::Mismatched);
    tracing::error!("{message}");
    Ok(Error::internal(message))
}

/// Schedules another check of a payment that still waits for its customer.
async fn look_again(payments: &Payments, payment: Payment) -> Result<Payment, Error> {
    if payment.status.waits_for_customer() {
        let mut tx = payments.db.write().await?;
        store::look_again(&mut tx, payment.id, payments.clock.now().plus_ms(LOOK_MS)).await?;
        tx.commit().await?;
    }
    Ok(payment)
}

/// Cancels a payment that its customer hasn't made.
async fn give_up(payments: &Payments, payment: &Payment, why: &str) -> Result<Payment, Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let mut tx = payments.db.write().await?;
    let (mut wallet, stored) = lock(&booking, &mut tx, payment).await?;
    if !stored.status.waits_for_customer() {
        return Ok(stored);
    }
    let canceled = Payment {
        status: Status::Canceled,
        failure_code: Some(why.to_owned()),
        checkout_url: None,
        next_at: None,
        ..stored
    };
    store::update(&mut tx, &canceled, booking.now).await?;
    top_up_state::arm(payments, &booking, &mut tx, &mut wallet).await?;
    tx.commit().await?;
    Ok(canceled)
}

/// Queues an event about a payment for webhooks.
pub(crate) async fn emit(
    payments: &Payments,
    tx: &mut Tx,
    payment: &Payment,
    change: PaymentChange,
    now: Time,
) -> Result<(), db::Error> {
    let changed = PaymentChanged {
        change,
        organization_id: payment.organization_id,
        payment_id: payment.id,
        kind: payment.kind.as_str(),
        invoice_id: payment.invoice_id,
        status: payment.status.as_str(),
        currency: payment.currency.clone(),
        amount: payment.amount(),
        tax: payment.tax().filter(|_| payment.is_taxed),
        total: payment.total().filter(|_| payment.is_taxed),
        refunded: payment.refunded(),
        disputed: payment.disputed(),
        failure_code: payment.failure_code.clone(),
    };
    events::emit(tx, &changed, now, &payments.random).await
}

/// Stores Stripe's statement about a payment before anything is booked from it.
///
/// # Errors
/// The database fails.
pub(crate) async fn keep(payments: &Payments, payment: &Payment, said: &Statement) -> Result<(), Error> {
    let mut tx = payments.db.write().await?;
    statements::put(&mut tx, payment, said, payments.clock.now()).await?;
    Ok(tx.commit().await?)
}

/// Returns the locked wallet of a payment and the payment's current state.
pub(crate) async fn lock(
    booking: &Booking<'_>,
    tx: &mut Tx,
    payment: &Payment,
) -> Result<(Wallet, Payment), Error> {
    let wallet = booking.lock(tx, payment.organization_id).await?;
    let mut wallet =
        wallet.ok_or_else(|| Error::internal("a payment of an organization without a wallet"))?;
    // Locking the wallet may expire credits. That change is written here.
    booking.write(tx, &mut wallet).await?;
    Ok((wallet, store::get(tx, payment.id).await?.ok_or(Code::PaymentNotFound)?))
}
