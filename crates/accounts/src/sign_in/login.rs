//! Login: checks the password and the second factor, and opens a session. A program sends both at once, a
//! person in a browser one after the other.

pub(crate) mod by_provider;

use crate::factors::second_factor;
use crate::jwt::TokenKind;
use crate::sign_in::guesses::Guess;
use crate::sign_in::pending_login::{FirstStep, PendingLogin, SignOn};
use crate::sign_in::proofs::CountedCode;
use crate::sign_in::refusals::{Reason, Refusal};
use crate::tokens::{SESSION_MS, sign};
use crate::{Accounts, Session, sessions, store};
use db::Tx;
use kernel::addresses;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::SessionId;
use kernel::networks::Network;
use kernel::secrets::sha256;

use crate::factors::second_factor::Passed;
use crate::rules::user_agents::UserAgent;
use crate::store::sessions::{Client, NewSession, SessionKind};
use crate::store::users::{Credentials, User};
use trail::{Action, Trail};

/// Login credentials.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The e-mail address as typed.
    pub email: &'a str,
    /// The password as typed.
    pub password: &'a str,
    /// A code of an app or a recovery code as typed; ignored if the account has no second factor.
    pub one_time_code: Option<&'a str>,
    /// `true` if a browser keeps the session when it closes, and it doesn't end without use.
    pub remember_me: bool,
    /// The client's `User-Agent`.
    pub user_agent: Option<&'a UserAgent>,
}

/// The tokens of a new session, and its user.
pub struct LoggedIn {
    /// The access token.
    pub access_token: String,
    /// The refresh token.
    pub refresh_token: String,
    /// The account.
    pub user: User,
}

/// The token of a new browser session.
pub struct BrowserLogin {
    /// The value of the cookie.
    pub token: String,
    /// The session and its user.
    pub session: Session,
    /// `true` if the browser keeps it when it closes.
    pub remember_me: bool,
}

/// The outcome of the first step of a sign-in in a browser.
pub enum BrowserStep {
    /// Signed in, without a second factor.
    SignedIn(BrowserLogin),
    /// The second factor is due: [`finish_in_browser`].
    CodeDue(PendingLogin),
}

/// The maximum number of times a password is checked if its hash changes meanwhile. By the second check the
/// hash has the current parameters: another login may have rehashed it, but doesn't do so again.
const MAX_PASSWORD_CHECKS: usize = 2;

/// Checks the password and the second factor, and opens a session; open invitations for a verified address are
/// accepted with it. An unknown address costs the same work as a wrong password. The outcome is counted in the
/// metrics.
///
/// # Errors
/// 401 for wrong credentials, or for a code that is missing or wrong; 403 if the account is disabled, a
/// verified address is required, or people sign in without passwords; 429 while the caller has to wait or the
/// password queue is full.
pub async fn log_in(accounts: &Accounts, trail: &Trail, login: &Login<'_>) -> Result<LoggedIn, Error> {
    let outcome = async {
        let (session, user, now) = match check_and_open(accounts, trail, login, SessionKind::Api).await? {
            Outcome::Opened(session, user, now) => (session, user, now),
            Outcome::CodeDue(checked, error) => {
                let refusal = checked.refusal(Reason::SecondFactorRequired);
                let trail = trail.by(checked.user.id);
                refusal.record(accounts, &trail, accounts.clock.now()).await?;
                return Err(error);
            }
        };
        Ok(LoggedIn {
            access_token: sign(accounts, TokenKind::Access, session, now).await?,
            refresh_token: sign(accounts, TokenKind::Refresh, session, now).await?,
            user,
        })
    };
    counted(accounts, outcome.await)
}

/// Logs in like [`log_in`], but for a browser: its session has one token, valid only in the console's cookie.
/// If a code is required but missing, the browser is asked for it in a second step.
///
/// # Errors
/// Those of [`log_in`].
pub async fn log_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    login: &Login<'_>,
) -> Result<BrowserStep, Error> {
    let outcome = async {
        match check_and_open(accounts, trail, login, SessionKind::Browser).await? {
            Outcome::Opened(session, user, now) => {
                let token = sign(accounts, TokenKind::Browser, session, now).await?;
                let remember_me = login.remember_me && user.operator_since.is_none();
                Ok(BrowserStep::SignedIn(BrowserLogin { token, session, remember_me }))
            }
            Outcome::CodeDue(checked, _) => {
                let hash = checked.keep_hash(accounts).await?;
                let pending = PendingLogin::with_password(checked.user.id, hash, login.remember_me);
                Ok(BrowserStep::CodeDue(pending))
            }
        }
    };
    counted_step(accounts, outcome.await)
}

