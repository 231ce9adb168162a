//! POST /v1/auth/login

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::Visitor;
use crate::api::organizations::invitations::acceptance;
use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::{SessionId, UserId};
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::reply::{Enveloped, private};
use crate::rules::naming;
use crate::rules::networks::Network;
use crate::secrets::jwt::TokenKind;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::users::User;

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

/// Checks the password and opens a session. An unknown address costs the same work as a wrong password.
pub async fn login(app: App, scope: Visitor, Body(body): Body<Login>) -> Result<Enveloped<LoggedIn>, Error> {
    let outcome = open_session(&app, &scope, body).await;
    app.metrics.logins.count(outcome.as_ref().err().map(|error| error.code));
    outcome.map(private)
}

/// A right password, and what it is good for.
struct Proof {
    user: User,
    guess: Guess,
    /// A hash with today's parameters, where the stored one has others.
    rehashed: Option<String>,
}

/// Checks the password. What is refused is counted and leaves an entry in the audit trail.
async fn check(app: &App, scope: &Visitor, body: &Login) -> Result<Proof, Error> {
    let email_folded = naming::fold(&body.email.0);
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
    if let Err(error) = guess.count(app, counted_at).await {
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
    let user = found.user;
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
    Ok(Proof { user, guess, rehashed })
}

async fn open_session(app: &App, scope: &Visitor, body: Login) -> Result<LoggedIn, Error> {
    let Proof { user, guess, rehashed } = check(app, scope, &body).await?;
    let now = app.clock.now();
    let session_id = SessionId::new(now, &app.random);
    let mut tx = app.db.write().await?;
    if let Some(password_hash) = rehashed {
        store::users::set_password_hash(&mut tx, user.id, &password_hash).await?;
    }
    store::users::set_last_login(&mut tx, user.id, now).await?;
    let expires_at = now.plus_ms(REFRESH_TOKEN_MS);
    store::sessions::insert(&mut tx, session_id, user.id, body.remember_me, now, expires_at).await?;
    guess.forget(&mut tx, now).await?;
    let is_told = guess.note_login(app, &mut tx, &user, scope.trail(), now).await?;
    if user.email_verified_at.is_some() {
        acceptance::accept_all(app, &mut tx, &scope.trail().by(user.id), &user, now).await?;
    }
    let event =
        Event { action: Action::SessionStarted, target: session_id.to_string(), organization_id: None };
    store::audit_log::record(&mut tx, &scope.trail().by(user.id), &event, now, &app.random).await?;
    tx.commit().await?;
    if is_told {
        app.outbox.notify_one();
    }
    Ok(LoggedIn {
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
    })
}
