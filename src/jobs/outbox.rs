//! Sends the mail in the outbox.
//!
//! A mail is taken by one replica for `LEASE_MS`; who dies with it gives it back that way, so a mail may be sent twice
//! but is never lost. Tokens are made here, when the mail leaves: a later attempt voids the token of an earlier one.

use std::sync::atomic::Ordering;

use crate::app::App;
use crate::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use crate::error::Error;
use crate::mail::{DeliveryError, Message, templates};
use crate::rules::naming;
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::email_tokens::Purpose;
use crate::store::outbox::{QueuedMail, Template};
use crate::store::users::User;

/// How long a replica may take for one mail, in milliseconds.
const LEASE_MS: i64 = 2 * MINUTE_MS;
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
/// Mails taken at a time.
const BATCH: i64 = 16;

/// Sends everything that is due; how many mails left.
pub async fn send_due(app: &App) -> Result<usize, Error> {
    let mut sent = 0;
    loop {
        let now = app.clock.now();
        let mut tx = app.db.write().await?;
        let mails = store::outbox::claim(&mut tx, BATCH, now, now.plus_ms(LEASE_MS)).await?;
        tx.commit().await?;
        if mails.is_empty() {
            return Ok(sent);
        }
        // Side by side: one slow mail server answer must not hold the others up.
        let outcomes = futures_util::future::join_all(mails.iter().map(|mail| send(app, mail))).await;
        for outcome in outcomes {
            sent += usize::from(outcome?);
        }
    }
}

/// Sends one mail, or sets its next attempt; whether it left.
async fn send(app: &App, mail: &QueuedMail) -> Result<bool, Error> {
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
    let user = store::users::by_email(&mut tx, &naming::fold(&mail.email)).await?;
    drop(tx);
    let Some(user) = user else {
        return Ok(None);
    };
    let (url, username) = (&app.public_url, &user.username);
    Ok(match mail.template {
        Template::VerifyEmail if user.email_verified_at.is_some() => None,
        Template::VerifyEmail => {
            let token = new_token(app, &user, Purpose::VerifyEmail, VERIFICATION_MS).await?;
            Some(templates::verify_email(&user.email, url, token.expose(), username))
        }
        Template::ResetPassword => {
            let token = new_token(app, &user, Purpose::ResetPassword, RESET_MS).await?;
            Some(templates::reset_password(&user.email, url, token.expose(), username))
        }
        Template::PasswordChanged => Some(templates::password_changed(&user.email, url, username)),
    })
}

async fn new_token(app: &App, user: &User, purpose: Purpose, lives_ms: i64) -> Result<MailToken, Error> {
    let token = MailToken::generate(&app.random);
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    store::email_tokens::replace(&mut tx, user.id, purpose, token.hash(), now, now.plus_ms(lives_ms)).await?;
    tx.commit().await?;
    Ok(token)
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
