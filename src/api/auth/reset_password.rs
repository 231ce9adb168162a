//! POST /v1/auth/reset-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{Trail, Visitor};
use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::MailId;
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::reply::{Enveloped, private};
use crate::rules::networks::Network;
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::changes::Change;
use crate::store::email_tokens::Purpose;
use crate::store::outbox::Template;

use super::{attempts, check_new_password, check_repeated};

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

/// Uses the token up and sets the password; every session of the account ends. A password that breaks a rule leaves the
/// token as it was.
pub async fn reset_password(
    app: App,
    scope: Visitor,
    Body(body): Body<ResetPassword>,
) -> Result<Enveloped<PasswordReset>, Error> {
    let email = reset(&app, scope.trail(), &body.token.0, &body.password.0).await?;
    let message = "Your password is changed: log in with the new one.".to_owned();
    Ok(private(PasswordReset { message, email }))
}

/// The same for the page behind the mailed link; the account's address.
pub(crate) async fn reset(app: &App, trail: &Trail, token: &str, password: &str) -> Result<String, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let mut tx = app.db.read().await?;
    let owner =
        store::email_tokens::owner(&mut tx, Purpose::ResetPassword, token.hash(), app.clock.now()).await?;
    let user = store::users::by_id(&mut tx, owner.ok_or_else(refused)?).await?.ok_or_else(refused)?;
    drop(tx);
    check_new_password("password", password, &user)?;
    let network = Network::of(trail.address);
    let password_hash = app.hasher.place(network)?.hash(password).await?;
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    // Of two that come with the same token, only one gets here with it.
    store::email_tokens::consume(&mut tx, Purpose::ResetPassword, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    store::users::set_password_hash(&mut tx, user.id, &password_hash).await?;
    // The link went to this address, so somebody reads its mail.
    store::users::set_email_verified(&mut tx, user.id, now).await?;
    store::sessions::end_all(&mut tx, user.id, None, now).await?;
    attempts::end_all_waits(&mut tx, user.id, &user.email_folded, network, now).await?;
    let mail_id = MailId::new(now, &app.random);
    store::outbox::insert(&mut tx, mail_id, Template::PasswordChanged, &user.email, now).await?;
    let event = Event { action: Action::PasswordReset, target: user.id.to_string(), organization_id: None };
    store::audit_log::record(&mut tx, &trail.by(user.id), &event, now, &app.random).await?;
    store::changes::record(&mut tx, Change::User(user.id), now).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    Ok(user.email)
}
