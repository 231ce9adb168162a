//! Access to organizations, projects and keys: the tables of `roles.rs` decide.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::roles::{
    OrganizationAction, OrganizationRole, ProjectAction, ProjectRole, effective_project_role,
};
use crate::store;

use super::{Access, AccessDoc, Call, Caller, Trail, manager};

/// An action on the organization in the path.
#[derive(Clone, Copy, Debug)]
pub struct Org(pub OrganizationAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct OrgScope {
    caller: Caller,
    organization_id: OrganizationId,
    action: OrganizationAction,
    role: OrganizationRole,
    trail: Trail,
}

impl OrgScope {
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
    /// The caller's role in it.
    pub fn role(&self) -> OrganizationRole {
        self.role
    }
    /// The one project that the caller is confined to, when it is an API key.
    pub fn only_project(&self) -> Option<ProjectId> {
        match &self.caller {
            Caller::Person(_) => None,
            Caller::Key(key) => Some(key.project_id),
        }
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since;
    /// the caller's role now.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold(&self, tx: &mut Tx) -> Result<OrganizationRole, Error> {
        store::organizations::lock(tx, self.organization_id).await?;
        self.ask_again(tx).await
    }

    /// The same, with the lock that is needed to remove or rename the organization.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold_whole(&self, tx: &mut Tx) -> Result<OrganizationRole, Error> {
        store::organizations::lock_whole(tx, self.organization_id).await?;
        self.ask_again(tx).await
    }

    async fn ask_again(&self, tx: &mut Tx) -> Result<OrganizationRole, Error> {
        let role = store::organization_members::role(tx, self.organization_id, self.user_id())
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        Ok(role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?)
    }
}

impl Access for Org {
    type Scope = OrgScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<OrgScope, Error> {
        let caller = manager(app, call).await?;
        let organization_id =
            OrganizationId::parse(call.path("organization_id")).ok_or(Code::OrganizationNotFound)?;
        let mut tx = app.db.read().await?;
        let role = store::organization_members::role(&mut tx, organization_id, caller.user_id())
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        caller.confine(organization_id, None)?;
        caller.may_manage(app, call)?;
        let role = role.filter(|role| role.allows(self.0)).ok_or(Code::InsufficientRole)?;
        Ok(OrgScope { caller, organization_id, action: self.0, role, trail: Trail::of(call) })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("organization: {:?}", self.0))
    }
}

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
    role: ProjectRole,
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
    /// The caller's effective role in it.
    pub fn role(&self) -> ProjectRole {
        self.role
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Held, Error> {
        let standing = self.lock(tx).await?;
        let role = standing.role.filter(|role| role.allows(self.action)).ok_or(Code::InsufficientRole)?;
        Ok(Held { organization_role: standing.organization_role, role })
    }

    /// The lock and the roles under it. The organization's lock and not the project's own: whoever adds an API key holds
    /// the project's row too, and on PostgreSQL a second, stronger lock of it for a new name or a removal would wait for
    /// them while they wait for the first.
    pub(super) async fn lock(&self, tx: &mut Tx) -> Result<Roles, Error> {
        store::organizations::lock(tx, self.organization_id).await?;
        roles(tx, self.organization_id, Some(self.project_id), self.user_id()).await
    }
}

/// What the caller is while the lock is held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Their role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// Their effective role in the project.
    pub role: ProjectRole,
}

/// Where somebody stands in a project that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roles {
    pub(super) organization_role: Option<OrganizationRole>,
    pub(super) role: Option<ProjectRole>,
}

/// Finds organization and project (404, from the outside in), and what this person is in both.
pub(super) async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
) -> Result<Roles, Error> {
    let standing = store::project_members::standing(tx, organization_id, project_id, user_id)
        .await?
        .ok_or(Code::OrganizationNotFound)?;
    let (organization_role, project) =
        (standing.organization_role, standing.project.ok_or(Code::ProjectNotFound)?);
    let role = effective_project_role(organization_role, project.role, project.open_to_organization);
    Ok(Roles { organization_role, role })
}

