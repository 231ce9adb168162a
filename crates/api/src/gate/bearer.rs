//! Authentication by bearer token: a user's access token, or an API key. A call that was already
//! authenticated by its cookie (`browser.rs`) needs no bearer token.

use std::sync::Arc;

use crate::Api;
use accounts::Session;
use accounts::jwt::TokenKind;
use cluster::epochs::Stamp;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{SessionId, UserId};
use kernel::limiter::{self, Subject};
use kernel::shares::Holder;
use keys::LiveKey;
use keys::settings::Management;
use tenants::access::{Caller, SignedInBy};

use super::bad_credentials::count_bad_credential;
use super::session_cookie::SessionCookie;
use super::{Call, rate_limited};

/// The error codes of [`authenticate`].
pub(super) const CREDENTIAL_CODES: &[Code] = &[
    Code::MissingCredentials,
    Code::InvalidAccessToken,
    Code::InvalidApiKey,
    Code::ApiKeyExpired,
    Code::IpNotAllowed,
    Code::RateLimited,
    Code::SecondFactorEnrolmentRequired,
];

/// The owner of a valid credential.
#[derive(Clone, Debug)]
pub(super) enum Principal {
    User(UserId),
    Key(Arc<LiveKey>),
}

impl Principal {
    /// Returns the API key; `None` for a user.
    pub(super) fn key(&self) -> Option<&LiveKey> {
        match self {
            Self::User(_) => None,
            Self::Key(key) => Some(key),
        }
    }
}

/// Authenticates an access token or an API key. A key's expiry, allowed addresses and rate are checked.
pub(super) async fn authenticate(api: &Api, call: &mut Call) -> Result<Principal, Error> {
    let principal = authenticate_unmetered(api, call).await?;
    if let Principal::Key(key) = &principal {
        api.keys.admit_rate(key, api.clock.now()).await?;
    }
    Ok(principal)
}

/// Authenticates like [`authenticate`], without counting the key's rate.
pub(super) async fn authenticate_unmetered(api: &Api, call: &mut Call) -> Result<Principal, Error> {
    if let Some(session) = call.credential.browser_session() {
        check_second_factor(api, session.user_id).await?;
        return Ok(Principal::User(session.user_id));
    }
    let stamp = api.feed.epochs.stamp();
    let bearer = call.bearer()?;
    if !bearer.starts_with(&api.keys.settings.prefix) {
        let (user_id, session_id) = live_session(api, bearer, TokenKind::Access).await?;
        call.caller = user_id.to_string();
        call.credential = Credential::session(session_id, user_id, TokenKind::Access, stamp);
        check_second_factor(api, user_id).await?;
        return Ok(Principal::User(user_id));
    }
    let now = api.clock.now();
    let key =
        api.keys.authenticate(bearer, now).await.map_err(|error| count_bad_credential(api, call, error))?;
    call.caller = key.id.to_string();
    call.credential = Credential(CredentialKind::Key { key: Arc::clone(&key), stamp });
    key.admit_address(call.address)?;
    Ok(Principal::Key(key))
}

/// Authenticates the caller of a management endpoint and counts its rate. All keys of a user share the user's
/// rate.
pub(super) fn authenticate_manager<'a>(
    api: &'a Api,
    call: &'a mut Call,
) -> BoxFuture<'a, Result<Caller, Error>> {
    Box::pin(async move {
        let caller = match authenticate(api, call).await? {
            // Only changes require that the user has recently confirmed their identity.
            Principal::User(user_id) => {
                let session = call.credential.any_session();
                let is_fresh = match session.filter(|_| !call.is_read()) {
                    Some(session) => api.accounts.is_fresh(session).await?,
                    None => false,
                };
                let connection_id = match session {
                    Some(session) => api.accounts.connection_of(session).await?,
                    None => None,
                };
                let providers = Arc::clone(&api.accounts.providers);
                let caller = Caller::person(user_id).with_freshness(is_fresh);
                caller.with_sign_in(SignedInBy { connection_id, providers })
            }
            Principal::Key(key) => {
                let people = [Some(key.created_by), key.rotated_by];
                if api.accounts.is_any_disabled(people).await? {
                    let message =
                        "The account of this API key's creator is disabled, so the key can only call models.";
                    return Err(Error::new(Code::AccountDisabled).message(message));
                }
                key.caller(match api.keys.settings.management {
                    Management::Full => true,
                    Management::Read => call.is_read(),
                    Management::None => false,
                })
            }
        };
        count_management(api, call, caller.user_id)?;
        Ok(caller)
    })
}

/// Refuses a user without a second factor if the server requires one for everyone. They can still access
/// their own account, through other accesses.
async fn check_second_factor(api: &Api, user_id: UserId) -> Result<(), Error> {
    if api.accounts.settings.sign_in.asks_everyone() {
        Box::pin(api.accounts.require_second_factor(user_id)).await?;
    }
    Ok(())
}

