//! Refunds by an operator or in Stripe's dashboard.
//!
//! An operator's refund first reduces the credit, and is then requested from Stripe. If Stripe refuses, the
//! money returns to the wallet. Amounts at Stripe include tax; those of credits don't. Refunds made at Stripe
//! are read as a list, and each is booked once.

use billing::bookkeeping::OperatorError;
use billing::bookkeeping::payments::{Cause, Receipt, Taken, left_of, receive, take};
use events::data::PaymentChange;
use kernel::clock::SECOND_MS;
use kernel::currencies::ChargeUnit;
use kernel::error::{Code, Error};
use kernel::ids::{PaymentId, RefundId};
use kernel::money::Nano;
use stripe::{Created, NewRefund, RefundStatus};
use trail::{Action, Trail};

use crate::counters::Outcome;
use crate::processor::key;
use crate::rules::verification::REFUND_ID;
use crate::store::auto_top_ups::PausedReason;
use crate::store::payments::{self as payment_store, Payment, Status as PaymentStatus};
use crate::store::refunds as store;
use crate::store::statements::Statement;
use crate::{Payments, checkout, orphans, settlement, top_up_state};

pub use crate::store::refunds::{Refund, Status};

/// Delay before a pending refund is requested from Stripe again, in milliseconds.
const REPEAT_MS: i64 = 30 * SECOND_MS;

/// Refunds all or part of a payment's remaining credit, including its tax.
///
/// # Errors
/// The payment doesn't exist or hasn't succeeded, the amount exceeds the remaining credit, or Stripe
/// refuses; the database fails. If Stripe can't be reached, the refund is pending, and a job retries it.
pub async fn refund(
    payments: &Payments,
    id: PaymentId,
    amount: Option<Nano>,
    trail: &Trail,
) -> Result<Refund, OperatorError> {
    payments.processor()?;
    let refund = begin(payments, id, amount, trail).await?;
    orphans::look_again(payments, id).await?;
    match ask(payments, &refund).await {
        Ok(refund) if refund.status == Status::Failed => Err(OperatorError::Invalid(
            "Stripe refused the refund, and the credit is unchanged: see the log for the reason".to_owned(),
        )),
        Ok(refund) => Ok(refund),
        // The refund stays pending.
        Err(error) if error.code == Code::ProcessorUnavailable => Ok(refund),
        Err(error) => Err(error.into()),
    }
}

/// Reduces the credit and commits the refund's row.
async fn begin(
    payments: &Payments,
    id: PaymentId,
    amount: Option<Nano>,
    trail: &Trail,
) -> Result<Refund, OperatorError> {
    let invalid = |message: String| OperatorError::Invalid(message);
    let found = payment_store::get(&mut payments.db.read().await?, id).await?;
    let found = found.ok_or_else(|| invalid(format!("payment {id} doesn't exist")))?;
    let booking = payments.booking(trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, payment) = settlement::lock(&booking, &mut tx, &found).await?;
    if payment.status != PaymentStatus::Succeeded {
        return Err(invalid(format!("the payment is {}, so it can't be refunded", payment.status.as_str())));
    }
    let (currency, unit) = (&payment.currency, ChargeUnit::of(&payment.currency));
    let left = left_of(&mut tx, &wallet, id).await?;
    // The maximum refund, rounded down to a chargeable amount.
    let whole = Nano::from_units(left.units() - left.units().rem_euclid(unit.amount(unit.step()).units()));
    let amount = amount.unwrap_or(whole);
    let units = unit.exactly(amount).filter(|units| *units > 0);
    let units = units.ok_or_else(|| invalid(format!("{amount} {currency} can't be refunded")))?;
    if amount > left {
        return Err(invalid(format!(
            "--amount {amount} can't be refunded: {left} {currency} of the credit remain"
        )));
    }
    let amount_minor = payment.shares().amount_of(units, unit.step());
    let refund = Refund {
        id: RefundId::new(now, &payments.random),
        payment_id: id,
        organization_id: payment.organization_id,
        amount_minor,
        tax_minor: amount_minor - units,
        status: Status::Pending,
        stripe_id: None,
        next_at: Some(now.plus_ms(REPEAT_MS)),
        created_at: now,
    };
    let cause = refund.id.text();
    let own = (id, Cause::first(&cause));
    let taken = take(&booking, &mut tx, &mut wallet, own, amount, Taken::FromOwnCredits).await?;
    if !taken {
        return Err(invalid(format!(
            "{} {currency} of the wallet are reserved for calls in progress: try again when they finish, \
             or refund less",
            wallet.reserved
        )));
    }
    store::insert(&mut tx, &refund).await?;
    let payment = with_refund(payment, &refund, 1);
    payment_store::update(&mut tx, &payment, now).await?;
    payments
        .record(&mut tx, trail, (Action::PaymentRefunded, id.text()), payment.organization_id, now)
        .await?;
    settlement::emit(payments, &mut tx, &payment, PaymentChange::Refunded, now).await?;
    top_up_state::stop(payments, &booking, &mut tx, &mut wallet, (PausedReason::Refunded, None)).await?;
    tx.commit().await?;
    payments.counters.count(Outcome::Refunded);
    payments.tenants.outbox.notify_one();
    Ok(refund)
}