impl Access for Project {
    type Scope = ProjectScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ProjectScope, Error> {
        let caller = manager(app, call).await?;
        let may_manage = caller.may_manage(app, call);
        let named = Named {
            organization: call.path("organization_id"),
            project: call.path("project_id"),
            api_key: None,
            trail: Trail::of(call),
        };
        Ok(admit_project(self.0, &named, caller, may_manage, app).await?.0)
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}

/// What a path names inside an organization.
struct Named<'a> {
    organization: &'a str,
    project: &'a str,
    /// An API key, where the path has one.
    api_key: Option<&'a str>,
    trail: Trail,
}

/// Finds organization, project and, where one is named, key (404, from the outside in), then the role (403).
async fn admit_project(
    action: ProjectAction,
    named: &Named<'_>,
    caller: Caller,
    may_manage: Result<(), Error>,
    app: &App,
) -> Result<(ProjectScope, Option<ApiKeyId>), Error> {
    let mut tx = app.db.read().await?;
    let found = Found::find(&mut tx, named.organization, named.project, caller).await?;
    let api_key_id = match named.api_key {
        None => None,
        Some(text) => {
            let api_key_id = ApiKeyId::parse(text).ok_or(Code::ApiKeyNotFound)?;
            if !store::api_keys::exists(&mut tx, found.project_id, api_key_id).await? {
                return Err(Code::ApiKeyNotFound.into());
            }
            Some(api_key_id)
        }
    };
    found.confine()?;
    may_manage?;
    Ok((found.admit(action, |role| role.allows(action), named.trail.clone())?, api_key_id))
}

/// A project that is there, and where its caller stands; nothing is allowed yet.
pub(super) struct Found {
    pub(super) caller: Caller,
    pub(super) project_id: ProjectId,
    organization_id: OrganizationId,
    role: Option<ProjectRole>,
}

impl Found {
    /// 404, from the outside in.
    pub(super) async fn find(
        tx: &mut Tx,
        organization: &str,
        project: &str,
        caller: Caller,
    ) -> Result<Self, Error> {
        let organization_id = OrganizationId::parse(organization).ok_or(Code::OrganizationNotFound)?;
        let project_id = ProjectId::parse(project);
        let role = roles(tx, organization_id, project_id, caller.user_id()).await?.role;
        Ok(Self { caller, project_id: project_id.ok_or(Code::ProjectNotFound)?, organization_id, role })
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
        let role = self.role.filter(|role| allowed(*role)).ok_or(Code::InsufficientRole)?;
        let Self { caller, organization_id, project_id, .. } = self;
        Ok(ProjectScope { caller, organization_id, project_id, action, role, trail })
    }
}

/// An action on the API key in the path.
#[derive(Clone, Copy, Debug)]
pub struct Key(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct KeyScope {
    project: ProjectScope,
    api_key_id: ApiKeyId,
}

impl KeyScope {
    /// The project that the key belongs to.
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id
    }
    /// The key.
    pub fn api_key_id(&self) -> ApiKeyId {
        self.api_key_id
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.project.organization_id
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.project.trail
    }

    /// Takes the organization's lock and asks again what the gate asked. Whoever removes the project or the organization
    /// holds it too, so that nobody waits in a circle for the rows of keys.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Held, Error> {
        self.project.hold(tx).await
    }
}

impl Access for Key {
    type Scope = KeyScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<KeyScope, Error> {
        let caller = manager(app, call).await?;
        let may_manage = caller.may_manage(app, call);
        let named = Named {
            organization: call.path("organization_id"),
            project: call.path("project_id"),
            api_key: Some(call.path("key_id")),
            trail: Trail::of(call),
        };
        let (project, api_key_id) = admit_project(self.0, &named, caller, may_manage, app).await?;
        Ok(KeyScope { project, api_key_id: api_key_id.ok_or(Code::ApiKeyNotFound)? })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}
