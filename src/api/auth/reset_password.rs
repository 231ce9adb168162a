//! POST /v1/auth/reset-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{Trail, Visitor};
use crate::app::App;
use crate::error::{Code, Error};
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::reply::{Enveloped, private};
use crate::rules::networks::Network;
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::email_tokens::Purpose;

use super::check_repeated;
use super::reclaiming::{self, NewPassword};

/// A new password, and the token that allows it.
#[derive(Debug)]
pub struct ResetPassword {
    pub(crate) token: Text<512>,
    pub(crate) password: Text<1024>,
}

impl Record for ResetPassword {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let token = fields.required("token");
        let password = fields.required::<Text<1024>>("password");
        let confirmation = fields.required::<Text<1024>>("password_confirmation");
        check_repeated(fields, "password_confirmation", password.as_ref(), confirmation.as_ref());
        Some(Self { token: token?, password: password? })
    }
}

/// Whose password it is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PasswordReset {
    message: String,
    email: String,
}

/// Uses the token up and sets the password; every session of the account ends. If nobody had verified its address before, so
/// does everything else by which it could be used. A password that breaks a rule leaves the token as it was.
pub async fn reset_password(
    app: App,
    scope: Visitor,
    Body(body): Body<ResetPassword>,
) -> Result<Enveloped<PasswordReset>, Error> {
    let NewPassword { email, .. } = reset(&app, scope.trail(), &body.token.0, &body.password.0).await?;
    let message = "Your password is changed: log in with the new one.".to_owned();
    Ok(private(PasswordReset { message, email }))
}

/// The same for the page behind the mailed link.
pub(crate) async fn reset(
    app: &App,
    trail: &Trail,
    token: &str,
    password: &str,
) -> Result<NewPassword, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let mut tx = app.db.read().await?;
    let owner =
        store::email_tokens::owner(&mut tx, Purpose::ResetPassword, token.hash(), app.clock.now()).await?;
    let owner = owner.ok_or_else(refused)?;
    let account = store::users::credentials_by_id(&mut tx, owner, network).await?.ok_or_else(refused)?;
    drop(tx);
    let place = app.hasher.place(network)?;
    let password_hash = reclaiming::hash_new("password", password, &account, place).await?;
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    // Of two that come with the same token, only one gets here with it.
    store::email_tokens::consume(&mut tx, Purpose::ResetPassword, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    let trail = trail.by(account.user.id);
    reclaiming::set_password(app, tx, &trail, account.user, &password_hash, now).await
}
