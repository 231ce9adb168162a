//! The last step of every sign-in: the second factor is checked and the session is opened, in one transaction
//! under the account's lock.

use crate::factors::{passkeys, second_factor};
use crate::jwt::TokenKind;
use crate::sign_in::attempts::{Attempt, CountedCode};
use crate::sign_in::pending_login::{PendingLogin, SignOn};
use crate::tokens::{SESSION_MS, sign};
use crate::{Accounts, Session, sessions, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::SessionId;

use crate::factors::second_factor::Passed;
use crate::rules::user_agents::UserAgent;
use crate::store::sessions::{Client, NewSession, SessionKind};
use crate::store::users::User;
use trail::{Action, Trail};

/// The tokens of a new session, and its user.
pub struct LoggedIn {
    /// The access token.
    pub access_token: String,
    /// The refresh token.
    pub refresh_token: String,
    /// The user's account.
    pub user: User,
}

/// The token of a new browser session.
pub struct BrowserLogin {
    /// The value of the cookie.
    pub token: String,
    /// The session and its user.
    pub session: Session,
    /// `true` to keep the session when the browser is closed.
    pub remember_me: bool,
}

/// The outcome of the first step of a sign-in in a browser.
pub enum BrowserStep {
    /// The user is signed in. No second factor was required.
    SignedIn(BrowserLogin),
    /// A second factor is required: see [`crate::sign_in::finish_in_browser`].
    CodeDue(PendingLogin),
}

/// A user whose first factor was checked.
pub(super) struct FirstStep {
    pub user: User,
    pub attempt: Attempt,
    pub factor: FirstFactor,
    /// `true` if the user chose to be remembered.
    pub remember_me: bool,
    /// The value that the browser has kept since the first step, if the code is sent in a separate request.
    pub pending: Option<PendingLogin>,
}

/// The first factor that a user has signed in with.
pub(super) enum FirstFactor {
    Password {
        /// The stored hash that the password was checked against.
        checked_hash: String,
        /// The hash to store: the same hash, or a new one with the current parameters.
        hash_to_keep: String,
    },
    SignOn(SignOn),
    /// A passkey, after which no code is required. If it is the second step of a sign-on, the session belongs
    /// to the sign-on.
    Passkey(passkeys::Checked, Option<SignOn>),
}

/// The outcome of a step of a sign-in.
pub(super) enum Step {
    SignedIn {
        session: Session,
        user: User,
        remember_me: bool,
        now: Time,
    },
    /// A code is required, but none was sent. Contains the first step and the error.
    CodeDue(Box<FirstStep>, Error),
}

/// Checks the second factor and opens a session. A wrong code is recorded like a wrong password. Returns
/// `None` if the first factor is no longer valid because the password was changed, the connection was
/// removed, or the account was disabled.
pub(super) fn open<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    first: FirstStep,
    one_time_code: Option<&'a str>,
    device: (SessionKind, Option<&'a UserAgent>),
) -> BoxFuture<'a, Result<Option<Step>, Error>> {
    Box::pin(async move {
        let trail = trail.by(first.user.id);
        let opened = match CountedCode::count(accounts, &first.attempt, one_time_code).await {
            Ok(code) => open_in(accounts, accounts.db.write().await?, &trail, (&first, &code), device).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(Some((session, now))) => {
                let remember_me = first.is_remembered();
                Ok(Some(Step::SignedIn { session, user: first.user, remember_me, now }))
            }
            Ok(None) => Ok(None),
            Err(error) if error.code == Code::SecondFactorRequired => {
                Ok(Some(Step::CodeDue(Box::new(first), error)))
            }
            Err(error) => Err(first.attempt.refuse_code(accounts, &trail, error).await),
        }
    })
}

