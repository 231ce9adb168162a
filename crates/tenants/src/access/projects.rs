//! Scopes of projects; the tables in [`crate::roles`] decide.

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

/// The organization and the project that a URL names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProjectPath {
    pub organization_id: OrganizationId,
    /// `None` if the text in the URL can't be a project's id.
    pub project_id: Option<ProjectId>,
}

/// The right to an action on a project.
#[derive(Clone, Debug)]
pub struct ProjectScope {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    action: ProjectAction,
    trail: Trail,
}

impl ProjectScope {
    /// Admits a caller whose role allows the action; of API keys only those of this kind.
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

    /// The caller's data for the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// The person whose roles apply; for an API key, its creator.
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
    /// The person who created the calling key's secret, if that isn't the key's creator: a new key is bound to
    /// both.
    pub fn rotated_by(&self) -> Option<UserId> {
        self.caller.rotated_by
    }

    /// Takes the organization's lock and repeats the check of `admit`, because the answer may have changed
    /// since.
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

    /// Does the same as [`Self::lock_and_recheck`], but reads another row instead of the project; `None` if
    /// this row doesn't exist.
    ///
    /// This takes the organization's lock and not the project's own: on PostgreSQL a transaction that adds an
    /// API key locks the project's row too, and a second, stronger lock of it for a new name or a removal
    /// would wait for that transaction while it waits for the first.
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

    /// Takes the organization's lock and reads the caller's roles.
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

    /// Refuses a calling API key that would create a key with wider restrictions or a longer life than its
    /// own.
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
    /// The caller, with the effective role in the project, as a person or key that grants roles.
    pub grantor: Grantor<ProjectRole>,
    /// The project, or the row that was read instead.
    pub found: T,
}

/// A project that exists, the caller's roles, and an extra row. Nothing is allowed yet.
#[derive(Debug)]
pub struct FoundProject<T> {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    roles: Roles,
    /// The refusal of a member who doesn't meet the organization's requirements.
    meets_requirements: Result<(), Error>,
    /// The extra row, if it exists.
    pub found: Option<T>,
}

impl<T: Extra> FoundProject<T> {
    /// Finds the project, the caller's roles and the extra row.
    ///
    /// # Errors
    /// 404, from the outside in.
    pub async fn find(tx: &mut Tx, path: ProjectPath, id: T::Id, caller: Caller) -> Result<Self, Error> {
        let ProjectPath { organization_id, project_id } = path;
        let standing = standings::in_project(tx, organization_id, project_id, caller.user_id, id).await?;
        let requirements = standing.as_ref().map(|standing| standing.requirements).unwrap_or_default();
        let (roles, found) = Roles::from_standing(standing)?;
        let roles = caller.project_roles(tx, organization_id, project_id, roles).await?;
        let project_id = project_id.ok_or(Code::ProjectNotFound)?;
        // The organization's requirements aren't revealed to non-members.
        let requirements = roles.role.map(|_| requirements).unwrap_or_default();
        let meets_requirements = caller.check_requirements(tx, organization_id, requirements).await;
        Ok(Self { caller, organization_id, project_id, roles, meets_requirements, found })
    }
}

impl<T> FoundProject<T> {
    /// The caller's roles.
    pub fn roles(&self) -> Roles {
        self.roles
    }

    /// Returns `true` if this is the caller in person: a key acts for its creator, but isn't that person.
    pub(super) fn is_caller(&self, user_id: UserId) -> bool {
        self.caller.key.is_none() && self.caller.user_id == user_id
    }

    /// Admits a caller whose role allows the action; of API keys only those of this kind.
    ///
    /// # Errors
    /// 403.
    pub fn admit(self, action: ProjectAction, kind: KeyKind, trail: Trail) -> Result<ProjectScope, Error> {
        self.admit_if(action, |role| role.allows(action), kind, trail)
    }

    /// As [`Self::admit`], with another condition on the role.
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
