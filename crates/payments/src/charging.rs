//! Off-session charges of a saved card: automatic top-ups.
//!
//! A payment has one attempt at a time. The start of an attempt is committed before the request to Stripe,
//! along with its number, which is part of the idempotency key. If the response is lost, the attempt is first
//! looked up at Stripe and then repeated with the same key. A declined payment stays in progress until its
//! next attempt, so no other top-up starts in the meantime.

mod amounts;

use billing::books::booking::Booking;
use billing::store::wallets::Wallet;
use db::Tx;
use events::data::PaymentChange;
use kernel::clock::{DAY_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use stripe::{Created, NewPaymentIntent, PaymentIntent, PaymentIntentStatus, Refusal};
use trail::{Action, Trail};

use crate::checkout::metadata;
use crate::counters::Outcome;
use crate::processor::key;
use crate::rules::declines::{self, ACCOUNT_RETRY_MS, Decline, RETRY_MS};
use crate::rules::verification::{ATTEMPT, PAYMENT_ID};
use crate::store::auto_top_ups::{self, PausedReason};
use crate::store::customers;
use crate::store::payments::{self as store, Kind, Payment, Status};
use crate::taxes::{self, Quote, Tax};
use crate::top_up_state::{end, pause, stop};
use crate::{Payments, Processor, notices, settlement, stripe_customers};

use amounts::{Prepared, prepare};

/// The failure code of a charge that Stripe refuses because of the operator's account. The customer can't fix
/// it.
const PROCESSOR_UNAVAILABLE: &str = "processor_unavailable";

/// Delay before repeating an attempt whose outcome is unknown, in milliseconds.
const REPEAT_MS: i64 = 10 * SECOND_MS;
/// Maximum delay between such repetitions, in milliseconds.
const MAX_REPEAT_MS: i64 = 10 * MINUTE_MS;

/// The outcome of starting an attempt.
enum Begun {
    /// Nothing to charge.
    Nothing,
    /// The tax must be calculated first; nothing has started.
    NeedsTax(Quote),
    /// The card should be charged.
    Attempt(Attempt),
}

/// A started attempt.
struct Attempt {
    payment: Payment,
    /// Whether the attempt was started before, with an unknown outcome.
    is_repeated: bool,
}

/// Charges the card for a due automatic top-up. If nothing can be charged now, ends or postpones the payment.
///
/// # Errors
/// Stripe can't be reached, in which case the same attempt is repeated; the database fails.
pub async fn charge(payments: &Payments, payment: &Payment) -> Result<(), Error> {
    let processor = payments.processor()?;
    let begun = match begin(payments, payment, Tax::Unknown).await? {
        Begun::NeedsTax(quote) => {
            let tax = taxes::calculate(payments, &quote).await?;
            begin(payments, payment, tax).await?
        }
        begun => begun,
    };
    let Attempt { payment, is_repeated } = match begun {
        Begun::Attempt(attempt) => attempt,
        // An owner has lowered the cap in the meantime. The next run processes the payment again.
        Begun::Nothing | Begun::NeedsTax(_) => return Ok(()),
    };
    let intent = match is_repeated {
        true => find(payments, processor, &payment).await?,
        false => None,
    };
    let made = match intent {
        Some(intent) => Ok(intent),
        None => request(processor, &payment).await?,
    };
    match made {
        Ok(intent) => conclude(payments, &payment, &intent).await,
        // The same key with different fields: the original request can be found at Stripe.
        Err(stripe::Error::Refused(refusal)) if refusal.kind != "idempotency_error" => {
            declined(payments, &payment, &refusal).await
        }
        Err(error) => Err(payments.failed("charging a card", &error)),
    }
}

/// Starts an attempt, or returns the one in progress.
async fn begin(payments: &Payments, payment: &Payment, tax: Tax) -> Result<Begun, Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, mut payment) = settlement::lock(&booking, &mut tx, payment).await?;
    if payment.status != Status::Processing || payment.next_at.is_none_or(|at| at > now) {
        return Ok(Begun::Nothing);
    }
    if payment.is_attempt_open {
        payment.next_at = Some(now.plus_ms(repeat_ms(&payment, now)));
        store::update(&mut tx, &payment, payment.updated_at).await?;
        tx.commit().await?;
        return Ok(Begun::Attempt(Attempt { payment, is_repeated: true }));
    }
    let (mut payment, needs_tax) =
        match prepare(payments, &booking, &mut tx, &mut wallet, payment, tax).await? {
            Prepared::Ready(payment) => (payment, None),
            Prepared::NeedsTax(payment, most_minor) => (payment, Some(most_minor)),
            Prepared::Nothing => {
                tx.commit().await?;
                payments.tenants.outbox.notify_one();
                return Ok(Begun::Nothing);
            }
        };
    let customer = customers::get(&mut tx, payment.organization_id).await?;
    let card = customer.and_then(|customer| Some((customer.customer_id, customer.method_id?)));
    let Some((customer_id, method_id)) = card else {
        fail_without_card(payments, &booking, &mut tx, &mut wallet, payment).await?;
        tx.commit().await?;
        payments.tenants.outbox.notify_one();
        return Ok(Begun::Nothing);
    };
    if let Some(most_minor) = needs_tax {
        return Ok(Begun::NeedsTax(Quote { payment, customer_id, most_minor }));
    }
    (payment.customer_id, payment.method_id) = (Some(customer_id), Some(method_id));
    payment.attempts += 1;
    payment.is_attempt_open = true;
    payment.next_at = Some(now.plus_ms(REPEAT_MS));
    store::update(&mut tx, &payment, now).await?;
    tx.commit().await?;
    Ok(Begun::Attempt(Attempt { payment, is_repeated: false }))
}

