//! Access to one member of a project: managed by others, or leaving.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{ProjectId, UserId};
use crate::roles::{ProjectAction, ProjectRole};
use crate::rules::membership::Grantor;
use crate::store::project_members::Member;
use crate::store::standings;

use super::projects::{Found, Named, ProjectScope, Roles};
use super::{Access, AccessDoc, Call, Caller, HeldTx, Trail, manager};

/// What is done to the member in the path.
#[derive(Clone, Copy, Debug)]
pub enum ProjectMember {
    /// They are managed ("Manage members", section 5).
    Managed,
    /// The same, or they leave by themselves (decisions, section 3).
    ManagedOrLeaving,
}

/// The right to do it.
#[derive(Clone, Debug)]
pub struct ProjectMemberScope {
    project: ProjectScope,
    member_id: UserId,
    is_leaving: bool,
}

impl ProjectMemberScope {
    /// The project, for who did what where. It is no right to more than is done to the member: that is what this scope's
    /// own `hold` asks for.
    pub fn project(&self) -> &ProjectScope {
        &self.project
    }
    /// The project's id.
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id()
    }
    /// The member.
    pub fn member_id(&self) -> UserId {
        self.member_id
    }
    /// Whether the caller is that member, and a person: a key acts for whoever made it, but is not them.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since; the
    /// caller's effective role now, and the member.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(HeldTx<'t>, Grantor<ProjectRole>, Member), Error> {
        let project = &self.project;
        project.lock(tx).await?;
        let (project_id, member_id) = (Some(project.project_id()), Some(self.member_id));
        let (organization_id, user_id) = (project.organization_id(), project.user_id());
        let standing = standings::of_member(tx, organization_id, project_id, user_id, member_id).await?;
        let (roles, member) = Roles::of(standing)?;
        let role = match project.roles(tx, roles).await?.role {
            Some(role) if self.is_leaving || role.allows(ProjectAction::ManageMembers) => role,
            None if self.is_leaving => return Err(Code::MemberNotFound.into()),
            _ => return Err(Code::InsufficientRole.into()),
        };
        let grantor = Grantor { role, is_key: project.caller().key().is_some() };
        Ok((HeldTx::new(tx), grantor, member.ok_or(Code::MemberNotFound)?))
    }
}

impl Access for ProjectMember {
    type Scope = ProjectMemberScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ProjectMemberScope, Error> {
        let caller = manager(app, call).await?;
        let Named { organization_id, project_id } = Named::of(call)?;
        let member_id = UserId::parse(call.path("member_id"));
        let (mut tx, user_id) = (app.db.read().await?, caller.user_id());
        let standing = standings::of_member(&mut tx, organization_id, project_id, user_id, member_id).await?;
        let found = Found::of(&mut tx, standing, organization_id, project_id, caller).await?;
        let member_id = found.found.as_ref().ok_or(Code::MemberNotFound)?.user_id;
        found.confine()?;
        found.caller.may_manage(app, call)?;
        let is_leaving = matches!((self, &found.caller),
            (Self::ManagedOrLeaving, Caller::Person(user_id)) if *user_id == member_id);
        let action = ProjectAction::ManageMembers;
        let project = found.admit(action, |role| is_leaving || role.allows(action), Trail::of(call))?;
        Ok(ProjectMemberScope { project, member_id, is_leaving })
    }
    fn describe(&self) -> AccessDoc {
        let text = match self {
            Self::Managed => "project: ManageMembers",
            Self::ManagedOrLeaving => "project: ManageMembers, or oneself with an access token",
        };
        AccessDoc::new(Some("bearer"), text)
    }
}
