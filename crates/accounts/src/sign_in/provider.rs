//! Sign-on with a provider. The browser keeps the state of a sign-on in sealed values (`pending`), and
//! nothing is stored until the user is identified.

pub(crate) mod pending;
mod provisioning;

use crate::account::connections;
use crate::rules::linking::{AccountWithAddress, Decision, EmailClaim, Facts, decide};
use crate::rules::user_agents::UserAgent;
use crate::sign_in::attempts::Attempt;
use crate::sign_in::session::{FirstFactor, FirstStep, counted, counted_step, open};
use crate::{Accounts, Session, sessions, store};
use db::Tx;
use kernel::clock::{HOUR_MS, Time};
use kernel::error::{Code, Error};
use kernel::ids::{ConnectionId, UserId};
use kernel::naming;
use kernel::networks::Network;
use kernel::secrets::sha256;
use pending::PendingSignOn;
use sign_on::{Callback, Identity, Provider};

use crate::hooks::SignOnGrant;
use crate::sign_in::pending_login::SignOn;
use crate::sign_in::session::BrowserStep;
use crate::store::sessions::SessionKind;
use crate::store::users::User;
use trail::{Action, Trail};

pub use pending::{PENDING_CONNECTION_MS, PENDING_SIGN_ON_MS, PendingConnection, Purpose};

/// The time for which the use of a logout token is stored, in milliseconds. It is longer than the token's
/// lifetime.
const USED_LOGOUT_MS: i64 = HOUR_MS;
/// The maximum number of tries if a sign-on conflicts with another one of the same user, or with the same
/// username.
const MAX_TRIES: usize = 3;

/// A sign-on that was started.
#[derive(Debug)]
pub struct Started {
    /// The link to the provider.
    pub url: String,
    /// The sealed value that the browser keeps.
    pub sealed: String,
}

/// A finished sign-on.
pub struct Finished {
    pub outcome: Outcome,
    /// The page to open afterwards.
    pub next: String,
}

/// The outcome of a sign-on.
pub enum Outcome {
    /// The user is signed in, or must enter a code.
    Account(BrowserStep),
    /// The signed-in user's account can be connected after the user confirms it.
    Connect(PendingConnection),
    /// An account that isn't connected has the user's address.
    Conflict(PendingConnection),
}

/// Starts a sign-on; `next` is the page to open afterwards.
///
/// # Errors
/// `provider_not_found`, `provider_unavailable`.
pub async fn begin(
    accounts: &Accounts,
    provider_id: &str,
    purpose: Purpose,
    next: &str,
) -> Result<Started, Error> {
    let provider = accounts.providers.get(provider_id)?;
    let begun = provider.begin(matches!(purpose, Purpose::Prove(_))).await?;
    let pending = PendingSignOn {
        provider_id: provider.settings.id.clone(),
        secrets: begun.secrets,
        purpose,
        began_at: accounts.clock.now(),
        next: next.to_owned(),
    };
    Ok(Started { url: begun.url, sealed: pending.seal(accounts)? })
}

/// Finishes a sign-on with the provider's response. `sealed` is the value that the browser has kept, and
/// `browser` contains the browser's session, if any.
///
/// # Errors
/// `provider_not_found`, `provider_unavailable`; `sign_on_expired` if this browser has no pending sign-on for
/// the response; `sign_on_failed` if the response isn't valid; `no_account`; `account_disabled`;
/// `connection_taken`; `email_not_verified`; 401 and `reauthentication_required` as for the page that started
/// the sign-on.
pub async fn finish(
    accounts: &Accounts,
    trail: &Trail,
    (provider_id, sealed): (&str, Option<&str>),
    callback: &Callback<'_>,
    browser: (Option<Session>, Option<&UserAgent>),
) -> Result<Finished, Error> {
    let session = browser.0;
    let provider = accounts.providers.get(provider_id)?;
    let pending = sealed.and_then(|sealed| PendingSignOn::open(accounts, sealed));
    let pending = pending.filter(|pending| pending.provider_id == provider_id).ok_or(Code::SignOnExpired)?;
    // The session that started the sign-on must still be the browser's session.
    let began_by = match pending.purpose {
        Purpose::SignIn => None,
        Purpose::Connect(by) | Purpose::Prove(by) => Some(by),
    };
    if began_by.is_some_and(|by| session != Some(by)) {
        return Err(Code::SignOnExpired.into());
    }
    let asked_at = matches!(pending.purpose, Purpose::Prove(_)).then_some(pending.began_at);
    let identity = provider.finish(&pending.secrets, callback, asked_at).await?;
    use_up(accounts, &pending).await?;
    for _ in 1..MAX_TRIES {
        match resolve(accounts, trail, &provider, &identity, &pending, browser).await {
            // A concurrent sign-on of the same user, or with the same username, has committed first.
            Err(error) if matches!(error.code, Code::EmailTaken | Code::UsernameTaken) => {}
            resolved => return Ok(Finished { outcome: resolved?, next: pending.next }),
        }
    }
    let outcome = resolve(accounts, trail, &provider, &identity, &pending, browser).await?;
    Ok(Finished { outcome, next: pending.next })
}

