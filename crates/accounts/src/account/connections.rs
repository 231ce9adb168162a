//! The connections of an account to providers.

use crate::account::entries::record;
use crate::factors::second_factor;
use crate::sign_in::provider::pending::PendingConnection;
use crate::{Accounts, Session, sessions, store};
use db::{Lock, Tx};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ConnectionId, PasskeyId, UserId};
use sign_on::{Identity, Provider};

use crate::store::connections::NewConnection;
use crate::store::users::User;
use mail::store::outbox::{About, Template};
use trail::{Action, Trail};

pub use crate::store::connections::Connection;

/// The sign-in methods of an account, except passkeys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaysIn {
    /// `true` if the account has a password.
    pub has_password: bool,
    /// `true` if the user can sign in with the password.
    pub is_password_taken: bool,
    /// The connections, oldest first.
    pub connections: Vec<Connection>,
}

/// Returns the sign-in methods of a user's account, except passkeys.
///
/// # Errors
/// The database fails.
pub async fn list(accounts: &Accounts, user_id: UserId) -> Result<WaysIn, Error> {
    let mut tx = accounts.db.read().await?;
    let user = store::users::by_id(&mut tx, user_id).await?.ok_or(Code::InvalidAccessToken)?;
    let has_password = store::users::has_any_password(&mut tx, user_id).await?;
    let is_password_taken = has_password && accounts.settings.sign_in.takes_password_of(&user);
    let connections = store::connections::of_user(&mut tx, user_id).await?;
    Ok(WaysIn { has_password, is_password_taken, connections })
}

/// Returns the name of a connection's provider, or its id if the provider is no longer configured.
pub fn provider_name(accounts: &Accounts, provider_id: &str) -> String {
    let provider = accounts.providers.get(provider_id);
    provider.map_or_else(|_| provider_id.to_owned(), |provider| provider.settings.name.clone())
}

/// Removes a connection of the caller's account. The sessions that it opened end, except the calling one.
///
/// # Errors
/// `connection_not_found`; `last_credential` if the account would be left without a sign-in method; 401 if
/// the caller's session has ended.
pub async fn remove(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    id: ConnectionId,
) -> Result<(), Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
    let connections = store::connections::of_user(&mut tx, user.id).await?;
    if !connections.iter().any(|connection| connection.id == id) {
        return Err(Code::ConnectionNotFound.into());
    }
    if !has_way_in(accounts, &mut tx, &user, WayIn::Connection(id)).await? {
        return Err(Code::LastCredential.into());
    }
    let removed = store::connections::remove(&mut tx, user.id, id).await?;
    let provider_id = removed.ok_or(Code::ConnectionNotFound)?;
    let ended = store::sessions::end_of_connection(&mut tx, id, Some(session.id), now).await?;
    let about = About { provider: Some(provider_name(accounts, &provider_id)), ..About::default() };
    let template = Template::ProviderDisconnected;
    second_factor::notify(accounts, &mut tx, trail, &user, template, about, now).await?;
    record(accounts, &mut tx, trail, Action::ProviderDisconnected, &user, now).await?;
    sessions::record(accounts, &mut tx, trail, (Action::SessionEnded, &ended), now).await?;
    tx.commit().await?;
    accounts.outbox.notify_one();
    Ok(())
}

/// A sign-in method that is about to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WayIn {
    Connection(ConnectionId),
    Passkey(PasskeyId),
}

/// Returns `true` if the user has a sign-in method other than this one: a password if passwords are accepted,
/// a connection to a configured provider, or a passkey if passkeys are available. The result is reliable only
/// while the account is locked.
pub(crate) async fn has_way_in(
    accounts: &Accounts,
    tx: &mut Tx,
    user: &User,
    besides: WayIn,
) -> Result<bool, Error> {
    let user_id = user.id;
    if accounts.settings.sign_in.takes_password_of(user)
        && store::users::has_any_password(tx, user_id).await?
    {
        return Ok(true);
    }
    let providers = accounts.providers.all();
    let is_configured = |connection: &Connection| {
        providers.iter().any(|provider| provider.settings.issuer == connection.issuer)
    };
    let connections = store::connections::of_user(tx, user_id).await?;
    let is_other = |connection: &&Connection| WayIn::Connection(connection.id) != besides;
    if connections.iter().filter(is_other).any(is_configured) {
        return Ok(true);
    }
    if accounts.passkeys().is_err() {
        return Ok(false);
    }
    let passkeys = store::passkeys::list(tx, user_id).await?;
    Ok(passkeys.iter().any(|passkey| WayIn::Passkey(passkey.id) != besides))
}

/// Creates a pending connection after the user has confirmed it. The memberships that the provider grants
/// take effect at the user's next sign-on.
///
/// # Errors
/// `sign_on_expired` if the pending connection belongs to another account, or the provider's issuer has
/// changed; `provider_not_found`; `email_not_verified`; `connection_taken` if another account is connected to
/// this identity; 401 if the session has ended.
pub async fn confirm(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    pending: &PendingConnection,
) -> Result<(), Error> {
    let provider = accounts.providers.get(&pending.provider_id)?;
    if session.user_id != pending.user_id || provider.settings.issuer != pending.issuer {
        return Err(Code::SignOnExpired.into());
    }
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
    // The account may have been created by someone who can't read e-mails to its address.
    if user.email_verified_at.is_none() {
        return Err(Code::EmailNotVerified.into());
    }
    let found = store::connections::by_subject(&mut tx, &pending.issuer, &pending.subject).await?;
    match found {
        // The user has confirmed it twice.
        Some((_, user_id)) if user_id == user.id => return Ok(()),
        Some(_) => return Err(Code::ConnectionTaken.into()),
        None => {}
    }
    let new = NewConnection {
        id: ConnectionId::new(now, &accounts.random),
        user_id: user.id,
        provider_id: &pending.provider_id,
        issuer: &pending.issuer,
        subject: &pending.subject,
        email: pending.email_there.as_deref(),
    };
    if !store::connections::insert(&mut tx, &new, now).await? {
        return Err(Code::ConnectionTaken.into());
    }
    notify_connected(accounts, &mut tx, &trail.by(user.id), &provider, &user, now).await?;
    tx.commit().await?;
    accounts.outbox.notify_one();
    Ok(())
}

/// Adds a connection and returns its id; `None` if the provider's user is already connected to an account.
pub(crate) async fn add(
    accounts: &Accounts,
    tx: &mut Tx,
    provider: &Provider,
    identity: &Identity,
    user_id: UserId,
    now: Time,
) -> Result<Option<ConnectionId>, Error> {
    let id = ConnectionId::new(now, &accounts.random);
    let new = NewConnection {
        id,
        user_id,
        provider_id: &provider.settings.id,
        issuer: &identity.issuer,
        subject: &identity.subject,
        email: identity.email.as_deref(),
    };
    Ok(store::connections::insert(tx, &new, now).await?.then_some(id))
}

/// Notifies the owner that the account was connected, and adds an audit entry.
pub(crate) async fn notify_connected(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    provider: &Provider,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    let about = About { provider: Some(provider.settings.name.clone()), ..About::default() };
    second_factor::notify(accounts, tx, trail, user, Template::ProviderConnected, about, now).await?;
    record(accounts, tx, trail, Action::ProviderConnected, user, now).await
}
