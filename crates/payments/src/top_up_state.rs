//! The state of automatic top-ups: the balance that triggers a charge, and pauses.

use billing::books::booking::Booking;
use billing::store::wallets::Wallet;
use db::Tx;
use events::data::AutoTopUpPaused;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, PaymentId};
use trail::{Action, Trail};

use crate::store::auto_top_ups::{self, AutoTopUp, PausedReason};
use crate::store::payments::{self as store, Payment, Status};
use crate::{Payments, checkout, notices};

/// Sets the balance below which a locked wallet requests a top-up, and writes the wallet. The trigger is
/// cleared while a top-up is in progress or charging is off.
pub(crate) async fn arm(
    payments: &Payments,
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
) -> Result<(), db::Error> {
    let top_up = auto_top_ups::get(tx, wallet.organization_id).await?;
    let is_under_way = store::top_up_under_way(tx, wallet.organization_id).await?.is_some();
    let below = top_up.filter(|top_up| top_up.is_active() && !is_under_way && payments.is_on());
    booking.set_top_up_threshold(tx, wallet, below.map(|top_up| top_up.threshold)).await
}

/// Cancels a top-up that isn't currently being charged.
pub(crate) async fn abandon(tx: &mut Tx, id: PaymentId, now: Time) -> Result<(), db::Error> {
    match store::get(tx, id).await? {
        Some(payment) if payment.status == Status::Processing && !payment.is_attempt_open => {
            end(tx, payment, Status::Canceled, "disabled", now).await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Stores the final state of a payment and returns it.
pub(crate) async fn end(
    tx: &mut Tx,
    payment: Payment,
    status: Status,
    why: &str,
    now: Time,
) -> Result<Payment, db::Error> {
    let failure_code = Some(why.to_owned());
    let ended = Payment { status, failure_code, is_attempt_open: false, next_at: None, ..payment };
    store::update(tx, &ended, now).await?;
    Ok(ended)
}

/// Pauses the top-up of a locked wallet and notifies the owners of the reason. Does nothing if it's off or
/// already paused.
pub(crate) async fn stop(
    payments: &Payments,
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    (reason, payment): (PausedReason, Option<&Payment>),
) -> Result<(), Error> {
    if pause(payments, booking, tx, wallet, reason).await? {
        let subject = (reason.as_str(), payment);
        notices::notify_owners(payments, tx, wallet.organization_id, subject, booking.now).await?;
    }
    Ok(())
}

/// Pauses the top-up of a locked wallet. Returns `false` if it's off or already paused.
pub(crate) async fn pause(
    payments: &Payments,
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    reason: PausedReason,
) -> Result<bool, Error> {
    let (organization_id, now) = (wallet.organization_id, booking.now);
    let top_up = auto_top_ups::get(tx, organization_id).await?;
    let Some(top_up) = top_up.filter(AutoTopUp::is_active) else { return Ok(false) };
    let next_try_at = (reason == PausedReason::MonthlyCap).then(|| now.day().month().end());
    let paused = AutoTopUp { paused_reason: Some(reason), next_try_at, ..top_up };
    auto_top_ups::put(tx, &paused, paused.updated_at).await?;
    // Also cancel a top-up that is in progress but isn't being charged.
    if let Some(id) = store::top_up_under_way(tx, organization_id).await? {
        abandon(tx, id, now).await?;
    }
    arm(payments, booking, tx, wallet).await?;
    let data = AutoTopUpPaused { organization_id, reason: reason.as_str(), resumes_at: next_try_at };
    events::emit(tx, &data, now, &payments.random).await?;
    let subject = (Action::AutoTopUpPaused, organization_id.text());
    payments.record(tx, booking.trail, subject, organization_id, now).await?;
    payments.counters.paused.inc();
    tracing::warn!(%organization_id, reason = reason.as_str(), "an automatic top-up was paused");
    Ok(true)
}

/// Opens the page on which a customer confirms a charge, and notifies the owners.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub(crate) async fn ask_for_action(payments: &Payments, payment: &Payment) -> Result<(), Error> {
    let processor = payments.processor()?;
    let opened = checkout::open(payments, processor, payment.clone()).await?;
    let now = payments.clock.now();
    let (payment, mut rest) = opened.split();
    if payment.status == Status::ActionRequired {
        let subject = (PausedReason::AuthenticationRequired.as_str(), Some(&payment));
        notices::notify_owners(payments, rest.tx(), payment.organization_id, subject, now).await?;
    }
    rest.commit().await?;
    payments.tenants.outbox.notify_one();
    Ok(())
}

/// Resumes an organization's paused top-up.
///
/// # Errors
/// The database fails.
pub(crate) async fn resume(payments: &Payments, organization_id: OrganizationId) -> Result<(), Error> {
    let trail = Trail::system();
    let booking = payments.booking(&trail);
    let mut tx = payments.db.write().await?;
    let Some(mut wallet) = booking.lock(&mut tx, organization_id).await? else { return Ok(()) };
    let top_up = auto_top_ups::get(&mut tx, organization_id).await?;
    let Some(top_up) = top_up.filter(|top_up| top_up.next_try_at.is_some_and(|at| at <= booking.now)) else {
        return Ok(());
    };
    let resumed = AutoTopUp { paused_reason: None, next_try_at: None, ..top_up };
    auto_top_ups::put(&mut tx, &resumed, resumed.updated_at).await?;
    arm(payments, &booking, &mut tx, &mut wallet).await?;
    tx.commit().await?;
    Ok(())
}
