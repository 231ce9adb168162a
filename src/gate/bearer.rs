//! The bearer of a request: a person with an access token, or an API key.

use std::sync::Arc;

use crate::app::App;
use accounts::jwt::TokenKind;
use cluster::epochs::Stamp;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{SessionId, UserId};
use kernel::limiter;
use kernel::limiter::Subject;
use keys::settings::Management;
use keys::store::api_keys::LiveKey;
use tenants::access::Caller;

use super::misses::missed;
use super::{Call, rate_limited};

/// The holder of a credential that is good.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    Person(UserId),
    Key(Arc<LiveKey>),
}

impl Holder {
    /// The API key.
    pub(super) fn key(&self) -> Option<&LiveKey> {
        match self {
            Self::Person(_) => None,
            Self::Key(key) => Some(key),
        }
    }
}

/// An access token or an API key, its expiry, addresses and rate checked.
pub(super) async fn holder(app: &App, call: &mut Call) -> Result<Holder, Error> {
    let stamp = app.feed.epochs.stamp();
    let bearer = call.bearer()?;
    if !bearer.starts_with(&app.config.api_keys.prefix) {
        // Boxed: an API key's call, the common one, is not made to carry what this needs.
        let (user_id, session_id) = Box::pin(live_session(app, bearer, TokenKind::Access)).await?;
        call.who = user_id.to_string();
        call.credential = Credential::session(session_id, user_id, TokenKind::Access, stamp);
        return Ok(Holder::Person(user_id));
    }
    let now = app.clock.now();
    let key = app.keys.authenticate(bearer, now).await.map_err(|error| missed(app, call, error))?;
    call.who = key.id.to_string();
    call.credential = Credential(Kind::Key { key: Arc::clone(&key), stamp });
    key.admit_address(call.address)?;
    app.keys.admit_rate(&key, now).await?;
    Ok(Holder::Key(key))
}

/// The caller of a management endpoint: limited as such, all keys of one person together with the person.
pub(super) async fn manager(app: &App, call: &mut Call) -> Result<Caller, Error> {
    let caller = match holder(app, call).await? {
        Holder::Person(user_id) => Caller::person(user_id),
        Holder::Key(key) => key.caller(match app.config.api_keys.management {
            Management::Full => true,
            Management::Read => call.is_read(),
            Management::None => false,
        }),
    };
    let limits = &app.config.limits;
    if limits.enabled {
        let (scope, per_minute) = if call.is_read() {
            ("read", limits.reads_per_minute)
        } else {
            ("write", limits.writes_per_minute)
        };
        let key = limiter::key_for(scope, Subject::Id(caller.user_id.as_u128()));
        app.limiter.check(key, per_minute, app.clock.now()).map_err(rate_limited)?;
    }
    Ok(caller)
}

/// The person and the session of a token of this kind.
///
/// # Errors
/// 401 unless the token is good and its session is live.
pub(super) async fn live_session(
    app: &App,
    token: &str,
    kind: TokenKind,
) -> Result<(UserId, SessionId), Error> {
    let session = app.accounts.live_session(token, kind).await?;
    Ok((session.user_id, session.id))
}

/// The session or the API key that the gate let in, kept until the body has been read.
#[derive(Clone, Debug, Default)]
pub struct Credential(Kind);

#[derive(Clone, Debug, Default)]
enum Kind {
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
    /// A session whose token was checked; `stamp` was taken before.
    pub(super) fn session(session_id: SessionId, user_id: UserId, token: TokenKind, stamp: Stamp) -> Self {
        Self(Kind::Session { session_id, user_id, token, stamp })
    }
}

/// Checks that the session or the key of this call is still good: a body may take its time, and what was revoked meanwhile
/// must not finish what it began. Asks memory only, unless something has changed since the gate.
///
/// # Errors
/// 401, as at the gate.
pub async fn check_again(app: &App, call: &Call) -> Result<(), Error> {
    if matches!(call.credential.0, Kind::None) {
        return Ok(());
    }
    let now = app.clock.now();
    let unchanged = match &call.credential.0 {
        Kind::None => true,
        Kind::Session { session_id, user_id, stamp, .. } => {
            app.feed.epochs.holds_session(*stamp, *session_id, *user_id)
        }
        Kind::Key { key, stamp } => {
            app.feed.epochs.holds_key(*stamp, key.id, key.project_id, key.organization_id)
                && key.is_alive(now)
        }
    };
    // Where memory can't be trusted, a read is not worth a second query: it has nothing to finish.
    if unchanged && (call.is_read() || app.feed.is_trusted(now)) {
        return Ok(());
    }
    Box::pin(authenticate_again(app, call, now)).await
}

async fn authenticate_again(app: &App, call: &Call, now: Time) -> Result<(), Error> {
    match &call.credential.0 {
        Kind::None => {}
        Kind::Session { token, .. } => {
            live_session(app, call.bearer()?, *token).await?;
        }
        Kind::Key { .. } => {
            app.keys.authenticate(call.bearer()?, now).await?;
        }
    }
    Ok(())
}
