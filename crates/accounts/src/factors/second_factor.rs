//! The second factor of a user: one-time codes from an authenticator app, or passkeys if the user opts in,
//! and recovery codes in case the app or passkey is lost.
//!
//! Once a user has a second factor, a password alone doesn't open a session. To add, replace or remove a part
//! of it, the user must have recently confirmed their identity: the gate requires a fresh session. Every
//! login with a password calls `check`.

use crate::account::entries::record;
use crate::rules::one_time_codes::{OneTimeCode, RECOVERY_CODES, RecoveryCode, Seed, issuer};
use crate::sign_in::attempts::CountedCode;
use crate::{Accounts, Session, sessions, store};
use db::{Lock, Tx};
use kernel::clock::{MINUTE_MS, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use mail::posting::Draft;

use crate::store::second_factors::EnrolmentRow;
use crate::store::users::User;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Trail};

/// The time within which a new seed must be confirmed, in milliseconds.
const ENROLMENT_MS: i64 = 10 * MINUTE_MS;

/// The state of a user's second factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecondFactor {
    /// The time at which the current authenticator app was confirmed; `None` if the account has none.
    pub totp_since: Option<Time>,
    /// The number of the user's passkeys.
    pub passkeys: i64,
    /// `true` if having a passkey makes a second factor required after the password.
    pub passkeys_ask: bool,
    /// The number of unused recovery codes.
    pub recovery_codes_left: i64,
    /// The time at which the recovery codes were created.
    pub recovery_codes_made_at: Option<Time>,
}

impl SecondFactor {
    /// Returns `true` if a second factor is required after the password.
    pub fn is_asked_for(&self) -> bool {
        self.totp_since.is_some() || (self.passkeys > 0 && self.passkeys_ask)
    }
}

/// Returns the state of a user's second factor.
///
/// # Errors
/// The database fails.
pub fn read(accounts: &Accounts, user_id: UserId) -> BoxFuture<'_, Result<SecondFactor, Error>> {
    Box::pin(async move { read_in(&mut accounts.db.read().await?, user_id).await })
}

/// Returns `true` if a second factor is required after the user's password.
///
/// # Errors
/// The database fails.
pub async fn is_there(tx: &mut Tx, user_id: UserId) -> Result<bool, Error> {
    Ok(read_in(tx, user_id).await?.is_asked_for())
}

/// Returns an error unless a second factor is required after the user's password.
///
/// # Errors
/// `second_factor_enrolment_required`.
pub async fn require(tx: &mut Tx, user_id: UserId) -> Result<(), Error> {
    if is_there(tx, user_id).await? { Ok(()) } else { Err(Code::SecondFactorEnrolmentRequired.into()) }
}

/// Requires that a user with a second factor has recently confirmed their identity, because the password
/// alone isn't enough for them.
///
/// # Errors
/// `reauthentication_required`.
pub(crate) async fn require_fresh_session(accounts: &Accounts, session: Session) -> Result<(), Error> {
    let has_factor = is_there(&mut accounts.db.read().await?, session.user_id).await?;
    if has_factor && !accounts.is_fresh(session).await? {
        return Err(Code::ReauthenticationRequired.into());
    }
    Ok(())
}

impl Accounts {
    /// Does the same as [`require`] in a separate transaction.
    ///
    /// # Errors
    /// `second_factor_enrolment_required`.
    pub async fn require_second_factor(&self, user_id: UserId) -> Result<(), Error> {
        require(&mut self.db.read().await?, user_id).await
    }

    /// Returns `true` if the account of any of these users is disabled.
    ///
    /// # Errors
    /// The database fails.
    pub async fn is_any_disabled(&self, people: [Option<UserId>; 2]) -> Result<bool, Error> {
        let mut tx = self.db.read().await?;
        Ok(store::users::administration::is_any_disabled(&mut tx, people).await?)
    }
}

/// Does the same as [`read`] in the caller's transaction.
pub(crate) async fn read_in(tx: &mut Tx, user_id: UserId) -> Result<SecondFactor, Error> {
    let totp = store::second_factors::totp(tx, user_id).await?;
    let passkeys = store::passkeys::count(tx, user_id).await?;
    let codes = store::second_factors::count_recovery_codes(tx, user_id).await?;
    Ok(SecondFactor {
        totp_since: totp.map(|totp| totp.confirmed_at),
        passkeys: passkeys.count,
        passkeys_ask: passkeys.is_asked_after_password,
        recovery_codes_left: codes.left,
        recovery_codes_made_at: codes.created_at,
    })
}