/// Returns the delay before the next repetition of an attempt that started at `updated_at`.
fn repeat_ms(payment: &Payment, now: Time) -> i64 {
    let age = now.unix_ms() - payment.updated_at.unix_ms();
    age.clamp(REPEAT_MS, MAX_REPEAT_MS)
}

/// Requests a charge from Stripe. Each attempt has its own key, which its repetitions reuse.
async fn request(
    processor: &Processor,
    payment: &Payment,
) -> Result<Result<PaymentIntent, stripe::Error>, Error> {
    let mut metadata = metadata(payment);
    metadata.insert(ATTEMPT.to_owned(), payment.attempts.to_string());
    let currency = payment.currency.to_ascii_lowercase();
    let amount = payment.total_minor().ok_or_else(|| Error::internal("a charge whose tax isn't known"))?;
    let new = NewPaymentIntent {
        amount,
        currency: &currency,
        customer: payment.customer_id.as_deref().unwrap_or_default(),
        payment_method: payment.method_id.as_deref().unwrap_or_default(),
        description: Some("Credit"),
        tax_calculation: payment.tax_calculation_id.as_deref(),
        metadata,
    };
    let key = key(format!("{}:{}", payment.id, payment.attempts))?;
    Ok(processor.client.charge_off_session(&new, &key).await)
}

/// Looks up the payment intent of an attempt whose response was lost.
async fn find(
    payments: &Payments,
    processor: &Processor,
    payment: &Payment,
) -> Result<Option<PaymentIntent>, Error> {
    let (id, attempt) = (payment.id.text(), payment.attempts.to_string());
    let from = payment.created_at.unix_seconds() - 3_600;
    let mut after: Option<String> = None;
    loop {
        let created = Created { from: Some(from), until: None, after: after.as_deref() };
        let customer_id = payment.customer_id.as_deref().unwrap_or_default();
        let page = match processor.client.payment_intents_of(customer_id, &created).await {
            // A missing customer can't have been charged.
            Err(error) if error.lacks("customer") => return Ok(None),
            page => page.map_err(|error| payments.failed("looking for a charge", &error))?,
        };
        let is_it = |intent: &&PaymentIntent| {
            intent.metadata.get(PAYMENT_ID) == Some(&id) && intent.metadata.get(ATTEMPT) == Some(&attempt)
        };
        if let Some(found) = page.data.iter().find(is_it) {
            return Ok(Some(found.clone()));
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => return Ok(None),
        }
    }
}

/// Handles the payment intent of an attempt.
async fn conclude(payments: &Payments, payment: &Payment, intent: &PaymentIntent) -> Result<(), Error> {
    match intent.status {
        PaymentIntentStatus::Succeeded => {
            let settled = settlement::settle_intent(payments, payment, intent).await;
            if settled.as_ref().is_err_and(|error| error.code == Code::Internal) {
                // The charge doesn't match the request, which is unlikely to change soon.
                let mut tx = payments.db.write().await?;
                let at = payments.clock.now().plus_ms(DAY_MS);
                store::postpone_attempt(&mut tx, payment, at).await?;
                tx.commit().await?;
            }
            settled.map(|_| ())
        }
        // The outcome comes later. The attempt stays open and is looked up again.
        PaymentIntentStatus::Processing
        | PaymentIntentStatus::RequiresCapture
        | PaymentIntentStatus::Other => Ok(()),
        PaymentIntentStatus::RequiresAction | PaymentIntentStatus::RequiresConfirmation => {
            let code = Some("authentication_required".to_owned());
            let payment_intent = Some(intent.id.clone());
            declined(payments, payment, &Refusal { status: 402, code, payment_intent, ..Refusal::default() })
                .await
        }
        PaymentIntentStatus::RequiresPaymentMethod | PaymentIntentStatus::Canceled => {
            let error = intent.last_payment_error.clone();
            let refusal = Refusal {
                status: 402,
                code: error.as_ref().and_then(|error| error.code.clone()),
                decline_code: error.as_ref().and_then(|error| error.decline_code.clone()),
                advice_code: error.and_then(|error| error.advice_code),
                payment_intent: Some(intent.id.clone()),
                ..Refusal::default()
            };
            declined(payments, payment, &refusal).await
        }
    }
}

