//! Login: checks the password and opens a session.

use crate::guesses::Guess;
use crate::jwt::TokenKind;
use crate::refusals::{Reason, Refusal};
use crate::tokens::{SESSION_MS, sign};
use crate::{Accounts, Session, store};
use kernel::addresses;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::SessionId;
use kernel::networks::Network;

use crate::rules::user_agents::UserAgent;
use crate::store::sessions::{Client, NewSession, SessionKind};
use crate::store::users::{Credentials, User};
use trail::{Action, Event, Trail};

/// Login credentials.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The e-mail address as typed.
    pub email: &'a str,
    /// The password as typed.
    pub password: &'a str,
    /// `true` if a browser keeps the session when it closes, and it doesn't end without use.
    pub remember_me: bool,
    /// What the client says that it is.
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
}

/// How often a password is checked if its hash changes meanwhile. The second time the hash has the current
/// parameters: another login may have rehashed it, but doesn't do so again.
const MAX_PASSWORD_CHECKS: usize = 2;

/// Checks the password and opens a session; open invitations for a verified address are accepted with it. An
/// unknown address costs the same work as a wrong password. The outcome is counted in the metrics.
///
/// # Errors
/// 401 for wrong credentials; 403 if a verified address is required; 429 while the caller has to wait or the
/// queue of passwords is full.
pub async fn log_in(accounts: &Accounts, trail: &Trail, login: &Login<'_>) -> Result<LoggedIn, Error> {
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

/// As [`log_in`], for a browser: its session has one token, which is good in the console's cookie only.
///
/// # Errors
/// As from [`log_in`].
pub async fn log_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    login: &Login<'_>,
) -> Result<BrowserLogin, Error> {
    let outcome = async {
        let (session, _, now) = check_and_open(accounts, trail, login, SessionKind::Browser).await?;
        Ok(BrowserLogin { token: sign(accounts, TokenKind::Browser, session, now).await?, session })
    };
    counted(accounts, outcome.await)
}

fn counted<T>(accounts: &Accounts, outcome: Result<T, Error>) -> Result<T, Error> {
    accounts.metrics.logins.count(outcome.as_ref().err().map(|error| error.code));
    outcome
}

fn check_and_open<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    login: &'a Login<'_>,
    kind: SessionKind,
) -> BoxFuture<'a, Result<(Session, User, Time), Error>> {
    Box::pin(async move {
        for attempt in 0..MAX_PASSWORD_CHECKS {
            let checked = check(accounts, trail, login, attempt == 0).await?;
            if let Some((session, now)) = open(accounts, trail, &checked, login, kind).await? {
                return Ok((session, checked.user, now));
            }
        }
        Err(Code::InvalidCredentials.into())
    })
}

/// A password that was checked against the account's hash.
struct CheckedPassword {
    user: User,
    guess: Guess,
    /// The hash that it was checked against.
    checked_hash: String,
    /// The hash to store: the same, or one with the current parameters.
    hash_to_keep: String,
}

/// Checks the password; with `is_counted` the attempt counts against the limits. A refusal is recorded in the
/// audit trail.
async fn check(
    accounts: &Accounts,
    trail: &Trail,
    login: &Login<'_>,
    is_counted: bool,
) -> Result<CheckedPassword, Error> {
    let email_folded = addresses::fold(login.email);
    let network = Network::of(trail.address);
    // Take the place first: a refusal because of the full queue is no login attempt.
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
    let stored = found.as_ref().map(|found| found.password_hash.as_str());
    let verdict = place.verify(login.password, stored).await?;
    let Some(found) = found.filter(|_| verdict.matches) else {
        drop(place);
        refusal(Reason::InvalidCredentials).record(accounts, trail, accounts.clock.now()).await?;
        return Err(Code::InvalidCredentials.into());
    };
    let Credentials { user, password_hash: checked_hash, .. } = found;
    if accounts.settings.require_verified_email && user.email_verified_at.is_none() {
        drop(place);
        let now = accounts.clock.now();
        // The password was right: the attempt doesn't count.
        let mut tx = accounts.db.write().await?;
        guess.forget(&mut tx, now).await?;
        tx.commit().await?;
        refusal(Reason::EmailNotVerified).record(accounts, &trail.by(user.id), now).await?;
        return Err(Code::EmailNotVerified.into());
    }
    // The parameters of hashes have changed since. If this fails, another login will rehash.
    let rehashed = if verdict.needs_rehash { place.hash(login.password).await.ok() } else { None };
    let hash_to_keep = rehashed.unwrap_or_else(|| checked_hash.clone());
    Ok(CheckedPassword { user, guess, checked_hash, hash_to_keep })
}

/// Opens a session, and ends the person's oldest if there are too many. Returns `None` if the account's hash
/// is no longer the one that the password was checked against.
async fn open(
    accounts: &Accounts,
    trail: &Trail,
    checked: &CheckedPassword,
    login: &Login<'_>,
    kind: SessionKind,
) -> Result<Option<(Session, Time)>, Error> {
    let (user, now) = (&checked.user, accounts.clock.now());
    let (session_id, trail) = (SessionId::new(now, &accounts.random), trail.by(user.id));
    let mut tx = accounts.db.write().await?;
    // Locks the account: a concurrent change of the password waits, and then ends this session; or this login
    // waits for the change, and then finds the hash changed.
    if !store::users::note_login(&mut tx, user.id, &checked.checked_hash, &checked.hash_to_keep, now).await? {
        return Ok(None);
    }
    let new = NewSession {
        id: session_id,
        user_id: user.id,
        kind,
        remember_me: login.remember_me,
        client: Client { address: trail.address, user_agent: login.user_agent },
        created_at: now,
        expires_at: now.plus_ms(SESSION_MS),
    };
    store::sessions::insert(&mut tx, &new).await?;
    let limits = &accounts.settings.limits;
    let ended = if limits.enabled {
        store::sessions::end_oldest(&mut tx, user.id, session_id, limits.sessions_per_person, now).await?
    } else {
        Vec::new()
    };
    checked.guess.forget(&mut tx, now).await?;
    if user.email_verified_at.is_some() {
        (accounts.hooks.accept_invitations)(&mut tx, &trail, user, now).await?;
    }
    let is_mail_queued = checked.guess.note_login(accounts, &mut tx, user, &trail, now).await?;
    let started = [(Action::SessionStarted, session_id)].into_iter();
    for (action, id) in started.chain(ended.iter().map(|id| (Action::SessionEnded, *id))) {
        let event = Event { action, target: id.to_string(), organization_id: None };
        trail::record(&mut tx, &trail, &event, now, &accounts.random).await?;
    }
    tx.commit().await?;
    if is_mail_queued {
        accounts.outbox.notify_one();
    }
    Ok(Some((Session { id: session_id, user_id: user.id }, now)))
}