/// A seed that no code has confirmed yet.
#[derive(Clone, Debug)]
pub struct Enrolment {
    seed: Seed,
    url: String,
    /// The time by which the first code must be entered.
    pub expires_at: Time,
}

impl Enrolment {
    fn new(accounts: &Accounts, seed: Seed, email: &str, expires_at: Time) -> Self {
        let url = seed.expose_url(issuer(&accounts.settings.public_url), email);
        Self { seed, url, expires_at }
    }

    /// Returns the seed as text that can be typed into an app.
    pub fn expose_secret(&self) -> String {
        self.seed.expose_text()
    }

    /// Returns the link in the QR code.
    pub fn expose_url(&self) -> &str {
        &self.url
    }
}

/// Creates a seed for an authenticator app. It takes effect once [`confirm_totp`] gets a code generated from
/// it. It replaces an earlier unconfirmed seed.
///
/// # Errors
/// `totp_disabled`; 401 if the caller's session has ended.
pub fn start_totp(accounts: &Accounts, session: Session) -> BoxFuture<'_, Result<Enrolment, Error>> {
    Box::pin(async move {
        check_enabled(accounts)?;
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
        let seed = Seed::generate(&accounts.random);
        let sealed_seed = accounts.sealer.seal(seed.expose(), &associated_data(user.id), &accounts.random)?;
        let row = EnrolmentRow { sealed_seed, expires_at: now.plus_ms(ENROLMENT_MS) };
        store::second_factors::set_enrolment(&mut tx, user.id, &row).await?;
        tx.commit().await?;
        Ok(Enrolment::new(accounts, seed, &user.email, row.expires_at))
    })
}

/// Returns the unconfirmed seed, if any.
///
/// # Errors
/// The database fails.
pub async fn pending_totp(accounts: &Accounts, user_id: UserId) -> Result<Option<Enrolment>, Error> {
    let mut tx = accounts.db.read().await?;
    let row = store::second_factors::enrolment(&mut tx, user_id, accounts.clock.now()).await?;
    let user = store::users::by_id(&mut tx, user_id).await?;
    let (Some(row), Some(user)) = (row, user) else { return Ok(None) };
    let seed = open_seed(accounts, user_id, &row.sealed_seed)?;
    Ok(Some(Enrolment::new(accounts, seed, &user.email, row.expires_at)))
}

/// Activates the unconfirmed seed, replacing an earlier one. If a password alone was enough before, returns
/// new recovery codes and ends every other session, because a password alone may have opened it.
///
/// # Errors
/// `totp_disabled`; `no_totp_pending`; `invalid_one_time_code`; 401 if the caller's session has ended.
pub fn confirm_totp<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
    code: &'a str,
) -> BoxFuture<'a, Result<Option<Vec<RecoveryCode>>, Error>> {
    Box::pin(async move {
        check_enabled(accounts)?;
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
        let row = store::second_factors::enrolment(&mut tx, user.id, now).await?;
        let row = row.ok_or(Code::NoTotpPending)?;
        let step = match OneTimeCode::parse(code) {
            Some(OneTimeCode::Totp(digits)) => {
                open_seed(accounts, user.id, &row.sealed_seed)?.step_of(&digits, now)
            }
            _ => None,
        };
        let step = step.ok_or_else(|| invalid_code("code"))?;
        let was_asked_for = read_in(&mut tx, user.id).await?.is_asked_for();
        store::second_factors::set_totp(&mut tx, user.id, &row.sealed_seed, step, now).await?;
        store::second_factors::remove_enrolment(&mut tx, user.id).await?;
        let codes = begin_if_due(accounts, &mut tx, session, was_asked_for, now).await?;
        notify(accounts, &mut tx, trail, &user, Template::SecondFactorAdded, About::default(), now).await?;
        record(accounts, &mut tx, trail, Action::TotpAdded, &user, now).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok(codes)
    })
}