/// Returns a payment with a refund added (`times` is 1) or removed (`times` is -1).
fn with_refund(payment: Payment, refund: &Refund, times: i64) -> Payment {
    Payment {
        refunded_minor: payment.refunded_minor + times * refund.net_minor(),
        returned_tax_minor: payment.returned_tax_minor + times * refund.tax_minor,
        ..payment
    }
}

/// Requests a pending refund from Stripe, stores the outcome, and returns the updated refund.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn ask(payments: &Payments, refund: &Refund) -> Result<Refund, Error> {
    let processor = payments.processor()?;
    let payment = payment_store::get(&mut payments.db.read().await?, refund.payment_id).await?;
    let payment = payment.ok_or(Code::PaymentNotFound)?;
    let intent_id =
        payment.intent_id.clone().ok_or_else(|| Error::internal("a paid payment without its intent"))?;
    // A refund whose response was lost is found by its id, because Stripe remembers a key for only a day.
    let stripe_id = match &refund.stripe_id {
        Some(stripe_id) => Some(stripe_id.clone()),
        None => find(payments, &intent_id, refund.id).await?,
    };
    let made = match stripe_id {
        Some(stripe_id) => processor.client.refund(&stripe_id).await,
        None => {
            let mut metadata = checkout::metadata(&payment);
            metadata.insert(REFUND_ID.to_owned(), refund.id.text());
            let (payment_intent, amount) = (intent_id.as_str(), Some(refund.amount_minor));
            let new = NewRefund { payment_intent, amount, reason: None, metadata };
            processor.client.create_refund(&new, &key(refund.id.text())?).await
        }
    };
    match made {
        Ok(made) => {
            settlement::keep(payments, &payment, &Statement::of_refund(&made)).await?;
            conclude(payments, &payment, refund, &made).await
        }
        Err(stripe::Error::Refused(refusal)) => {
            payments.failed("refunding a payment", &stripe::Error::Refused(refusal));
            give_back(payments, &payment, refund, None).await
        }
        Err(error) => {
            let mut tx = payments.db.write().await?;
            let now = payments.clock.now();
            let age = now.unix_ms() - refund.created_at.unix_ms();
            let next_at = Some(now.plus_ms(age.clamp(REPEAT_MS, 20 * REPEAT_MS)));
            store::postpone(&mut tx, refund.id, next_at).await?;
            tx.commit().await?;
            Err(payments.failed("refunding a payment", &error))
        }
    }
}

/// Searches Stripe for a refund with our id.
async fn find(payments: &Payments, intent_id: &str, id: RefundId) -> Result<Option<String>, Error> {
    let (mut after, id): (Option<String>, _) = (None, id.text());
    loop {
        let created = Created { from: None, until: None, after: after.as_deref() };
        let page = payments.processor()?.client.refunds(Some(intent_id), &created).await;
        let page = page.map_err(|error| payments.failed("reading refunds", &error))?;
        if let Some(found) = page.data.iter().find(|made| made.metadata.get(REFUND_ID) == Some(&id)) {
            return Ok(Some(found.id.clone()));
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => return Ok(None),
        }
    }
}

/// Stores Stripe's status of a refund. The amount of a failed refund is returned to the wallet, even if it
/// had succeeded before.
async fn conclude(
    payments: &Payments,
    payment: &Payment,
    refund: &Refund,
    made: &stripe::Refund,
) -> Result<Refund, Error> {
    if matches!(made.status, Some(RefundStatus::Failed | RefundStatus::Canceled)) {
        return give_back(payments, payment, refund, Some(&made.id)).await;
    }
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    checkout::lock(payments, &mut tx, payment).await?;
    let stored =
        store::get(&mut tx, refund.id).await?.ok_or_else(|| Error::internal("a refund no longer exists"))?;
    if stored.status != Status::Pending {
        return Ok(stored);
    }
    let done =
        Refund { status: Status::Succeeded, stripe_id: Some(made.id.clone()), next_at: None, ..stored };
    store::update(&mut tx, &done, now).await?;
    tx.commit().await?;
    Ok(done)
}

