//! Daily comparison with Stripe of all payments, refunds, disputes, pages for saving a card, and events.
//! Differences that it can't repair become findings of the audit.

pub(crate) mod events;
mod returns;

use std::collections::BTreeMap;

use kernel::clock::{DAY_MS, HOUR_MS, Time};
use kernel::error::Error;
use kernel::ids::PaymentId;
use stripe::{Created, PaymentIntent, PaymentIntentStatus};

use crate::rules::verification::PAYMENT_ID;
use crate::store::findings::{self, Finding};
use crate::store::payments::{self as store, Payment, Status};
use crate::store::stripe_events;
use crate::{Payments, orphans, settlement};

/// Interval between comparisons, in milliseconds.
pub(crate) const EVERY_MS: i64 = DAY_MS;
/// Overlap of consecutive comparisons, in milliseconds. Stripe retries webhooks for three days.
const OVERLAP_MS: i64 = 4 * DAY_MS;
/// Lookback of the first comparison, in milliseconds.
const FIRST_MS: i64 = 90 * DAY_MS;
/// Minimum age of compared payments, in milliseconds. By then they are no longer in progress.
const SETTLED_MS: i64 = HOUR_MS;
/// Age at which an event that keeps failing becomes a finding of the audit, in milliseconds.
const STUCK_MS: i64 = DAY_MS;
/// Overlap of consecutive comparisons of events, in milliseconds.
const EVENT_OVERLAP_MS: i64 = HOUR_MS;
/// Maximum number of stuck events that one comparison records.
const MAX_STUCK: i64 = 100;

/// Compares all payments with Stripe, unless that was done within the last day. Returns `true` if the
/// comparison ran.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn run_due(payments: &Payments) -> Result<bool, Error> {
    let now = payments.clock.now();
    let last = findings::compared_at(&mut payments.db.read().await?).await?;
    if last.is_some_and(|last| last.plus_ms(EVERY_MS) > now) {
        return Ok(false);
    }
    let until = now.plus_ms(-SETTLED_MS);
    let since = |overlap_ms: i64| last.map_or(now.plus_ms(-FIRST_MS), |last| last.plus_ms(-overlap_ms));
    let begun_at = now;
    compare(payments, since(OVERLAP_MS), until).await?;
    returns::refunds(payments, (since(OVERLAP_MS), until)).await?;
    returns::disputes(payments, (since(OVERLAP_MS), until)).await?;
    returns::set_ups(payments).await?;
    events::compare(payments, (since(SETTLED_MS + EVENT_OVERLAP_MS), until)).await?;
    check_events(payments).await?;
    let mut tx = payments.db.write().await?;
    findings::remove_before(&mut tx, begun_at).await?;
    findings::set_compared_at(&mut tx, now).await?;
    tx.commit().await?;
    Ok(true)
}

/// Compares the payments of an interval in both directions: Stripe's with ours, and ours with Stripe's.
///
/// # Errors
/// Stripe can't be reached; the database fails.
async fn compare(payments: &Payments, from: Time, until: Time) -> Result<(), Error> {
    let mut at_stripe: BTreeMap<String, String> = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let created = Created {
            from: Some(from.unix_seconds()),
            until: Some(until.unix_seconds()),
            after: after.as_deref(),
        };
        let page = payments.processor()?.client.payment_intents(&created).await;
        let page = page.map_err(|error| payments.failed("comparing payments", &error))?;
        for intent in &page.data {
            let Some(payment_id) = intent.metadata.get(PAYMENT_ID) else { continue };
            if intent.status == PaymentIntentStatus::Succeeded {
                at_stripe.insert(intent.id.clone(), payment_id.clone());
                check_intent(payments, payment_id, intent).await?;
            } else if intent.status == PaymentIntentStatus::Other
                && let Some(payment) = known(payments, payment_id).await?
            {
                put_unknown(payments, &payment, &intent.id).await?;
            }
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => break,
        }
    }
    check_own(payments, (from, until), &at_stripe).await
}

