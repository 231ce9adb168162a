//! Scopes of projects. The tables in [`crate::roles`] decide which actions a role allows.

use crate::roles::{OrganizationRole, ProjectAction, ProjectRole};
use crate::rules::key_bounds::Bounds;
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{OrganizationId, ProjectId, UserId};

use crate::Tenants;
use crate::store::standings::{self, Extra, ProjectAndOrganization};

use super::project_roles::Roles;
use super::{Caller, KeyKind, LockedTx};
use trail::Trail;

/// The organization and the project in a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProjectPath {
    pub organization_id: OrganizationId,
    /// `None` if the text in the URL isn't a valid project id.
    pub project_id: Option<ProjectId>,
}

/// The permission for an action on a project.
#[derive(Clone, Debug)]
pub struct ProjectScope {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    action: ProjectAction,
    trail: Trail,
}

impl ProjectScope {
    /// Admits a caller whose role allows the action. API keys must be of this kind.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        tenants: &Tenants,
        path: ProjectPath,
        caller: Caller,
        (action, kind): (ProjectAction, KeyKind),
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let mut tx = tenants.db().read().await?;
            FoundProject::<()>::find(&mut tx, path, (), caller).await?.admit(action, kind, trail)
        })
    }

    /// Returns the caller's data for the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Returns the user whose roles apply; for an API key, its creator.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    pub fn project_id(&self) -> ProjectId {
        self.project_id
    }
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
    /// Returns the user who created the calling key's secret by a rotation, if they aren't the key's creator.
    /// A new key is bound to both users.
    pub fn rotated_by(&self) -> Option<UserId> {
        self.caller.rotated_by
    }

    /// Locks the organization and repeats the check of `admit`, because its result may have changed.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(LockedTx<'t>, LockedProject<ProjectAndOrganization>), Error> {
        let (tx, held) = self.lock_and_recheck_with::<ProjectAndOrganization>(tx, ()).await?;
        let LockedProject { organization_role, grantor, found } = held;
        Ok((tx, LockedProject { organization_role, grantor, found: found.ok_or(Code::ProjectNotFound)? }))
    }

    /// Does the same as [`Self::lock_and_recheck`], but reads another row instead of the project. The row is
    /// `None` if it doesn't exist.
    ///
    /// This locks the organization and not the project, to avoid a deadlock. On PostgreSQL, a transaction
    /// that adds an API key also locks the project's row. If this function's transaction locked that row
    /// first, and then needed a stronger lock for a new name or a removal, each could wait for the other.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck_with<'t, T: Extra>(
        &self,
        tx: &'t mut Tx,
        id: T::Id,
    ) -> Result<(LockedTx<'t>, LockedProject<Option<T>>), Error> {
        let (roles, found) = self.lock::<T>(tx, id).await?;
        let role = roles.role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?;
        let grantor = Grantor { role, is_key: self.caller.key.is_some() };
        Ok((LockedTx::new(tx), LockedProject { organization_role: roles.organization_role, grantor, found }))
    }

    /// Locks the organization, and reads the caller's roles and another row of the project.
    pub(super) async fn lock<T: Extra>(&self, tx: &mut Tx, id: T::Id) -> Result<(Roles, Option<T>), Error> {
        store::organizations::lock(tx, self.organization_id).await?;
        self.find(tx, id).await
    }

    /// Reads the caller's roles, and another row of the project.
    pub(super) async fn find<T: Extra>(&self, tx: &mut Tx, id: T::Id) -> Result<(Roles, Option<T>), Error> {
        let (organization_id, project_id) = (self.organization_id, Some(self.project_id));
        let standing = standings::in_project(tx, organization_id, project_id, self.user_id(), id).await?;
        let requirements = standing.as_ref().map(|standing| standing.requirements).unwrap_or_default();
        let (roles, found) = Roles::from_standing(standing)?;
        self.caller.check_requirements(tx, organization_id, requirements).await?;
        Ok((self.caller.project_roles(tx, organization_id, project_id, roles).await?, found))
    }

    /// Checks that a key that the calling API key creates doesn't exceed the restrictions and the lifetime of
    /// the calling key.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn check_key_bounds(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.caller.check_key_bounds(bounds)
    }
}

/// The caller's roles in a project and a row, read under the organization's lock.
#[derive(Clone, Debug)]
pub struct LockedProject<T> {
    /// The caller's role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// The caller as a grantor of roles, with the effective role in the project.
    pub grantor: Grantor<ProjectRole>,
    /// The project, or the row that was read instead.
    pub found: T,
}

/// A project that exists, the caller's roles, and an extra row. This isn't a permission yet.
#[derive(Debug)]
pub struct FoundProject<T> {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    roles: Roles,
    /// The error if the caller doesn't meet the organization's requirements.
    meets_requirements: Result<(), Error>,
    /// The extra row, if it exists.
    pub found: Option<T>,
}

impl<T: Extra> FoundProject<T> {
    /// Finds the project, the caller's roles and the extra row.
    ///
    /// # Errors
    /// 404 if the organization or the project doesn't exist.
    pub async fn find(tx: &mut Tx, path: ProjectPath, id: T::Id, caller: Caller) -> Result<Self, Error> {
        let ProjectPath { organization_id, project_id } = path;
        let standing = standings::in_project(tx, organization_id, project_id, caller.user_id, id).await?;
        let requirements = standing.as_ref().map(|standing| standing.requirements).unwrap_or_default();
        let (roles, found) = Roles::from_standing(standing)?;
        let roles = caller.project_roles(tx, organization_id, project_id, roles).await?;
        let project_id = project_id.ok_or(Code::ProjectNotFound)?;
        // Only callers with a role in the project may learn the organization's requirements.
        let requirements = roles.role.map(|_| requirements).unwrap_or_default();
        let meets_requirements = caller.check_requirements(tx, organization_id, requirements).await;
        Ok(Self { caller, organization_id, project_id, roles, meets_requirements, found })
    }
}

impl<T> FoundProject<T> {
    /// Returns the caller's roles.
    pub fn roles(&self) -> Roles {
        self.roles
    }

    /// Returns `true` if this user is the caller. This is never the case for an API key, even if the user
    /// created it.
    pub(super) fn is_caller(&self, user_id: UserId) -> bool {
        self.caller.key.is_none() && self.caller.user_id == user_id
    }

    /// Admits a caller whose role allows the action. API keys must be of this kind.
    ///
    /// # Errors
    /// 403.
    pub fn admit(self, action: ProjectAction, kind: KeyKind, trail: Trail) -> Result<ProjectScope, Error> {
        self.admit_if(action, |role| role.allows(action), kind, trail)
    }

    /// Does the same as [`Self::admit`], with a different condition on the role.
    pub(super) fn admit_if(
        self,
        action: ProjectAction,
        is_allowed: impl FnOnce(ProjectRole) -> bool,
        kind: KeyKind,
        trail: Trail,
    ) -> Result<ProjectScope, Error> {
        let Self { caller, organization_id, project_id, roles, meets_requirements, .. } = self;
        caller.check_key_scope(organization_id, Some(project_id))?;
        caller.check_may_manage(kind)?;
        meets_requirements?;
        if !roles.role.is_some_and(is_allowed) {
            return Err(Code::InsufficientRole.into());
        }
        Ok(ProjectScope { caller, organization_id, project_id, action, trail })
    }
}
