//! Scopes of API keys. The right to an action depends on the key's project and its creator.

use crate::Keys;
use crate::rules::api_keys::Bounds;
use crate::store::api_keys::standings::ApiKeyAndSecret;
use crate::store::api_keys::{ApiKey, LiveKey};
use db::Tx;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use tenants::access::{
    Caller, FoundProject, KeyKind, KeyLimits, LockedProject, LockedTx, ProjectPath, ProjectScope, Roles,
    roles,
};
use tenants::roles::{OrganizationRole, ProjectAction};
use trail::Trail;

/// An action on an API key. Every action needs the right to manage the project's keys.
///
/// A change or a rotation also needs at least the current roles of the key's creator, because the key acts
/// with those roles. Deleting the key or ending its previous secret doesn't, so that every caller who manages
/// keys can disable one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyAction {
    /// Reads the key.
    Read,
    /// Changes its name, permissions or restrictions.
    Update,
    /// Replaces its secret.
    Rotate,
    /// Ends its previous secret.
    EndRotation,
    /// Deletes it.
    Delete,
}

/// The right to an action on an API key.
#[derive(Clone, Debug)]
pub struct KeyScope {
    project: ProjectScope,
    api_key: ApiKey,
    action: KeyAction,
    /// The caller's roles, as read by `admit`.
    roles: Roles,
}

impl KeyScope {
    /// Admits a caller who manages the project's keys and, for a change or a rotation, has the roles of the
    /// key's creator.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        keys: &Keys,
        path: ProjectPath,
        api_key_id: Option<ApiKeyId>,
        caller: Caller,
        action: KeyAction,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let mut tx = keys.db.read().await?;
            let mut found = FoundProject::<ApiKey>::find(&mut tx, path, api_key_id, caller).await?;
            let api_key = found.found.take().ok_or(Code::ApiKeyNotFound)?;
            let roles = found.roles();
            let project = found.admit(ProjectAction::ManageApiKeys, KeyKind::Unrestricted, trail)?;
            action.check(&mut tx, &project, roles, &api_key).await?;
            Ok(Self { project, api_key, action, roles })
        })
    }

    /// Returns `true` if the caller may also perform this action on the key.
    ///
    /// # Errors
    /// The database fails.
    pub async fn may(&self, keys: &Keys, action: KeyAction) -> Result<bool, Error> {
        let mut tx = keys.db.read().await?;
        match action.check(&mut tx, &self.project, self.roles, &self.api_key).await {
            Ok(()) => Ok(true),
            Err(error) if error.code.status().as_u16() == 403 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the key as read by `admit`.
    pub fn api_key(&self) -> &ApiKey {
        &self.api_key
    }

    /// Returns the key as read by `admit`.
    pub fn into_api_key(self) -> ApiKey {
        self.api_key
    }
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id()
    }
    pub fn api_key_id(&self) -> ApiKeyId {
        self.api_key.id
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.project.organization_id()
    }
    /// Returns the caller's data for the audit trail.
    pub fn trail(&self) -> &Trail {
        self.project.trail()
    }

    /// Takes the organization's lock and repeats the check of `admit`. Removing the project or the
    /// organization takes the same lock, so that deadlocks on the rows of keys are impossible.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck<'t>(&self, tx: &'t mut Tx) -> Result<(LockedTx<'t>, ApiKey), Error> {
        let (mut tx, held) =
            self.project.lock_and_recheck_with::<ApiKey>(tx, Some(self.api_key_id())).await?;
        let roles = roles_of(&held);
        let key = held.found.ok_or(Code::ApiKeyNotFound)?;
        self.action.check(&mut tx, &self.project, roles, &key).await?;
        Ok((tx, key))
    }

    /// Locks and checks like [`Self::lock_and_recheck`], and also returns the sealed copy of the key's
    /// current secret, if one was kept.
    ///
    /// # Errors
    /// The errors of [`KeyScope::lock_and_recheck`].
    pub async fn lock_and_recheck_with_secret<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(LockedTx<'t>, Rotation), Error> {
        let (mut tx, held) =
            self.project.lock_and_recheck_with::<ApiKeyAndSecret>(tx, Some(self.api_key_id())).await?;
        let roles = roles_of(&held);
        let found = held.found.ok_or(Code::ApiKeyNotFound)?;
        self.action.check(&mut tx, &self.project, roles, &found.key).await?;
        let (creator, holder) = (found.key.created_by, self.project.caller().holder());
        let is_owner = roles.organization_role == Some(OrganizationRole::Owner);
        let rotation = Rotation {
            found,
            rotated_by: Some(holder).filter(|holder| *holder != creator),
            may_see_previous: holder == creator || is_owner,
        };
        Ok((tx, rotation))
    }

    /// Refuses a calling API key that would give this key weaker restrictions or a later expiry than its own.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn check_key_bounds(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.project.check_key_bounds(bounds)
    }
}

