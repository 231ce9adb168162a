//! Comparison of Stripe's refunds, disputes, and pages for saving a card with ours.

use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use stripe::{Created, DisputeStatus, Expandable, Page, RefundStatus};

use super::{put, put_unknown};
use crate::rules::disputes::held_minor;
use crate::store::findings::Finding;
use crate::store::payments::{self as payment_store, Payment};
use crate::store::{customers, disputes as dispute_store};
use crate::{Payments, cards, disputes, refunds};

/// Maximum age of compared refunds, in milliseconds. They may fail until then.
const REFUNDS_MS: i64 = 31 * DAY_MS;
/// Maximum age of compared disputes, in milliseconds. A bank may move their money until then.
const DISPUTES_MS: i64 = 365 * DAY_MS;
/// Number of pages for saving a card that are read at a time.
const SLICE: i64 = 100;

/// Books Stripe's refunds that aren't booked yet.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn refunds(payments: &Payments, (from, until): (Time, Time)) -> Result<(), Error> {
    let from = from.min(until.plus_ms(-REFUNDS_MS));
    let mut after: Option<String> = None;
    loop {
        let created = created((from, until), after.as_deref());
        let page = payments.processor()?.client.refunds(None, &created).await;
        let Some(page) = readable(payments, "Refunds", page).await? else { return Ok(()) };
        for made in &page.data {
            let Some(payment) = payment_of(payments, made.payment_intent.as_ref()).await? else { continue };
            if made.status == Some(RefundStatus::Other) {
                put_unknown(payments, &payment, &made.id).await?;
            }
            let booked = refunds::book(payments, &payment, made).await;
            log_booking(booked, "a refund", &made.id)?;
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => return Ok(()),
        }
    }
}

/// Books money that banks moved in disputes and that isn't booked yet.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn disputes(payments: &Payments, (from, until): (Time, Time)) -> Result<(), Error> {
    let from = from.min(until.plus_ms(-DISPUTES_MS));
    let mut after: Option<String> = None;
    loop {
        let created = created((from, until), after.as_deref());
        let page = payments.processor()?.client.disputes(None, &created).await;
        let Some(page) = readable(payments, "Disputes", page).await? else { return Ok(()) };
        for dispute in &page.data {
            // Nearly all are booked already and need no lock.
            let stored = dispute_store::get(&mut payments.db.read().await?, &dispute.id).await?;
            let is_booked = stored.map_or(0, |stored| stored.held_minor()) == held_minor(dispute);
            if is_booked && dispute.status != DisputeStatus::Other {
                continue;
            }
            let Some(payment) = payment_of(payments, dispute.payment_intent.as_ref()).await? else {
                continue;
            };
            if dispute.status == DisputeStatus::Other {
                put_unknown(payments, &payment, &dispute.id).await?;
            }
            let booked = disputes::book(payments, &payment, dispute).await;
            log_booking(booked, "a dispute", &dispute.id)?;
        }
        match page.data.last() {
            Some(last) if page.has_more => after = Some(last.id.clone()),
            _ => return Ok(()),
        }
    }
}

/// Saves cards entered on pages that are still open here, and closes expired pages.
///
/// # Errors
/// Stripe can't be reached; the database fails.
pub async fn set_ups(payments: &Payments) -> Result<(), Error> {
    let mut after = None;
    loop {
        let open = customers::with_set_up(&mut payments.db.read().await?, after, SLICE).await?;
        let Some(last) = open.last() else { return Ok(()) };
        after = Some(last.organization_id);
        for before in &open {
            let Some(session_id) = &before.setup_session_id else { continue };
            let session = match payments.processor()?.client.checkout_session(session_id).await {
                Err(error) if error.is_missing() => continue,
                session => session.map_err(|error| payments.failed("reading a Checkout session", &error))?,
            };
            let saved = cards::save_set_up(payments, &session).await;
            let now = customers::get(&mut payments.db.read().await?, before.organization_id).await?;
            let has_changed = now.is_some_and(|now| now.method_id != before.method_id);
            log_booking(saved.map(|()| has_changed), "a card", session_id)?;
        }
    }
}

fn created((from, until): (Time, Time), after: Option<&str>) -> Created<'_> {
    Created { from: Some(from.unix_seconds()), until: Some(until.unix_seconds()), after }
}

async fn payment_of(
    payments: &Payments,
    intent: Option<&Expandable<stripe::PaymentIntent>>,
) -> Result<Option<Payment>, Error> {
    let Some(intent) = intent else { return Ok(None) };
    Ok(payment_store::by_intent(&mut payments.db.read().await?, intent.id()).await?)
}

/// Returns a page; `None` if the key may not read the list, which becomes a finding.
async fn readable<T>(
    payments: &Payments,
    list: &str,
    page: Result<Page<T>, stripe::Error>,
) -> Result<Option<Page<T>>, Error> {
    match page {
        Ok(page) => Ok(Some(page)),
        Err(error) if error.is_forbidden() => {
            let (expected, found) = (format!("a secret key that may read {list}"), error.to_string());
            let finding = Finding { object_id: list.to_owned(), organization_id: None, expected, found };
            put(payments, finding).await?;
            Ok(None)
        }
        Err(error) => Err(payments.failed(&format!("comparing {list}"), &error)),
    }
}

/// Logs a booking of the comparison. A failure doesn't block the remaining objects.
fn log_booking(booked: Result<bool, Error>, what: &str, id: &str) -> Result<(), Error> {
    match booked {
        Ok(true) => tracing::warn!(object = id, "booked {what} for which no event has arrived yet"),
        Ok(false) => {}
        Err(error) if error.code == Code::Internal => tracing::error!(object = id, "{what}: {error}"),
        Err(error) => return Err(error),
    }
    Ok(())
}
