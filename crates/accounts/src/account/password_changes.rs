//! Changes of the password by a logged-in user who enters the current one.

use crate::account::passwords;
use crate::factors::second_factor::require_fresh_session;
use crate::rules::password_changes;
use crate::sign_in::attempts;
use crate::sign_in::password::{self, VerifiedPassword};
use crate::{Accounts, Session, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::networks::Network;
use mail::posting::Draft;

use crate::store::email_tokens::Purpose;
use mail::store::mail_counters::Sender;
use mail::store::outbox::Template;
use trail::{Action, Event, Trail};

/// The current password and the new one, as entered.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    pub current_password: &'a str,
    pub new_password: &'a str,
}

/// Sets the new password. Every other session of the account ends, and older links that reset the password or
/// confirm a new address stop working. A wrong current password counts as a failed login. Returns the time of
/// the change.
///
/// # Errors
/// 400 with each rule that the new password breaks; `no_password`; `wrong_password`; 401 if the session has
/// ended or the password has changed in the meantime; 429 after too many changes or guesses, or while the
/// password queue is full.
pub fn change<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
    change: &'a Change<'a>,
) -> BoxFuture<'a, Result<Time, Error>> {
    Box::pin(async move {
        let network = Network::of(trail.address);
        let mut tx = accounts.db.read().await?;
        let found = store::users::credentials_by_id(&mut tx, session.user_id, network).await?;
        let account = found.ok_or(Code::InvalidAccessToken)?;
        let user = &account.user;
        if account.password_hash.is_none() {
            return Err(Code::NoPassword.into());
        }
        passwords::check_rules("new_password", change.new_password, user)?;
        // This check avoids hashing for nothing. It is repeated below, under the lock.
        check_limit(accounts, &mut tx, user.id, accounts.clock.now()).await?;
        drop(tx);
        require_fresh_session(accounts, session).await?;
        let field = ("current_password", change.current_password);
        let VerifiedPassword { user, hash: stored, attempt, place, .. } =
            password::check_own(accounts, trail, account, field).await?;
        let password_hash = place.hash(change.new_password).await?;
        drop(place);
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        // Another request may have changed the password or ended this session during the hashing. In that
        // case the check above is no longer valid.
        let is_replaced =
            store::users::replace_password(&mut tx, user.id, &stored, &password_hash, now).await?;
        if !is_replaced || store::sessions::live(&mut tx, session.id, now).await?.is_none() {
            return Err(Code::InvalidAccessToken.into());
        }
        check_limit(accounts, &mut tx, user.id, now).await?;
        store::sessions::end_all(&mut tx, user.id, Some(session.id), now).await?;
        store::email_tokens::remove(&mut tx, user.id, Purpose::ResetPassword).await?;
        store::email_changes::remove(&mut tx, user.id).await?;
        attempt.forget_password(&mut tx, now).await?;
        // If the address was never verified, its owner may have nothing to do with the account.
        if user.email_verified_at.is_some() {
            let draft = Draft::plain(Template::PasswordChanged);
            accounts.outbox.post(&mut tx, &Sender::person(trail, user.id), &draft, &user.email, now).await?;
        }
        let event =
            Event { action: Action::PasswordChanged, target: user.id.to_string(), organization_id: None };
        trail::record(&mut tx, trail, &event, now, &accounts.random).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok(now)
    })
}

/// Returns 429 if the hourly limit is reached. Earlier changes are counted in the audit trail.
async fn check_limit(accounts: &Accounts, tx: &mut Tx, user_id: UserId, now: Time) -> Result<(), Error> {
    let limits = &accounts.settings.limits;
    if !limits.enabled {
        return Ok(());
    }
    let (target, per_hour) = (user_id.to_string(), limits.password_changes_per_hour);
    let changes = (Action::PasswordChanged, target.as_str());
    let times = trail::times(tx, changes, password_changes::counted_period(now), per_hour).await?;
    password_changes::check_limit(&times, per_hour, now).map_err(attempts::too_many_attempts)
}
