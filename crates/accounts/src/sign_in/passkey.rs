//! Login with a passkey. It needs neither an address nor a password, because the passkey identifies the
//! account.

use crate::factors::passkeys::ceremonies::{self, Purpose};
use crate::factors::passkeys::{Options, Refusal, Signed, check};
use crate::sign_in::attempts::Attempt;
use crate::sign_in::pending_login::PendingLogin;
use crate::sign_in::session::{FirstFactor, FirstStep, Step, counted, open};
use crate::{Accounts, Session, store};
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use kernel::networks::Network;

use crate::rules::user_agents::UserAgent;
use crate::sign_in::session::{BrowserLogin, LoggedIn};
use crate::store::sessions::SessionKind;
use crate::store::users::{Credentials, User};
use trail::Trail;

/// Returns the options with which a browser signs in with a passkey.
///
/// # Errors
/// `passkeys_disabled`.
pub fn start(accounts: &Accounts) -> Result<Options, Error> {
    let (public_key, state) = accounts.passkeys()?.ask(&[])?;
    Ok(Options { public_key, ceremony: ceremonies::seal(accounts, Purpose::LogIn, state)? })
}

/// Returns the options with which a logged-in user confirms their identity.
///
/// # Errors
/// `passkeys_disabled`; `passkey_not_found` if the user has no passkeys.
pub async fn start_proof(accounts: &Accounts, session: Session) -> Result<Options, Error> {
    let party = accounts.passkeys()?;
    let known = store::passkeys::credential_ids(&mut accounts.db.read().await?, session.user_id).await?;
    if known.is_empty() {
        return Err(Code::PasskeyNotFound.into());
    }
    let (public_key, state) = party.ask(&known)?;
    Ok(Options { public_key, ceremony: ceremonies::seal(accounts, Purpose::Prove(session), state)? })
}

/// A login with a passkey.
#[derive(Clone, Copy, Debug)]
pub struct PasskeyLogin<'a> {
    pub signed: Signed<'a>,
    /// `true` to keep the session when the browser is closed, and not to end it when it isn't used.
    pub remember_me: bool,
    /// The client's `User-Agent`.
    pub user_agent: Option<&'a UserAgent>,
    /// The sign-in whose second step this is. If its first step was a sign-on with a provider, the session is
    /// that provider's.
    pub second_step_of: Option<&'a PendingLogin>,
}

/// Checks a passkey, and opens a session. If the address is verified, its open invitations are accepted. The
/// outcome is counted in the metrics.
///
/// # Errors
/// `passkeys_disabled`; `challenge_expired`; `invalid_credential`; 403 if the account is disabled, or a
/// verified address is required; `sign_on_expired` if the connection of the first step was removed.
pub async fn log_in(accounts: &Accounts, trail: &Trail, login: &PasskeyLogin<'_>) -> Result<LoggedIn, Error> {
    let outcome = async {
        let step = check_and_open(accounts, trail, login, SessionKind::Api).await?;
        step.logged_in(accounts, trail).await
    };
    counted(accounts, outcome.await)
}

/// Logs in like [`log_in`], but for a browser.
///
/// # Errors
/// Those of [`log_in`].
pub async fn log_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    login: &PasskeyLogin<'_>,
) -> Result<BrowserLogin, Error> {
    let outcome = async {
        let step = check_and_open(accounts, trail, login, SessionKind::Browser).await?;
        step.browser_login(accounts).await
    };
    counted(accounts, outcome.await)
}

async fn check_and_open(
    accounts: &Accounts,
    trail: &Trail,
    login: &PasskeyLogin<'_>,
    kind: SessionKind,
) -> Result<Step, Error> {
    let first = first_step(accounts, trail, login).await?;
    let step = open(accounts, trail, first, None, (kind, login.user_agent)).await?;
    Ok(step.ok_or(Code::InvalidCredential)?)
}

/// Checks the passkey, and whether the account may be signed in to.
async fn first_step(
    accounts: &Accounts,
    trail: &Trail,
    login: &PasskeyLogin<'_>,
) -> Result<FirstStep, Error> {
    let checked = match check(accounts, Purpose::LogIn, &login.signed).await {
        Ok(checked) => checked,
        Err(Refusal::Of(user_id)) => {
            let (_, attempt) = person(accounts, trail, user_id).await?;
            return Err(attempt.refuse(accounts, trail, Code::InvalidCredential).await);
        }
        Err(Refusal::Other(error)) => return Err(error),
    };
    let (user, attempt) = person(accounts, trail, checked.user_id).await?;
    if user.disabled_at.is_some() {
        return Err(attempt.refuse(accounts, &trail.by(user.id), Code::AccountDisabled).await);
    }
    if accounts.settings.require_verified_email && user.email_verified_at.is_none() {
        return Err(attempt.refuse(accounts, &trail.by(user.id), Code::EmailNotVerified).await);
    }
    let sign_on = login.second_step_of.and_then(|pending| pending.sign_on_of(user.id));
    let remember_me = login.remember_me && sign_on.is_none();
    let factor = FirstFactor::Passkey(checked, sign_on);
    Ok(FirstStep { user, attempt, factor, remember_me, pending: None })
}

async fn person(accounts: &Accounts, trail: &Trail, user_id: UserId) -> Result<(User, Attempt), Error> {
    let network = Network::of(trail.address);
    let found = store::users::credentials_by_id(&mut accounts.db.read().await?, user_id, network).await?;
    let Credentials { user, last_login_here_at, .. } = found.ok_or(Code::InvalidCredential)?;
    let attempt = Attempt::at(&user, last_login_here_at, network);
    Ok((user, attempt))
}
