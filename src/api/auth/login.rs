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
use crate::rules::addresses;
use crate::secrets::jwt::TokenKind;
use crate::store;
use crate::store::audit_log::{Action, Event};

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

/// Checks the password and opens a session. An unknown address costs the same hash as a wrong password.
pub async fn login(app: App, scope: Visitor, Body(body): Body<Login>) -> Result<Enveloped<LoggedIn>, Error> {
    let email_folded = addresses::fold(&body.email.0);
    attempts::count_login(&app, &email_folded, app.clock.now()).await?;
    let mut tx = app.db.read().await?;
    let found = store::users::credentials_by_email(&mut tx, &email_folded).await?;
    drop(tx);
    let stored = found.as_ref().map(|found| found.password_hash.as_str());
    let verdict = app.hasher.verify(&body.password.0, stored).await?;
    let user = found.filter(|_| verdict.matches).ok_or(Code::InvalidCredentials)?.user;
    if app.config.require_verified_email && user.email_verified_at.is_none() {
        // The password was right: that was no guess.
        let mut tx = app.db.write().await?;
        attempts::forget_logins(&mut tx, &email_folded).await?;
        tx.commit().await?;
        return Err(Code::EmailNotVerified.into());
    }
    // The parameters of hashes have changed since: another login will do when the queue is full now.
    let rehashed = if verdict.needs_rehash { app.hasher.hash(&body.password.0).await.ok() } else { None };
    let now = app.clock.now();
    let session_id = SessionId::new(now, &app.random);
    let mut tx = app.db.write().await?;
    if let Some(password_hash) = rehashed {
        store::users::set_password_hash(&mut tx, user.id, &password_hash).await?;
    }
    store::users::set_last_login(&mut tx, user.id, now).await?;
    let expires_at = now.plus_ms(REFRESH_TOKEN_MS);
    store::sessions::insert(&mut tx, session_id, user.id, body.remember_me, now, expires_at).await?;
    attempts::forget_logins(&mut tx, &email_folded).await?;
    if user.email_verified_at.is_some() {
        acceptance::accept_all(&app, &mut tx, &scope.trail().by(user.id), &user, now).await?;
    }
    let event =
        Event { action: Action::SessionStarted, target: session_id.to_string(), organization_id: None };
    store::audit_log::record(&mut tx, &scope.trail().by(user.id), &event, now, &app.random).await?;
    tx.commit().await?;
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
    Ok(private(tokens))
}