/// Finishes a sign-in in a browser: checks the code, and opens the session. It counts as a login.
///
/// # Errors
/// `invalid_one_time_code`; `invalid_access_token` if the password has been changed, the connection is gone,
/// or the account is disabled; 429 while the caller has to wait.
pub async fn finish_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    pending: &PendingLogin,
    one_time_code: &str,
    user_agent: Option<&UserAgent>,
) -> Result<BrowserLogin, Error> {
    let outcome = async {
        let network = Network::of(trail.address);
        let mut tx = accounts.db.read().await?;
        let found = store::users::credentials_by_id(&mut tx, pending.user_id, network).await?;
        drop(tx);
        let Credentials { user, password_hash, last_login_here_at } =
            found.ok_or(Code::InvalidAccessToken)?;
        let proof = match &pending.first_step {
            FirstStep::Password(checked) => {
                if !accounts.settings.sign_in.takes_password_of(&user) {
                    return Err(Code::PasswordsDisabled.into());
                }
                let is_checked = |hash: &String| *checked == sha256(hash.as_bytes());
                let hash = password_hash.filter(is_checked).ok_or(Code::InvalidAccessToken)?;
                Proof::Password { checked_hash: hash.clone(), hash_to_keep: hash }
            }
            FirstStep::SignOn(sign_on) => Proof::SignOn(*sign_on),
        };
        let guess = Guess::new(&user.email_folded, network, last_login_here_at);
        let checked = Checked { user, guess, proof };
        let opening = Opening {
            checked: &checked,
            one_time_code: Some(one_time_code),
            first_step: Some(pending),
            kind: SessionKind::Browser,
            remember_me: pending.remember_me,
            user_agent,
        };
        let opened = open(accounts, trail, &opening).await?;
        let (session, now) = opened.ok_or(Code::InvalidAccessToken)?;
        let token = sign(accounts, TokenKind::Browser, session, now).await?;
        Ok(BrowserLogin { token, session, remember_me: opening.login().is_remembered() })
    };
    counted(accounts, outcome.await)
}

fn counted_step(accounts: &Accounts, outcome: Result<BrowserStep, Error>) -> Result<BrowserStep, Error> {
    let refused = match &outcome {
        Ok(BrowserStep::SignedIn(_)) => None,
        Ok(BrowserStep::CodeDue(_)) => Some(Code::SecondFactorRequired),
        Err(error) => Some(error.code),
    };
    accounts.metrics.logins.count(refused);
    outcome
}

/// Counts the outcome of a login in the metrics.
pub(crate) fn counted<T>(accounts: &Accounts, outcome: Result<T, Error>) -> Result<T, Error> {
    accounts.metrics.logins.count(outcome.as_ref().err().map(|error| error.code));
    outcome
}

/// The outcome of a right password.
enum Outcome {
    Opened(Session, User, Time),
    /// The second factor is due, and no code was given: the refusal.
    CodeDue(Box<Checked>, Error),
}

