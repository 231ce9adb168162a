//! Passwords: the first step of a sign-in, and every other check of a password. A program sends the code of
//! the second factor in the same request, and a browser sends it in a second step ([`super::second_step`]).

use crate::hasher::Place;
use crate::sign_in::attempts::Attempt;
use crate::sign_in::session::{FirstFactor, FirstStep, Step, counted, counted_step, open};
use crate::{Accounts, store};
use kernel::addresses;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::networks::Network;

use crate::rules::user_agents::UserAgent;
use crate::sign_in::session::{BrowserStep, LoggedIn};
use crate::store::sessions::SessionKind;
use crate::store::users::{Credentials, User};
use trail::Trail;

/// Login credentials.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The e-mail address, as entered.
    pub email: &'a str,
    /// The password, as entered.
    pub password: &'a str,
    /// A code from an authenticator app or a recovery code, as entered. Ignored if the account has no second
    /// factor.
    pub one_time_code: Option<&'a str>,
    /// `true` to keep the session when the browser is closed, and not to end it when it isn't used.
    pub remember_me: bool,
    /// The client's `User-Agent`.
    pub user_agent: Option<&'a UserAgent>,
}

/// The maximum number of times that a password is checked if its hash changes during the check. Another login
/// may rehash the password with the current parameters, but this happens only once, so two checks are enough.
const MAX_PASSWORD_CHECKS: usize = 2;

/// Checks the password and the second factor, and opens a session. If the address is verified, its open
/// invitations are accepted. An unknown address takes the same time as a wrong password. The outcome is
/// counted in the metrics.
///
/// # Errors
/// 401 for wrong credentials, or for a code that is missing or wrong; 403 if the account is disabled, a
/// verified address is required, or passwords are disabled; 429 while the caller has to wait or the password
/// queue is full.
pub async fn log_in(accounts: &Accounts, trail: &Trail, login: &Login<'_>) -> Result<LoggedIn, Error> {
    let outcome = async {
        let step = check_and_open(accounts, trail, login, SessionKind::Api).await?;
        step.logged_in(accounts, trail).await
    };
    counted(accounts, outcome.await)
}

/// Logs in like [`log_in`], but for a browser. The session has one token, which is valid only in the
/// console's cookie. If a code is required but missing, the browser sends it in a second step.
///
/// # Errors
/// Those of [`log_in`].
pub async fn log_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    login: &Login<'_>,
) -> Result<BrowserStep, Error> {
    let outcome = async {
        let step = check_and_open(accounts, trail, login, SessionKind::Browser).await?;
        step.browser_step(accounts).await
    };
    counted_step(accounts, outcome.await)
}

fn check_and_open<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    login: &'a Login<'_>,
    kind: SessionKind,
) -> BoxFuture<'a, Result<Step, Error>> {
    Box::pin(async move {
        for attempt in 0..MAX_PASSWORD_CHECKS {
            let first = first_step(accounts, trail, login, attempt == 0).await?;
            let device = (kind, login.user_agent);
            if let Some(step) = open(accounts, trail, first, login.one_time_code, device).await? {
                return Ok(step);
            }
        }
        Err(Code::InvalidCredentials.into())
    })
}

