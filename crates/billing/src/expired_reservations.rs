//! Ends reservations that were not captured, released or extended in time according to the database's clock.
//!
//! An expired reservation with progress belongs to a call of our own gateway that was interrupted. The call
//! is charged for that progress. First the reservation is closed, so that its progress no longer changes.
//! Then its usage event captures it in one transaction. Every replica creates the same event for a closed
//! reservation, so the call is charged only once, even if replicas run at the same time or are interrupted.

use std::collections::BTreeMap;

use crate::books::locked_budgets::LockedBudgets;
use crate::rules::budgets::Spender;
use crate::store::call_progress::{self, InterruptedCall};
use crate::store::reservations::DueReservation;
use crate::{Billing, calls, reservations, store, usage};
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use usage::{CostedEvent, Outcome};

/// Maximum number of reservations that one transaction ends, because calls wait for the same wallets.
const MAX_PER_TRANSACTION: i64 = 200;

/// Ends expired reservations: frees their money, or charges the progress of their calls. Returns their
/// number; replicas that run at the same time count each reservation once.
///
/// # Errors
/// The database fails. A call that can't be charged yet doesn't prevent others from being charged.
pub async fn expire_due(billing: &Billing) -> Result<u64, Error> {
    let (mut ended, mut last, mut failure) = (0, None, None);
    loop {
        if !billing.clock_guard.is_trusted() {
            break;
        }
        let mut tx = billing.db().read().await?;
        let now = billing.clock_guard.time_in(&mut tx).await?;
        let due = store::reservations::due(&mut tx, now, last, MAX_PER_TRANSACTION).await?;
        let Some(after) = due.last().copied() else { break };
        last = Some(after);
        let (freed, interrupted) = end(billing, due).await?;
        ended += freed;
        match charge_all(billing, &interrupted).await {
            Ok(charged) => ended += charged,
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(ended), Err)
}

/// Ends reservations without progress and closes the others, in the order of their organizations' wallets.
/// Returns the number of ended reservations, and the calls to charge.
async fn end(billing: &Billing, due: Vec<DueReservation>) -> Result<(u64, Vec<InterruptedCall>), Error> {
    let mut by_organization: BTreeMap<OrganizationId, Vec<DueReservation>> = BTreeMap::new();
    for reserved in due {
        by_organization.entry(reserved.organization_id).or_default().push(reserved);
    }
    let (mut ended, mut interrupted) = (0, Vec::new());
    let mut tx = billing.db().write().await?;
    for (organization_id, due) in by_organization {
        let mut wallet =
            store::wallets::lock_existing(&mut tx, organization_id, &billing.clock_guard).await?;
        let with_budgets = (wallet.budgets > 0).then_some(organization_id).into_iter().collect();
        let mut budgets = LockedBudgets::new(with_budgets, billing.clock.now());
        let mut free = 0;
        for reserved in due {
            if reserved.has_progress {
                interrupted.extend(call_progress::close(&mut tx, reserved.id, wallet.locked_at).await?);
            } else if let Some(reserved) =
                store::reservations::expire(&mut tx, reserved.id, wallet.locked_at).await?
            {
                free += reserved.amount.units();
                ended += 1;
                budgets.load(&mut tx, [Spender::from(&reserved)]).await?;
                budgets.free(&reserved)?;
            }
        }
        if free > 0 {
            wallet.reserved = Nano::from_units(wallet.reserved.units() - free);
            store::wallets::write(
                &mut tx,
                &mut wallet,
                billing.demo_credit(),
                billing.clock.now(),
                &billing.random,
            )
            .await?;
            budgets.write(billing, &mut tx).await?;
        }
    }
    tx.commit().await?;
    Ok((ended, interrupted))
}

/// Charges interrupted calls together, or one by one if that fails. Returns the number of reservations that
/// ended.
async fn charge_all(billing: &Billing, calls: &[InterruptedCall]) -> Result<u64, Error> {
    match charge(billing, calls).await {
        Err(_) if calls.len() > 1 => {}
        done => return done,
    }
    let (mut ended, mut failure) = (0, None);
    for call in calls {
        match charge(billing, std::slice::from_ref(call)).await {
            Ok(charged) => ended += charged,
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(ended), Err)
}

/// Charges interrupted calls in one transaction, which ends their reservations.
async fn charge(billing: &Billing, calls: &[InterruptedCall]) -> Result<u64, Error> {
    let events: Vec<_> = calls.iter().map(|call| calls::interrupted_event(billing, call)).collect();
    let known: Vec<_> = events.iter().flatten().cloned().map(CostedEvent::from).collect();
    let mut outcomes = usage::record_uncounted(billing, known.into_iter()).await?.into_iter();
    let mut ended = 0;
    for (call, event) in calls.iter().zip(events) {
        let outcome = event.and_then(|_| outcomes.next());
        ended += u64::from(finish(billing, call, outcome).await?);
    }
    Ok(ended)
}

/// Handles the outcome of a call's event: if the event is refused, releases the reservation. Returns `true`
/// if the event or the release has ended the reservation.
async fn finish(billing: &Billing, call: &InterruptedCall, outcome: Option<Outcome>) -> Result<bool, Error> {
    let (call_id, reservation_id) = (call.request_id.as_deref().unwrap_or_default(), call.reservation_id);
    let (prompt_tokens, completion_tokens) = (call.progress.prompt_tokens, call.progress.completion_tokens);
    let why = match outcome {
        Some(Outcome::New) => {
            billing.metrics.usage_events.accepted();
            billing.metrics.interrupted_calls.inc();
            tracing::warn!(
                call_id,
                prompt_tokens,
                completion_tokens,
                "a call's gateway has stopped: the tokens of the call's last progress are charged"
            );
            return Ok(true);
        }
        // Another replica or the gateway has charged the call, which ended the reservation.
        Some(Outcome::Duplicate | Outcome::Conflict) => return release(billing, call).await,
        Some(Outcome::Refused(refusal)) => refusal.message,
        None => "its reservation wasn't made by the gateway".to_owned(),
    };
    tracing::error!(
        call_id, %reservation_id, prompt_tokens, completion_tokens,
        "an interrupted call can't be charged, and its reservation is released: {why}"
    );
    release(billing, call).await
}

/// Frees the amount that is still reserved for a call.
async fn release(billing: &Billing, call: &InterruptedCall) -> Result<bool, Error> {
    match reservations::release(billing, call.reservation_id).await {
        Ok(()) => Ok(true),
        Err(error) if error.code == Code::ReservationNotFound => Ok(false),
        Err(error) => Err(error),
    }
}