/// Does the work of [`open`] in this transaction, and commits it.
async fn open_in(
    accounts: &Accounts,
    mut tx: Tx,
    trail: &Trail,
    (first, code): (&FirstStep, &CountedCode<'_>),
    device: (SessionKind, Option<&UserAgent>),
) -> Result<Option<(Session, Time)>, Error> {
    let now = accounts.clock.now();
    // This locks the account. A concurrent change, such as a new password or a new second factor, is made
    // either before or after this login. If it is made before, this login checks the changed account. If it
    // is made after, it ends this session.
    if !first.note_login(accounts, &mut tx, trail, now).await? {
        return Ok(None);
    }
    let passed = match &first.factor {
        FirstFactor::Passkey(..) | FirstFactor::SignOn(SignOn { has_passed_second_factor: true, .. }) => {
            Passed::NotAsked
        }
        _ => second_factor::check(accounts, &mut tx, first.user.id, code, now).await?,
    };
    if let Some(pending) = &first.pending {
        pending.use_up(&mut tx, now).await?;
    }
    let (session, has_mail) = insert(accounts, &mut tx, trail, (first, device), now).await?;
    let has_more = passed.note(accounts, &mut tx, trail, &first.user, now).await?;
    tx.commit().await?;
    if has_mail || has_more {
        accounts.outbox.notify_one();
    }
    Ok(Some((session, now)))
}

/// Adds the session of a user who has passed every check. If the user has too many sessions, the oldest ones
/// end. Returns the session, and `true` if an e-mail was added to the outbox.
async fn insert(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    (first, (kind, user_agent)): (&FirstStep, (SessionKind, Option<&UserAgent>)),
    now: Time,
) -> Result<(Session, bool), Error> {
    let (user, sign_on) = (&first.user, first.sign_on());
    let id = SessionId::new(now, &accounts.random);
    let new = NewSession {
        id,
        user_id: user.id,
        kind,
        remember_me: first.is_remembered(),
        client: Client { address: trail.address, user_agent },
        created_at: now,
        expires_at: now.plus_ms(sign_on.map_or(SESSION_MS, |sign_on| sign_on.session_ms)),
    };
    let authenticated_at = sign_on.map_or(now, |sign_on| sign_on.authenticated_at.min(now));
    let connection_id = sign_on.map(|sign_on| sign_on.connection_id);
    store::sessions::insert_of_connection(tx, &new, authenticated_at, connection_id).await?;
    let limits = &accounts.settings.limits;
    let ended = if limits.enabled {
        store::sessions::end_oldest(tx, user.id, id, limits.sessions_per_person, now).await?
    } else {
        Vec::new()
    };
    first.attempt.forget_password(tx, now).await?;
    if user.email_verified_at.is_some() {
        (accounts.hooks.accept_invitations)(tx, trail, user, now).await?;
    }
    let has_mail = first.attempt.note_login(accounts, tx, user, trail, now).await?;
    sessions::record(accounts, tx, trail, (Action::SessionStarted, &[id]), now).await?;
    sessions::record(accounts, tx, trail, (Action::SessionEnded, &ended), now).await?;
    Ok((Session { id, user_id: user.id }, has_mail))
}

impl FirstStep {
    /// Returns `true` if the session is remembered. Operators' sessions never are.
    fn is_remembered(&self) -> bool {
        self.remember_me && self.user.operator_since.is_none()
    }

    /// Returns the sign-on that the session belongs to, if any.
    fn sign_on(&self) -> Option<&SignOn> {
        match &self.factor {
            FirstFactor::Password { .. } => None,
            FirstFactor::SignOn(sign_on) => Some(sign_on),
            FirstFactor::Passkey(_, sign_on) => sign_on.as_ref(),
        }
    }

    /// Locks the account, and stores the login if the first factor is still valid. Returns `false` if it
    /// isn't.
    async fn note_login(
        &self,
        accounts: &Accounts,
        tx: &mut Tx,
        trail: &Trail,
        now: Time,
    ) -> Result<bool, Error> {
        let user_id = self.user.id;
        match &self.factor {
            FirstFactor::Password { checked_hash, hash_to_keep } => {
                Ok(store::users::note_login(tx, user_id, checked_hash, hash_to_keep, now).await?)
            }
            FirstFactor::SignOn(sign_on) => Ok(store::users::note_login_without_password(tx, user_id, now)
                .await?
                && store::connections::is_of(tx, sign_on.connection_id, user_id).await?),
            FirstFactor::Passkey(checked, sign_on) => {
                if !store::users::note_login_without_password(tx, user_id, now).await? {
                    return Ok(false);
                }
                if let Some(sign_on) = sign_on
                    && !store::connections::is_of(tx, sign_on.connection_id, user_id).await?
                {
                    return Err(Code::SignOnExpired.into());
                }
                checked.use_up(accounts, tx, trail, now).await?;
                Ok(true)
            }
        }
    }

    /// Returns the sign-in that needs a code. A hash with the current parameters is stored now, because the
    /// second step doesn't have the password.
    async fn pend(self, accounts: &Accounts) -> Result<PendingLogin, Error> {
        match self.factor {
            FirstFactor::Password { checked_hash, hash_to_keep } => {
                if hash_to_keep != checked_hash {
                    let mut tx = accounts.db.write().await?;
                    store::users::set_hash(&mut tx, self.user.id, &checked_hash, &hash_to_keep).await?;
                    tx.commit().await?;
                }
                Ok(PendingLogin::with_password(self.user.id, &hash_to_keep, self.remember_me))
            }
            FirstFactor::SignOn(sign_on) => Ok(PendingLogin::with_sign_on(self.user.id, sign_on)),
            FirstFactor::Passkey(..) => Err(Error::internal("no code is due after a passkey")),
        }
    }
}

impl Step {
    /// Signs the tokens of a program. If a code is missing, the refusal is recorded and returned.
    pub(super) async fn logged_in(self, accounts: &Accounts, trail: &Trail) -> Result<LoggedIn, Error> {
        match self {
            Self::SignedIn { session, user, now, .. } => Ok(LoggedIn {
                access_token: sign(accounts, TokenKind::Access, session, now).await?,
                refresh_token: sign(accounts, TokenKind::Refresh, session, now).await?,
                user,
            }),
            Self::CodeDue(first, error) => {
                Err(first.attempt.refuse(accounts, &trail.by(first.user.id), error).await)
            }
        }
    }

    /// Signs the token of a browser. If a code is missing, the error is returned.
    pub(super) async fn browser_login(self, accounts: &Accounts) -> Result<BrowserLogin, Error> {
        match self {
            Self::SignedIn { session, remember_me, now, .. } => {
                let token = sign(accounts, TokenKind::Browser, session, now).await?;
                Ok(BrowserLogin { token, session, remember_me })
            }
            Self::CodeDue(_, error) => Err(error),
        }
    }

    /// Signs the token of a browser, or returns the sign-in that needs a code.
    pub(super) async fn browser_step(self, accounts: &Accounts) -> Result<BrowserStep, Error> {
        match self {
            Self::CodeDue(first, _) => Ok(BrowserStep::CodeDue(first.pend(accounts).await?)),
            signed_in => Ok(BrowserStep::SignedIn(signed_in.browser_login(accounts).await?)),
        }
    }
}

/// Counts the outcome of a login in the metrics.
pub(super) fn counted<T>(accounts: &Accounts, outcome: Result<T, Error>) -> Result<T, Error> {
    accounts.metrics.logins.count(outcome.as_ref().err().map(|error| error.code));
    outcome
}

/// Counts the outcome of the first step in a browser in the metrics.
pub(super) fn counted_step(
    accounts: &Accounts,
    outcome: Result<BrowserStep, Error>,
) -> Result<BrowserStep, Error> {
    if let Ok(BrowserStep::CodeDue(_)) = &outcome {
        accounts.metrics.logins.count(Some(Code::SecondFactorRequired));
        return outcome;
    }
    counted(accounts, outcome)
}
