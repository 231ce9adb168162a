//! Sending of the e-mails in the outbox.
//!
//! A replica leases an e-mail for `LEASE_MS`. If the replica dies, the lease ends and another replica sends
//! the e-mail. So an e-mail may be sent twice, but it is never lost. Its token is created when it is sent,
//! and a later attempt invalidates the token of an earlier attempt.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::bounds::WINDOW_MS;
use crate::store::outbox::QueuedMail;
use crate::{DeliveryError, Mail, Message, store};
use db::Tx;
use kernel::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::Error;
use kernel::ids::RequestId;
use telemetry::InRequest;

/// The time for which a replica leases an e-mail, in milliseconds.
const LEASE_MS: i64 = 2 * MINUTE_MS;
/// The maximum time until the next attempt, in milliseconds, including differences between clocks.
const MAX_POSTPONEMENT_MS: i64 = 2 * MAX_WAIT_MS;
/// The age after which an undelivered e-mail isn't retried, in milliseconds.
const GIVE_UP_AFTER_MS: i64 = DAY_MS;
/// The first wait after a failure, in milliseconds. Each further wait is twice as long.
const FIRST_WAIT_MS: i64 = 10 * SECOND_MS;
/// The longest wait between attempts, in milliseconds.
const MAX_WAIT_MS: i64 = HOUR_MS;
/// The maximum number of e-mails that are sent at the same time, which is also the maximum number of
/// connections to the mail server.
const MAX_CONCURRENT_MAILS: usize = 8;
/// The interval of checks for more e-mails while others are being sent.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Sends all e-mails that are due, and returns the number of sent e-mails. During a shutdown, e-mails that
/// are being sent are finished, and no more are taken from the queue.
pub async fn send_due(mail: &Mail) -> Result<usize, Error> {
    // An e-mail to a slow server doesn't block the others. An e-mail is claimed only when it can be sent
    // immediately, so that its lease isn't spent waiting.
    let mut in_flight = FuturesUnordered::new();
    let mut tally = Tally { sent: 0, failure: None };
    loop {
        if tally.failure.is_none() && !mail.is_stopping() {
            let mut claim = pin!(claim(mail, MAX_CONCURRENT_MAILS.saturating_sub(in_flight.len())));
            let claimed = loop {
                // E-mails that are being sent must make progress during the claim. Otherwise this task could
                // wait for a database connection that one of them holds.
                tokio::select! {
                    claimed = &mut claim => break claimed,
                    Some(outcome) = in_flight.next() => tally.add(outcome),
                }
            };
            match claimed {
                Ok(queued) => {
                    in_flight.extend(queued.into_iter().map(|queued| send_with_request_id(mail, queued)));
                }
                Err(error) => tally.failure = Some(error),
            }
        }
        tokio::select! {
            outcome = in_flight.next() => match outcome {
                None => break,
                Some(outcome) => tally.add(outcome),
            },
            () = mail.outbox.notified(), if tally.failure.is_none() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
    tally.failure.map_or(Ok(tally.sent), Err)
}

/// Removes expired e-mail counters. Also makes e-mails due whose next attempt is too far in the future,
/// because it was scheduled with a clock that was ahead.
///
/// # Errors
/// The database fails.
pub async fn sweep(mail: &Mail) -> Result<(), Error> {
    let now = mail.clock.now();
    let mut tx = mail.db.write().await?;
    store::mail_counters::remove_older_than(&mut tx, now.plus_ms(-WINDOW_MS)).await?;
    store::outbox::recall(&mut tx, now, now.plus_ms(MAX_POSTPONEMENT_MS)).await?;
    Ok(tx.commit().await?)
}

/// Sends a test e-mail immediately, bypassing the queue and its limits.
///
/// # Errors
/// The reason why the e-mail wasn't delivered.
pub async fn send_test(mail: &Mail, to: &str, public_url: &str) -> Result<(), DeliveryError> {
    let words = format!("This is a test e-mail from {public_url}. E-mails from this server arrive.");
    let message = Message {
        to: to.to_owned(),
        subject: "Test e-mail".to_owned(),
        html: format!("<p>{}</p>", words.replace('&', "&amp;").replace('<', "&lt;")),
        text: words,
        link: None,
    };
    mail.mailer.deliver(&message, mail.clock.now(), &mail.random).await
}

/// The outcomes of a run so far.
struct Tally {
    sent: usize,
    /// The last failure. After a failure, no more e-mails are taken from the queue. E-mails that are being
    /// sent are finished, because the server may already have accepted them.
    failure: Option<Error>,
}

impl Tally {
    fn add(&mut self, outcome: Result<bool, Error>) {
        match outcome {
            Ok(was_sent) => self.sent += usize::from(was_sent),
            Err(error) => self.failure = Some(error),
        }
    }
}

/// Claims at most `places` e-mails that are due.
async fn claim(mail: &Mail, places: usize) -> Result<Vec<QueuedMail>, Error> {
    if places == 0 {
        return Ok(Vec::new());
    }
    let now = mail.clock.now();
    let mut tx = mail.db.write().await?;
    let limit = i64::try_from(places).unwrap_or(i64::MAX);
    let mails = store::outbox::claim(&mut tx, limit, now, now.plus_ms(LEASE_MS)).await?;
    tx.commit().await?;
    Ok(mails)
}

/// Sends one e-mail. Its log lines contain the id of the request that caused it.
fn send_with_request_id(mail: &Mail, queued: QueuedMail) -> impl Future<Output = Result<bool, Error>> {
    let request_id = queued.about.request_id.as_deref().and_then(RequestId::parse);
    InRequest::new(request_id, None, Box::pin(send(mail, queued)))
}

/// Sends one e-mail, or schedules its next attempt. Returns `true` if it was sent.
async fn send(mail: &Mail, queued: QueuedMail) -> Result<bool, Error> {
    let queued = &queued;
    let outcome = match (mail.write)(queued).await? {
        // No account has this address, or the e-mail is no longer needed.
        None => Ok(false),
        Some(message) => mail.mailer.deliver(&message, mail.clock.now(), &mail.random).await.map(|()| true),
    };
    let now = mail.clock.now();
    let mut tx = mail.db.write().await?;
    let was_sent = match outcome {
        Ok(was_sent) => {
            store::outbox::remove(&mut tx, queued.id).await?;
            was_sent
        }
        Err(error) => {
            after_failure(mail, &mut tx, queued, &error, now).await?;
            false
        }
    };
    tx.commit().await?;
    if was_sent {
        mail.metrics.mails_sent.inc();
        tracing::info!(mail_id = %queued.id, template = queued.template.as_str(), "mail sent");
    }
    Ok(was_sent)
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
    let is_expired = next >= queued.created_at.plus_ms(GIVE_UP_AFTER_MS);
    if is_expired || error.is_permanent() {
        mail.metrics.mails_given_up.inc();
        let attempts = queued.attempts;
        tracing::error!(%mail_id, template, attempts, "gave up sending an e-mail: {error}");
        store::outbox::remove(tx, queued.id).await?;
    } else {
        mail.metrics.mails_failed.inc();
        tracing::warn!(%mail_id, template, attempts = queued.attempts, next_attempt_at = %next, "sending an e-mail failed: {error}");
        store::outbox::retry_at(tx, queued.id, next, &error.to_string()).await?;
    }
    Ok(())
}

/// Returns the time of the next attempt after `attempts` attempts.
fn next_attempt(attempts: i64, now: Time) -> Time {
    let doublings = attempts.saturating_sub(1).clamp(0, 20);
    now.plus_ms(FIRST_WAIT_MS.saturating_mul(1_i64 << doublings).min(MAX_WAIT_MS))
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
