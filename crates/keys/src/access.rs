//! Scopes of API keys: the right hangs on their project, and on who made the key.

use crate::Keys;
use crate::rules::api_keys::Bounds;
use crate::store::api_keys::standings::WithSecret;
use crate::store::api_keys::{ApiKey, LiveKey};
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use tenants::access::{
    Caller, FoundProject, Held, HeldTx, KeyKind, KeyLimits, Place, ProjectScope, Roles, roles,
};
use tenants::roles::{OrganizationRole, ProjectAction};
use trail::Trail;

/// An action on an API key. Each takes the right to manage the project's keys.
///
/// A change or a rotation also takes at least the current roles of the person who made the key, because the key acts with
/// those. An end takes no more: everybody who manages keys can stop one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Its reading.
    Read,
    /// Another name, other permissions or restrictions.
    Update,
    /// A new secret.
    Rotate,
    /// Its end.
    Delete,
}

/// The right to an action on an API key.
#[derive(Clone, Debug)]
pub struct KeyScope {
    project: ProjectScope,
    api_key: ApiKey,
    access: Key,
}

impl KeyScope {
    /// Lets in a caller who manages the project's keys and, for a change or a rotation, has the maker's roles.
    ///
    /// # Errors
    /// 404 and 403.
    pub async fn admit(
        keys: &Keys,
        place: Place,
        api_key_id: Option<ApiKeyId>,
        caller: Caller,
        access: Key,
        trail: Trail,
    ) -> Result<Self, Error> {
        let mut tx = keys.db.read().await?;
        let mut found = FoundProject::<ApiKey>::find(&mut tx, place, api_key_id, caller).await?;
        let api_key = found.found.take().ok_or(Code::ApiKeyNotFound)?;
        let roles = found.roles();
        let project = found.admit(ProjectAction::ManageApiKeys, KeyKind::Whole, trail)?;
        access.check(&mut tx, &project, roles, &api_key).await?;
        Ok(Self { project, api_key, access })
    }

    /// The key as it was at the gate.
    pub fn into_api_key(self) -> ApiKey {
        self.api_key
    }
    /// The project that the key belongs to.
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id()
    }
    /// The key's id.
    pub fn api_key_id(&self) -> ApiKeyId {
        self.api_key.id
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.project.organization_id()
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        self.project.trail()
    }

    /// Takes the organization's lock and asks again what the gate asked. Whoever removes the project or the organization
    /// holds it too, so that nobody waits in a circle for the rows of keys.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, ApiKey), Error> {
        let (mut tx, held) = self.project.hold_with::<ApiKey>(tx, Some(self.api_key_id())).await?;
        let roles = roles_of(&held);
        let key = held.found.ok_or(Code::ApiKeyNotFound)?;
        self.access.check(&mut tx, &self.project, roles, &key).await?;
        Ok((tx, key))
    }

    /// The same, with what was kept of the key's current secret.
    ///
    /// # Errors
    /// As of [`KeyScope::hold`].
    pub async fn hold_with_secret<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, Rotation), Error> {
        let (mut tx, held) = self.project.hold_with::<WithSecret>(tx, Some(self.api_key_id())).await?;
        let roles = roles_of(&held);
        let found = held.found.ok_or(Code::ApiKeyNotFound)?;
        self.access.check(&mut tx, &self.project, roles, &found.key).await?;
        let (maker, holder) = (found.key.created_by, self.project.caller().holder());
        let is_owner = roles.organization_role == Some(OrganizationRole::Owner);
        let rotation = Rotation {
            found,
            rotated_by: Some(holder).filter(|holder| *holder != maker),
            may_see_previous: holder == maker || is_owner,
        };
        Ok((tx, rotation))
    }

    /// Refuses an API key that would leave this one with wider restrictions or a longer life than its own.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn may_hand_out(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.project.may_hand_out(bounds)
    }
}

/// The caller's roles while the lock is held.
fn roles_of<T>(held: &Held<T>) -> Roles {
    Roles { organization_role: held.organization_role, role: Some(held.grantor.role) }
}

/// A key that gets a new secret.
pub struct Rotation {
    /// The key, with what was kept of its current secret.
    pub found: WithSecret,
    /// The person who rotates it, where that isn't its maker: the new secret is bound to their roles as well.
    pub rotated_by: Option<UserId>,
    /// Whether they may be told the current secret: its maker and the organization's owners.
    pub may_see_previous: bool,
}

impl Key {
    /// Refuses a key that is the caller itself, one whose maker has higher roles than the caller, and to a calling key the
    /// secret of one with wider restrictions than its own.
    async fn check(
        self,
        tx: &mut Tx,
        project: &ProjectScope,
        callers: Roles,
        key: &ApiKey,
    ) -> Result<(), Error> {
        if self == Self::Read {
            return Ok(());
        }
        let caller = project.caller();
        if caller.key.as_ref().is_some_and(|own| own.id == key.id) {
            let message =
                "An API key can't change, rotate or delete itself: use an access token or another key.";
            return Err(Error::new(Code::ManagementNotAllowed).message(message));
        }
        if self == Self::Delete {
            return Ok(());
        }
        if !(caller.rotated_by.is_none() && caller.user_id == key.created_by) {
            let (organization_id, project_id) = (project.organization_id(), Some(project.project_id()));
            let maker = roles(tx, organization_id, project_id, key.created_by).await?;
            if !callers.reach(maker) {
                let message = "The person who made this API key has a higher role than you, and the key acts with it: \
                               ask them or an owner, or delete the key.";
                return Err(Error::new(Code::InsufficientRole).message(message));
            }
        }
        if self == Self::Rotate { caller.may_hand_out(&key.bounds()) } else { Ok(()) }
    }
}

impl ApiKey {
    /// The restrictions that a calling key's are held against.
    pub fn bounds(&self) -> Bounds<'_> {
        Bounds {
            allowed_ips: self.allowed_ips.as_ref(),
            rate_limit: self.rate_limit,
            expires_at: self.expires_at,
        }
    }
}

impl LiveKey {
    /// Returns the key as a caller of management endpoints; `may_manage`: the configuration lets keys make this request.
    ///
    /// A key handed out by it lasts no longer than the secret either: a secret that is about to end after a rotation leaves
    /// nothing behind that lasts longer.
    pub fn caller(&self, may_manage: bool) -> Caller {
        let ends = [self.expires_at, self.secret_ends_at];
        let key = KeyLimits {
            id: self.id,
            organization_id: self.organization_id,
            project_id: self.project_id,
            is_whole: self.permissions.is_all() && self.models.is_none() && self.max_tokens.is_none(),
            may_manage,
            allowed_ips: self.allowed_ips.clone(),
            rate_limit: self.rate_limit.map(i64::from),
            expires_at: ends.into_iter().flatten().min(),
        };
        Caller { user_id: self.created_by, rotated_by: self.rotated_by, key: Some(key) }
    }
}
