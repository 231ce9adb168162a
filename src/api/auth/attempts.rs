//! Counting attempts on an account, before anything is known of their outcome.

use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Code, Error, RateLimit};
use crate::rules::throttling::{self, Attempts, Wait};
use crate::secrets::sha256;
use crate::store;
use crate::store::throttles::Scope;

/// Counts a guess at an account's password, in a transaction of its own: it stays counted whatever follows.
///
/// # Errors
/// 429 with the true wait.
pub async fn count_login(app: &App, email_folded: &str, now: Time) -> Result<(), Error> {
    if !app.config.limits.enabled {
        return Ok(());
    }
    let mut tx = app.db.write().await?;
    let free = app.config.limits.login_failures;
    count(&mut tx, Scope::Login, email_folded, now, |before| throttling::login(before, free, now)).await?;
    tx.commit().await?;
    Ok(())
}

/// Forgets the guesses: the owner has proved to be the owner.
pub async fn forget_logins(tx: &mut Tx, email_folded: &str) -> Result<(), Error> {
    Ok(store::throttles::clear(tx, Scope::Login, sha256(email_folded.as_bytes())).await?)
}

async fn count(
    tx: &mut Tx,
    scope: Scope,
    email_folded: &str,
    now: Time,
    rule: impl FnOnce(Option<Attempts>) -> Result<Attempts, Wait>,
) -> Result<(), Error> {
    let subject = sha256(email_folded.as_bytes());
    let before = store::throttles::lock(tx, scope, subject, now).await?;
    let after = rule((before.count > 0).then_some(before)).map_err(too_many)?;
    Ok(store::throttles::set(tx, scope, subject, &after).await?)
}

/// 429 with the true wait.
pub fn too_many(wait: Wait) -> Error {
    let limit =
        RateLimit { limit: wait.limit, retry_after_ms: wait.retry_after_ms, reset_ms: wait.retry_after_ms };
    Error { rate_limit: Some(limit), ..Error::new(Code::TooManyAttempts) }
}
