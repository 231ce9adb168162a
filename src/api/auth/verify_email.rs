//! POST /v1/auth/verify-email

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{Trail, Visitor};
use crate::api::organizations::invitations::acceptance;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::reply::{Enveloped, ok};
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::email_tokens::Purpose;

use super::first_credit;

/// The token of the mail.
#[derive(Debug)]
pub struct VerifyEmail {
    pub(crate) token: Text<512>,
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
    pub(crate) email: String,
    verified: bool,
    verified_at: Time,
}

/// Uses the token up and marks the address as verified.
pub async fn verify_email(
    app: App,
    scope: Visitor,
    Body(body): Body<VerifyEmail>,
) -> Result<Enveloped<Verified>, Error> {
    verify(&app, scope.trail(), &body.token.0).await.map(ok)
}

/// The same for the page behind the mailed link.
pub(crate) async fn verify(app: &App, trail: &Trail, token: &str) -> Result<Verified, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let user_id = store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    let verified = store::users::set_email_verified(&mut tx, user_id, now).await?;
    let user = store::users::by_id(&mut tx, user_id).await?.ok_or_else(refused)?;
    let event = Event { action: Action::EmailVerified, target: user_id.to_string(), organization_id: None };
    store::audit_log::record(&mut tx, &trail.by(user_id), &event, now, &app.random).await?;
    acceptance::accept_all(app, &mut tx, &trail.by(user_id), &user, now).await?;
    first_credit::give(app, &mut tx, &verified, now).await?;
    tx.commit().await?;
    let verified_at = user.email_verified_at.unwrap_or(now);
    Ok(Verified { email: user.email, verified: true, verified_at })
}
