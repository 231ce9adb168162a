//! Login with a passkey, without an address or a password: the authenticator knows the person.

use crate::factors::passkeys::ceremonies::{self, Purpose};
use crate::factors::passkeys::{Checked, Options, Refusal, Signed, check};
use crate::jwt::TokenKind;
use crate::rules::user_agents::UserAgent;
use crate::sign_in::guesses::Guess;
use crate::sign_in::login::{BrowserLogin, LoggedIn, NewLogin, counted, start_session};
use crate::sign_in::pending_login::{FirstStep, PendingLogin, SignOn};
use crate::sign_in::refusals::{self, Reason};
use crate::store::sessions::SessionKind;
use crate::store::users::{Credentials, User};
use crate::tokens::sign;
use crate::{Accounts, Session, store};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use kernel::networks::Network;
use trail::Trail;

/// Returns the options with which a browser signs in with a passkey.
///
/// # Errors
/// `passkeys_disabled`.
pub fn start(accounts: &Accounts) -> Result<Options, Error> {
    let (public_key, state) = accounts.passkeys()?.ask(&[])?;
    Ok(Options { public_key, ceremony: ceremonies::seal(accounts, Purpose::LogIn, state)? })
}

/// Returns the options with which the person of a session proves who they are.
///
/// # Errors
/// `passkeys_disabled`; `passkey_not_found` if the person has none.
pub async fn start_proof(accounts: &Accounts, session: Session) -> Result<Options, Error> {
    let party = accounts.passkeys()?;
    let known = store::passkeys::credential_ids(&mut accounts.db.read().await?, session.user_id).await?;
    if known.is_empty() {
        return Err(Code::PasskeyNotFound.into());
    }
    let (public_key, state) = party.ask(&known)?;
    Ok(Options { public_key, ceremony: ceremonies::seal(accounts, Purpose::Prove(session), state)? })
}

/// A login by a passkey.
#[derive(Clone, Copy, Debug)]
pub struct PasskeyLogin<'a> {
    pub signed: Signed<'a>,
    /// `true` if a browser keeps the session when it closes, and it doesn't end without use.
    pub remember_me: bool,
    /// The client's `User-Agent`.
    pub user_agent: Option<&'a UserAgent>,
    /// The sign-in of which this is the second step; a sign-on with a provider then opens that provider's
    /// session.
    pub second_step_of: Option<&'a PendingLogin>,
}

impl PasskeyLogin<'_> {
    /// Returns the sign-on of this person of which this is the second step.
    fn sign_on(&self, user_id: UserId) -> Option<&SignOn> {
        match self.second_step_of {
            Some(PendingLogin { user_id: of, first_step: FirstStep::SignOn(sign_on), .. })
                if *of == user_id =>
            {
                Some(sign_on)
            }
            _ => None,
        }
    }
}

/// Checks a passkey, and opens a session. Open invitations for a verified address are accepted with it. The
/// outcome is counted in the metrics.
///
/// # Errors
/// `passkeys_disabled`; `challenge_expired`; `invalid_credential`; 403 if the account is disabled, or a
/// verified address is required; `sign_on_expired` if the connection of the first step is gone.
pub async fn log_in(accounts: &Accounts, trail: &Trail, login: &PasskeyLogin<'_>) -> Result<LoggedIn, Error> {
    let outcome = async {
        let (session, user, now) = check_and_open(accounts, trail, login, SessionKind::Api).await?;
        Ok(LoggedIn {
            access_token: sign(accounts, TokenKind::Access, session, now).await?,
            refresh_token: sign(accounts, TokenKind::Refresh, session, now).await?,
            user,
        })
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
        let (session, user, now) = check_and_open(accounts, trail, login, SessionKind::Browser).await?;
        let token = sign(accounts, TokenKind::Browser, session, now).await?;
        let is_sign_on = login.sign_on(user.id).is_some();
        let remember_me = login.remember_me && user.operator_since.is_none() && !is_sign_on;
        Ok(BrowserLogin { token, session, remember_me })
    };
    counted(accounts, outcome.await)
}

async fn check_and_open(
    accounts: &Accounts,
    trail: &Trail,
    login: &PasskeyLogin<'_>,
    kind: SessionKind,
) -> Result<(Session, User, Time), Error> {
    let checked = match check(accounts, Purpose::LogIn, &login.signed).await {
        Ok(checked) => checked,
        Err(refusal) => {
            if let Refusal::Of(user_id) = refusal {
                record_refusal(accounts, trail, user_id, Reason::InvalidCredential).await?;
            }
            return Err(refusal.into());
        }
    };
    let (user, guess) = person(accounts, trail, checked.user_id).await?;
    let trail = trail.by(user.id);
    if user.disabled_at.is_some() {
        record_refusal(accounts, &trail, user.id, Reason::AccountDisabled).await?;
        return Err(Code::AccountDisabled.into());
    }
    if accounts.settings.require_verified_email && user.email_verified_at.is_none() {
        record_refusal(accounts, &trail, user.id, Reason::EmailNotVerified).await?;
        return Err(Code::EmailNotVerified.into());
    }
    let sign_on = login.sign_on(user.id);
    let login = NewLogin {
        user: &user,
        guess: &guess,
        kind,
        remember_me: login.remember_me && sign_on.is_none(),
        user_agent: login.user_agent,
        sign_on,
    };
    let (session, now) = open(accounts, &trail, &checked, &login).await?;
    Ok((session, user, now))
}

/// Uses the ceremony up and opens the session.
async fn open(
    accounts: &Accounts,
    trail: &Trail,
    checked: &Checked,
    login: &NewLogin<'_>,
) -> Result<(Session, Time), Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    // Locks the account: a removal of the passkey waits, or was before this; so does the end of the account's
    // use.
    if !store::users::note_login_without_password(&mut tx, login.user.id, now).await? {
        return Err(Code::InvalidCredential.into());
    }
    if let Some(sign_on) = login.sign_on
        && !store::connections::is_of(&mut tx, sign_on.connection_id, login.user.id).await?
    {
        return Err(Code::SignOnExpired.into());
    }
    checked.use_up(accounts, &mut tx, trail, now).await?;
    let (session, has_mail) = start_session(accounts, &mut tx, trail, login, now).await?;
    tx.commit().await?;
    if has_mail {
        accounts.outbox.notify_one();
    }
    Ok((session, now))
}

async fn person(accounts: &Accounts, trail: &Trail, user_id: UserId) -> Result<(User, Guess), Error> {
    let network = Network::of(trail.address);
    let found = store::users::credentials_by_id(&mut accounts.db.read().await?, user_id, network).await?;
    let Credentials { user, last_login_here_at, .. } = found.ok_or(Code::InvalidCredential)?;
    let guess = Guess::new(&user.email_folded, network, last_login_here_at);
    Ok((user, guess))
}

async fn record_refusal(
    accounts: &Accounts,
    trail: &Trail,
    user_id: UserId,
    reason: Reason,
) -> Result<(), Error> {
    let (user, guess) = person(accounts, trail, user_id).await?;
    let refusal =
        refusals::Refusal { guess: &guess, email_folded: &user.email_folded, user_id: Some(user.id), reason };
    refusal.record(accounts, trail, accounts.clock.now()).await
}
