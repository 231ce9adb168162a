//! Access to projects: the tables of `roles.rs` decide.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, ProjectId, UserId};
use crate::roles::{OrganizationRole, ProjectAction, ProjectRole, effective_project_role};
use crate::rules::api_keys::Bounds;
use crate::rules::membership::Grantor;
use crate::store;
use crate::store::projects::ProjectDetail;
use crate::store::standings::{self, FoundProject, InProject};

use super::{Access, AccessDoc, Call, Caller, HeldTx, Trail, manager};

/// An action on the project in the path.
#[derive(Clone, Copy, Debug)]
pub struct Project(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct ProjectScope {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    action: ProjectAction,
    trail: Trail,
}

impl ProjectScope {
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id()
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    /// The project.
    pub fn project_id(&self) -> ProjectId {
        self.project_id
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, Held<FoundProject>), Error> {
        self.lock(tx).await?;
        let standing =
            standings::in_project(tx, self.organization_id, Some(self.project_id), self.user_id()).await?;
        let held = self.held(tx, standing).await?.ok_or(Code::ProjectNotFound)?;
        Ok((HeldTx::new(tx), held))
    }

    /// Refuses an API key that would make a key with wider restrictions or a longer life than its own.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn may_hand_out(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.caller.may_hand_out(bounds)
    }

    /// The person who made the calling key's secret, where that isn't the key's maker: a new key is bound to both.
    pub fn rotated_by(&self) -> Option<UserId> {
        Some(self.caller.holder()).filter(|_| !self.caller.is_one_person())
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The organization's lock and not the project's own: whoever adds an API key holds the project's row too, and on
    /// PostgreSQL a second, stronger lock of it for a new name or a removal would wait for them while they wait for the first.
    pub(super) async fn lock(&self, tx: &mut Tx) -> Result<(), Error> {
        Ok(store::organizations::lock(tx, self.organization_id).await?)
    }

    /// 404 and 403; none where all is well but what else was asked for is missing.
    pub(super) async fn held<T>(
        &self,
        tx: &mut Tx,
        standing: Option<InProject<T>>,
    ) -> Result<Option<Held<T>>, Error> {
        let (roles, found) = Roles::of(standing)?;
        let roles = self.roles(tx, roles).await?;
        let role = roles.role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?;
        let grantor = Grantor { role, is_key: self.caller.key().is_some() };
        Ok(found.map(|found| Held { organization_role: roles.organization_role, grantor, found }))
    }

    /// The caller's roles, from those of [`ProjectScope::user_id`].
    pub(super) async fn roles(&self, tx: &mut Tx, roles: Roles) -> Result<Roles, Error> {
        self.caller.project_roles(tx, self.organization_id, Some(self.project_id), roles).await
    }
}

/// What the caller is while the lock is held.
#[derive(Clone, Debug)]
pub struct Held<T> {
    /// Their role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// Their effective role in the project, as far as they give roles to others.
    pub grantor: Grantor<ProjectRole>,
    /// The project, or the key.
    pub found: T,
}

/// Where somebody stands in a project that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roles {
    pub(super) organization_role: Option<OrganizationRole>,
    pub(super) role: Option<ProjectRole>,
}

impl Roles {
    /// The lower of both in each.
    pub(super) fn lower(self, other: Self) -> Self {
        Self {
            organization_role: self.organization_role.min(other.organization_role),
            role: self.role.min(other.role),
        }
    }

    /// Whether neither role is below the other's.
    pub(super) fn reach(self, other: Self) -> bool {
        self.organization_role >= other.organization_role && self.role >= other.role
    }

    /// 404 without the organization or the project.
    pub(super) fn of<T>(standing: Option<InProject<T>>) -> Result<(Self, Option<T>), Error> {
        let standing = standing.ok_or(Code::OrganizationNotFound)?;
        let (organization_role, project) =
            (standing.organization_role, standing.project.ok_or(Code::ProjectNotFound)?);
        let role = effective_project_role(organization_role, project.role, project.open_to_organization);
        Ok((Self { organization_role, role }, standing.found))
    }
}

/// Finds organization and project (404, from the outside in), and what this person is in both.
pub(super) async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
) -> Result<Roles, Error> {
    Ok(Roles::of(standings::roles(tx, organization_id, project_id, user_id).await?)?.0)
}