/// Checks the password of a login, and whether the account may be signed in to. With `is_counted`, the
/// attempt counts against the limits.
async fn first_step(
    accounts: &Accounts,
    trail: &Trail,
    login: &Login<'_>,
    is_counted: bool,
) -> Result<FirstStep, Error> {
    let email_folded = addresses::fold(login.email);
    let network = Network::of(trail.address);
    // Take the place first, so that a refusal because the queue is full doesn't count as a login attempt.
    let place = accounts.hasher.acquire_place(network)?;
    let mut tx = accounts.db.read().await?;
    let account = store::users::credentials_by_email(&mut tx, &email_folded, network).await?;
    drop(tx);
    let attempt = Attempt::at_address(email_folded, account.as_ref(), network);
    let place = if is_counted { count(accounts, trail, &attempt, place).await? } else { place };
    let typed = (login.password, Code::InvalidCredentials.into());
    let right = check(accounts, trail, (attempt, place), account, typed).await?;
    let VerifiedPassword { user, hash: checked_hash, attempt, place, needs_rehash } = right;
    let refused = if user.disabled_at.is_some() {
        Some(Code::AccountDisabled)
    } else if !accounts.settings.sign_in.takes_password_of(&user) {
        Some(Code::PasswordsDisabled)
    } else if accounts.settings.require_verified_email && user.email_verified_at.is_none() {
        Some(Code::EmailNotVerified)
    } else {
        None
    };
    if let Some(code) = refused {
        drop(place);
        let now = accounts.clock.now();
        // The password was right, so the attempt doesn't count.
        let mut tx = accounts.db.write().await?;
        attempt.forget_password(&mut tx, now).await?;
        tx.commit().await?;
        return Err(attempt.refuse(accounts, &trail.by(user.id), code).await);
    }
    // The parameters of hashes have changed since this hash was stored. If rehashing fails, a later login
    // will do it.
    let rehashed = if needs_rehash { place.hash(login.password).await.ok() } else { None };
    let hash_to_keep = rehashed.unwrap_or_else(|| checked_hash.clone());
    let factor = FirstFactor::Password { checked_hash, hash_to_keep };
    Ok(FirstStep { user, attempt, factor, remember_me: login.remember_me, pending: None })
}

/// The proof that an account's password was right.
pub(crate) struct VerifiedPassword {
    /// The account.
    pub user: User,
    /// The stored hash that the password was checked against.
    pub hash: String,
    pub attempt: Attempt,
    /// The place in the password queue, which can be used for further hashes.
    pub place: Place,
    /// `true` if the stored hash has other parameters than the current ones.
    pub needs_rehash: bool,
}

/// Counts a guess at the password of a known account, and checks the password. A refusal is recorded.
///
/// # Errors
/// `no_password`; `wrong_password` for the field `field`; 429 while the caller has to wait or the password
/// queue is full.
pub(crate) async fn check_own(
    accounts: &Accounts,
    trail: &Trail,
    account: Credentials,
    (field, password): (&'static str, &str),
) -> Result<VerifiedPassword, Error> {
    if account.password_hash.is_none() {
        return Err(Code::NoPassword.into());
    }
    let (network, trail) = (Network::of(trail.address), trail.by(account.user.id));
    // Take the place first, so that a refusal because the queue is full doesn't count as a guess.
    let place = accounts.hasher.acquire_place(network)?;
    let attempt = Attempt::at(&account.user, account.last_login_here_at, network);
    let place = count(accounts, &trail, &attempt, place).await?;
    let typed = (password, Error::new(Code::WrongPassword).param(field));
    check(accounts, &trail, (attempt, place), Some(account), typed).await
}

/// Counts a guess at a password, and returns the place in the password queue. If the guess is refused, the
/// place is freed before the refusal is recorded.
async fn count(accounts: &Accounts, trail: &Trail, attempt: &Attempt, place: Place) -> Result<Place, Error> {
    match attempt.count_password(accounts).await {
        Ok(()) => Ok(place),
        Err(error) => {
            drop(place);
            Err(attempt.refuse(accounts, trail, error).await)
        }
    }
}

/// Checks a password after the guess was counted. An unknown account takes the same time. If the password is
/// wrong, the place in the password queue is freed before the refusal is recorded.
///
/// # Errors
/// `wrong` if the password is wrong.
pub(crate) async fn check(
    accounts: &Accounts,
    trail: &Trail,
    (attempt, place): (Attempt, Place),
    account: Option<Credentials>,
    (password, wrong): (&str, Error),
) -> Result<VerifiedPassword, Error> {
    let (user, stored) = account.map(|account| (account.user, account.password_hash)).unzip();
    let stored = stored.flatten();
    let verdict = place.verify(password, stored.as_deref()).await?;
    if let (Some(user), Some(hash), true) = (user, stored, verdict.matches) {
        return Ok(VerifiedPassword { user, hash, attempt, place, needs_rehash: verdict.needs_rehash });
    }
    drop(place);
    Err(attempt.refuse(accounts, trail, wrong).await)
}
