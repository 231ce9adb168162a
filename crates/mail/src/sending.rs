//! Sends the mail in the outbox.
//!
//! A mail is taken by one replica for `LEASE_MS`; who dies with it gives it back that way, so a mail may be sent twice
//! but is never lost. Its token is made when it leaves: a later attempt voids the token of an earlier one.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::bounds::WINDOW_MS;
use crate::store;
use crate::store::outbox::QueuedMail;
use crate::{DeliveryError, Mail};
use db::Tx;
use kernel::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::Error;
use kernel::ids::RequestId;
use telemetry::InRequest;

/// How long a replica may take for one mail, in milliseconds.
const LEASE_MS: i64 = 2 * MINUTE_MS;
/// No mail waits longer than this for its next attempt, in milliseconds, also by clocks that differ.
const LATEST_MS: i64 = 2 * LONGEST_WAIT_MS;
/// After this a mail is given up, in milliseconds.
const GIVE_UP_MS: i64 = DAY_MS;
/// The first wait after a failure, in milliseconds; each further one is twice as long.
const FIRST_WAIT_MS: i64 = 10 * SECOND_MS;
/// The longest wait between attempts, in milliseconds.
const LONGEST_WAIT_MS: i64 = HOUR_MS;
/// Mails that are under way at a time, and so the connections to the mail server.
const AT_ONCE: usize = 8;
/// How often we look for more mail while some is under way.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Sends everything that is due; how many mails left. When the server stops, what is under way is sent, and no more taken.
pub async fn send_due(mail: &Mail) -> Result<usize, Error> {
    // Each in a place of its own: a mail that a slow server holds up takes one place, and the others go on. A mail is
    // taken only when its place is free, so that none of its lease is spent on waiting.
    let mut under_way = FuturesUnordered::new();
    let mut tally = Tally { sent: 0, failure: None };
    loop {
        if tally.failure.is_none() && !mail.is_stopping() {
            let mut claim = pin!(claim(mail, AT_ONCE.saturating_sub(under_way.len())));
            let claimed = loop {
                // What is under way must go on: the database may be waiting for it, and we for the database.
                tokio::select! {
                    claimed = &mut claim => break claimed,
                    Some(outcome) = under_way.next() => tally.add(outcome),
                }
            };
            match claimed {
                Ok(queued) => under_way.extend(queued.into_iter().map(|queued| in_its_request(mail, queued))),
                Err(error) => tally.failure = Some(error),
            }
        }
        tokio::select! {
            outcome = under_way.next() => match outcome {
                None => break,
                Some(outcome) => tally.add(outcome),
            },
            () = mail.outbox.notified(), if tally.failure.is_none() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
    mail.mailer.close_idle(mail.clock.now()).await;
    tally.failure.map_or(Ok(tally.sent), Err)
}

/// Removes counts of mails that are over, and lets mails leave now whose next attempt a clock that was ahead has put off.
///
/// # Errors
/// The database's.
pub async fn sweep(mail: &Mail) -> Result<(), Error> {
    let now = mail.clock.now();
    let mut tx = mail.db.write().await?;
    store::mail_counters::remove_older_than(&mut tx, now.plus_ms(-WINDOW_MS)).await?;
    store::outbox::recall(&mut tx, now, now.plus_ms(LATEST_MS)).await?;
    Ok(tx.commit().await?)
}

/// What became of the mails so far.
struct Tally {
    sent: usize,
    /// Nothing more is taken after one, but what is under way goes on to its end: the server may have it already.
    failure: Option<Error>,
}

impl Tally {
    fn add(&mut self, outcome: Result<bool, Error>) {
        match outcome {
            Ok(left) => self.sent += usize::from(left),
            Err(error) => self.failure = Some(error),
        }
    }
}

/// Takes what is due, as far as there are places.
async fn claim(mail: &Mail, places: usize) -> Result<Vec<QueuedMail>, Error> {
    if places == 0 {
        return Ok(Vec::new());
    }
    let now = mail.clock.now();
    let mut tx = mail.db.write().await?;
    let most = i64::try_from(places).unwrap_or(i64::MAX);
    let mails = store::outbox::claim(&mut tx, most, now, now.plus_ms(LEASE_MS)).await?;
    tx.commit().await?;
    Ok(mails)
}

/// Sends one mail; what the log says of it names the request that caused it.
fn in_its_request(mail: &Mail, queued: QueuedMail) -> impl Future<Output = Result<bool, Error>> {
    let request_id = queued.about.request_id.as_deref().and_then(RequestId::parse);
    InRequest::new(request_id, None, Box::pin(send(mail, queued)))
}

/// Sends one mail, or sets its next attempt; whether it left.
async fn send(mail: &Mail, queued: QueuedMail) -> Result<bool, Error> {
    let queued = &queued;
    let outcome = match (mail.write)(queued).await? {
        // Nobody has this address, or the mail has nothing to say any more.
        None => Ok(false),
        Some(message) => mail.mailer.deliver(&message, mail.clock.now(), &mail.random).await.map(|()| true),
    };
    let now = mail.clock.now();
    let mut tx = mail.db.write().await?;
    let left = match outcome {
        Ok(left) => {
            store::outbox::remove(&mut tx, queued.id).await?;
            left
        }
        Err(error) => {
            after_failure(mail, &mut tx, queued, &error, now).await?;
            false
        }
    };
    tx.commit().await?;
    if left {
        mail.metrics.mails_sent.fetch_add(1, Ordering::Relaxed);
        tracing::info!(mail_id = %queued.id, template = queued.template.as_str(), "a mail left");
    }
    Ok(left)
}

async fn after_failure(
    mail: &Mail,
    tx: &mut Tx,
    queued: &QueuedMail,
    error: &DeliveryError,
    now: Time,
) -> Result<(), Error> {
    let (mail_id, template) = (queued.id, queued.template.as_str());
    let next = next_attempt(queued.attempts, now);
    let over = next >= queued.created_at.plus_ms(GIVE_UP_MS);
    if over || error.is_permanent() {
        mail.metrics.mails_given_up.fetch_add(1, Ordering::Relaxed);
        let attempts = queued.attempts;
        tracing::error!(%mail_id, template, attempts, "gave a mail up: {error}");
        store::outbox::remove(tx, queued.id).await?;
    } else {
        mail.metrics.mails_failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%mail_id, template, attempts = queued.attempts, next_attempt_at = %next, "a mail did not leave: {error}");
        store::outbox::retry_at(tx, queued.id, next).await?;
    }
    Ok(())
}

/// When to try again after this many attempts.
fn next_attempt(attempts: i64, now: Time) -> Time {
    let doublings = attempts.saturating_sub(1).clamp(0, 20);
    now.plus_ms(FIRST_WAIT_MS.saturating_mul(1_i64 << doublings).min(LONGEST_WAIT_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_an_hour() {
        let now = Time::from_unix_ms(0);
        let waits_s: Vec<_> = (1..=12).map(|attempts| next_attempt(attempts, now).unix_seconds()).collect();
        assert_eq!(waits_s, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600]);
    }
}