/// Counts a management call of a user, made with an access token or with one of their keys.
pub(super) fn count_management(api: &Api, call: &Call, user_id: UserId) -> Result<(), Error> {
    let limits = &api.limits;
    if limits.enabled {
        let (scope, per_minute) = if call.is_read() {
            ("read", limits.reads_per_minute)
        } else {
            ("write", limits.writes_per_minute)
        };
        let key = limiter::key_for(scope, Subject::Id(user_id.as_u128()));
        api.limiter.check(key, per_minute, api.clock.now()).map_err(rate_limited)?;
    }
    Ok(())
}

/// Returns the user and the session of a token of this kind.
///
/// # Errors
/// 401 unless the token is valid and its session is live.
pub(super) async fn live_session(
    api: &Api,
    token: &str,
    kind: TokenKind,
) -> Result<(UserId, SessionId), Error> {
    let session = api.accounts.live_session(token, kind).await?;
    Ok((session.user_id, session.id))
}

/// The session or API key of an admitted call, kept until the body has been read.
#[derive(Clone, Debug, Default)]
pub struct Credential(CredentialKind);

#[derive(Clone, Debug, Default)]
enum CredentialKind {
    /// A public route, or the service token.
    #[default]
    None,
    Session {
        session_id: SessionId,
        user_id: UserId,
        token: TokenKind,
        stamp: Stamp,
    },
    Key {
        key: Arc<LiveKey>,
        stamp: Stamp,
    },
}

impl Credential {
    /// Returns the credential of a checked token; `stamp` was taken before the check.
    pub(super) fn session(session_id: SessionId, user_id: UserId, token: TokenKind, stamp: Stamp) -> Self {
        Self(CredentialKind::Session { session_id, user_id, token, stamp })
    }

    /// Returns the session of the cookie; `None` if the call wasn't authenticated by a cookie.
    pub fn browser_session(&self) -> Option<Session> {
        match self.0 {
            CredentialKind::Session { session_id, user_id, token: TokenKind::Browser, .. } => {
                Some(Session { id: session_id, user_id })
            }
            _ => None,
        }
    }
}

impl Credential {
    /// Returns the holder that the call counts against in shared limits: the API key in its organization, or
    /// the session of its user. `None` without a credential.
    pub fn holder(&self) -> Option<Holder> {
        let (group, member) = match &self.0 {
            CredentialKind::None => return None,
            CredentialKind::Session { session_id, user_id, .. } => (user_id.as_u128(), session_id.as_u128()),
            CredentialKind::Key { key, .. } => (key.organization_id.as_u128(), key.id.as_u128()),
        };
        Some(Holder::Member { group, member })
    }

    /// Returns the API key; `None` for other credentials.
    pub(super) fn key(&self) -> Option<&Arc<LiveKey>> {
        match &self.0 {
            CredentialKind::Key { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns the id of the API key or of the user.
    pub(super) fn caller(&self) -> Option<u128> {
        match &self.0 {
            CredentialKind::None => None,
            CredentialKind::Session { user_id, .. } => Some(user_id.as_u128()),
            CredentialKind::Key { key, .. } => Some(key.id.as_u128()),
        }
    }

    /// Returns the session of the call; `None` if neither a token nor a cookie of a session authenticated it.
    pub(super) fn any_session(&self) -> Option<Session> {
        match self.0 {
            CredentialKind::Session { session_id, user_id, .. } => Some(Session { id: session_id, user_id }),
            _ => None,
        }
    }
}

/// Checks that the session or key of this call is still valid. A body may take a long time to arrive, and a
/// request whose credential was revoked in the meantime must not continue. Reads only memory, unless
/// something has changed since the gate admitted the call.
///
/// # Errors
/// 401, as at the gate.
pub async fn check_again(api: &Api, call: &mut Call) -> Result<(), Error> {
    if matches!(call.credential.0, CredentialKind::None) {
        return Ok(());
    }
    let now = api.clock.now();
    let is_unchanged = match &call.credential.0 {
        CredentialKind::None => true,
        CredentialKind::Session { session_id, user_id, stamp, .. } => {
            api.feed.epochs.holds_session(*stamp, *session_id, *user_id)
        }
        CredentialKind::Key { key, stamp } => {
            api.feed.epochs.holds_key(*stamp, key.id, key.project_id, key.organization_id)
                && key.is_alive(now)
        }
    };
    // A read isn't authenticated again even if the data in memory may be outdated, because it changes
    // nothing.
    if is_unchanged && (call.is_read() || api.feed.is_trusted(now)) {
        return Ok(());
    }
    authenticate_again(api, call, now).await
}

fn authenticate_again<'a>(api: &'a Api, call: &'a mut Call, now: Time) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        match &call.credential.0 {
            CredentialKind::None => {}
            CredentialKind::Session { token: TokenKind::Browser, .. } => {
                let cookie = SessionCookie::new(&api.public_url).read(&call.headers);
                live_session(api, cookie.ok_or(Code::MissingCredentials)?, TokenKind::Browser).await?;
            }
            CredentialKind::Session { token, .. } => {
                live_session(api, call.bearer()?, *token).await?;
            }
            CredentialKind::Key { .. } => {
                api.keys.authenticate(call.bearer()?, now).await?;
            }
        }
        Ok(())
    })
}