/// Checks whether a second factor is required now, but wasn't before this transaction. If so, ends every
/// other session, and creates and returns recovery codes.
pub(crate) async fn begin_if_due(
    accounts: &Accounts,
    tx: &mut Tx,
    session: Session,
    was_asked_for: bool,
    now: Time,
) -> Result<Option<Vec<RecoveryCode>>, Error> {
    if was_asked_for || !read_in(tx, session.user_id).await?.is_asked_for() {
        return Ok(None);
    }
    store::sessions::end_all(tx, session.user_id, Some(session.id), now).await?;
    Ok(Some(make_recovery_codes(accounts, tx, session.user_id, now).await?))
}

/// Removes the recovery codes if a password alone is enough now. Returns `true` if a second factor is still
/// required. After the last passkey is removed, the next passkey counts as the first again.
pub(crate) async fn end_if_gone(tx: &mut Tx, user_id: UserId) -> Result<bool, Error> {
    let left = read_in(tx, user_id).await?;
    if left.passkeys == 0 {
        store::passkeys::set_asked_after_password(tx, user_id, false).await?;
    }
    if !left.is_asked_for() {
        store::second_factors::remove_recovery_codes(tx, user_id).await?;
    }
    Ok(left.is_asked_for())
}

/// Removes the app's seed, and also the recovery codes if no other factor remains. Returns `true` if a
/// password alone is enough to log in from then on.
///
/// # Errors
/// `second_factor_not_found`; 401 if the caller's session has ended.
pub fn remove_totp<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
) -> BoxFuture<'a, Result<bool, Error>> {
    Box::pin(async move {
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
        if !store::second_factors::remove_totp(&mut tx, user.id).await? {
            return Err(Code::SecondFactorNotFound.into());
        }
        store::second_factors::remove_enrolment(&mut tx, user.id).await?;
        let is_password_enough = !end_if_gone(&mut tx, user.id).await?;
        let about = About { is_password_enough: Some(is_password_enough), ..About::default() };
        notify(accounts, &mut tx, trail, &user, Template::SecondFactorRemoved, about, now).await?;
        record(accounts, &mut tx, trail, Action::TotpRemoved, &user, now).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok(is_password_enough)
    })
}

/// Removes all parts of a user's second factor, including an unconfirmed seed and every passkey. Returns
/// `false` if the user had neither an app nor a passkey.
pub async fn remove_all(tx: &mut Tx, user_id: UserId) -> Result<bool, Error> {
    let had_totp = store::second_factors::remove_totp(tx, user_id).await?;
    let had_passkeys = store::passkeys::remove_all(tx, user_id).await?;
    store::second_factors::remove_enrolment(tx, user_id).await?;
    store::second_factors::remove_recovery_codes(tx, user_id).await?;
    Ok(had_totp || had_passkeys)
}

/// Creates new recovery codes, and replaces all earlier ones. If `replaced` is set, it must be the time at
/// which the earlier codes were created, so that a form that is submitted twice creates only one set.
///
/// # Errors
/// `second_factor_not_found`; `precondition_failed` if `replaced` isn't that time; 401 if the caller's
/// session has ended.
pub fn renew_recovery_codes<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
    replaced: Option<Time>,
) -> BoxFuture<'a, Result<Vec<RecoveryCode>, Error>> {
    Box::pin(async move {
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
        let found = read_in(&mut tx, user.id).await?;
        if !found.is_asked_for() {
            return Err(Code::SecondFactorNotFound.into());
        }
        if replaced.is_some() && replaced != found.recovery_codes_made_at {
            return Err(Code::PreconditionFailed.into());
        }
        let codes = make_recovery_codes(accounts, &mut tx, user.id, now).await?;
        record(accounts, &mut tx, trail, Action::RecoveryCodesRenewed, &user, now).await?;
        tx.commit().await?;
        Ok(codes)
    })
}

/// The second factor with which a user has signed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "call `note`, which records the use of a recovery code and notifies the user"]
pub(crate) enum Passed {
    /// No second factor is required.
    NotAsked,
    Totp,
    RecoveryCode {
        /// The number of remaining codes.
        left: i64,
    },
}

/// Checks the second factor of a user whose password was right, and consumes the code. Must be called under
/// the account's lock, in the transaction that opens a session.
///
/// # Errors
/// `second_factor_required` if the code is missing, `invalid_one_time_code` if it isn't valid.
pub(crate) async fn check(
    accounts: &Accounts,
    tx: &mut Tx,
    user_id: UserId,
    code: &CountedCode<'_>,
    now: Time,
) -> Result<Passed, Error> {
    let passed = check_typed(accounts, tx, user_id, code.typed(), now).await?;
    code.forget(tx, now).await?;
    Ok(passed)
}