/// Returns the payment with this id, if it exists.
async fn known(payments: &Payments, payment_id: &str) -> Result<Option<Payment>, Error> {
    let Some(id) = PaymentId::parse(payment_id) else { return Ok(None) };
    Ok(store::get(&mut payments.db.read().await?, id).await?)
}

/// Credits a Stripe payment that is missing here, or records why it can't be credited.
async fn check_intent(payments: &Payments, payment_id: &str, intent: &PaymentIntent) -> Result<(), Error> {
    let Some(payment) = known(payments, payment_id).await? else {
        let expected = "a payment that exists here".to_owned();
        let found = format!("{} of {payment_id:.40}", intent.amount_received);
        return put(
            payments,
            Finding { object_id: intent.id.clone(), organization_id: None, expected, found },
        )
        .await;
    };
    let is_settled = payment.status == Status::Succeeded && payment.intent_id.as_ref() == Some(&intent.id);
    if is_settled && payment.total_minor() == Some(intent.amount_received) {
        return orphans::look_at(payments, &payment).await;
    }
    match settlement::settle_intent(payments, &payment, intent).await {
        Ok(_) => {
            tracing::warn!(%payment_id, "credited a payment for which no event arrived");
            Ok(())
        }
        // `settle` has already recorded the difference.
        Err(error) if error.code == kernel::error::Code::Internal => Ok(()),
        Err(error) => Err(error),
    }
}

/// Records payments that succeeded here but not at Stripe.
async fn check_own(
    payments: &Payments,
    (from, until): (Time, Time),
    at_stripe: &BTreeMap<String, String>,
) -> Result<(), Error> {
    // The payment intent may be up to a day older, and therefore missing from the list.
    let from = from.plus_ms(OVERLAP_MS / 2);
    for payment in store::paid_between(&mut payments.db.read().await?, from, until).await? {
        let Some(intent_id) = payment.intent_id.clone() else { continue };
        if at_stripe.contains_key(&intent_id) {
            continue;
        }
        // The intent may be older than the interval.
        let intent = payments.processor()?.client.payment_intent(&intent_id).await;
        let found = match intent {
            Ok(intent) if intent.status == PaymentIntentStatus::Succeeded => continue,
            Ok(intent) => crate::rules::verification::status(intent.status).to_owned(),
            Err(error) if error.is_missing() => "nothing".to_owned(),
            Err(error) => return Err(payments.failed("comparing a payment", &error)),
        };
        let finding = Finding {
            object_id: payment.id.text(),
            organization_id: Some(payment.organization_id),
            expected: format!("a payment that has succeeded at Stripe ({intent_id})"),
            found,
        };
        put(payments, finding).await?;
    }
    Ok(())
}

/// Records events that have failed for a day.
async fn check_events(payments: &Payments) -> Result<(), Error> {
    let before = payments.clock.now().plus_ms(-STUCK_MS);
    let stuck = stripe_events::stuck(&mut payments.db.read().await?, before, MAX_STUCK).await?;
    for (object_id, event_type, found) in stuck {
        let expected = format!("{event_type} to be processed");
        put(payments, Finding { object_id, organization_id: None, expected, found }).await?;
    }
    Ok(())
}

/// Records that an object of a payment has a status unknown to this version.
async fn put_unknown(payments: &Payments, payment: &Payment, object_id: &str) -> Result<(), Error> {
    let finding = Finding {
        object_id: object_id.to_owned(),
        organization_id: Some(payment.organization_id),
        expected: "a known status".to_owned(),
        found: "another status".to_owned(),
    };
    put(payments, finding).await
}

async fn put(payments: &Payments, finding: Finding) -> Result<(), Error> {
    tracing::error!(
        object = finding.object_id,
        "comparing payments with Stripe: expected {}, found {}",
        finding.expected,
        finding.found
    );
    let mut tx = payments.db.write().await?;
    findings::put(&mut tx, &finding, payments.clock.now()).await?;
    Ok(tx.commit().await?)
}
