//! POST /v1/auth/login

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::Visitor;
use crate::api::organizations::invitations::acceptance;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::{SessionId, UserId};
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::reply::{Enveloped, private};
use crate::rules::addresses;
use crate::rules::networks::Network;
use crate::secrets::jwt::TokenKind;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::users::{Credentials, User};

use super::attempts::Guess;
use super::refusals::{Reason, Refusal};
use super::{BEARER, REFRESH_TOKEN_MS, expires_in, sign};

/// Who says to be whom.
#[derive(Debug)]
pub struct Login {
    email: Text<320>,
    password: Text<1024>,
    remember_me: bool,
}

impl Record for Login {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let email = fields.required("email");
        let password = fields.required("password");
        let remember_me = fields.or("remember_me", false);
        Some(Self { email: email?, password: password?, remember_me: remember_me? })
    }
}

/// The tokens of a new session.
#[derive(Serialize, JsonSchema)]
pub struct LoggedIn {
    access_token: String,
    refresh_token: String,
    token_type: &'static str,
    /// Seconds.
    expires_in: i64,
    user: LoggedInUser,
}

/// What login returns of a user.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoggedInUser {
    id: UserId,
    email: String,
    username: String,
    full_name: Option<String>,
}

/// How often a password is checked when its hash changes meanwhile. The second time it has today's parameters: another login
/// may have brought it there, but doesn't do so again.
const MAX_CHECKS: usize = 2;

/// Checks the password and opens a session. An unknown address costs the same work as a wrong password.
pub async fn login(app: App, scope: Visitor, Body(body): Body<Login>) -> Result<Enveloped<LoggedIn>, Error> {
    let outcome = log_in(&app, &scope, &body).await;
    app.metrics.logins.count(outcome.as_ref().err().map(|error| error.code));
    outcome.map(private)
}

async fn log_in(app: &App, scope: &Visitor, body: &Login) -> Result<LoggedIn, Error> {
    for attempt in 0..MAX_CHECKS {
        let proof = check(app, scope, body, attempt == 0).await?;
        if let Some((session_id, now)) = open(app, scope, &proof, body.remember_me).await? {
            let user = proof.user;
            return Ok(LoggedIn {
                access_token: sign(app, TokenKind::Access, user.id, session_id, now).await?,
                refresh_token: sign(app, TokenKind::Refresh, user.id, session_id, now).await?,
                token_type: BEARER,
                expires_in: expires_in(),
                user: LoggedInUser {
                    id: user.id,
                    email: user.email,
                    username: user.username,
                    full_name: user.full_name,
                },
            });
        }
    }
    Err(Code::InvalidCredentials.into())
}

/// A password that was checked against the account's hash.
struct Proof {
    user: User,
    guess: Guess,
    /// The hash that it was checked against.
    against: String,
    /// The hash to keep: the same, or one with today's parameters.
    kept: String,
}

/// Checks the password; `is_counted`: as a guess of its own. What is refused leaves an entry in the audit trail.
///
/// # Errors
/// 401; 403 where only verified people may log in; 429 while a wait is on or the queue of passwords is full.
async fn check(app: &App, scope: &Visitor, body: &Login, is_counted: bool) -> Result<Proof, Error> {
    let email_folded = addresses::fold(&body.email.0);
    let network = Network::of(scope.trail().address);
    // A place first: being refused by the full queue is no guess.
    let place = app.hasher.place(network)?;
    let mut tx = app.db.read().await?;
    let found = store::users::credentials_by_email(&mut tx, &email_folded, network).await?;
    drop(tx);
    let last_login_here_at = found.as_ref().and_then(|found| found.last_login_here_at);
    let guess = Guess::new(&email_folded, network, last_login_here_at);
    let user_id = found.as_ref().map(|found| found.user.id);
    let refusal = |reason| Refusal { guess: &guess, email_folded: &email_folded, user_id, reason };
    let counted_at = app.clock.now();
    if is_counted && let Err(error) = guess.count(app, counted_at).await {
        drop(place);
        if error.code == Code::TooManyAttempts {
            refusal(Reason::TooManyAttempts).leave(app, scope.trail(), counted_at).await?;
        }
        return Err(error);
    }
    let stored = found.as_ref().map(|found| found.password_hash.as_str());
    let verdict = place.verify(&body.password.0, stored).await?;
    let Some(found) = found.filter(|_| verdict.matches) else {
        drop(place);
        refusal(Reason::InvalidCredentials).leave(app, scope.trail(), app.clock.now()).await?;
        return Err(Code::InvalidCredentials.into());
    };
    let Credentials { user, password_hash: against, .. } = found;
    if app.config.require_verified_email && user.email_verified_at.is_none() {
        drop(place);
        let now = app.clock.now();
        // The password was right: that was no guess.
        let mut tx = app.db.write().await?;
        guess.forget(&mut tx, now).await?;
        tx.commit().await?;
        refusal(Reason::EmailNotVerified).leave(app, &scope.trail().by(user.id), now).await?;
        return Err(Code::EmailNotVerified.into());
    }
    // The parameters of hashes have changed since: another login will do when this fails.
    let rehashed = if verdict.needs_rehash { place.hash(&body.password.0).await.ok() } else { None };
    let kept = rehashed.unwrap_or_else(|| against.clone());
    Ok(Proof { user, guess, against, kept })
}

/// Opens a session, and ends the person's oldest where that is one too many; none when the account has another hash by now than
/// the one that the password was checked against.
async fn open(
    app: &App,
    scope: &Visitor,
    proof: &Proof,
    remember_me: bool,
) -> Result<Option<(SessionId, Time)>, Error> {
    let (user, now) = (&proof.user, app.clock.now());
    let (session_id, trail) = (SessionId::new(now, &app.random), scope.trail().by(user.id));
    let mut tx = app.db.write().await?;
    // Locks the account: a new password waits for this session to end it, or this one for that, and finds it changed.
    if !store::users::note_login(&mut tx, user.id, &proof.against, &proof.kept, now).await? {
        return Ok(None);
    }
    let expires_at = now.plus_ms(REFRESH_TOKEN_MS);
    store::sessions::insert(&mut tx, session_id, user.id, remember_me, now, expires_at).await?;
    let limits = &app.config.limits;
    let ended = if limits.enabled {
        store::sessions::end_oldest(&mut tx, user.id, session_id, limits.sessions_per_person, now).await?
    } else {
        Vec::new()
    };
    proof.guess.forget(&mut tx, now).await?;
    if user.email_verified_at.is_some() {
        acceptance::accept_all(app, &mut tx, &trail, user, now).await?;
    }
    let is_told = proof.guess.note_login(app, &mut tx, user, &trail, now).await?;
    let started = [(Action::SessionStarted, session_id)].into_iter();
    for (action, id) in started.chain(ended.iter().map(|id| (Action::SessionEnded, *id))) {
        let event = Event { action, target: id.to_string(), organization_id: None };
        store::audit_log::record(&mut tx, &trail, &event, now, &app.random).await?;
    }
    tx.commit().await?;
    if is_told {
        app.outbox.notify_one();
    }
    Ok(Some((session_id, now)))
}