async fn check_typed(
    accounts: &Accounts,
    tx: &mut Tx,
    user_id: UserId,
    code: Option<&str>,
    now: Time,
) -> Result<Passed, Error> {
    let row = store::second_factors::totp(tx, user_id).await?;
    if row.is_none() && !read_in(tx, user_id).await?.is_asked_for() {
        return Ok(Passed::NotAsked);
    }
    let code = code.ok_or_else(|| Error::new(Code::SecondFactorRequired).param(ONE_TIME_CODE))?;
    let passed = match OneTimeCode::parse(code) {
        Some(OneTimeCode::Totp(digits)) => {
            let row = row.ok_or_else(|| invalid_code(ONE_TIME_CODE))?;
            let step = open_seed(accounts, user_id, &row.sealed_seed)?.step_of(&digits, now);
            let step = step.ok_or_else(|| invalid_code(ONE_TIME_CODE))?;
            store::second_factors::use_step(tx, user_id, step).await?.then_some(Passed::Totp)
        }
        Some(OneTimeCode::Recovery(code)) => {
            let is_used = store::second_factors::use_recovery_code(tx, user_id, code.hash(), now).await?;
            let left = store::second_factors::count_recovery_codes(tx, user_id).await?.left;
            is_used.then_some(Passed::RecoveryCode { left })
        }
        None => None,
    };
    passed.ok_or_else(|| invalid_code(ONE_TIME_CODE))
}

impl Passed {
    /// Adds an audit entry for the use of a recovery code, and notifies the user by e-mail. Returns `true` if
    /// a recovery code was used.
    pub(crate) async fn note(
        self,
        accounts: &Accounts,
        tx: &mut Tx,
        trail: &Trail,
        user: &User,
        now: Time,
    ) -> Result<bool, Error> {
        let Self::RecoveryCode { left } = self else { return Ok(false) };
        let about = About { codes_left: Some(left), ..About::default() };
        notify(accounts, tx, trail, user, Template::RecoveryCodeUsed, about, now).await?;
        record(accounts, tx, trail, Action::RecoveryCodeUsed, user, now).await?;
        Ok(true)
    }
}

/// The name of the field that contains the code in a login.
const ONE_TIME_CODE: &str = "one_time_code";

fn invalid_code(field: &'static str) -> Error {
    Error::new(Code::InvalidOneTimeCode).param(field)
}

fn check_enabled(accounts: &Accounts) -> Result<(), Error> {
    if accounts.settings.sign_in.totp { Ok(()) } else { Err(Code::TotpDisabled.into()) }
}

async fn make_recovery_codes(
    accounts: &Accounts,
    tx: &mut Tx,
    user_id: UserId,
    now: Time,
) -> Result<Vec<RecoveryCode>, Error> {
    let make = || RecoveryCode::generate(&accounts.random);
    let codes: Vec<_> = std::iter::repeat_with(make).take(RECOVERY_CODES).collect();
    let hashes: Vec<_> = codes.iter().map(RecoveryCode::hash).collect();
    store::second_factors::replace_recovery_codes(tx, user_id, &hashes, now).await?;
    Ok(codes)
}

fn open_seed(accounts: &Accounts, user_id: UserId, sealed: &[u8]) -> Result<Seed, Error> {
    let bytes = accounts.sealer.open(sealed, &associated_data(user_id))?;
    Seed::from_bytes(&bytes).ok_or_else(|| Error::internal("a seed has the wrong length"))
}

/// Returns the associated data of a sealed seed, so that one user's seed can't be moved to another user's
/// row.
pub(crate) fn associated_data(user_id: UserId) -> String {
    format!("totp/{user_id}")
}

/// Notifies the user by e-mail, unless the address was never verified: its owner may have nothing to do with
/// the account.
pub(crate) async fn notify(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    template: Template,
    about: About,
    now: Time,
) -> Result<(), Error> {
    if user.email_verified_at.is_none() {
        return Ok(());
    }
    let address = trail.address.map(|address| address.to_string());
    let draft = Draft { template, about: About { address, ..about } };
    accounts.outbox.post(tx, &Sender::person(trail, user.id), &draft, &user.email, now).await
}
