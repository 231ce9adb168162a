//! Passkeys: keys of a user's authenticators (WebAuthn). A passkey counts as both factors, because the
//! authenticator also verifies the user.
//!
//! A ceremony has two steps. The first returns options for the browser and a sealed value. The second
//! receives the sealed value and the authenticator's response ([`ceremonies`]). [`crate::sign_in::passkey`]
//! opens sessions. A passkey can also serve as the second factor, which is then required after the password
//! ([`second_factor`]).

pub mod ceremonies;
pub mod relying_party;

use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{PasskeyId, UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use webauthn_rs::prelude::PasskeyRegistration;

use crate::account::connections::{WayIn, has_way_in};
use crate::factors::second_factor;
use crate::rules::one_time_codes::RecoveryCode;
use crate::store::users::User;
use crate::{Accounts, Session, sessions, store};
use ceremonies::Purpose;
use db::{Lock, Tx};
use mail::store::outbox::{About, Template};
use relying_party::{Answer, Assertion, RelyingParty};
use trail::{Action, Event, Trail};

pub use crate::store::passkeys::Passkey;

/// The maximum number of passkeys of a user.
pub const MAX_PASSKEYS: i64 = 20;
/// The length of the random handle that identifies a user to authenticators.
const HANDLE_BYTES: usize = 32;

/// The options of a ceremony, which are sent to the browser.
#[derive(Clone, Debug)]
pub struct Options {
    /// The argument of the browser's WebAuthn call, as JSON.
    pub public_key: Value,
    /// The sealed state, which the client sends back with the authenticator's response.
    pub ceremony: String,
}

/// The client's response to a ceremony.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The value of [`Options::ceremony`].
    pub ceremony: &'a str,
    /// The browser's `PublicKeyCredential`, as JSON.
    pub credential: &'a str,
}

impl Accounts {
    /// Returns the relying party of passkeys.
    ///
    /// # Errors
    /// `passkeys_disabled` if the configuration disables passkeys, or the host of the public URL is an IP
    /// address other than loopback.
    pub fn passkeys(&self) -> Result<&RelyingParty, Error> {
        let party = self.relying_party.as_ref().filter(|_| self.settings.sign_in.passkeys);
        Ok(party.ok_or(Code::PasskeysDisabled)?)
    }
}

/// Returns the passkeys of a user, oldest first.
///
/// # Errors
/// The database fails.
pub async fn list(accounts: &Accounts, user_id: UserId) -> Result<Vec<Passkey>, Error> {
    Ok(store::passkeys::list(&mut accounts.db.read().await?, user_id).await?)
}

/// Returns a passkey of a user.
///
/// # Errors
/// `passkey_not_found`.
pub async fn read(accounts: &Accounts, user_id: UserId, id: PasskeyId) -> Result<Passkey, Error> {
    let found = store::passkeys::by_id(&mut accounts.db.read().await?, user_id, id).await?;
    Ok(found.ok_or(Code::PasskeyNotFound)?)
}

/// The state of a ceremony that adds a passkey.
#[derive(Serialize, Deserialize)]
struct Adding {
    /// The handle that identifies the user to the authenticator.
    handle: Vec<u8>,
    registration: PasskeyRegistration,
}

/// Starts the ceremony that adds a passkey.
///
/// # Errors
/// `passkeys_disabled`; `limit_reached`; 401 if the account doesn't exist.
pub async fn start(accounts: &Accounts, session: Session) -> Result<Options, Error> {
    let party = accounts.passkeys()?;
    let mut tx = accounts.db.read().await?;
    let user = store::users::by_id(&mut tx, session.user_id).await?.ok_or(Code::InvalidAccessToken)?;
    let known = store::passkeys::credential_ids(&mut tx, user.id).await?;
    check_limit(known.len())?;
    let handle = store::passkeys::handle(&mut tx, user.id).await?;
    drop(tx);
    // Nothing is stored until the authenticator has responded, so this has no side effects.
    let handle = handle.unwrap_or_else(|| accounts.random.bytes::<HANDLE_BYTES>().to_vec());
    let (public_key, registration) = party.start(&handle, &user.email, &user.username, &known)?;
    let ceremony = ceremonies::seal(accounts, Purpose::Add(session), Adding { handle, registration })?;
    Ok(Options { public_key, ceremony })
}

/// The values of a new passkey.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    pub signed: Signed<'a>,
    pub name: &'a str,
    /// `true` to require a second factor after the password from then on. `None` means `true` for the user's
    /// first passkey.
    pub asks_after_password: Option<bool>,
}