/// Returns the caller's roles, read under the lock.
fn roles_of<T>(held: &LockedProject<T>) -> Roles {
    Roles { organization_role: held.organization_role, role: Some(held.grantor.role) }
}

/// A key to rotate.
pub struct Rotation {
    /// The key, with the sealed copy of its current secret.
    pub found: ApiKeyAndSecret,
    /// The user who rotates the key, if not its creator. The new secret is also limited to this user's roles.
    pub rotated_by: Option<UserId>,
    /// `true` if the user may see the current secret. The key's creator and the organization's owners may.
    pub may_see_previous: bool,
}

impl KeyAction {
    /// Refuses an action on the calling key itself, and on a key whose creator has higher roles than the
    /// caller. A calling key also can't rotate a key with weaker restrictions than its own.
    async fn check(
        self,
        tx: &mut Tx,
        project: &ProjectScope,
        caller_roles: Roles,
        key: &ApiKey,
    ) -> Result<(), Error> {
        if self == Self::Read {
            return Ok(());
        }
        let caller = project.caller();
        if caller.key.as_ref().is_some_and(|own| own.id == key.id) {
            let message = "An API key can't manage itself. Use an access token or another key.";
            return Err(Error::new(Code::ManagementNotAllowed).message(message));
        }
        if matches!(self, Self::EndRotation | Self::Delete) {
            return Ok(());
        }
        if !(caller.rotated_by.is_none() && caller.user_id == key.created_by) {
            let (organization_id, project_id) = (project.organization_id(), Some(project.project_id()));
            let creator_roles = roles(tx, organization_id, project_id, key.created_by).await?;
            if !caller_roles.cover(creator_roles) {
                let message = "The creator of this API key has a higher role than you, and the key acts with it. Ask \
                               the creator or an owner, or delete the key.";
                return Err(Error::new(Code::InsufficientRole).message(message));
            }
        }
        if self == Self::Rotate { caller.check_key_bounds(&key.bounds()) } else { Ok(()) }
    }
}

impl ApiKey {
    /// Returns the restrictions to compare with those of a calling key.
    pub fn bounds(&self) -> Bounds<'_> {
        self.restrictions.bounds(self.expires_at)
    }
}

impl LiveKey {
    /// Returns the key as a caller of management endpoints. `may_manage` is `true` if the configuration
    /// allows keys to make this request.
    ///
    /// A key that it creates can't outlive the calling secret, so that a secret that ends soon after a
    /// rotation can't leave a longer-lived key behind.
    pub fn caller(&self, may_manage: bool) -> Caller {
        let ends = [self.expires_at, self.secret_ends_at];
        let key = KeyLimits {
            id: self.id,
            organization_id: self.organization_id,
            project_id: self.project_id,
            is_unrestricted: self.permissions.is_all() && self.models.is_none() && self.max_tokens.is_none(),
            may_manage,
            allowed_ips: self.allowed_ips.clone(),
            rate_limit: self.rate_limit.map(i64::from),
            expires_at: ends.into_iter().flatten().min(),
        };
        let (user_id, rotated_by) = (self.created_by, self.rotated_by);
        Caller { user_id, rotated_by, key: Some(key), is_fresh: false, signed_in_by: None }
    }
}
