//! Sends the mail in the outbox.
//!
//! A mail is taken by one replica for `LEASE_MS`; who dies with it gives it back that way, so a mail may be sent twice
//! but is never lost. Tokens are made here, when the mail leaves: a later attempt voids the token of an earlier one.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::app::App;
use crate::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use crate::error::Error;
use crate::ids::{InvitationId, RequestId};
use crate::mail::{DeliveryError, Message, templates};
use crate::rules::addresses;
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::email_tokens::Purpose;
use crate::store::outbox::{QueuedMail, Template};
use crate::store::users::User;
use crate::telemetry::InRequest;
use crate::tenants;

/// How long a replica may take for one mail, in milliseconds.
const LEASE_MS: i64 = 2 * MINUTE_MS;
/// No mail waits longer than this for its next attempt, in milliseconds, also by clocks that differ.
pub const LATEST_MS: i64 = 2 * LONGEST_WAIT_MS;
/// After this a mail is given up, in milliseconds.
const GIVE_UP_MS: i64 = DAY_MS;
/// The first wait after a failure, in milliseconds; each further one is twice as long.
const FIRST_WAIT_MS: i64 = 10 * SECOND_MS;
/// The longest wait between attempts, in milliseconds.
const LONGEST_WAIT_MS: i64 = HOUR_MS;
/// How long the link of a verification works, in milliseconds (decisions, section 2).
const VERIFICATION_MS: i64 = DAY_MS;
/// How long the link of a password reset works, in milliseconds (decisions, section 2).
const RESET_MS: i64 = HOUR_MS;
/// How far the clocks of replicas may lie apart, in milliseconds.
const CLOCKS_DIFFER_MS: i64 = MINUTE_MS;
/// Mails that are under way at a time, and so the connections to the mail server.
const AT_ONCE: usize = 8;
/// How often we look for more mail while some is under way.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Sends everything that is due; how many mails left. When the server stops, what is under way is sent, and no more taken.
pub async fn send_due(app: &App) -> Result<usize, Error> {
    // Each in a place of its own: a mail that a slow server holds up takes one place, and the others go on. A mail is
    // taken only when its place is free, so that none of its lease is spent on waiting.
    let mut under_way = FuturesUnordered::new();
    let mut tally = Tally { sent: 0, failure: None };
    loop {
        if tally.failure.is_none() && !app.is_stopping() {
            let mut claim = pin!(claim(app, AT_ONCE.saturating_sub(under_way.len())));
            let claimed = loop {
                // What is under way must go on: the database may be waiting for it, and we for the database.
                tokio::select! {
                    claimed = &mut claim => break claimed,
                    Some(outcome) = under_way.next() => tally.add(outcome),
                }
            };
            match claimed {
                Ok(mails) => under_way.extend(mails.into_iter().map(|mail| in_its_request(app, mail))),
                Err(error) => tally.failure = Some(error),
            }
        }
        tokio::select! {
            outcome = under_way.next() => match outcome {
                None => break,
                Some(outcome) => tally.add(outcome),
            },
            () = app.outbox.notified(), if tally.failure.is_none() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
    app.mailer.close_idle(app.clock.now()).await;
    tally.failure.map_or(Ok(tally.sent), Err)
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
async fn claim(app: &App, places: usize) -> Result<Vec<QueuedMail>, Error> {
    if places == 0 {
        return Ok(Vec::new());
    }
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let most = i64::try_from(places).unwrap_or(i64::MAX);
    let mails = store::outbox::claim(&mut tx, most, now, now.plus_ms(LEASE_MS)).await?;
    tx.commit().await?;
    Ok(mails)
}

/// Sends one mail; what the log says of it names the request that caused it.
fn in_its_request(app: &App, mail: QueuedMail) -> impl Future<Output = Result<bool, Error>> {
    let request_id = mail.about.request_id.as_deref().and_then(RequestId::parse);
    InRequest::new(request_id, None, Box::pin(send(app, mail)))
}

/// Sends one mail, or sets its next attempt; whether it left.
async fn send(app: &App, mail: QueuedMail) -> Result<bool, Error> {
    let mail = &mail;
    let outcome = match compose(app, mail).await? {
        // Nobody has this address, or the mail has nothing to say any more.
        None => Ok(false),
        Some(message) => app.mailer.deliver(&message, app.clock.now(), &app.random).await.map(|()| true),
    };
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let left = match outcome {
        Ok(left) => {
            store::outbox::remove(&mut tx, mail.id).await?;
            left
        }
        Err(error) => {
            after_failure(app, &mut tx, mail, &error, now).await?;
            false
        }
    };
    tx.commit().await?;
    if left {
        app.metrics.mails_sent.fetch_add(1, Ordering::Relaxed);
        tracing::info!(mail_id = %mail.id, template = mail.template.as_str(), "a mail left");
    }
    Ok(left)
}

async fn after_failure(
    app: &App,
    tx: &mut crate::db::Tx,
    mail: &QueuedMail,
    error: &DeliveryError,
    now: Time,
) -> Result<(), Error> {
    let (mail_id, template) = (mail.id, mail.template.as_str());
    let next = next_attempt(mail.attempts, now);
    let over = next >= mail.created_at.plus_ms(GIVE_UP_MS);
    if over || error.is_permanent() {
        app.metrics.mails_given_up.fetch_add(1, Ordering::Relaxed);
        let attempts = mail.attempts;
        tracing::error!(%mail_id, template, attempts, "gave a mail up: {error}");
        store::outbox::remove(tx, mail.id).await?;
    } else {
        app.metrics.mails_failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%mail_id, template, attempts = mail.attempts, next_attempt_at = %next, "a mail did not leave: {error}");
        store::outbox::retry_at(tx, mail.id, next).await?;
    }
    Ok(())
}

/// When to try again after this many attempts.
fn next_attempt(attempts: i64, now: Time) -> Time {
    let doublings = attempts.saturating_sub(1).clamp(0, 20);
    now.plus_ms(FIRST_WAIT_MS.saturating_mul(1_i64 << doublings).min(LONGEST_WAIT_MS))
}

/// The mail, with a fresh token where it needs one; none when there is nobody or nothing to write to.
async fn compose(app: &App, mail: &QueuedMail) -> Result<Option<Message>, Error> {
    let mut tx = app.db.read().await?;
    let user = store::users::by_email(&mut tx, &addresses::fold(&mail.email)).await?;
    drop(tx);
    if mail.template == Template::Invitation {
        return invitation(app, mail, user.as_ref()).await;
    }
    let Some(user) = user else {
        return Ok(None);
    };
    let (url, username) = (&app.public_url, &user.username);
    Ok(match mail.template {
        Template::VerifyEmail if user.email_verified_at.is_some() => None,
        Template::VerifyEmail => {
            let token = new_token(app, &user, Purpose::VerifyEmail, VERIFICATION_MS, None).await?;
            token.map(|token| templates::verify_email(&user.email, url, token.expose(), username))
        }
        Template::ResetPassword => {
            // Asked for before the password was changed, it would set another one afterwards.
            let asked_at = Some(mail.created_at);
            let token = new_token(app, &user, Purpose::ResetPassword, RESET_MS, asked_at).await?;
            token.map(|token| templates::reset_password(&user.email, url, token.expose(), username))
        }
        Template::PasswordChanged => {
            Some(templates::password_changed(&user.email, url, username, &mail.about))
        }
        Template::OrganizationDeleted => {
            Some(templates::organization_deleted(&user.email, url, username, &mail.about))
        }
        Template::AddedToProject => {
            Some(templates::added_to_project(&user.email, url, username, &mail.about))
        }
        Template::ProjectDeleted => Some(templates::project_deleted(&user.email, url, username, &mail.about)),
        // An address that nobody has proved to read is told nothing of logins.
        Template::LoginsRefused | Template::NewLogin if user.email_verified_at.is_none() => None,
        Template::LoginsRefused => {
            Some(templates::logins_refused(&user.email, url, username, &mail.about, mail.created_at))
        }
        Template::NewLogin => {
            Some(templates::new_login(&user.email, url, username, &mail.about, mail.created_at))
        }
        // Written above.
        Template::Invitation => None,
    })
}

/// The guest may have no account. An invitation that has ended says nothing any more.
async fn invitation(app: &App, mail: &QueuedMail, guest: Option<&User>) -> Result<Option<Message>, Error> {
    let Some(id) = mail.about.invitation_id.as_deref().and_then(InvitationId::parse) else {
        return Ok(None);
    };
    let letter = tenants::invitations::letter(&app.tenants, id).await?;
    // To the address that was invited, as it was written: the account's may be written in another way.
    let (to, username) = (&mail.email, guest.map_or("", |user| &user.username));
    Ok(letter
        .map(|(token, letter)| templates::invitation(to, &app.public_url, token.expose(), username, &letter)))
}

/// A token, in place of an older one; none when it must not be older than the account's password, and is.
async fn new_token(
    app: &App,
    user: &User,
    purpose: Purpose,
    lives_ms: i64,
    asked_at: Option<Time>,
) -> Result<Option<MailToken>, Error> {
    let token = MailToken::generate(&app.random);
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    if let Some(asked_at) = asked_at {
        let latest = now.plus_ms(CLOCKS_DIFFER_MS);
        store::users::lock(&mut tx, user.id).await?;
        if store::users::password_changed_since(&mut tx, user.id, asked_at, latest).await? {
            return Ok(None);
        }
    }
    store::email_tokens::replace(&mut tx, user.id, purpose, token.hash(), now, now.plus_ms(lives_ms)).await?;
    tx.commit().await?;
    Ok(Some(token))
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