/// Handles a declined attempt: retries in a day, asks the customer to confirm the charge, or gives up.
async fn declined(payments: &Payments, attempt: &Payment, refusal: &Refusal) -> Result<(), Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, mut payment) = settlement::lock(&booking, &mut tx, attempt).await?;
    // A concurrent run already handled the same response.
    if payment.status != Status::Processing
        || !payment.is_attempt_open
        || payment.attempts != attempt.attempts
    {
        return Ok(());
    }
    let organization_id = payment.organization_id;
    let top_up = auto_top_ups::get(&mut tx, organization_id).await?;
    let failures = top_up.as_ref().map_or(payment.attempts - 1, |top_up| top_up.failures);
    let decline = declines::decide(refusal, failures);
    if let Some(mut top_up) = top_up
        && !matches!(decline, Decline::Account | Decline::NoCard)
    {
        top_up.failures += 1;
        auto_top_ups::put(&mut tx, &top_up, top_up.updated_at).await?;
    }
    let word = declines::word(refusal);
    tracing::warn!(payment_id = %payment.id, %organization_id, attempt = payment.attempts, code = word,
        "an automatic top-up was declined");
    payment.intent_id.clone_from(&refusal.payment_intent);
    match decline {
        Decline::Account => {
            tracing::error!(payment_id = %payment.id, %organization_id,
                "Stripe refuses to charge cards for this account: {refusal}");
            wait(&mut tx, payment, (ACCOUNT_RETRY_MS, PROCESSOR_UNAVAILABLE), now).await?;
        }
        Decline::NoCard => {
            fail_without_card(payments, &booking, &mut tx, &mut wallet, payment).await?;
        }
        Decline::Soft => {
            let waiting = wait(&mut tx, payment, (RETRY_MS, &word), now).await?;
            if failures == 0 {
                notices::notify_owners(payments, &mut tx, organization_id, ("retried", Some(&waiting)), now)
                    .await?;
            }
        }
        Decline::Hard => {
            fail(payments, &booking, &mut tx, &mut wallet, payment, (&word, PausedReason::Declined)).await?;
        }
        Decline::Authentication => {
            wait_for_confirmation(payments, &mut tx, payment, word, now).await?;
            pause(payments, &booking, &mut tx, &mut wallet, PausedReason::AuthenticationRequired).await?;
        }
    }
    tx.commit().await?;
    payments.tenants.outbox.notify_one();
    payments.notify_one();
    Ok(())
}

/// Schedules the next attempt of a payment and returns it.
async fn wait(
    tx: &mut Tx,
    payment: Payment,
    (wait_ms, why): (i64, &str),
    now: Time,
) -> Result<Payment, db::Error> {
    let (next_at, failure_code) = (Some(now.plus_ms(wait_ms)), Some(why.to_owned()));
    let waiting = Payment { is_attempt_open: false, next_at, failure_code, ..payment };
    store::update(tx, &waiting, now).await?;
    Ok(waiting)
}

/// Makes a payment wait for the customer's confirmation on a page that a job opens.
async fn wait_for_confirmation(
    payments: &Payments,
    tx: &mut Tx,
    payment: Payment,
    word: String,
    now: Time,
) -> Result<(), db::Error> {
    let waiting = Payment {
        status: Status::ActionRequired,
        is_attempt_open: false,
        next_at: Some(now),
        failure_code: Some(word),
        // The customer's page has its own payment intent and calculates its own tax.
        intent_id: None,
        tax_minor: payment.tax_minor.filter(|_| !payment.is_taxed),
        tax_calculation_id: None,
        ..payment
    };
    store::update(tx, &waiting, now).await?;
    settlement::emit(payments, tx, &waiting, PaymentChange::ActionRequired, now).await
}

/// Marks a payment as failed, pauses the top-up, and notifies the owners.
async fn fail(
    payments: &Payments,
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    payment: Payment,
    (word, reason): (&str, PausedReason),
) -> Result<(), Error> {
    let failed = end(tx, payment, Status::Failed, word, booking.now).await?;
    let subject = (Action::PaymentFailed, failed.id.text());
    payments.record(tx, booking.trail, subject, failed.organization_id, booking.now).await?;
    settlement::emit(payments, tx, &failed, PaymentChange::Failed, booking.now).await?;
    payments.counters.count(Outcome::Failed);
    stop(payments, booking, tx, wallet, (reason, Some(&failed))).await
}

/// Fails a payment because no card is saved, or because Stripe doesn't have the saved card. In the latter
/// case, the card is also forgotten here.
async fn fail_without_card(
    payments: &Payments,
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    payment: Payment,
) -> Result<(), Error> {
    if let Some(customer) = customers::lock(tx, payment.organization_id, booking.now).await? {
        stripe_customers::forget_card(payments, tx, customer, booking.now).await?;
    }
    let why = ("no_payment_method", PausedReason::NoPaymentMethod);
    fail(payments, booking, tx, wallet, payment, why).await
}

/// Returns `true` if the payment is an automatic top-up whose card a job charges.
pub(crate) fn is_charge(payment: &Payment) -> bool {
    payment.kind == Kind::AutoTopUp && payment.status == Status::Processing
}
