//! Sending of due deliveries.
//!
//! A replica leases a delivery for `LEASE_MS`. If the replica dies, the lease expires and another replica
//! sends the delivery. An event may therefore arrive twice, but is never lost; receivers deduplicate by its
//! id. Across all replicas, a webhook receives at most two deliveries at a time, so that a slow webhook
//! doesn't delay others.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use accounts::store::users::administration;
use db::Tx;
use events::announcements;
use kernel::clock::{MINUTE_MS, Time};
use kernel::error::Error;
use kernel::ids::{OrganizationId, WebhookId};
use kernel::stopwatch::Stopwatch;
use mail::posting::Draft;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use tenants::store::organization_members;
use trail::{Action, Event, Trail};

use crate::client::{Attempt, GONE, Outcome, Shipment};
use crate::rules::schedule::{self, DISABLED_AFTER_MS, MAX_RETRY_AFTER_MS};
use crate::rules::signing::{self, WebhookSecret};
use crate::store::deliveries::{Attempted, Claimed, State};
use crate::store::endpoints::{DisabledReason, Receiver};
use crate::{Webhooks, store};

/// Lease of a delivery, in milliseconds; well above the duration of an attempt.
pub const LEASE_MS: i64 = MINUTE_MS;
/// Maximum time until the next attempt, in milliseconds, allowing for clock differences.
const MAX_POSTPONEMENT_MS: i64 = 2 * MAX_RETRY_AFTER_MS;
/// Maximum number of deliveries in progress per webhook.
const MAX_PER_WEBHOOK: i64 = 2;
/// Maximum number of deliveries that this replica sends at a time.
const MAX_CONCURRENT: usize = 32;
/// Interval at which due deliveries are claimed while others are being sent.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The service as the sender has no limit of e-mails. Limits apply to the recipients.
const SENDER: Sender = Sender { account: None, address: None };

/// A leased delivery and its receiver.
struct Job {
    receiver: Receiver,
    claimed: Claimed,
    leased_until: Time,
}

