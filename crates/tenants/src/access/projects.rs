//! Scopes of projects: the tables of `roles.rs` decide.

use crate::roles::{OrganizationRole, ProjectAction, ProjectRole, effective_project_role};
use crate::rules::key_bounds::Bounds;
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, ProjectId, UserId};

use crate::Tenants;
use crate::store::standings::{self, Beside, InProject, ProjectAndOrganization};

use super::{Caller, HeldTx, KeyKind};
use trail::Trail;

/// A path's organization and project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The tenant.
    pub organization_id: OrganizationId,
    /// `None` where the path's word can't be a project's id.
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
    /// Lets in a caller whose role allows the action; of API keys only those of a kind.
    ///
    /// # Errors
    /// 404 and 403.
    pub async fn admit(
        tenants: &Tenants,
        place: Place,
        caller: Caller,
        (action, with): (ProjectAction, KeyKind),
        trail: Trail,
    ) -> Result<Self, Error> {
        let mut tx = tenants.db.read().await?;
        FoundProject::<()>::find(&mut tx, place, (), caller).await?.admit(action, with, trail)
    }

    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// The person whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    /// The project.
    pub fn project_id(&self) -> ProjectId {
        self.project_id
    }
    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
    /// The person who made the calling key's secret, where that isn't the key's maker: a new key is bound to both.
    pub fn rotated_by(&self) -> Option<UserId> {
        self.caller.rotated_by
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(HeldTx<'t>, Held<ProjectAndOrganization>), Error> {
        let (tx, held) = self.hold_with::<ProjectAndOrganization>(tx, ()).await?;
        let Held { organization_role, grantor, found } = held;
        Ok((tx, Held { organization_role, grantor, found: found.ok_or(Code::ProjectNotFound)? }))
    }

    /// The same, with something else in the place of the project; `None` where it isn't there.
    ///
    /// It takes the organization's lock and not the project's own: on PostgreSQL a transaction that adds an API key holds the
    /// project's row too, and a second, stronger lock of it for a new name or a removal would wait for that transaction while
    /// it waits for the first.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold_with<'t, T: Beside>(
        &self,
        tx: &'t mut Tx,
        id: T::Id,
    ) -> Result<(HeldTx<'t>, Held<Option<T>>), Error> {
        let (roles, found) = self.lock::<T>(tx, id).await?;
        let role = roles.role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?;
        let grantor = Grantor { role, is_key: self.caller.key.is_some() };
        Ok((HeldTx::new(tx), Held { organization_role: roles.organization_role, grantor, found }))
    }

    /// Takes the lock and reads the caller's roles.
    pub(super) async fn lock<T: Beside>(&self, tx: &mut Tx, id: T::Id) -> Result<(Roles, Option<T>), Error> {
        let (organization_id, project_id) = (self.organization_id, Some(self.project_id));
        store::organizations::lock(tx, organization_id).await?;
        let standing = standings::in_project(tx, organization_id, project_id, self.user_id(), id).await?;
        let (roles, found) = Roles::of(standing)?;
        Ok((self.caller.project_roles(tx, organization_id, project_id, roles).await?, found))
    }

    /// Refuses an API key that would make a key with wider restrictions or a longer life than its own.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn may_hand_out(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.caller.may_hand_out(bounds)
    }
}

/// The caller's roles while the lock is held.
#[derive(Clone, Debug)]
pub struct Held<T> {
    /// Their role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// Their effective role in the project, as far as they give roles to others.
    pub grantor: Grantor<ProjectRole>,
    /// The project, or what was read in its place.
    pub found: T,
}

/// A person's roles in a project that is there.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    /// In the organization.
    pub organization_role: Option<OrganizationRole>,
    /// In the project, effectively.
    pub role: Option<ProjectRole>,
}

impl Roles {
    /// Returns `true` if neither role is below the other's.
    pub fn reach(self, other: Self) -> bool {
        self.organization_role >= other.organization_role && self.role >= other.role
    }

    /// The lower of both in each.
    pub(super) fn lower(self, other: Self) -> Self {
        Self {
            organization_role: self.organization_role.min(other.organization_role),
            role: self.role.min(other.role),
        }
    }

    /// 404 without the organization or the project.
    fn of<T>(standing: Option<InProject<T>>) -> Result<(Self, Option<T>), Error> {
        let standing = standing.ok_or(Code::OrganizationNotFound)?;
        let (organization_role, project) =
            (standing.organization_role, standing.project.ok_or(Code::ProjectNotFound)?);
        let role = effective_project_role(organization_role, project.role, project.open_to_organization);
        Ok((Self { organization_role, role }, standing.found))
    }
}

/// Finds organization and project, and a person's roles in both.
///
/// # Errors
/// 404, from the outside in.
pub async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
) -> Result<Roles, Error> {
    Ok(Roles::of::<()>(standings::in_project(tx, organization_id, project_id, user_id, ()).await?)?.0)
}

/// A project that is there, its caller's roles, and what else was asked for; nothing is allowed yet.
#[derive(Debug)]
pub struct FoundProject<T> {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    roles: Roles,
    /// What else was asked for, if it is there.
    pub found: Option<T>,
}

impl<T: Beside> FoundProject<T> {
    /// Finds the project and the caller's roles.
    ///
    /// # Errors
    /// 404, from the outside in.
    pub async fn find(tx: &mut Tx, place: Place, id: T::Id, caller: Caller) -> Result<Self, Error> {
        let Place { organization_id, project_id } = place;
        let standing = standings::in_project(tx, organization_id, project_id, caller.user_id, id).await?;
        let (roles, found) = Roles::of(standing)?;
        let roles = caller.project_roles(tx, organization_id, project_id, roles).await?;
        let project_id = project_id.ok_or(Code::ProjectNotFound)?;
        Ok(Self { caller, organization_id, project_id, roles, found })
    }
}

impl<T> FoundProject<T> {
    /// The caller's roles.
    pub fn roles(&self) -> Roles {
        self.roles
    }

    /// Returns `true` if this is the caller, and a person: a key acts for its maker, but is not them.
    pub(super) fn is_caller(&self, user_id: UserId) -> bool {
        self.caller.key.is_none() && self.caller.user_id == user_id
    }

    /// Lets in a caller whose role allows the action; of API keys only those of a kind.
    ///
    /// # Errors
    /// 403.
    pub fn admit(self, action: ProjectAction, with: KeyKind, trail: Trail) -> Result<ProjectScope, Error> {
        self.admit_if(action, |role| role.allows(action), with, trail)
    }

    /// The same with another condition.
    pub(super) fn admit_if(
        self,
        action: ProjectAction,
        allowed: impl FnOnce(ProjectRole) -> bool,
        with: KeyKind,
        trail: Trail,
    ) -> Result<ProjectScope, Error> {
        let Self { caller, organization_id, project_id, roles, .. } = self;
        caller.confine(organization_id, Some(project_id))?;
        caller.may_manage(with)?;
        if !roles.role.is_some_and(allowed) {
            return Err(Code::InsufficientRole.into());
        }
        Ok(ProjectScope { caller, organization_id, project_id, action, trail })
    }
}
