//! Verification of an e-mail address with an e-mailed link.

use crate::account::passwords::{self, NewPassword};
use crate::sign_in::password::{self, VerifiedPassword};
use crate::{Accounts, Session, sessions, store};
use db::{Lock, Tx};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::networks::Network;
use kernel::secrets::token::MailToken;
use mail::posting::Draft;

use crate::store::email_tokens::Purpose;
use crate::store::users::Credentials;
use mail::store::mail_counters::Sender;
use mail::store::outbox::Template;
use trail::{Action, Event, Trail};

/// A verified address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    pub email: String,
    /// The time at which the address was first verified.
    pub verified_at: Time,
}

/// Queues an e-mail with another link that verifies the caller's address. Earlier links stop working when it
/// is sent.
///
/// # Errors
/// `email_already_verified`; 401 if the session has ended; 429 for more e-mails than allowed within an hour.
pub fn resend<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
        if user.email_verified_at.is_some() {
            return Err(Code::EmailAlreadyVerified.into());
        }
        let (sender, draft) = (Sender::person(trail, user.id), Draft::plain(Template::VerifyEmail));
        accounts.outbox.post(&mut tx, &sender, &draft, &user.email, now).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok(())
    })
}

/// Consumes the token and marks the address as verified. The person who reads the e-mail may not be the one
/// who created the account, so open invitations are accepted only at the next login.
///
/// # Errors
/// `invalid_token`.
pub async fn verify(accounts: &Accounts, trail: &Trail, token: &str) -> Result<Verified, Error> {
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let user_id = store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    let verified = store::users::set_email_verified_by_token(&mut tx, user_id, now).await?;
    let user = store::users::by_id(&mut tx, user_id).await?.ok_or_else(refused)?;
    record(accounts, &mut tx, &trail.by(user_id), user_id, now).await?;
    (accounts.hooks.give_first_credit)(&mut tx, &verified, now).await?;
    tx.commit().await?;
    Ok(Verified { email: user.email, verified_at: user.email_verified_at.unwrap_or(now) })
}

/// Verifies the address of an account for a user who enters its password, and accepts the open invitations
/// for it. Returns the address. A wrong password counts as a failed login, and doesn't consume the token.
///
/// # Errors
/// `invalid_token`; `wrong_password`; `account_disabled`; 429 while the caller has to wait or the password
/// queue is full.
pub async fn verify_with_password(
    accounts: &Accounts,
    trail: &Trail,
    token: &str,
    password: &str,
) -> Result<String, Error> {
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let account = token_account(accounts, &token, network).await?;
    let trail = trail.by(account.user.id);
    let right = password::check_own(accounts, &trail, account, ("password", password)).await?;
    let VerifiedPassword { user, hash: password_hash, attempt, place, .. } = right;
    drop(place);
    if user.disabled_at.is_some() {
        return Err(Code::AccountDisabled.into());
    }
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    // The password may have been changed in the meantime.
    let verified = store::users::set_email_verified_with(&mut tx, user.id, &password_hash, now).await?;
    let verified = verified.ok_or_else(|| Error::new(Code::WrongPassword).param("password"))?;
    attempt.forget_password(&mut tx, now).await?;
    record(accounts, &mut tx, &trail, user.id, now).await?;
    (accounts.hooks.accept_invitations)(&mut tx, &trail, &user, now).await?;
    (accounts.hooks.give_first_credit)(&mut tx, &verified, now).await?;
    tx.commit().await?;
    Ok(user.email)
}

/// Verifies the address for a user who sets a new password, because they didn't create the account or have
/// forgotten its password. All other access to the account ends. A password that breaks a rule doesn't
/// consume the token.
///
/// # Errors
/// `invalid_token` for an invalid token or an address that is already verified; 400 with each rule that the
/// password breaks; 429 while the password queue is full.
pub async fn verify_with_new_password(
    accounts: &Accounts,
    trail: &Trail,
    token: &str,
    new_password: &str,
) -> Result<NewPassword, Error> {
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let account = token_account(accounts, &token, network).await?;
    // This link is valid for longer than a password reset link, so it can't set a password once the address
    // is verified.
    if account.user.email_verified_at.is_some() {
        return Err(refused());
    }
    let place = accounts.hasher.acquire_place(network)?;
    let password_hash = passwords::hash_new("new_password", new_password, &account, place).await?;
    let (now, user) = (accounts.clock.now(), account.user);
    let trail = trail.by(user.id);
    let mut tx = accounts.db.write().await?;
    store::email_tokens::consume(&mut tx, Purpose::VerifyEmail, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    store::users::lock(&mut tx, user.id).await?;
    let current = store::users::by_id(&mut tx, user.id).await?.ok_or_else(refused)?;
    if current.email_verified_at.is_some() {
        return Err(refused());
    }
    record(accounts, &mut tx, &trail, user.id, now).await?;
    passwords::set_and_commit(accounts, tx, &trail, user, &password_hash, now).await
}

fn refused() -> Error {
    Error::new(Code::InvalidToken).param("token")
}

async fn record(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    user_id: UserId,
    now: Time,
) -> Result<(), Error> {
    let event = Event { action: Action::EmailVerified, target: user_id.to_string(), organization_id: None };
    Ok(trail::record(tx, trail, &event, now, &accounts.random).await?)
}

/// Returns the account that a token belongs to, without consuming the token.
async fn token_account(
    accounts: &Accounts,
    token: &MailToken,
    network: Network,
) -> Result<Credentials, Error> {
    let mut tx = accounts.db.read().await?;
    let now = accounts.clock.now();
    let owner = store::email_tokens::owner(&mut tx, Purpose::VerifyEmail, token.hash(), now).await?;
    let owner = owner.ok_or_else(refused)?;
    store::users::credentials_by_id(&mut tx, owner, network).await?.ok_or_else(refused)
}