impl Access for Project {
    type Scope = ProjectScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ProjectScope, Error> {
        let caller = manager(app, call).await?;
        let mut tx = app.db.read().await?;
        let found = Found::find(&mut tx, call, caller).await?;
        found.confine()?;
        found.caller.may_manage(app, call)?;
        found.admit(self.0, |role| role.allows(self.0), Trail::of(call))
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}

/// What a path names inside an organization.
pub(super) struct Named {
    pub(super) organization_id: OrganizationId,
    /// None where it can't be one's id.
    pub(super) project_id: Option<ProjectId>,
}

impl Named {
    pub(super) fn of(call: &Call) -> Result<Self, Error> {
        let organization_id =
            OrganizationId::parse(call.path("organization_id")).ok_or(Code::OrganizationNotFound)?;
        Ok(Self { organization_id, project_id: ProjectId::parse(call.path("project_id")) })
    }
}

/// A project that is there, and where its caller stands; nothing is allowed yet.
pub(super) struct Found<T> {
    pub(super) caller: Caller,
    pub(super) project_id: ProjectId,
    organization_id: OrganizationId,
    pub(super) roles: Roles,
    /// What else was asked for, if it is there.
    pub(super) found: Option<T>,
}

impl Found<()> {
    /// 404, from the outside in; nothing else is asked for.
    pub(super) async fn find(tx: &mut Tx, call: &Call, caller: Caller) -> Result<Self, Error> {
        let Named { organization_id, project_id } = Named::of(call)?;
        let standing = standings::roles(tx, organization_id, project_id, caller.user_id()).await?;
        Self::of(tx, standing, organization_id, project_id, caller).await
    }
}

impl<T> Found<T> {
    pub(super) async fn of(
        tx: &mut Tx,
        standing: Option<InProject<T>>,
        organization_id: OrganizationId,
        project_id: Option<ProjectId>,
        caller: Caller,
    ) -> Result<Self, Error> {
        let (roles, found) = Roles::of(standing)?;
        let roles = caller.project_roles(tx, organization_id, project_id, roles).await?;
        let project_id = project_id.ok_or(Code::ProjectNotFound)?;
        Ok(Self { caller, project_id, organization_id, roles, found })
    }

    /// 403 for an API key outside its own project.
    pub(super) fn confine(&self) -> Result<(), Error> {
        self.caller.confine(self.organization_id, Some(self.project_id))
    }

    /// 403 without a role that is `allowed`.
    pub(super) fn admit(
        self,
        action: ProjectAction,
        allowed: impl FnOnce(ProjectRole) -> bool,
        trail: Trail,
    ) -> Result<ProjectScope, Error> {
        let Self { caller, organization_id, project_id, roles, .. } = self;
        if !roles.role.is_some_and(allowed) {
            return Err(Code::InsufficientRole.into());
        }
        Ok(ProjectScope { caller, organization_id, project_id, action, trail })
    }
}

/// An action on the project in the path, which is read at the gate. API keys that were narrowed to some model calls have it
/// too: it is how they see what they used.
#[derive(Clone, Copy, Debug)]
pub struct WholeProject(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct WholeProjectScope {
    project: ProjectDetail,
}

impl WholeProjectScope {
    /// The project as it was at the gate.
    pub fn into_project(self) -> ProjectDetail {
        self.project
    }
}

impl Access for WholeProject {
    type Scope = WholeProjectScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<WholeProjectScope, Error> {
        let caller = manager(app, call).await?;
        let Named { organization_id, project_id } = Named::of(call)?;
        let mut tx = app.db.read().await?;
        let standing = standings::in_project(&mut tx, organization_id, project_id, caller.user_id()).await?;
        let mut found = Found::of(&mut tx, standing, organization_id, project_id, caller).await?;
        found.confine()?;
        found.caller.may_call(app, call)?;
        let project = found.found.take().ok_or(Code::ProjectNotFound)?.detail;
        found.admit(self.0, |role| role.allows(self.0), Trail::of(call))?;
        Ok(WholeProjectScope { project })
    }
    fn describe(&self) -> AccessDoc {
        Project(self.0).describe()
    }
}
