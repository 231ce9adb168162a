//! POST /v1/auth/verify-email

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{Trail, Visitor};
use crate::api::organizations::invitations::acceptance;
use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::UserId;
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::reply::{Enveloped, ok};
use crate::rules::networks::Network;
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::email_tokens::Purpose;
use crate::store::users::Credentials;

use super::attempts::Guess;
use super::first_credit;
use super::reclaiming::{self, NewPassword};

/// The token of the mail.
#[derive(Debug)]
pub struct VerifyEmail {
    token: Text<512>,
}

impl Record for VerifyEmail {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let token = fields.required("token");
        Some(Self { token: token? })
    }
}

/// The verified address.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Verified {
    email: String,
    verified: bool,
    verified_at: Time,
}

/// Uses the token up and marks the address as verified. Whoever reads the mail need not be whoever is logged in: open invitations
/// wait for the next login.
pub async fn verify_email(
    app: App,
    scope: Visitor,
    Body(body): Body<VerifyEmail>,
) -> Result<Enveloped<Verified>, Error> {
    let token = MailToken::parse(&body.token.0).ok_or_else(refused)?;
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let user_id = store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    let verified = store::users::set_email_verified_by_token(&mut tx, user_id, now).await?;
    let user = store::users::by_id(&mut tx, user_id).await?.ok_or_else(refused)?;
    record(&app, &mut tx, &scope.trail().by(user_id), user_id, now).await?;
    first_credit::give(&app, &mut tx, &verified, now).await?;
    tx.commit().await?;
    let verified_at = user.email_verified_at.unwrap_or(now);
    Ok(ok(Verified { email: user.email, verified: true, verified_at }))
}

fn refused() -> Error {
    Error::new(Code::InvalidToken).param("token")
}

async fn record(app: &App, tx: &mut Tx, trail: &Trail, user_id: UserId, now: Time) -> Result<(), Error> {
    let event = Event { action: Action::EmailVerified, target: user_id.to_string(), organization_id: None };
    Ok(store::audit_log::record(tx, trail, &event, now, &app.random).await?)
}

/// The account that a token would verify, without using it up.
async fn account_of(app: &App, token: &MailToken, network: Network) -> Result<Credentials, Error> {
    let mut tx = app.db.read().await?;
    let owner =
        store::email_tokens::owner(&mut tx, Purpose::VerifyEmail, token.hash(), app.clock.now()).await?;
    let owner = owner.ok_or_else(refused)?;
    store::users::credentials_by_id(&mut tx, owner, network).await?.ok_or_else(refused)
}

/// Verifies the address for somebody who knows the account's password, and takes up the open invitations for it; the address. A
/// wrong password counts like one at login, and leaves the token as it was.
pub(crate) async fn verify_with_password(
    app: &App,
    trail: &Trail,
    token: &str,
    password: &str,
) -> Result<String, Error> {
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let Credentials { user, password_hash, last_login_here_at } = account_of(app, &token, network).await?;
    // A place first: being refused by the full queue is no guess.
    let place = app.hasher.place(network)?;
    let guess = Guess::new(&user.email_folded, network, last_login_here_at);
    guess.count(app, app.clock.now()).await?;
    let wrong = || Error::new(Code::WrongPassword).param("password");
    if !place.verify(password, Some(&password_hash)).await?.matches {
        return Err(wrong());
    }
    drop(place);
    let (now, trail) = (app.clock.now(), trail.by(user.id));
    let mut tx = app.db.write().await?;
    store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    // The password may have been changed while it was checked.
    let verified = store::users::set_email_verified_with(&mut tx, user.id, &password_hash, now).await?;
    let verified = verified.ok_or_else(wrong)?;
    guess.forget(&mut tx, now).await?;
    record(app, &mut tx, &trail, user.id, now).await?;
    acceptance::accept_all(app, &mut tx, &trail, &user, now).await?;
    first_credit::give(app, &mut tx, &verified, now).await?;
    tx.commit().await?;
    Ok(user.email)
}

/// Verifies the address for somebody who sets a new password: they haven't made the account, or don't know its password any
/// more. Everything ends by which it could be used before. A password that breaks a rule leaves the token as it was.
pub(crate) async fn verify_with_new_password(
    app: &App,
    trail: &Trail,
    token: &str,
    new_password: &str,
) -> Result<NewPassword, Error> {
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let account = account_of(app, &token, network).await?;
    // The link lives longer than one for a new password, so it is no such link once the address is verified.
    if account.user.email_verified_at.is_some() {
        return Err(refused());
    }
    let place = app.hasher.place(network)?;
    let password_hash = reclaiming::hash_new("new_password", new_password, &account, place).await?;
    let (now, user) = (app.clock.now(), account.user);
    let trail = trail.by(user.id);
    let mut tx = app.db.write().await?;
    store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    store::users::lock(&mut tx, user.id).await?;
    let current = store::users::by_id(&mut tx, user.id).await?.ok_or_else(refused)?;
    if current.email_verified_at.is_some() {
        return Err(refused());
    }
    record(app, &mut tx, &trail, user.id, now).await?;
    reclaiming::set_password(app, tx, &trail, user, &password_hash, now).await
}
