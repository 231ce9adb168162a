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
use crate::rules::naming;
use crate::secrets::jwt::TokenKind;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::changes::Change;
use crate::store::users::{Credentials, User};

use super::{BEARER, REFRESH_TOKEN_MS, attempts, expires_in, sign};

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

/// A password that was checked against the account's hash.
struct Checked {
    user: User,
    /// The hash that it was checked against.
    against: String,
    /// The hash to keep: the same, or one with today's parameters.
    kept: String,
}

/// How often a password is checked when its hash changes meanwhile. The second time it has today's parameters: another login
/// may have brought it there, but doesn't do so again.
const MAX_CHECKS: usize = 2;

/// Checks the password and opens a session. An unknown address costs the same hash as a wrong password.
pub async fn login(app: App, scope: Visitor, Body(body): Body<Login>) -> Result<Enveloped<LoggedIn>, Error> {
    let email_folded = naming::fold(&body.email.0);
    attempts::count_login(&app, &email_folded, app.clock.now()).await?;
    for _ in 0..MAX_CHECKS {
        let checked = check(&app, &email_folded, &body.password.0).await?;
        if let Some((session_id, now)) = open(&app, &scope, &checked, body.remember_me).await? {
            let user = checked.user;
            let tokens = LoggedIn {
                access_token: sign(&app, TokenKind::Access, user.id, session_id, now).await?,
                refresh_token: sign(&app, TokenKind::Refresh, user.id, session_id, now).await?,
                token_type: BEARER,
                expires_in: expires_in(),
                user: LoggedInUser {
                    id: user.id,
                    email: user.email,
                    username: user.username,
                    full_name: user.full_name,
                },
            };
            return Ok(private(tokens));
        }
    }
    Err(Code::InvalidCredentials.into())
}

/// The account, if this is its password.
///
/// # Errors
/// 401; 403 where only verified people may log in.
async fn check(app: &App, email_folded: &str, password: &str) -> Result<Checked, Error> {
    let mut tx = app.db.read().await?;
    let found = store::users::credentials_by_email(&mut tx, email_folded).await?;
    drop(tx);
    let stored = found.as_ref().map(|found| found.password_hash.as_str());
    let verdict = app.hasher.verify(password, stored).await?;
    let found = found.filter(|_| verdict.matches).ok_or(Code::InvalidCredentials)?;
    let Credentials { user, password_hash: against } = found;
    if app.config.require_verified_email && user.email_verified_at.is_none() {
        // The password was right: that was no guess.
        let mut tx = app.db.write().await?;
        attempts::forget_logins(&mut tx, email_folded).await?;
        tx.commit().await?;
        return Err(Code::EmailNotVerified.into());
    }
    // The parameters of hashes have changed since: another login will do when the queue is full now.
    let rehashed = if verdict.needs_rehash { app.hasher.hash(password).await.ok() } else { None };
    let kept = rehashed.unwrap_or_else(|| against.clone());
    Ok(Checked { user, against, kept })
}

/// Opens a session, and ends the person's oldest where that is one too many; none when the account has another hash by now than
/// the one that the password was checked against.
async fn open(
    app: &App,
    scope: &Visitor,
    checked: &Checked,
    remember_me: bool,
) -> Result<Option<(SessionId, Time)>, Error> {
    let (user, now) = (&checked.user, app.clock.now());
    let (session_id, trail) = (SessionId::new(now, &app.random), scope.trail().by(user.id));
    let mut tx = app.db.write().await?;
    // Locks the account: a new password waits for this session to end it, or this one for that, and finds it changed.
    if !store::users::note_login(&mut tx, user.id, &checked.against, &checked.kept, now).await? {
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
    attempts::forget_logins(&mut tx, &user.email_folded).await?;
    if user.email_verified_at.is_some() {
        acceptance::accept_all(app, &mut tx, &trail, user, now).await?;
    }
    let started = [(Action::SessionStarted, session_id)].into_iter();
    for (action, id) in started.chain(ended.iter().map(|id| (Action::SessionEnded, *id))) {
        let event = Event { action, target: id.to_string(), organization_id: None };
        store::audit_log::record(&mut tx, &trail, &event, now, &app.random).await?;
    }
    for id in ended {
        store::changes::record(&mut tx, Change::Session(id), now).await?;
    }
    tx.commit().await?;
    Ok(Some((session_id, now)))
}
