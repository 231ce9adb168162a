//! POST /v1/auth/change-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::SessionScope;
use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::UserId;
use crate::input::types::Text;
use crate::input::{Body, Fields, Record};
use crate::mail::posting::Draft;
use crate::reply::{Enveloped, private};
use crate::rules::networks::Network;
use crate::rules::{password, password_changes};
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::email_tokens::Purpose;
use crate::store::mail_counters::Sender;
use crate::store::outbox::Template;
use crate::store::users::Credentials;

use super::attempts::{self, Guess};
use super::{UNCHANGED, check_new_password, check_repeated};

/// The old password and the new one.
#[derive(Debug)]
pub struct ChangePassword {
    current_password: Text<1024>,
    new_password: Text<1024>,
}

impl Record for ChangePassword {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let current_password = fields.required::<Text<1024>>("current_password");
        let new_password = fields.required::<Text<1024>>("new_password");
        let confirmation = fields.required::<Text<1024>>("new_password_confirmation");
        check_repeated(fields, "new_password_confirmation", new_password.as_ref(), confirmation.as_ref());
        if let (Some(Text(current)), Some(Text(new))) = (&current_password, &new_password)
            && password::is_same(current, new)
        {
            let message = "`new_password` is the current password: choose another one.";
            fields.problem::<()>("new_password", UNCHANGED, message);
        }
        Some(Self { current_password: current_password?, new_password: new_password? })
    }
}

/// When it was changed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PasswordChanged {
    message: String,
    updated_at: Time,
}

/// Sets the password; every other session of the account and every older link for a new password end. A guess at the current
/// password counts like a login.
pub async fn change_password(
    app: App,
    scope: SessionScope,
    Body(body): Body<ChangePassword>,
) -> Result<Enveloped<PasswordChanged>, Error> {
    let network = Network::of(scope.trail().address);
    let mut tx = app.db.read().await?;
    let found = store::users::credentials_by_id(&mut tx, scope.user_id(), network).await?;
    let Credentials { user, password_hash: stored, last_login_here_at } =
        found.ok_or(Code::InvalidAccessToken)?;
    check_new_password("new_password", &body.new_password.0, &user)?;
    // Before anything is hashed for it, and again where it counts.
    limit(&app, &mut tx, user.id, app.clock.now()).await?;
    drop(tx);
    // A place first: being refused by the full queue is no guess.
    let place = app.hasher.place(network)?;
    let guess = Guess::new(&user.email_folded, network, last_login_here_at);
    guess.count(&app, app.clock.now()).await?;
    let verdict = place.verify(&body.current_password.0, Some(&stored)).await?;
    if !verdict.matches {
        return Err(Error::new(Code::WrongPassword).param("current_password"));
    }
    let password_hash = place.hash(&body.new_password.0).await?;
    drop(place);
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    // Somebody else may have changed it, or ended this session, while we hashed: then what was checked no longer holds.
    let replaced = store::users::replace_password(&mut tx, user.id, &stored, &password_hash, now).await?;
    if !replaced || store::sessions::live(&mut tx, scope.session_id(), now).await?.is_none() {
        return Err(Code::InvalidAccessToken.into());
    }
    limit(&app, &mut tx, user.id, now).await?;
    store::sessions::end_all(&mut tx, user.id, Some(scope.session_id()), now).await?;
    store::email_tokens::void(&mut tx, user.id, Purpose::ResetPassword).await?;
    guess.forget(&mut tx, now).await?;
    // The reader of an address that was never verified may have nothing to do with the account.
    if user.email_verified_at.is_some() {
        let sender = Sender::person(scope.trail(), user.id);
        let draft = Draft::plain(Template::PasswordChanged);
        app.outbox.post(&mut tx, &sender, &draft, &user.email, now).await?;
    }
    let event = Event { action: Action::PasswordChanged, target: user.id.to_string(), organization_id: None };
    store::audit_log::record(&mut tx, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    let message = "Your password is changed; your other sessions have ended.".to_owned();
    Ok(private(PasswordChanged { message, updated_at: now }))
}

/// Refuses one change too many within an hour, by what the audit trail has of the others.
async fn limit(app: &App, tx: &mut Tx, user_id: UserId, now: Time) -> Result<(), Error> {
    let limits = &app.config.limits;
    if !limits.enabled {
        return Ok(());
    }
    let (target, per_hour) = (user_id.to_string(), limits.password_changes_per_hour);
    let changes = (Action::PasswordChanged, target.as_str());
    let times = store::audit_log::times(tx, changes, password_changes::counted(now), per_hour).await?;
    password_changes::another(&times, per_hour, now).map_err(attempts::too_many)
}
