//! The caller of a request: a person with an access token, or an API key.

use std::sync::Arc;

use crate::app::App;
use crate::clock::Time;
use crate::config::Management;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, ProjectId, SessionId, UserId};
use crate::live::epochs::Stamp;
use crate::live::limiter::{self, Subject};
use crate::roles::OrganizationRole;
use crate::rules::api_keys::Bounds;
use crate::secrets::jwt::TokenKind;
use crate::store;
use crate::store::api_keys::LiveKey;

use super::misses::missed;
use super::projects::{self, Roles};
use super::{Call, live_session, rate_limited};

/// A person with an access token, or an API key that acts for people.
///
/// A key acts with the roles of the person who made it. A secret that somebody else made by a rotation acts with the lower
/// of both people's roles, so that a rotation hands nobody a role that they don't have.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    Person(UserId),
    Key(Arc<LiveKey>),
}

impl Caller {
    /// The person whose roles count.
    pub(super) fn user_id(&self) -> UserId {
        match self {
            Self::Person(user_id) => *user_id,
            Self::Key(key) => key.created_by,
        }
    }

    /// The person who holds the credential: of a key, whoever rotated it last, else its maker.
    pub(super) fn holder(&self) -> UserId {
        self.rotated_by().unwrap_or_else(|| self.user_id())
    }

    /// The person who made this secret of the key, where that isn't the key's maker: their roles count as well.
    fn rotated_by(&self) -> Option<UserId> {
        match self {
            Self::Person(_) => None,
            Self::Key(key) => key.rotated_by,
        }
    }

    /// Whether the roles of [`Caller::user_id`] are all that counts.
    pub(super) fn is_one_person(&self) -> bool {
        self.rotated_by().is_none()
    }

    /// The one project that the caller is confined to, when it is an API key.
    pub(super) fn only_project(&self) -> Option<ProjectId> {
        match self {
            Self::Person(_) => None,
            Self::Key(key) => Some(key.project_id),
        }
    }

    /// The API key that calls.
    pub(super) fn key(&self) -> Option<&LiveKey> {
        match self {
            Self::Person(_) => None,
            Self::Key(key) => Some(key),
        }
    }

    /// The role in an organization that this caller has, from the role that [`Caller::user_id`] has there.
    pub(super) async fn organization_role(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        role: Option<OrganizationRole>,
    ) -> Result<Option<OrganizationRole>, Error> {
        let Some(user_id) = self.rotated_by() else { return Ok(role) };
        let other = store::organization_members::role(tx, organization_id, user_id).await?;
        Ok(role.min(other.flatten()))
    }

    /// The roles that this caller has in a project, from those that [`Caller::user_id`] has there.
    pub(super) async fn project_roles(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        project_id: Option<ProjectId>,
        roles: Roles,
    ) -> Result<Roles, Error> {
        let Some(user_id) = self.rotated_by() else { return Ok(roles) };
        Ok(roles.lower(projects::roles(tx, organization_id, project_id, user_id).await?))
    }

    /// Refuses a key outside the one organization, and the one project in it, that it belongs to.
    pub(super) fn confine(
        &self,
        organization_id: OrganizationId,
        project_id: Option<ProjectId>,
    ) -> Result<(), Error> {
        match self {
            Self::Key(key)
                if key.organization_id != organization_id
                    || project_id.is_some_and(|id| id != key.project_id) =>
            {
                Err(Code::OutsideApiKeyScope.into())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a key that was narrowed to some model calls, and what the configuration `api_keys.management` keeps from
    /// keys.
    pub(super) fn may_manage(&self, app: &App, call: &Call) -> Result<(), Error> {
        if let Self::Key(key) = self
            && !key.is_whole()
        {
            return Err(Code::ManagementNotAllowed.into());
        }
        self.may_call(app, call)
    }

    /// As [`Caller::may_manage`], for what keys that were narrowed may do as well.
    pub(super) fn may_call(&self, app: &App, call: &Call) -> Result<(), Error> {
        match (self, app.config.api_keys.management) {
            (Self::Person(_), _) | (Self::Key(_), Management::Full) => Ok(()),
            (Self::Key(_), Management::Read) if call.is_read() => Ok(()),
            (Self::Key(_), _) => Err(Code::ApiKeyManagementDisabled.into()),
        }
    }

    /// Refuses an API key that would make, change or rotate a key with wider restrictions or a longer life than its own.
    pub(super) fn may_hand_out(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.key().map_or(Ok(()), |key| bounds.check_within(&key.bounds()))
    }
}

impl LiveKey {
    /// Whether the key has every permission and is limited neither to models nor in tokens: only such a key manages.
    fn is_whole(&self) -> bool {
        self.permissions.is_all() && self.models.is_none() && self.max_tokens.is_none()
    }

    /// The restrictions that a key made or changed by this one must keep to. The secret's own end counts as well: a secret that
    /// is about to end after a rotation leaves nothing behind that lasts longer.
    fn bounds(&self) -> Bounds<'_> {
        let ends = [self.expires_at, self.secret_ends_at];
        Bounds {
            allowed_ips: self.allowed_ips.as_ref(),
            rate_limit: self.rate_limit.map(i64::from),
            expires_at: ends.into_iter().flatten().min(),
        }
    }
}

/// An access token or an API key, its expiry, addresses and rate checked.
pub(super) async fn caller(app: &App, call: &mut Call) -> Result<Caller, Error> {
    let stamp = app.feed.epochs.stamp();
    let bearer = call.bearer()?;
    if !app.keys.is_key(bearer) {
        // Boxed: an API key's call, the common one, is not made to carry what this needs.
        let (user_id, session_id) = Box::pin(live_session(app, bearer, TokenKind::Access)).await?;
        call.who = user_id.to_string();
        call.credential = Credential::session(session_id, user_id, TokenKind::Access, stamp);
        return Ok(Caller::Person(user_id));
    }
    let now = app.clock.now();
    let key = app.keys.authenticate(bearer, now).await.map_err(|error| missed(app, call, error))?;
    call.who = key.id.to_string();
    call.credential = Credential(Kind::Key { key: Arc::clone(&key), stamp });
    key.admit_address(call.address)?;
    app.keys.admit_rate(&key, now).await?;
    Ok(Caller::Key(key))
}

/// A caller of a management endpoint: limited as such, all keys of one person together with the person.
pub(super) async fn manager(app: &App, call: &mut Call) -> Result<Caller, Error> {
    let caller = caller(app, call).await?;
    let limits = &app.config.limits;
    if limits.enabled {
        let (scope, per_minute) = if call.is_read() {
            ("read", limits.reads_per_minute)
        } else {
            ("write", limits.writes_per_minute)
        };
        let key = limiter::key_for(scope, Subject::Id(caller.user_id().as_u128()));
        app.limiter.check(key, per_minute, app.clock.now()).map_err(rate_limited)?;
    }
    Ok(caller)
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
