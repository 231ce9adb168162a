//! Changes of an account's e-mail address. A logged-in user requests the change with their password, and
//! confirms it with a link that is sent to the new address. The old address gets a notice.
//!
//! The response doesn't reveal whether the new address has an account. The e-mail does reveal it, because
//! only the owner of the address can read it. The link alone isn't enough: an attacker could request someone
//! else's address, and if its owner followed the link, the attacker's account would get everything that is
//! pending for the address, such as invitations. So the page that the link opens also asks for the account's
//! password.

use crate::account::entries::record;
use crate::factors::second_factor::require_fresh_session;
use crate::sign_in::password;
use crate::{Accounts, Session, sessions, store};
use db::{Lock, Tx};
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Detail, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::naming::Name;
use kernel::networks::Network;
use kernel::secrets::token::MailToken;
use mail::posting::Draft;

use crate::store::email_changes::EmailChange;
use crate::store::users::{Credentials, NewAddress, User};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Trail};

pub use crate::store::email_changes::PendingAddress;

/// The lifetime of the link after the request, in milliseconds (docs/contract/accounts.md#mail-tokens).
const LINK_MS: i64 = DAY_MS;

/// The error detail of a new address that equals the current one.
pub const UNCHANGED: &str = "email_unchanged";

/// A new address, which follows the rules of [`kernel::naming::email`], and the account's password.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub new_email: &'a Name,
    pub password: &'a str,
}

/// Returns the new address that isn't confirmed yet.
///
/// # Errors
/// The database fails.
pub async fn pending(accounts: &Accounts, user_id: UserId) -> Result<Option<PendingAddress>, Error> {
    let mut tx = accounts.db.read().await?;
    Ok(store::email_changes::pending(&mut tx, user_id, accounts.clock.now()).await?)
}

/// Stores the new address, e-mails a link to it, and notifies the current address if it is verified. The
/// account doesn't change until the link is used. A later request invalidates the link of an earlier request.
/// A wrong password counts as a failed login.
///
/// # Errors
/// 400 if the account already has the address; `wrong_password`; 401 if the session has ended or the password
/// has changed in the meantime; 429 after too many guesses or e-mails, or while the password queue is full.
pub fn request<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
    request: &'a Request<'a>,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let network = Network::of(trail.address);
        let mut tx = accounts.db.read().await?;
        let found = store::users::credentials_by_id(&mut tx, session.user_id, network).await?;
        drop(tx);
        let account = found.ok_or(Code::InvalidAccessToken)?;
        if account.user.email == request.new_email.display {
            return Err(unchanged());
        }
        require_fresh_session(accounts, session).await?;
        let (_, password_hash) = check_password(accounts, trail, account, request.password).await?;
        let (new, now) = (request.new_email, accounts.clock.now());
        let mut tx = accounts.db.write().await?;
        let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
        // Another request may have changed the password while it was checked.
        if !store::users::has_password(&mut tx, user.id, &password_hash).await? {
            return Err(Code::InvalidAccessToken.into());
        }
        let change = EmailChange {
            user_id: user.id,
            session_id: session.id,
            email: new.display.clone(),
            email_folded: new.folded.clone(),
        };
        store::email_changes::replace(&mut tx, &change, now, now.plus_ms(LINK_MS)).await?;
        let sender = Sender::person(trail, user.id);
        // The notice is queued first, because e-mail counters must be locked in the order of
        // `mail::bounds::Counter`.
        if user.email_verified_at.is_some() {
            let about = About { new_email: Some(new.display.clone()), ..About::default() };
            let notice = Draft { template: Template::EmailChangeRequested, about };
            accounts.outbox.post(&mut tx, &sender, &notice, &user.email, now).await?;
        }
        let about = About { user_id: Some(user.id.to_string()), ..About::default() };
        let link = Draft { template: Template::ChangeEmail, about };
        accounts.outbox.post(&mut tx, &sender, &link, &new.display, now).await?;
        record(accounts, &mut tx, trail, Action::EmailChangeRequested, &user, now).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok(())
    })
}