fn check_and_open<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    login: &'a Login<'_>,
    kind: SessionKind,
) -> BoxFuture<'a, Result<Outcome, Error>> {
    Box::pin(async move {
        for attempt in 0..MAX_PASSWORD_CHECKS {
            let checked = check(accounts, trail, login, attempt == 0).await?;
            let Login { one_time_code, remember_me, user_agent, .. } = *login;
            let opening =
                Opening { checked: &checked, one_time_code, first_step: None, kind, remember_me, user_agent };
            match open(accounts, trail, &opening).await {
                Ok(Some((session, now))) => return Ok(Outcome::Opened(session, checked.user, now)),
                Ok(None) => {}
                Err(error) if error.code == Code::SecondFactorRequired => {
                    return Ok(Outcome::CodeDue(Box::new(checked), error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(Code::InvalidCredentials.into())
    })
}

/// A person who has passed the first step of a sign-in.
struct Checked {
    user: User,
    guess: Guess,
    proof: Proof,
}

/// The proof of the first step.
enum Proof {
    Password {
        /// The hash that it was checked against.
        checked_hash: String,
        /// The hash to store: the same, or one with the current parameters.
        hash_to_keep: String,
    },
    SignOn(SignOn),
}

impl Checked {
    fn refusal(&self, reason: Reason) -> Refusal<'_> {
        let Self { user, guess, .. } = self;
        Refusal { guess, email_folded: &user.email_folded, user_id: Some(user.id), reason }
    }

    /// Stores a hash with the current parameters, if the login has one: the second step has no password to
    /// hash. Returns the hash that is stored afterwards.
    async fn keep_hash(&self, accounts: &Accounts) -> Result<&str, Error> {
        let Proof::Password { checked_hash, hash_to_keep } = &self.proof else {
            return Err(Error::internal("a sign-on has no password"));
        };
        if hash_to_keep != checked_hash {
            let mut tx = accounts.db.write().await?;
            store::users::set_hash(&mut tx, self.user.id, checked_hash, hash_to_keep).await?;
            tx.commit().await?;
        }
        Ok(hash_to_keep)
    }

    /// Stores the login, if the proof is still valid. Locks the account.
    async fn note(&self, tx: &mut Tx, now: Time) -> Result<bool, Error> {
        let user_id = self.user.id;
        Ok(match &self.proof {
            Proof::Password { checked_hash, hash_to_keep } => {
                store::users::note_login(tx, user_id, checked_hash, hash_to_keep, now).await?
            }
            Proof::SignOn(sign_on) => {
                store::users::note_login_without_password(tx, user_id, now).await?
                    && store::connections::is_of(tx, sign_on.connection_id, user_id).await?
            }
        })
    }

    fn sign_on(&self) -> Option<&SignOn> {
        match &self.proof {
            Proof::Password { .. } => None,
            Proof::SignOn(sign_on) => Some(sign_on),
        }
    }
}

/// Checks the password; with `is_counted` the attempt counts against the limits. A refusal is recorded in the
/// audit trail.
async fn check(
    accounts: &Accounts,
    trail: &Trail,
    login: &Login<'_>,
    is_counted: bool,
) -> Result<Checked, Error> {
    let email_folded = addresses::fold(login.email);
    let network = Network::of(trail.address);
    // Take the place first: a refusal because of the full queue doesn't count as a login attempt.
    let place = accounts.hasher.acquire_place(network)?;
    let mut tx = accounts.db.read().await?;
    let found = store::users::credentials_by_email(&mut tx, &email_folded, network).await?;
    drop(tx);
    let last_login_here_at = found.as_ref().and_then(|found| found.last_login_here_at);
    let guess = Guess::new(&email_folded, network, last_login_here_at);
    let user_id = found.as_ref().map(|found| found.user.id);
    let refusal = |reason| Refusal { guess: &guess, email_folded: &email_folded, user_id, reason };
    let counted_at = accounts.clock.now();
    if is_counted && let Err(error) = guess.count(accounts, counted_at).await {
        drop(place);
        if error.code == Code::TooManyAttempts {
            refusal(Reason::TooManyAttempts).record(accounts, trail, counted_at).await?;
        }
        return Err(error);
    }
    let stored = found.as_ref().and_then(|found| found.password_hash.as_deref());
    let verdict = place.verify(login.password, stored).await?;
    let found = found.filter(|_| verdict.matches).and_then(|found| Some((found.user, found.password_hash?)));
    let Some((user, checked_hash)) = found else {
        drop(place);
        refusal(Reason::InvalidCredentials).record(accounts, trail, accounts.clock.now()).await?;
        return Err(Code::InvalidCredentials.into());
    };
    let is_unverified = accounts.settings.require_verified_email && user.email_verified_at.is_none();
    let takes_password = accounts.settings.sign_in.takes_password_of(&user);
    let refused = match user.disabled_at {
        Some(_) => Some((Reason::AccountDisabled, Code::AccountDisabled)),
        None if !takes_password => Some((Reason::PasswordsDisabled, Code::PasswordsDisabled)),
        None if is_unverified => Some((Reason::EmailNotVerified, Code::EmailNotVerified)),
        None => None,
    };
    if let Some((reason, code)) = refused {
        drop(place);
        let now = accounts.clock.now();
        // The password was right: the attempt doesn't count.
        let mut tx = accounts.db.write().await?;
        guess.forget(&mut tx, now).await?;
        tx.commit().await?;
        refusal(reason).record(accounts, &trail.by(user.id), now).await?;
        return Err(code.into());
    }
    // The parameters of hashes have changed since. If this fails, another login will rehash.
    let rehashed = if verdict.needs_rehash { place.hash(login.password).await.ok() } else { None };
    let hash_to_keep = rehashed.unwrap_or_else(|| checked_hash.clone());
    Ok(Checked { user, guess, proof: Proof::Password { checked_hash, hash_to_keep } })
}

/// A session to be opened.
#[derive(Clone, Copy)]
struct Opening<'a> {
    checked: &'a Checked,
    one_time_code: Option<&'a str>,
    /// The first step that was taken before, if this is the second one.
    first_step: Option<&'a PendingLogin>,
    kind: SessionKind,
    remember_me: bool,
    user_agent: Option<&'a UserAgent>,
}

impl<'a> Opening<'a> {
    fn login(&self) -> NewLogin<'a> {
        let Self { checked, kind, remember_me, user_agent, .. } = *self;
        let sign_on = checked.sign_on();
        NewLogin { user: &checked.user, guess: &checked.guess, kind, remember_me, user_agent, sign_on }
    }
}

/// Checks the second factor and opens a session; a wrong code is recorded like a wrong password. Returns
/// `None` if the proof is no longer valid: the password was changed, the connection is gone, or the account
/// is disabled.
async fn open(
    accounts: &Accounts,
    trail: &Trail,
    opening: &Opening<'_>,
) -> Result<Option<(Session, Time)>, Error> {
    let trail = trail.by(opening.checked.user.id);
    let opened = match CountedCode::count(accounts, &opening.checked.guess, opening.one_time_code).await {
        Ok(code) => open_in(accounts, accounts.db.write().await?, &trail, (opening, &code)).await,
        Err(error) => Err(error),
    };
    let reason = opened.as_ref().err().and_then(|error| match error.code {
        Code::InvalidOneTimeCode => Some(Reason::InvalidOneTimeCode),
        Code::TooManyAttempts => Some(Reason::TooManyAttempts),
        _ => None,
    });
    if let Some(reason) = reason {
        opening.checked.refusal(reason).record(accounts, &trail, accounts.clock.now()).await?;
    }
    opened
}

/// As [`open`], in a transaction, which is committed.
async fn open_in(
    accounts: &Accounts,
    mut tx: Tx,
    trail: &Trail,
    (opening, code): (&Opening<'_>, &CountedCode<'_>),
) -> Result<Option<(Session, Time)>, Error> {
    let checked = opening.checked;
    let (user, now) = (&checked.user, accounts.clock.now());
    // Locks the account: a concurrent change of the password or the second factor waits, and then ends this
    // session; or this login waits for the change, and then finds the hash changed, or the factor there.
    if !checked.note(&mut tx, now).await? {
        return Ok(None);
    }
    let passed = match checked.sign_on() {
        Some(SignOn { has_passed_second_factor: true, .. }) => Passed::NotAsked,
        _ => second_factor::check(accounts, &mut tx, user.id, code, now).await?,
    };
    if let Some(first_step) = opening.first_step {
        first_step.use_up(&mut tx, now).await?;
    }
    let login = opening.login();
    let (session, has_mail) = start_session(accounts, &mut tx, trail, &login, now).await?;
    let has_more = passed.note(accounts, &mut tx, trail, user, now).await?;
    tx.commit().await?;
    if has_mail || has_more {
        accounts.outbox.notify_one();
    }
    Ok(Some((session, now)))
}

/// A login that has passed every check.
#[derive(Clone, Copy)]
pub(crate) struct NewLogin<'a> {
    pub user: &'a User,
    pub guess: &'a Guess,
    pub kind: SessionKind,
    pub remember_me: bool,
    pub user_agent: Option<&'a UserAgent>,
    /// The sign-on that led to it.
    pub sign_on: Option<&'a SignOn>,
}