/// Consumes the sign-on, so that only one response to it is accepted.
async fn use_up(accounts: &Accounts, pending: &PendingSignOn) -> Result<(), Error> {
    let mut tx = accounts.db.write().await?;
    let expires_at = pending.began_at.plus_ms(2 * PENDING_SIGN_ON_MS);
    let is_first =
        store::connections::use_once(&mut tx, sha256(pending.secrets.state().as_bytes()), expires_at).await?;
    if !is_first {
        return Err(Code::SignOnExpired.into());
    }
    Ok(tx.commit().await?)
}

async fn resolve(
    accounts: &Accounts,
    trail: &Trail,
    provider: &Provider,
    identity: &Identity,
    pending: &PendingSignOn,
    (session, user_agent): (Option<Session>, Option<&UserAgent>),
) -> Result<Outcome, Error> {
    let resolution = match pending.purpose {
        Purpose::Connect(session) => {
            return Ok(Outcome::Connect(connect(accounts, provider, identity, session).await?));
        }
        Purpose::SignIn => who_is(accounts, trail, provider, identity, session).await?,
        Purpose::Prove(session) => match who_is_connected(accounts, identity).await? {
            Some(user_id) if user_id == session.user_id => {
                who_is(accounts, trail, provider, identity, Some(session)).await?
            }
            // The provider's user isn't connected to the signed-in account.
            _ => return Err(Code::SignOnFailed.into()),
        },
    };
    match resolution {
        Resolution::Account(user, connection_id) => {
            let now = accounts.clock.now();
            let sign_on = SignOn {
                connection_id,
                authenticated_at: identity.authenticated_at.unwrap_or(now).min(now),
                session_ms: i64::from(provider.settings.session_hours).saturating_mul(HOUR_MS),
                has_passed_second_factor: identity.has_passed_second_factor,
            };
            Ok(Outcome::Account(sign_in(accounts, trail, (user, sign_on), user_agent).await?))
        }
        Resolution::Disabled(user) => {
            let attempt = Attempt::at(&user, None, Network::of(trail.address));
            let error = attempt.refuse(accounts, &trail.by(user.id), Code::AccountDisabled).await;
            counted(accounts, Err(error))
        }
        Resolution::Conflict(pending) => Ok(Outcome::Conflict(pending)),
    }
}

/// Opens a session in a browser for a user who has signed in with a provider. If a code is required, the
/// browser sends it in a second step, as after a password.
///
/// # Errors
/// The connection was removed or the account was disabled in the meantime, or the database fails.
async fn sign_in(
    accounts: &Accounts,
    trail: &Trail,
    (user, sign_on): (User, SignOn),
    user_agent: Option<&UserAgent>,
) -> Result<BrowserStep, Error> {
    let outcome = async {
        let network = Network::of(trail.address);
        let found = store::users::credentials_by_id(&mut accounts.db.read().await?, user.id, network).await?;
        let attempt = Attempt::at(&user, found.and_then(|found| found.last_login_here_at), network);
        let factor = FirstFactor::SignOn(sign_on);
        let first = FirstStep { user, attempt, factor, remember_me: false, pending: None };
        let step = open(accounts, trail, first, None, (SessionKind::Browser, user_agent)).await?;
        step.ok_or(Code::SignOnExpired)?.browser_step(accounts).await
    };
    counted_step(accounts, outcome.await)
}

