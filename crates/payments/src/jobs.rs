//! Jobs for events of Stripe, charges, open payments, refunds, tasks at Stripe, and the daily comparison.
//! They run on one replica at a time. Each step checks whether work remains, so running it twice is
//! harmless.

use cluster::leases::Lease;
use kernel::clock::{DAY_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use stripe::IdempotencyKey;

use crate::counters::Handling;
use crate::processor::key;
use crate::store::findings;
use crate::store::payments::{self as payment_store, Payment};
use crate::store::stripe_events::{self, StripeEvent};
use crate::store::stripe_tasks::{self, Task, TaskKind};
use crate::store::{auto_top_ups, customers, due, refunds as refund_store};
use crate::{
    Payments, cards, charging, comparison, handling, payments as operations, refunds, settlement,
    top_up_state,
};

/// Maximum number of rows of a kind per run.
const SLICE: i64 = 50;
/// Delays before the first attempts of an event or a task, in milliseconds. The last one repeats.
const WAITS_MS: [i64; 6] =
    [5 * SECOND_MS, 30 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, 120 * MINUTE_MS, 360 * MINUTE_MS];
/// Maximum length of a stored error, in characters.
const MAX_ERROR_CHARS: usize = 300;
/// Interval at which deleted organizations and pages for saving a card are checked, in milliseconds.
const CLEAN_UP_MS: i64 = 5 * MINUTE_MS;
/// Retention of processed events, in milliseconds.
const RETENTION_MS: i64 = 30 * DAY_MS;

/// Does all due work, unless another replica is doing so.
///
/// # Errors
/// The database fails.
pub async fn run_leased(payments: &Payments, lease: &Lease) -> Result<(), Error> {
    if !payments.is_on() || !is_due(payments).await? {
        return Ok(());
    }
    lease.run_with_lease(Box::pin(run_due(payments))).await?.unwrap_or(Ok(()))
}

/// Returns `true` if work may be due, so that an idle server doesn't take the lease.
async fn is_due(payments: &Payments) -> Result<bool, Error> {
    let now = payments.clock.now();
    let is_time_to_clean = payments.is_time_to_clean_up(CLEAN_UP_MS);
    let mut tx = payments.db.read().await?;
    Ok(is_time_to_clean || due::is_anything(&mut tx, now, now.plus_ms(-comparison::EVERY_MS)).await?)
}

/// Does all due work. Requests to Stripe that fail are retried later.
///
/// # Errors
/// The database fails.
pub async fn run_due(payments: &Payments) -> Result<(), Error> {
    if !payments.is_on() {
        return Ok(());
    }
    do_events(payments).await?;
    resume_top_ups(payments).await?;
    look_at_payments(payments).await?;
    ask_for_refunds(payments).await?;
    do_tasks(payments).await?;
    clean_up(payments).await?;
    // A wrong clock would report payments as missing.
    if payments.clock_guard.is_trusted() {
        pass(comparison::run_due(payments).await.map(|_| ()))?;
    }
    Ok(())
}

/// Returns the delay before the next attempt.
fn wait_ms(attempts: i64) -> i64 {
    let index = usize::try_from(attempts).unwrap_or(usize::MAX).min(WAITS_MS.len() - 1);
    WAITS_MS.get(index).copied().unwrap_or(MINUTE_MS)
}

/// Returns only errors of the database. Others concern a single row and are logged.
fn pass(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if is_of_database(&error) => Err(error),
        Err(error) => {
            if error.code != Code::ProcessorUnavailable {
                tracing::error!("payments: {error}");
            }
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn is_of_database(error: &Error) -> bool {
    matches!(
        error.code,
        Code::DatabaseUnavailable | Code::StorageFull | Code::StorageReadOnly | Code::NotReady
    )
}

async fn do_events(payments: &Payments) -> Result<(), Error> {
    let due = stripe_events::due(&mut payments.db.read().await?, payments.clock.now(), SLICE).await?;
    for event in due {
        do_event(payments, &event).await?;
    }
    Ok(())
}

async fn do_event(payments: &Payments, event: &StripeEvent) -> Result<(), Error> {
    let outcome = Box::pin(handling::handle(payments, event)).await;
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    match &outcome {
        Ok(()) => {
            stripe_events::set_done(&mut tx, &event.id, now).await?;
            // A comparison may have found that the event was stuck.
            findings::remove(&mut tx, &event.id).await?;
        }
        Err(error) if is_of_database(error) => {}
        Err(error) => {
            let next_at = now.plus_ms(wait_ms(event.attempts));
            stripe_events::set_failed(&mut tx, &event.id, next_at, &shortened(error)).await?;
            tracing::warn!(event_id = event.id, event_type = event.event_type, next_at = %next_at,
                "can't process an event from Stripe: {error}");
        }
    }
    tx.commit().await?;
    payments.counters.count_event(if outcome.is_ok() { Handling::Done } else { Handling::Failed });
    match outcome {
        Err(error) if is_of_database(&error) => Err(error),
        _ => Ok(()),
    }
}

fn shortened(error: &Error) -> String {
    error.to_string().chars().take(MAX_ERROR_CHARS).collect()
}

async fn resume_top_ups(payments: &Payments) -> Result<(), Error> {
    let due = auto_top_ups::due(&mut payments.db.read().await?, payments.clock.now(), SLICE).await?;
    for organization_id in due {
        top_up_state::resume(payments, organization_id).await?;
    }
    Ok(())
}

async fn look_at_payments(payments: &Payments) -> Result<(), Error> {
    let due = payment_store::due(&mut payments.db.read().await?, payments.clock.now(), SLICE).await?;
    for id in due {
        let payment = payment_store::get(&mut payments.db.read().await?, id).await?;
        let Some(payment) = payment else { continue };
        let outcome = Box::pin(look_at(payments, &payment)).await;
        if outcome.is_err() {
            // Postpone it, so that a payment that keeps failing doesn't block the others.
            postpone(payments, &payment, payments.clock.now()).await?;
        }
        pass(outcome)?;
    }
    Ok(())
}

async fn postpone(payments: &Payments, payment: &Payment, now: Time) -> Result<(), Error> {
    let mut tx = payments.db.write().await?;
    payment_store::postpone_due(&mut tx, payment.id, now, now.plus_ms(MINUTE_MS)).await?;
    Ok(tx.commit().await?)
}

async fn look_at(payments: &Payments, payment: &Payment) -> Result<(), Error> {
    if charging::is_charge(payment) {
        return charging::charge(payments, payment).await;
    }
    if payment.status.waits_for_customer() && !has_organization(payments, payment).await? {
        return abandon(payments, payment).await;
    }
    settlement::settle(payments, payment).await?;
    Ok(())
}

async fn has_organization(payments: &Payments, payment: &Payment) -> Result<bool, Error> {
    let mut tx = payments.db.read().await?;
    Ok(payment_store::has_organization(&mut tx, payment.organization_id).await?)
}

/// Cancels an open payment of a deleted organization, unless it was just paid.
async fn abandon(payments: &Payments, payment: &Payment) -> Result<(), Error> {
    let payment = match &payment.session_id {
        Some(_) => settlement::settle(payments, payment).await?,
        None => payment.clone(),
    };
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    let payment = crate::checkout::lock(payments, &mut tx, &payment).await?;
    if payment.status.waits_for_customer() {
        operations::cancel(&mut tx, payment, "organization_deleted", now).await?;
    }
    Ok(tx.commit().await?)
}

async fn ask_for_refunds(payments: &Payments) -> Result<(), Error> {
    let due = refund_store::due(&mut payments.db.read().await?, payments.clock.now(), SLICE).await?;
    for refund in due {
        pass(refunds::ask(payments, &refund).await.map(|_| ()))?;
    }
    Ok(())
}

async fn do_tasks(payments: &Payments) -> Result<(), Error> {
    let due = stripe_tasks::due(&mut payments.db.read().await?, payments.clock.now(), SLICE).await?;
    for task in due {
        let outcome = do_task(payments, &task).await;
        let mut tx = payments.db.write().await?;
        match outcome {
            Ok(()) => stripe_tasks::remove(&mut tx, &task).await?,
            Err(error) => {
                let next_at = payments.clock.now().plus_ms(wait_ms(task.attempts));
                stripe_tasks::set_failed(&mut tx, &task, next_at, &shortened(&error)).await?;
            }
        }
        tx.commit().await?;
    }
    Ok(())
}

async fn do_task(payments: &Payments, task: &Task) -> Result<(), Error> {
    let client = &payments.processor()?.client;
    let id = task.object_id.as_str();
    let key: IdempotencyKey = key(format!("{}:{id}:{}", task.kind.as_str(), task.attempts))?;
    let done = match task.kind {
        TaskKind::ExpireSession => client.expire_checkout_session(id, &key).await.map(|_| ()),
        TaskKind::DetachMethod => client.detach_payment_method(id, &key).await.map(|_| ()),
    };
    match done {
        // Already done, or the object no longer exists.
        Err(stripe::Error::Refused(refusal)) => {
            tracing::info!(object = id, "a task at Stripe is no longer needed: {refusal}");
            Ok(())
        }
        done => done.map_err(|error| payments.failed("a task at Stripe", &error)),
    }
}

/// Removes deleted organizations' data at Stripe, and checks the pages for saving a card.
async fn clean_up(payments: &Payments) -> Result<(), Error> {
    if !payments.may_clean_up(CLEAN_UP_MS) {
        return Ok(());
    }
    let left = customers::left_behind(&mut payments.db.read().await?, SLICE).await?;
    for organization_id in left {
        cards::clean_up(payments, organization_id).await?;
    }
    look_at_set_ups(payments).await
}

/// Checks the pages for saving a card, because their events may get lost.
async fn look_at_set_ups(payments: &Payments) -> Result<(), Error> {
    for customer in customers::oldest_with_set_up(&mut payments.db.read().await?, SLICE).await? {
        pass(cards::look_at_set_up(payments, &customer).await)?;
        let mut tx = payments.db.write().await?;
        // Updates the row's time, so that the next run starts with others.
        customers::lock(&mut tx, customer.organization_id, payments.clock.now()).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Deletes events that were processed long ago.
///
/// # Errors
/// The database fails.
pub async fn sweep(payments: &Payments) -> Result<(), Error> {
    let before = payments.clock.now().plus_ms(-RETENTION_MS);
    let mut tx = payments.db.write().await?;
    stripe_events::remove_done(&mut tx, before, 10 * SLICE).await?;
    Ok(tx.commit().await?)
}
