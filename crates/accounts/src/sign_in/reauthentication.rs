//! Reauthentication: a logged-in user confirms their identity again. A new session replaces the calling one,
//! so that stolen tokens of the old session stop working. Reauthentication with a provider is a sign-on:
//! [`crate::sign_in::provider`].

use crate::factors::{passkeys, second_factor};
use crate::jwt::TokenKind;
use crate::rules::user_agents::UserAgent;
use crate::sign_in::attempts::{Attempt, CountedCode};
use crate::sign_in::password;
use crate::tokens::{SESSION_MS, sign};
use crate::{Accounts, Session, sessions, store};
use db::{Lock, Tx};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{SessionId, UserId};
use kernel::networks::Network;

use crate::factors::passkeys::Signed;
use crate::factors::passkeys::ceremonies::Purpose;
use crate::factors::second_factor::Passed;
use crate::sign_in::session::BrowserLogin;
use crate::store::sessions::{Client, NewSession};
use crate::store::users::Credentials;
use trail::{Action, Trail};

/// The credentials with which a user confirms their identity.
#[derive(Clone, Copy)]
pub struct Proof<'a> {
    pub by: By<'a>,
    /// The client's `User-Agent`.
    pub user_agent: Option<&'a UserAgent>,
}

/// The kinds of credentials.
#[derive(Clone, Copy)]
pub enum By<'a> {
    Password {
        /// The password, as entered.
        password: &'a str,
        /// A code from an authenticator app or a recovery code, as entered. Ignored if the account has no
        /// second factor.
        one_time_code: Option<&'a str>,
    },
    Passkey(Signed<'a>),
}

/// The tokens of a program's session.
pub struct Tokens {
    pub access_token: String,
    pub refresh_token: String,
}

/// Checks the credentials, and replaces the session of a program. Returns the tokens of the new session.
///
/// # Errors
/// `no_password`; `passwords_disabled`; `wrong_password`; `second_factor_required`, `invalid_one_time_code`;
/// 401 if the session has ended or the password has changed in the meantime; 429 while the caller has to wait
/// or the password queue is full. For a passkey: `passkeys_disabled`, `challenge_expired`,
/// `invalid_credential`.
pub async fn prove(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    proof: &Proof<'_>,
) -> Result<Tokens, Error> {
    let (session, _, now) = replace(accounts, trail, session, proof).await?;
    Ok(Tokens {
        access_token: sign(accounts, TokenKind::Access, session, now).await?,
        refresh_token: sign(accounts, TokenKind::Refresh, session, now).await?,
    })
}

/// Does the same as [`prove`] for the session of a browser.
///
/// # Errors
/// Those of [`prove`].
pub async fn prove_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    proof: &Proof<'_>,
) -> Result<BrowserLogin, Error> {
    let (session, remember_me, now) = replace(accounts, trail, session, proof).await?;
    Ok(BrowserLogin { token: sign(accounts, TokenKind::Browser, session, now).await?, session, remember_me })
}

/// Checks the credentials, and replaces the session with a new one of the same kind. Returns the new session,
/// whether the user chose to be remembered, and the current time. A guess counts as a login. A session opened
/// by a provider keeps its connection and its expiry, because the credentials don't show that the user still
/// exists at the provider.
async fn replace(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    proof: &Proof<'_>,
) -> Result<(Session, bool, Time), Error> {
    let evidence = Evidence::check(accounts, trail, session, proof.by).await?;
    match replace_by(accounts, trail, session, (proof, &evidence)).await {
        Err(error) => Err(evidence.refuse(accounts, trail, session, error).await),
        replaced => replaced,
    }
}