/// A passkey that was added.
#[derive(Debug)]
pub struct Added {
    pub passkey: Passkey,
    /// The recovery codes, if this passkey made a second factor required after the password.
    pub recovery_codes: Option<Vec<RecoveryCode>>,
}

/// Adds a passkey. If it makes a second factor required after the password, the user gets recovery codes, and
/// every other session ends, because a password alone may have opened it.
///
/// # Errors
/// `passkeys_disabled`; `challenge_expired`; `invalid_credential` if the passkey is invalid or was already
/// added; `limit_reached`; 401 if the caller's session has ended.
pub async fn add(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    new: &New<'_>,
) -> Result<Added, Error> {
    let party = accounts.passkeys()?;
    let Signed { ceremony, credential } = new.signed;
    let (ceremony, adding) = ceremonies::open::<Adding>(accounts, Purpose::Add(session), ceremony)?;
    let credential = party.finish(credential, &adding.registration).map_err(|refused| {
        tracing::info!("a new passkey of {} is refused: {refused}", session.user_id);
        Code::InvalidCredential
    })?;
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
    ceremony.use_up(&mut tx).await?;
    // If a user without a handle started two ceremonies, only the one that finishes first is valid.
    if store::passkeys::set_handle(&mut tx, user.id, &adding.handle).await? != adding.handle {
        return Err(Code::ChallengeExpired.into());
    }
    let before = second_factor::read_in(&mut tx, user.id).await?;
    check_limit(usize::try_from(before.passkeys).map_err(Error::internal)?)?;
    let id = PasskeyId::new(now, &accounts.random);
    let row = store::passkeys::NewPasskey {
        id,
        user_id: user.id,
        credential_id: &credential.id,
        credential: &credential.stored,
        name: new.name,
        sign_count: credential.sign_count,
        is_synced: credential.is_synced,
    };
    if !store::passkeys::insert(&mut tx, &row, now).await? {
        return Err(Code::InvalidCredential.into());
    }
    if new.asks_after_password.unwrap_or(before.passkeys == 0) {
        store::passkeys::set_asked_after_password(&mut tx, user.id, true).await?;
    }
    let recovery_codes =
        second_factor::begin_if_due(accounts, &mut tx, session, before.is_asked_for(), now).await?;
    let about = About { passkey: Some(new.name.to_owned()), ..About::default() };
    second_factor::notify(accounts, &mut tx, trail, &user, Template::PasskeyAdded, about, now).await?;
    record(accounts, &mut tx, trail, Action::PasskeyAdded, id, now).await?;
    tx.commit().await?;
    accounts.outbox.notify_one();
    let passkey = Passkey {
        id,
        name: new.name.to_owned(),
        created_at: now,
        last_used_at: None,
        is_synced: credential.is_synced,
    };
    Ok(Added { passkey, recovery_codes })
}

/// Renames a passkey of the caller, and returns it.
///
/// # Errors
/// `passkey_not_found`; 401 if the caller's session has ended.
pub async fn rename(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    id: PasskeyId,
    name: Option<&str>,
) -> Result<Passkey, Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let (_, mut passkey) = lock(&mut tx, session, id, now).await?;
    if let Some(name) = name.filter(|name| *name != passkey.name) {
        store::passkeys::rename(&mut tx, id, name).await?;
        record(accounts, &mut tx, trail, Action::PasskeyChanged, id, now).await?;
        tx.commit().await?;
        name.clone_into(&mut passkey.name);
    }
    Ok(passkey)
}

/// Removes a passkey of the caller, and also the recovery codes if no other factor remains. Returns `true` if
/// a password alone is enough to log in from then on.
///
/// # Errors
/// `passkey_not_found`; `last_credential` if the account would be left without a sign-in method; 401 if the
/// caller's session has ended.
pub async fn remove(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    id: PasskeyId,
) -> Result<bool, Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let (user, passkey) = lock(&mut tx, session, id, now).await?;
    if !has_way_in(accounts, &mut tx, &user, WayIn::Passkey(id)).await? {
        return Err(Code::LastCredential.into());
    }
    store::passkeys::remove(&mut tx, id).await?;
    let is_asked_for = second_factor::end_if_gone(&mut tx, user.id).await?;
    let about =
        About { passkey: Some(passkey.name), is_password_enough: Some(!is_asked_for), ..About::default() };
    second_factor::notify(accounts, &mut tx, trail, &user, Template::PasskeyRemoved, about, now).await?;
    record(accounts, &mut tx, trail, Action::PasskeyRemoved, id, now).await?;
    tx.commit().await?;
    accounts.outbox.notify_one();
    Ok(!is_asked_for)
}