impl NewLogin<'_> {
    /// Returns `true` if the session is remembered: an operator's never is.
    pub(crate) fn is_remembered(&self) -> bool {
        self.remember_me && self.user.operator_since.is_none()
    }
}

/// Opens the session of a login, under the account's lock. The person's oldest session ends if they have too
/// many. Returns `true` if a mail was added to the outbox.
pub(crate) async fn start_session(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    login: &NewLogin<'_>,
    now: Time,
) -> Result<(Session, bool), Error> {
    let NewLogin { user, guess, kind, user_agent, sign_on, .. } = *login;
    let session_id = SessionId::new(now, &accounts.random);
    let new = NewSession {
        id: session_id,
        user_id: user.id,
        kind,
        remember_me: login.is_remembered(),
        client: Client { address: trail.address, user_agent },
        created_at: now,
        expires_at: now.plus_ms(sign_on.map_or(SESSION_MS, |sign_on| sign_on.session_ms)),
    };
    let authenticated_at = sign_on.map_or(now, |sign_on| sign_on.authenticated_at.min(now));
    let connection_id = sign_on.map(|sign_on| sign_on.connection_id);
    store::sessions::insert_of_connection(tx, &new, authenticated_at, connection_id).await?;
    let limits = &accounts.settings.limits;
    let ended = if limits.enabled {
        store::sessions::end_oldest(tx, user.id, session_id, limits.sessions_per_person, now).await?
    } else {
        Vec::new()
    };
    guess.forget(tx, now).await?;
    if user.email_verified_at.is_some() {
        (accounts.hooks.accept_invitations)(tx, trail, user, now).await?;
    }
    let has_mail = guess.note_login(accounts, tx, user, trail, now).await?;
    sessions::record(accounts, tx, trail, (Action::SessionStarted, &[session_id]), now).await?;
    sessions::record(accounts, tx, trail, (Action::SessionEnded, &ended), now).await?;
    Ok((Session { id: session_id, user_id: user.id }, has_mail))
}