async fn who_is_connected(accounts: &Accounts, identity: &Identity) -> Result<Option<UserId>, Error> {
    let mut tx = accounts.db.read().await?;
    let found = store::connections::by_subject(&mut tx, &identity.issuer, &identity.subject).await?;
    Ok(found.map(|(_, user_id)| user_id))
}

/// The account of a user who signs in with a provider.
enum Resolution {
    Account(User, ConnectionId),
    /// The account is disabled, and nothing was changed.
    Disabled(User),
    Conflict(PendingConnection),
}

/// Finds, connects or creates the account for a sign-on, in one transaction. If the browser has a session,
/// the account must be the session's account.
async fn who_is(
    accounts: &Accounts,
    trail: &Trail,
    provider: &Provider,
    identity: &Identity,
    session: Option<Session>,
) -> Result<Resolution, Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let email = identity.email.as_deref().and_then(|email| naming::email(email).ok());
    let holder = match &email {
        Some(email) => store::users::by_email(&mut tx, &email.folded).await?,
        None => None,
    };
    // The connection is read after the account with the address. Another sign-on of the same user may commit
    // the account with its connection in the meantime, and an account without its connection would be a
    // conflict.
    let connected = store::connections::by_subject(&mut tx, &identity.issuer, &identity.subject).await?;
    let facts =
        facts(accounts, &mut tx, provider, identity, (connected.is_some(), holder.as_ref()), now).await?;
    let decision = decide(&facts);
    let is_new = decision == Decision::Create;
    let found = connected.map(|(_, user_id)| user_id).or(holder.as_ref().map(|user| user.id));
    if session.is_some_and(|session| is_new || found != Some(session.user_id)) {
        return Err(signed_in_as_another(provider));
    }
    let (user, connection_id) = match (decision, connected, holder, email) {
        (Decision::SignIn, Some((id, user_id)), _, _) => {
            let user = lock_account(&mut tx, user_id).await?;
            if user.disabled_at.is_some() {
                return Ok(Resolution::Disabled(user));
            }
            (user, id)
        }
        (Decision::Connect, _, Some(user), _) => {
            let user = lock_account(&mut tx, user.id).await?;
            if user.disabled_at.is_some() {
                return Ok(Resolution::Disabled(user));
            }
            let id = connections::add(accounts, &mut tx, provider, identity, user.id, now).await?;
            (user, id.ok_or(Code::EmailTaken)?)
        }
        (Decision::Create, _, _, Some(email)) => {
            let user = provisioning::create(accounts, &mut tx, trail, identity, &email, now).await?;
            let id = connections::add(accounts, &mut tx, provider, identity, user.id, now).await?;
            (user, id.ok_or(Code::EmailTaken)?)
        }
        (Decision::Confirm | Decision::ProveMailbox, _, Some(user), _) => {
            return Ok(Resolution::Conflict(PendingConnection::new(provider, identity, &user)));
        }
        _ => return Err(Code::NoAccount.into()),
    };
    let trail = trail.by(user.id);
    let (provider_id, address) = (provider.settings.id.as_str(), identity.email.as_deref());
    store::connections::note_use(&mut tx, connection_id, provider_id, address, now).await?;
    let verified =
        if is_new { Some(provisioning::verify(accounts, &mut tx, &trail, &user, now).await?) } else { None };
    apply(accounts, &mut tx, &trail, (provider, identity), &user, now).await?;
    if let Some(verified) = verified {
        // The credit locks a wallet, so it comes after the locks of organizations.
        (accounts.hooks.give_first_credit)(&mut tx, &verified, now).await?;
    }
    if decision == Decision::Connect {
        connections::notify_connected(accounts, &mut tx, &trail, provider, &user, now).await?;
    }
    tx.commit().await?;
    accounts.outbox.notify_one();
    Ok(Resolution::Account(user, connection_id))
}

/// Locks an account, and reads it under the lock.
async fn lock_account(tx: &mut Tx, user_id: UserId) -> Result<User, Error> {
    store::users::lock(tx, user_id).await?;
    store::users::by_id(tx, user_id).await?.ok_or_else(|| Code::NoAccount.into())
}

fn signed_in_as_another(provider: &Provider) -> Error {
    let name = &provider.settings.name;
    let message = format!(
        "You are signed in here as a different user than at {name}. Sign out first, then sign in with \
         {name}, or connect it on your account page."
    );
    Error::new(Code::SignOnFailed).message(message)
}