fn unchanged() -> Error {
    let message = "`new_email` is already the account's address.".to_owned();
    Error::invalid(vec![Detail { param: "new_email".to_owned(), code: UNCHANGED, message }])
}

/// Consumes the token, and sets and returns the new address, which counts as verified. Open invitations for
/// it are accepted. Every session of the account ends except the session that requested the change, and every
/// older link stops working. A wrong password counts as a failed login, and doesn't consume the token.
///
/// # Errors
/// `invalid_token`; `wrong_password`; 409 `email_taken` if another account has taken the address in the
/// meantime; 429 while the caller has to wait or the password queue is full.
pub async fn confirm(
    accounts: &Accounts,
    trail: &Trail,
    token: &str,
    password: &str,
) -> Result<String, Error> {
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let mut tx = accounts.db.read().await?;
    let change = store::email_changes::by_token(&mut tx, token.hash(), accounts.clock.now()).await?;
    let user_id = change.ok_or_else(refused)?.user_id;
    let account = store::users::credentials_by_id(&mut tx, user_id, network).await?.ok_or_else(refused)?;
    drop(tx);
    let (old, password_hash) = check_password(accounts, trail, account, password).await?;
    let (now, trail) = (accounts.clock.now(), trail.by(user_id));
    let mut tx = accounts.db.write().await?;
    store::users::lock(&mut tx, user_id).await?;
    // Of two concurrent requests with the same token, only one consumes it.
    let change = store::email_changes::consume(&mut tx, token.hash(), now).await?.ok_or_else(refused)?;
    set_address(accounts, &mut tx, &trail, (&old, &password_hash), &change, now).await?;
    store::sessions::end_all(&mut tx, user_id, Some(change.session_id), now).await?;
    store::email_tokens::remove_all(&mut tx, user_id).await?;
    if old.email_verified_at.is_some() {
        let (by, new_email) = (Some(old.username.clone()), Some(change.email.clone()));
        let about = About { by, new_email, ..About::default() };
        let notice = Draft { template: Template::EmailChanged, about };
        accounts.outbox.post(&mut tx, &Sender::person(&trail, user_id), &notice, &old.email, now).await?;
    }
    record(accounts, &mut tx, &trail, Action::EmailChanged, &old, now).await?;
    tx.commit().await?;
    accounts.outbox.notify_one();
    Ok(change.email)
}

/// Accepts the invitations for the new address, sets the address, and gives the first credit of a verified
/// account. The order matters. Accepting invitations locks organizations. Setting the address first could
/// cause a deadlock: it locks the account's row, and a transaction that holds the lock of an organization may
/// wait for that row to insert a reference to the account.
async fn set_address(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    (user, password_hash): (&User, &str),
    change: &EmailChange,
    now: Time,
) -> Result<(), Error> {
    let EmailChange { user_id, email, email_folded, .. } = change;
    let user = User { email: email.clone(), email_folded: email_folded.clone(), ..user.clone() };
    (accounts.hooks.accept_invitations)(tx, trail, &user, now).await?;
    let address = NewAddress { email, email_folded };
    let verified = store::users::set_address_with(tx, *user_id, password_hash, &address, now).await?;
    // The password may have been changed while it was checked.
    let verified = verified.ok_or_else(wrong_password)?;
    (accounts.hooks.give_first_credit)(tx, &verified, now).await
}

/// Checks the account's password, and clears the counted guess if the password is right. Returns the account
/// and the password hash.
///
/// # Errors
/// Those of [`password::check_own`].
async fn check_password(
    accounts: &Accounts,
    trail: &Trail,
    account: Credentials,
    password: &str,
) -> Result<(User, String), Error> {
    let right = password::check_own(accounts, trail, account, ("password", password)).await?;
    drop(right.place);
    // A separate transaction, because the caller's next step may still be refused for another reason.
    let mut tx = accounts.db.write().await?;
    right.attempt.forget_password(&mut tx, accounts.clock.now()).await?;
    tx.commit().await?;
    Ok((right.user, right.hash))
}

fn wrong_password() -> Error {
    Error::new(Code::WrongPassword).param("password")
}

fn refused() -> Error {
    Error::new(Code::InvalidToken).param("token")
}
