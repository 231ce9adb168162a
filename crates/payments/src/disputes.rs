//! Disputes: while a bank has the money of a payment, the wallet doesn't.

use billing::bookkeeping::payments::{Receipt, Taken, receive, take};
use events::data::PaymentChange;
use kernel::error::Error;
use stripe::Dispute as StripeDispute;
use trail::{Action, Trail};

use crate::counters::Outcome;
use crate::store::auto_top_ups::PausedReason;
use crate::store::disputes::{self as store, Dispute};
use crate::store::payments::{self as payment_store, Payment, Status};
use crate::{Payments, charging, settlement};

/// Books what a dispute has taken from the account at Stripe, and what it has brought back: each once.
///
/// # Errors
/// The database fails.
pub async fn book(payments: &Payments, payment: &Payment, dispute: &StripeDispute) -> Result<(), Error> {
    // An inquiry takes nothing. What it takes is in the currency of the account, so only that it does is read from there.
    let has_taken = dispute.balance_transactions.iter().any(|moved| moved.amount < 0);
    let has_returned = dispute.balance_transactions.iter().any(|moved| moved.amount > 0);
    if has_taken {
        withdraw(payments, payment, dispute).await?;
    }
    if has_taken && has_returned {
        reinstate(payments, payment, dispute).await?;
    }
    Ok(())
}

async fn withdraw(payments: &Payments, payment: &Payment, dispute: &StripeDispute) -> Result<(), Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, payment) = settlement::lock(&booking, &mut tx, payment).await?;
    let is_booked = store::get(&mut tx, &dispute.id).await?.is_some();
    if is_booked || payment.status != Status::Succeeded || dispute.amount <= 0 {
        return Ok(());
    }
    let subject = (payment.id, dispute.id.as_str());
    let net = payment.shares().net_of(dispute.amount);
    let amount = payment.nano(net);
    take(&booking, &mut tx, &mut wallet, subject, amount, Taken::FromWallet).await?;
    let row = Dispute {
        id: dispute.id.clone(),
        payment_id: payment.id,
        organization_id: payment.organization_id,
        amount_minor: dispute.amount,
        tax_minor: dispute.amount - net,
        withdrawn_at: now,
        reinstated_at: None,
    };
    store::insert(&mut tx, &row).await?;
    let payment = Payment {
        disputed_minor: payment.disputed_minor + net,
        returned_tax_minor: payment.returned_tax_minor + row.tax_minor,
        ..payment
    };
    payment_store::update(&mut tx, &payment, now).await?;
    let subject = (Action::PaymentDisputed, payment.id.text());
    payments.record(&mut tx, &trail, subject, payment.organization_id, now).await?;
    settlement::emit(payments, &mut tx, &payment, PaymentChange::Disputed, now).await?;
    charging::stop(payments, &booking, &mut tx, &mut wallet, (PausedReason::Disputed, None)).await?;
    tx.commit().await?;
    payments.counters.count(Outcome::Disputed);
    payments.tenants.outbox.notify_one();
    tracing::warn!(payment_id = %payment.id, organization_id = %payment.organization_id, dispute_id = dispute.id, %amount,
        "a payment was disputed: answer it at Stripe");
    Ok(())
}

async fn reinstate(payments: &Payments, payment: &Payment, dispute: &StripeDispute) -> Result<(), Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, payment) = settlement::lock(&booking, &mut tx, payment).await?;
    let row = store::get(&mut tx, &dispute.id).await?;
    let Some(row) = row.filter(|row| row.reinstated_at.is_none()) else { return Ok(()) };
    let receipt = Receipt {
        payment_id: payment.id,
        invoice_id: payment.invoice_id,
        cause: Some(&row.id),
        amount: payment.nano(row.net_minor()),
    };
    if row.net_minor() > 0 {
        receive(&booking, &mut tx, &mut wallet, receipt).await?;
    }
    store::set_reinstated(&mut tx, &row.id, now).await?;
    let payment = Payment {
        disputed_minor: payment.disputed_minor - row.net_minor(),
        returned_tax_minor: payment.returned_tax_minor - row.tax_minor,
        ..payment
    };
    payment_store::update(&mut tx, &payment, now).await?;
    let subject = (Action::PaymentReinstated, payment.id.text());
    payments.record(&mut tx, &trail, subject, payment.organization_id, now).await?;
    settlement::emit(payments, &mut tx, &payment, PaymentChange::Disputed, now).await?;
    tx.commit().await?;
    Ok(())
}