async fn facts(
    accounts: &Accounts,
    tx: &mut Tx,
    provider: &Provider,
    identity: &Identity,
    (is_connected, holder): (bool, Option<&User>),
    now: Time,
) -> Result<Facts, Error> {
    let settings = &provider.settings;
    let account = match holder {
        None => AccountWithAddress::None,
        Some(user) if user.email_verified_at.is_none() => AccountWithAddress::Unverified,
        Some(user) => AccountWithAddress::Verified {
            has_other_connection: store::connections::has_issuer(tx, user.id, &identity.issuer).await?,
        },
    };
    let email = identity.email.as_deref();
    let folded = email.map(kernel::addresses::fold);
    let is_invited = match &folded {
        Some(folded) if !is_connected && account == AccountWithAddress::None => {
            (accounts.hooks.is_invited)(tx, folded, now).await?
        }
        _ => false,
    };
    Ok(Facts {
        is_connected,
        email: match (email, identity.is_email_verified) {
            (None, _) => EmailClaim::Absent,
            (Some(_), true) => EmailClaim::Verified,
            (Some(_), false) => EmailClaim::Unverified,
        },
        account,
        is_spoken_for: email
            .is_some_and(|email| settings.speaks_for(email, identity.hosted_domain.as_deref())),
        is_in_domains: email.is_some_and(|email| settings.covers(email)),
        is_invited,
        link: settings.link,
        provision: settings.provision,
    })
}

/// Creates, changes or ends the membership that the provider grants.
async fn apply(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    (provider, identity): (&Provider, &Identity),
    user: &User,
    now: Time,
) -> Result<(), Error> {
    let Some(membership) = &provider.settings.membership else { return Ok(()) };
    let grant =
        SignOnGrant { provider_id: &provider.settings.id, membership, groups: identity.groups.as_deref() };
    if membership.groups_claim.is_some() && grant.groups.is_none() {
        tracing::warn!(
            provider = provider.settings.id,
            "a provider didn't report a user's groups: the user's role is unchanged"
        );
    }
    (accounts.hooks.apply_sign_on)(tx, trail, user, &grant, now).await
}

/// Returns a connection that the signed-in user must confirm. Requires recent reauthentication, because the
/// browser may be signed in to the provider as someone else.
async fn connect(
    accounts: &Accounts,
    provider: &Provider,
    identity: &Identity,
    session: Session,
) -> Result<PendingConnection, Error> {
    if !accounts.is_fresh(session).await? {
        return Err(Code::ReauthenticationRequired.into());
    }
    let mut tx = accounts.db.read().await?;
    let user = store::users::by_id(&mut tx, session.user_id).await?.ok_or(Code::InvalidAccessToken)?;
    if user.email_verified_at.is_none() {
        return Err(Code::EmailNotVerified.into());
    }
    let found = store::connections::by_subject(&mut tx, &identity.issuer, &identity.subject).await?;
    if found.is_some_and(|(_, user_id)| user_id != user.id) {
        return Err(Code::ConnectionTaken.into());
    }
    Ok(PendingConnection::new(provider, identity, &user))
}

/// Ends the sessions of a user who was signed out by a provider. The provider's logout token is valid only
/// once.
///
/// # Errors
/// `provider_not_found` if the provider may not sign users out; `sign_on_failed` if the token isn't valid;
/// `provider_unavailable`.
pub async fn log_out(
    accounts: &Accounts,
    trail: &Trail,
    provider_id: &str,
    token: &str,
) -> Result<(), Error> {
    let provider = accounts.providers.get(provider_id)?;
    let logout = provider.read_logout(token).await?;
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    let value_hash = sha256(format!("{}\n{}", logout.issuer, logout.token_id).as_bytes());
    if !store::connections::use_once(&mut tx, value_hash, now.plus_ms(USED_LOGOUT_MS)).await? {
        return Err(Code::SignOnFailed.into());
    }
    let found = store::connections::by_subject(&mut tx, &logout.issuer, &logout.subject).await?;
    if let Some((id, user_id)) = found {
        store::users::lock(&mut tx, user_id).await?;
        let ended = store::sessions::end_of_connection(&mut tx, id, None, now).await?;
        sessions::record(accounts, &mut tx, trail, (Action::SessionEnded, &ended), now).await?;
    }
    Ok(tx.commit().await?)
}