/// Returns the money of a failed refund to the wallet, once.
async fn give_back(
    payments: &Payments,
    payment: &Payment,
    refund: &Refund,
    stripe_id: Option<&str>,
) -> Result<Refund, Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, payment) = settlement::lock(&booking, &mut tx, payment).await?;
    let stored =
        store::get(&mut tx, refund.id).await?.ok_or_else(|| Error::internal("a refund no longer exists"))?;
    if stored.status == Status::Failed {
        return Ok(stored);
    }
    let cause = stored.id.text();
    let receipt = Receipt {
        payment_id: payment.id,
        invoice_id: payment.invoice_id,
        cause: Some(Cause::first(&cause)),
        amount: payment.nano(stored.net_minor()),
    };
    // A refund of a few units may consist of tax only.
    if stored.net_minor() > 0 {
        receive(&booking, &mut tx, &mut wallet, receipt).await?;
    }
    let stripe_id = stripe_id.map(str::to_owned).or(stored.stripe_id.clone());
    let failed = Refund { status: Status::Failed, stripe_id, next_at: None, ..stored };
    store::update(&mut tx, &failed, now).await?;
    let payment = with_refund(payment, &failed, -1);
    payment_store::update(&mut tx, &payment, now).await?;
    let subject = (Action::PaymentRefundFailed, payment.id.text());
    payments.record(&mut tx, &trail, subject, payment.organization_id, now).await?;
    tx.commit().await?;
    tracing::error!(payment_id = %payment.id, refund_id = %failed.id, "a refund has failed, and its money is in the wallet");
    Ok(failed)
}

/// Reads all refunds of a payment from Stripe, and books new ones. The sum in an event isn't used: it's
/// cumulative.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn read_from_stripe(payments: &Payments, payment: &Payment) -> Result<(), Error> {
    let Some(intent_id) = payment.intent_id.clone() else { return Ok(()) };
    let mut after: Option<String> = None;
    loop {
        let created = Created { from: None, until: None, after: after.as_deref() };
        let page = payments.processor()?.client.refunds(Some(&intent_id), &created).await;
        let page = page.map_err(|error| payments.failed("reading refunds", &error))?;
        for made in &page.data {
            book(payments, payment, made).await?;
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => return Ok(()),
        }
    }
}

/// Books a Stripe refund, or its failure, unless already booked. Returns `true` if something was booked.
///
/// # Errors
/// The database fails.
pub(crate) async fn book(
    payments: &Payments,
    payment: &Payment,
    made: &stripe::Refund,
) -> Result<bool, Error> {
    settlement::keep(payments, payment, &Statement::of_refund(made)).await?;
    let rows = store::of_payment(&mut payments.db.read().await?, payment.id).await?;
    let own_id = made.metadata.get(REFUND_ID);
    let is_known = |row: &&Refund| {
        row.stripe_id.as_ref() == Some(&made.id) || own_id.is_some_and(|id| row.id.text() == *id)
    };
    if let Some(known) = rows.iter().find(is_known) {
        let is_failed = matches!(made.status, Some(RefundStatus::Failed | RefundStatus::Canceled));
        let status = if is_failed { Status::Failed } else { Status::Succeeded };
        // A failed refund stays failed, but a successful one may still fail.
        if known.status == status || known.status == Status::Failed {
            return Ok(false);
        }
        let concluded = conclude(payments, payment, known, made).await?;
        return Ok(concluded.status != known.status);
    }
    if matches!(made.status, Some(RefundStatus::Failed | RefundStatus::Canceled)) || made.amount <= 0 {
        return Ok(false);
    }
    book_new(payments, payment, made).await
}

/// Takes the money of a refund made at Stripe out of the wallet.
async fn book_new(payments: &Payments, payment: &Payment, made: &stripe::Refund) -> Result<bool, Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, payment) = settlement::lock(&booking, &mut tx, payment).await?;
    let rows = store::of_payment(&mut tx, payment.id).await?;
    let is_there = rows.iter().any(|row| row.stripe_id.as_ref() == Some(&made.id));
    if is_there || payment.status != PaymentStatus::Succeeded {
        return Ok(false);
    }
    let net = payment.shares().net_of(made.amount);
    let refund = Refund {
        id: RefundId::new(now, &payments.random),
        payment_id: payment.id,
        organization_id: payment.organization_id,
        amount_minor: made.amount,
        tax_minor: made.amount - net,
        status: Status::Succeeded,
        stripe_id: Some(made.id.clone()),
        next_at: None,
        created_at: now,
    };
    let (cause, amount) = (refund.id.text(), payment.nano(net));
    take(&booking, &mut tx, &mut wallet, (payment.id, Cause::first(&cause)), amount, Taken::FromWallet)
        .await?;
    store::insert(&mut tx, &refund).await?;
    let payment = with_refund(payment, &refund, 1);
    payment_store::update(&mut tx, &payment, now).await?;
    let subject = (Action::PaymentRefunded, payment.id.text());
    payments.record(&mut tx, &trail, subject, payment.organization_id, now).await?;
    settlement::emit(payments, &mut tx, &payment, PaymentChange::Refunded, now).await?;
    top_up_state::stop(payments, &booking, &mut tx, &mut wallet, (PausedReason::Refunded, None)).await?;
    tx.commit().await?;
    payments.counters.count(Outcome::Refunded);
    payments.tenants.outbox.notify_one();
    Ok(true)
}
