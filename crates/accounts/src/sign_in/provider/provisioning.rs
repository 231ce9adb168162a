//! Accounts that a sign-on creates.

use crate::rules::free_usernames;
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use kernel::naming::Name;
use sign_on::Identity;

use crate::store::users::{EmailVerified, NewUser, User};
use trail::{Action, Event, Trail};

/// The maximum number of usernames that are tried in order. After that, a random number is tried.
const MAX_NUMBERED: u64 = 20;

/// Creates an account without a password.
///
/// # Errors
/// `email_taken` or `username_taken` if a concurrent request has created another account with them.
pub(super) async fn create(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    identity: &Identity,
    email: &Name,
    now: Time,
) -> Result<User, Error> {
    let username = free_username(accounts, tx, identity, &email.display).await?;
    let id = UserId::new(now, &accounts.random);
    let new = NewUser {
        id,
        email: &email.display,
        email_folded: &email.folded,
        username: &username.display,
        username_folded: &username.folded,
        full_name: identity.full_name.as_deref(),
        phone: None,
        password_hash: None,
    };
    store::users::insert(tx, &new, now).await?;
    let event = Event { action: Action::UserRegistered, target: id.to_string(), organization_id: None };
    trail::record(tx, &trail.by(id), &event, now, &accounts.random).await?;
    Ok(User {
        id,
        email: email.display.clone(),
        email_folded: email.folded.clone(),
        username: username.display,
        full_name: identity.full_name.clone(),
        phone: None,
        created_at: now,
        email_verified_at: Some(now),
        phone_verified_at: None,
        last_login_at: None,
        disabled_at: None,
        operator_since: None,
    })
}

/// Marks the address of a new account as verified, and accepts the invitations for it.
///
/// # Errors
/// The database fails.
pub(super) async fn verify(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    now: Time,
) -> Result<EmailVerified, Error> {
    let verified = store::users::set_email_verified(tx, user.id, now).await?;
    let event = Event { action: Action::EmailVerified, target: user.id.to_string(), organization_id: None };
    trail::record(tx, trail, &event, now, &accounts.random).await?;
    (accounts.hooks.accept_invitations)(tx, trail, user, now).await?;
    Ok(verified)
}

/// Returns a username that isn't taken. An account that has the provider's username may belong to someone
/// else.
async fn free_username(
    accounts: &Accounts,
    tx: &mut Tx,
    identity: &Identity,
    email: &str,
) -> Result<Name, Error> {
    let base = free_usernames::base(identity.username.as_deref(), email);
    let random = u64::from(u32::from_be_bytes(accounts.random.bytes()) % 90_000_000) + 10_000_000;
    for number in (1..=MAX_NUMBERED).chain([random]) {
        if let Some(name) = free_usernames::nth(&base, number)
            && !store::users::has_username(tx, &name.folded).await?
        {
            return Ok(name);
        }
    }
    Err(Code::UsernameTaken.into())
}
