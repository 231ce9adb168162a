//! Automatic top-ups: their sum stays within the maximum, and a declined card is charged again no sooner than
//! a day later (docs/contract/payments.md#automatic-top-up).

use std::collections::BTreeMap;

use kernel::clock::{DAY_MS, Day};

use super::evidence::PaymentRow;
use super::finding;
use crate::rules::audit::{Drift, Invariant};

/// Codes of charges that wait for something other than the card.
const OTHER_WAITS: [&str; 2] = ["processor_unavailable", "daily_maximum"];
/// Refusals that are unrelated to the card, such as a deleted customer, or an account that can't charge.
const NO_DECLINES: [&str; 4] =
    ["account_invalid", "api_key_expired", "resource_missing", "testmode_charges_only"];

/// Checks the charges of each day against the maximum that was recorded with them, and the time at which
/// declined charges are retried.
pub fn charges(paid: &[PaymentRow]) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut days: BTreeMap<Day, (i128, i128)> = BTreeMap::new();
    for payment in paid.iter().filter(|payment| payment.kind == "auto_top_up") {
        drifts.extend(next_attempt(payment));
        let (Some(maximum), Some(paid_at)) = (payment.maximum_minor, payment.paid_at) else { continue };
        if payment.status != "succeeded" {
            continue;
        }
        // A charge that was paid on a later day than it was created isn't part of the sum, because the
        // service counted it on the day on which it began.
        let is_of_day = payment.created_at.day() == paid_at.day();
        let (sum, most) = days.entry(paid_at.day()).or_default();
        *most = (*most).max(maximum.into());
        *sum += if is_of_day { i128::from(payment.amount_minor) } else { 0 };
        if payment.amount_minor > maximum {
            let expected = format!("at most {maximum} in Stripe's minor units");
            drifts.push(finding(Invariant::RecountTopUp, &payment.id, expected, payment.amount_minor));
        }
    }
    for (day, (sum, most)) in days.into_iter().filter(|(_, (sum, most))| sum > most) {
        let expected = format!("at most {most} of credit in Stripe's minor units");
        drifts.push(finding(Invariant::RecountTopUp, format!("automatic top-ups of {day}"), expected, sum));
    }
    drifts
}

/// Checks that a declined charge waits for a day.
fn next_attempt(payment: &PaymentRow) -> Option<Drift> {
    let code = payment.failure_code.as_deref()?;
    let waits = payment.status == "processing" && payment.attempts > 0 && !payment.is_attempt_open;
    let next_at = payment.next_at.filter(|_| waits && !OTHER_WAITS.contains(&code))?;
    let earliest = payment.updated_at.plus_ms(DAY_MS);
    if next_at >= earliest {
        return None;
    }
    let expected = format!("the next attempt at {earliest} or later, a day after {code}");
    Some(finding(
        Invariant::RecountTopUpTime,
        &payment.id,
        expected,
        format!("the next attempt at {next_at}"),
    ))
}

/// Checks that automatic top-ups are paused as declined only if the card was declined.
pub fn pause(reason: Option<&str>, paid: &[PaymentRow]) -> Option<Drift> {
    let ended = paid.iter().filter(|payment| payment.kind == "auto_top_up" && payment.status == "failed");
    let last = ended.max_by_key(|payment| payment.updated_at)?;
    let code = last.failure_code.as_deref().filter(|code| NO_DECLINES.contains(code))?;
    if reason != Some("declined") {
        return None;
    }
    let expected = "no pause, or a pause because no card is saved: a refused request isn't a decline";
    Some(finding(Invariant::RecountTopUpPause, &last.id, expected, format!("declined because of {code}")))
}