async fn replace_by(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    (proof, evidence): (&Proof<'_>, &Evidence<'_>),
) -> Result<(Session, bool, Time), Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let user = sessions::lock_account(&mut tx, session, Lock::Change, now).await?;
    let before = store::sessions::live(&mut tx, session.id, now).await?.ok_or(Code::InvalidAccessToken)?;
    let passed = evidence.pass(accounts, &mut tx, trail, user.id, now).await?;
    let id = SessionId::new(now, &accounts.random);
    let new = NewSession {
        id,
        user_id: user.id,
        kind: before.kind,
        remember_me: before.remember_me,
        client: Client { address: trail.address, user_agent: proof.user_agent },
        created_at: now,
        expires_at: match before.connection_id {
            Some(_) => before.expires_at,
            None => now.plus_ms(SESSION_MS),
        },
    };
    store::sessions::insert_of_connection(&mut tx, &new, now, before.connection_id).await?;
    store::sessions::end(&mut tx, session.id, now).await?;
    store::email_changes::set_session(&mut tx, user.id, session.id, id).await?;
    let is_mail_queued = passed.note(accounts, &mut tx, trail, &user, now).await?;
    sessions::record(accounts, &mut tx, trail, (Action::SessionStarted, &[id]), now).await?;
    sessions::record(accounts, &mut tx, trail, (Action::SessionEnded, &[session.id]), now).await?;
    tx.commit().await?;
    if is_mail_queued {
        accounts.outbox.notify_one();
    }
    Ok((Session { id, user_id: user.id }, before.remember_me, now))
}

/// Credentials that were checked, except for the conditions that need the account's lock.
enum Evidence<'a> {
    Password {
        /// The stored hash that the password was checked against.
        hash: String,
        attempt: Attempt,
        code: CountedCode<'a>,
    },
    Passkey(passkeys::Checked),
}

impl<'a> Evidence<'a> {
    /// Checks the credentials, except for the conditions that need the account's lock.
    async fn check(accounts: &Accounts, trail: &Trail, session: Session, by: By<'a>) -> Result<Self, Error> {
        let (password, one_time_code) = match by {
            By::Password { password, one_time_code } => (password, one_time_code),
            By::Passkey(signed) => {
                let checked = passkeys::check(accounts, Purpose::Prove(session), &signed).await?;
                let is_own = checked.user_id == session.user_id;
                return if is_own { Ok(Self::Passkey(checked)) } else { Err(Code::InvalidCredential.into()) };
            }
        };
        let account = account(accounts, trail, session).await?;
        let right = password::check_own(accounts, trail, account, ("password", password)).await?;
        drop(right.place);
        let (hash, attempt) = (right.hash, right.attempt);
        match CountedCode::count(accounts, &attempt, one_time_code).await {
            Ok(code) => Ok(Self::Password { hash, attempt, code }),
            Err(error) => Err(attempt.refuse_code(accounts, &trail.by(session.user_id), error).await),
        }
    }

    /// Records that a code was refused, and returns the error.
    async fn refuse(&self, accounts: &Accounts, trail: &Trail, session: Session, error: Error) -> Error {
        match self {
            Self::Password { attempt, .. } => {
                attempt.refuse_code(accounts, &trail.by(session.user_id), error).await
            }
            Self::Passkey(_) => error,
        }
    }

    /// Checks the remaining conditions under the account's lock, and consumes a code or a passkey ceremony.
    async fn pass(
        &self,
        accounts: &Accounts,
        tx: &mut Tx,
        trail: &Trail,
        user_id: UserId,
        now: Time,
    ) -> Result<Passed, Error> {
        match self {
            Self::Password { hash, attempt, code } => {
                // Another request may have changed the password while it was checked.
                if !store::users::has_password(tx, user_id, hash).await? {
                    return Err(Code::InvalidAccessToken.into());
                }
                let passed = second_factor::check(accounts, tx, user_id, code, now).await?;
                attempt.forget_password(tx, now).await?;
                Ok(passed)
            }
            Self::Passkey(checked) => {
                checked.use_up(accounts, tx, trail, now).await?;
                Ok(Passed::NotAsked)
            }
        }
    }
}

/// Returns the account of a session's user, if the user may sign in with a password.
async fn account(accounts: &Accounts, trail: &Trail, session: Session) -> Result<Credentials, Error> {
    let network = Network::of(trail.address);
    let mut tx = accounts.db.read().await?;
    let found = store::users::credentials_by_id(&mut tx, session.user_id, network).await?;
    let account = found.ok_or(Code::InvalidAccessToken)?;
    if account.password_hash.is_some() && !accounts.settings.sign_in.takes_password_of(&account.user) {
        return Err(Code::PasswordsDisabled.into());
    }
    Ok(account)
}