/// Locks the caller's account, and returns it with one of its passkeys.
async fn lock(tx: &mut Tx, session: Session, id: PasskeyId, now: Time) -> Result<(User, Passkey), Error> {
    let user = sessions::lock_account(tx, session, Lock::Change, now).await?;
    let passkey = store::passkeys::by_id(tx, user.id, id).await?;
    Ok((user, passkey.ok_or(Code::PasskeyNotFound)?))
}

fn check_limit(count: usize) -> Result<(), Error> {
    if i64::try_from(count).is_ok_and(|count| count < MAX_PASSKEYS) {
        Ok(())
    } else {
        Err(Code::LimitReached.into())
    }
}

/// A passkey whose signature is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    id: PasskeyId,
    /// The owner of the passkey.
    pub(crate) user_id: UserId,
    ceremony: ceremonies::Ceremony,
    assertion: Assertion,
}

/// The reason why a signature is refused.
pub(crate) enum Refusal {
    /// The signature isn't valid for the passkey of this user.
    Of(UserId),
    /// Another error.
    Other(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<db::Error> for Refusal {
    fn from(error: db::Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self::Other(code.into())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Of(_) => Code::InvalidCredential.into(),
            Refusal::Other(error) => error,
        }
    }
}

/// Checks the response to a ceremony that requested a signature. [`Checked::use_up`] consumes the ceremony
/// later.
///
/// # Errors
/// `passkeys_disabled`; `challenge_expired`; `invalid_credential`.
pub(crate) async fn check(
    accounts: &Accounts,
    purpose: Purpose,
    signed: &Signed<'_>,
) -> Result<Checked, Refusal> {
    let party = accounts.passkeys()?;
    let (ceremony, state) = ceremonies::open(accounts, purpose, signed.ceremony)?;
    let answer = Answer::parse(signed.credential).ok_or(Code::InvalidCredential)?;
    let mut tx = accounts.db.read().await?;
    let found = store::passkeys::by_credential_id(&mut tx, answer.credential_id()).await?;
    drop(tx);
    let found = found.ok_or(Code::InvalidCredential)?;
    if found.handle != answer.handle() {
        return Err(Refusal::Of(found.user_id));
    }
    let assertion = party.check(&answer, state, &found.credential).map_err(|refused| {
        tracing::info!("a signature of {}'s {} is refused: {refused}", found.user_id, found.id);
        Refusal::Of(found.user_id)
    })?;
    Ok(Checked { id: found.id, user_id: found.user_id, ceremony, assertion })
}

impl Checked {
    /// Consumes the ceremony, and stores the signature count and the sync state. Must be called under the
    /// account's lock, in the transaction that opens a session.
    ///
    /// # Errors
    /// `challenge_expired` if the ceremony was used before; `invalid_credential` if the passkey has been
    /// removed.
    pub(crate) async fn use_up(
        &self,
        accounts: &Accounts,
        tx: &mut Tx,
        trail: &Trail,
        now: Time,
    ) -> Result<(), Error> {
        self.ceremony.use_up(tx).await?;
        let before = store::passkeys::sign_count(tx, self.user_id, self.id).await?;
        let before = before.ok_or(Code::InvalidCredential)?;
        let Assertion { sign_count, is_synced } = self.assertion;
        let reported = i64::from(sign_count);
        // Synced passkeys always report 0. A decreasing count may come from a copy of the key, or from an
        // authenticator that was reset. The signature is valid, so the login isn't refused.
        if reported <= before && (reported, before) != (0, 0) {
            tracing::warn!(
                "the signature count of {}'s {} went from {before} to {reported}: the passkey may have been \
                 copied",
                self.user_id,
                self.id
            );
            record(accounts, tx, trail, Action::PasskeyCountWentBack, self.id, now).await?;
        }
        Ok(store::passkeys::note_use(tx, self.id, reported.max(before), is_synced, now).await?)
    }
}

async fn record(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    action: Action,
    id: PasskeyId,
    now: Time,
) -> Result<(), Error> {
    let event = Event { action, target: id.to_string(), organization_id: None };
    Ok(trail::record(tx, trail, &event, now, &accounts.random).await?)
}