/// Sends all due deliveries and returns the number of claimed ones. During a shutdown, those in progress
/// finish and no new ones start.
///
/// # Errors
/// The database fails.
pub async fn send_due(webhooks: &Webhooks) -> Result<usize, Error> {
    // A slow receiver occupies one slot and doesn't block the others. A delivery is claimed only when a slot
    // is free, so that its lease doesn't expire while waiting.
    let mut in_progress = FuturesUnordered::new();
    let mut tally = Tally { succeeded: 0, failure: None };
    loop {
        if tally.failure.is_none() && !webhooks.is_stopping() {
            let mut claim = pin!(claim(webhooks, MAX_CONCURRENT.saturating_sub(in_progress.len())));
            let claimed = loop {
                // Keep polling those in progress: they may hold a database lock that the claim waits for.
                tokio::select! {
                    claimed = &mut claim => break claimed,
                    Some(outcome) = in_progress.next() => tally.add(outcome),
                }
            };
            match claimed {
                Ok(jobs) => in_progress.extend(jobs.into_iter().map(|job| send(webhooks, job))),
                Err(error) => tally.failure = Some(error),
            }
        }
        tokio::select! {
            outcome = in_progress.next() => match outcome {
                None => break,
                Some(outcome) => tally.add(outcome),
            },
            () = webhooks.notified(), if tally.failure.is_none() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
    tally.failure.map_or(Ok(tally.succeeded), Err)
}

/// Reschedules deliveries to now if a fast clock scheduled their next attempt too far in the future.
///
/// # Errors
/// The database fails.
pub async fn sweep(webhooks: &Webhooks) -> Result<(), Error> {
    let now = webhooks.clock.now();
    let mut tx = webhooks.db.write().await?;
    store::deliveries::recall(&mut tx, now, now.plus_ms(MAX_POSTPONEMENT_MS)).await?;
    Ok(tx.commit().await?)
}

/// Results so far.
struct Tally {
    succeeded: usize,
    /// After a failure no more deliveries are claimed, but those in progress finish.
    failure: Option<Error>,
}

impl Tally {
    fn add(&mut self, outcome: Result<bool, Error>) {
        match outcome {
            Ok(has_succeeded) => self.succeeded += usize::from(has_succeeded),
            Err(error) => self.failure = Some(error),
        }
    }
}

/// Claims due deliveries, at most one per free slot.
async fn claim(webhooks: &Webhooks, places: usize) -> Result<Vec<Job>, Error> {
    let mut jobs = Vec::new();
    if places == 0 {
        return Ok(jobs);
    }
    let limit = i64::try_from(places).unwrap_or(i64::MAX);
    let now = webhooks.clock.now();
    let ready = {
        let mut tx = webhooks.db.read().await?;
        store::deliveries::ready(&mut tx, now, MAX_PER_WEBHOOK, limit).await?
    };
    for webhook_id in ready {
        let left = places.saturating_sub(jobs.len());
        if left == 0 {
            break;
        }
        let most = MAX_PER_WEBHOOK.min(i64::try_from(left).unwrap_or(MAX_PER_WEBHOOK));
        jobs.extend(claim_of(webhooks, webhook_id, most).await?);
    }
    Ok(jobs)
}

/// Claims due deliveries of one webhook. If the webhook was deleted or disabled after they were queued, they
/// are deleted or given up.
async fn claim_of(webhooks: &Webhooks, webhook_id: WebhookId, most: i64) -> Result<Vec<Job>, Error> {
    let now = webhooks.clock.now();
    let leased_until = now.plus_ms(LEASE_MS);
    let mut tx = webhooks.db.write().await?;
    let mut jobs = Vec::new();
    match store::endpoints::lock_receiver(&mut tx, webhook_id).await? {
        None => store::deliveries::remove_of(&mut tx, webhook_id).await?,
        Some(receiver) if !receiver.is_enabled => {
            store::deliveries::give_up_pending(&mut tx, webhook_id).await?;
        }
        Some(receiver) => {
            let claimed = store::deliveries::claim(&mut tx, webhook_id, most, now, leased_until).await?;
            jobs.extend(claimed.into_iter().map(|claimed| Job {
                receiver: receiver.clone(),
                claimed,
                leased_until,
            }));
        }
    }
    tx.commit().await?;
    Ok(jobs)
}

/// Makes one attempt and stores its result. Returns `true` if the receiver accepted the event.
async fn send(webhooks: &Webhooks, job: Job) -> Result<bool, Error> {
    let Job { receiver, claimed, leased_until } = job;
    let Some(body) = &claimed.body else {
        // The event is past its retention.
        let mut tx = webhooks.db.write().await?;
        store::deliveries::remove(&mut tx, claimed.id).await?;
        tx.commit().await?;
        return Ok(false);
    };
    let at = webhooks.clock.now();
    let event_id = claimed.event_id.to_string();
    let signatures =
        signing::signatures(&secrets(webhooks, &receiver, at)?, &event_id, at.unix_seconds(), body);
    let shipment = Shipment {
        url: &receiver.url,
        event_id: &event_id,
        unix_seconds: at.unix_seconds(),
        signatures: &signatures,
        body,
    };
    let watch = Stopwatch::start();
    let attempt = webhooks.client.send(&shipment, at).await;
    let duration_ms = i64::try_from(watch.elapsed_ns() / 1_000_000).unwrap_or(i64::MAX);
    webhooks.counters.count_attempt(attempt.outcome);
    let now = webhooks.clock.now();
    let (state, next_attempt_at) = next(webhooks, &claimed, &attempt, now);
    let attempted =
        Attempted { id: claimed.id, leased_until, state, next_attempt_at, attempt, at, duration_ms };
    log(&receiver, &claimed, &attempted);
    let failing_since = store_result(webhooks, &receiver, &attempted, now).await?;
    let reason = match failing_since {
        _ if attempt.status == Some(GONE) => Some(DisabledReason::Gone),
        Some(since) if since.plus_ms(DISABLED_AFTER_MS) <= now && webhooks.clock_guard.is_trusted() => {
            Some(DisabledReason::Failing)
        }
        _ => None,
    };
    if let Some(reason) = reason {
        disable(webhooks, receiver.organization_id, receiver.id, reason, now).await?;
    }
    Ok(state == State::Succeeded)
}

/// Returns the secrets that currently sign: the current one, and for some time the previous one.
fn secrets(webhooks: &Webhooks, receiver: &Receiver, now: Time) -> Result<Vec<WebhookSecret>, Error> {
    let previous = receiver.previous_sealed_secret.as_deref();
    let previous = previous.filter(|_| receiver.previous_ends_at.is_some_and(|end| end > now));
    let open = |sealed: &[u8]| {
        let text = String::from_utf8(webhooks.sealer.open(sealed, &receiver.id.to_string())?);
        let secret = text.ok().and_then(|text| WebhookSecret::parse(&text));
        secret.ok_or_else(|| Error::internal(format_args!("the secret of {} can't be read", receiver.id)))
    };
    [Some(receiver.sealed_secret.as_slice()), previous].into_iter().flatten().map(open).collect()
}

/// Returns the state of a delivery after an attempt, and the time of the next one.
fn next(webhooks: &Webhooks, claimed: &Claimed, attempt: &Attempt, now: Time) -> (State, Time) {
    if attempt.outcome == Outcome::Succeeded {
        return (State::Succeeded, now);
    }
    if attempt.status == Some(GONE) {
        return (State::Failed, now);
    }
    let random = u32::from_be_bytes(webhooks.random.bytes());
    match schedule::next_attempt(claimed.round_attempts, attempt.retry_after_ms, random, now) {
        Some(at) => (State::Pending, at),
        None => (State::Failed, now),
    }
}

fn log(receiver: &Receiver, claimed: &Claimed, attempted: &Attempted) {
    let Attempted { id, state, next_attempt_at, attempt, duration_ms, .. } = attempted;
    let (webhook_id, outcome, status) = (receiver.id, attempt.outcome.word(), attempt.status);
    let attempts = claimed.round_attempts;
    match state {
        State::Succeeded => {
            tracing::info!(%webhook_id, delivery_id = %id, attempts, duration_ms, "event delivered");
        }
        State::Pending => tracing::info!(
            %webhook_id, delivery_id = %id, outcome, status, attempts, duration_ms, next_attempt_at = %next_attempt_at,
            "delivering an event failed"
        ),
        State::Failed => tracing::warn!(
            %webhook_id, delivery_id = %id, outcome, status, attempts, duration_ms, "gave up delivering an event"
        ),
    }
}

/// Stores the result of an attempt. Returns the time of the webhook's first failed attempt since its last
/// success.
async fn store_result(
    webhooks: &Webhooks,
    receiver: &Receiver,
    attempted: &Attempted,
    now: Time,
) -> Result<Option<Time>, Error> {
    let mut tx = webhooks.db.write().await?;
    // All transactions lock the webhook before its deliveries.
    let failing_since = if attempted.state == State::Succeeded {
        store::endpoints::note_success(&mut tx, receiver.id).await?;
        None
    } else {
        store::endpoints::note_failure(&mut tx, receiver.id, now).await?
    };
    let is_ours = store::deliveries::finish(&mut tx, attempted).await?;
    tx.commit().await?;
    if is_ours && attempted.state == State::Failed {
        webhooks.counters.given_up.inc();
    }
    Ok(failing_since)
}

/// Disables a webhook, gives up its pending deliveries, and sends mail to the owners or the operators.
async fn disable(
    webhooks: &Webhooks,
    organization_id: Option<OrganizationId>,
    webhook_id: WebhookId,
    reason: DisabledReason,
    now: Time,
) -> Result<(), Error> {
    let mut tx = webhooks.db.write().await?;
    // Acquired before the webhook's lock, as in the operations of owners.
    match organization_id {
        Some(id) => tenants::store::organizations::lock(&mut tx, id).await?,
        None => announcements::lock(&mut tx).await?,
    }
    let Some(url) = store::endpoints::disable(&mut tx, webhook_id, reason, now).await? else {
        return Ok(());
    };
    store::deliveries::give_up_pending(&mut tx, webhook_id).await?;
    let event = Event { action: Action::WebhookDisabled, target: webhook_id.to_string(), organization_id };
    trail::record(&mut tx, &Trail::system(), &event, now, &webhooks.random).await?;
    notify_people(webhooks, &mut tx, (organization_id, url), reason, now).await?;
    tx.commit().await?;
    webhooks.tenants.outbox.notify_one();
    webhooks.counters.disabled.inc();
    let organization_id = organization_id.map(|id| id.to_string());
    tracing::warn!(%webhook_id, organization_id, reason = reason.as_str(), "a webhook was disabled");
    Ok(())
}

/// Notifies an organization's owners, or the operators, that a webhook was disabled.
async fn notify_people(
    webhooks: &Webhooks,
    tx: &mut Tx,
    (organization_id, url): (Option<OrganizationId>, String),
    reason: DisabledReason,
    now: Time,
) -> Result<(), Error> {
    let (organization, recipients) = match organization_id {
        Some(id) => {
            let owners = organization_members::owners(tx, id).await?;
            let name = owners.first().map(|(name, _)| name.clone());
            (name, owners.into_iter().map(|(_, email)| email).collect())
        }
        None => (None, administration::operator_addresses(tx).await?),
    };
    if recipients.is_empty() {
        return Ok(());
    }
    let about = About {
        organization,
        webhook: Some(url),
        is_receiver_gone: Some(reason == DisabledReason::Gone),
        ..About::default()
    };
    let draft = Draft { template: Template::WebhookDisabled, about };
    webhooks.tenants.outbox.post_all(tx, &SENDER, &draft, recipients, now).await
}
