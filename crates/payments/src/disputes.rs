//! Disputes: while a bank holds the money of a payment, the wallet doesn't have it.

use billing::bookkeeping::payments::{Cause, Receipt, Taken, receive, take};
use billing::books::booking::Booking;
use billing::store::wallets::Wallet;
use db::Tx;
use events::data::PaymentChange;
use kernel::clock::Time;
use kernel::error::Error;
use stripe::Dispute as StripeDispute;
use trail::{Action, Trail};

use crate::counters::Outcome;
use crate::rules::disputes::held_minor;
use crate::store::auto_top_ups::PausedReason;
use crate::store::disputes::{self as store, Dispute};
use crate::store::payments::{self as payment_store, Payment, Status};
use crate::store::statements::Statement;
use crate::{Payments, settlement, top_up_state};

/// Books the difference between the amount the bank holds and the amount booked for a disputed payment.
/// Returns `true` if they differed.
///
/// # Errors
/// The database fails.
pub async fn book(payments: &Payments, payment: &Payment, dispute: &StripeDispute) -> Result<bool, Error> {
    settlement::keep(payments, payment, &Statement::of_dispute(dispute)).await?;
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let now = booking.now;
    let mut tx = payments.db.write().await?;
    let (mut wallet, payment) = settlement::lock(&booking, &mut tx, payment).await?;
    let stored = store::get(&mut tx, &dispute.id).await?;
    let (held, booked) = (held_minor(dispute), stored.as_ref().map_or(0, Dispute::held_minor));
    if held == booked || payment.status != Status::Succeeded {
        return Ok(false);
    }
    let is_known = stored.is_some();
    let before = stored.unwrap_or_else(|| Dispute {
        id: dispute.id.clone(),
        payment_id: payment.id,
        organization_id: payment.organization_id,
        amount_minor: 0,
        tax_minor: 0,
        withdrawn_at: now,
        reinstated_at: None,
        bookings: 0,
    });
    let net = net_of(&payment, &before, held);
    let tax_part = (held - booked) - net;
    let amount = payment.nano(net.abs());
    move_amount(&booking, &mut tx, &mut wallet, &payment, &before, net).await?;
    let row = after(before, held, tax_part, now);
    match is_known {
        false => store::insert(&mut tx, &row).await?,
        true => store::update(&mut tx, &row).await?,
    }
    let payment = Payment {
        disputed_minor: payment.disputed_minor + net,
        returned_tax_minor: payment.returned_tax_minor + tax_part,
        ..payment
    };
    payment_store::update(&mut tx, &payment, now).await?;
    let action = if held > booked { Action::PaymentDisputed } else { Action::PaymentReinstated };
    let subject = (action, payment.id.text());
    payments.record(&mut tx, &trail, subject, payment.organization_id, now).await?;
    settlement::emit(payments, &mut tx, &payment, PaymentChange::Disputed, now).await?;
    if held > booked {
        top_up_state::stop(payments, &booking, &mut tx, &mut wallet, (PausedReason::Disputed, None)).await?;
    }
    tx.commit().await?;
    if held > booked {
        payments.counters.count(Outcome::Disputed);
        payments.tenants.outbox.notify_one();
        tracing::warn!(payment_id = %payment.id, organization_id = %payment.organization_id, dispute_id = dispute.id, %amount,
            "a payment was disputed: answer it at Stripe");
    }
    Ok(true)
}

/// Returns the net part of the difference between the amount the bank holds and the booked one. Positive if
/// the wallet loses it.
fn net_of(payment: &Payment, before: &Dispute, held: i64) -> i64 {
    let (booked, tax) = (before.held_minor(), before.held_tax_minor());
    match held > booked {
        true => payment.shares().net_of(held - booked),
        false => -payment.shares().net_back(booked - held, (booked - tax, tax)),
    }
}

/// Takes a net amount out of a locked wallet, or returns it if it's negative.
async fn move_amount(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    payment: &Payment,
    before: &Dispute,
    net: i64,
) -> Result<(), Error> {
    let cause = Cause { id: &before.id, booking: before.bookings + 1 };
    let (payment_id, invoice_id, amount) = (payment.id, payment.invoice_id, payment.nano(net.abs()));
    match net.signum() {
        1 => drop(take(booking, tx, wallet, (payment_id, cause), amount, Taken::FromWallet).await?),
        -1 => {
            let receipt = Receipt { payment_id, invoice_id, cause: Some(cause), amount };
            receive(booking, tx, wallet, receipt).await?;
        }
        // A movement of a few units may consist of tax only.
        _ => {}
    }
    Ok(())
}

/// Returns a dispute after a booking. If the bank no longer holds anything, the dispute keeps its previous
/// amount.
fn after(before: Dispute, held: i64, tax_part: i64, now: Time) -> Dispute {
    let (amount_minor, tax_minor) = match held > 0 {
        true => (held, before.held_tax_minor() + tax_part),
        false => (before.amount_minor, before.tax_minor),
    };
    let reinstated_at = (held == 0).then_some(now);
    Dispute { amount_minor, tax_minor, reinstated_at, bookings: before.bookings + 1, ..before }
}
