//! Access to one member of a project: managed by others, or leaving.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{ProjectId, UserId};
use crate::roles::{ProjectAction, ProjectRole};
use crate::store;

use super::projects::{Found, ProjectScope};
use super::{Access, AccessDoc, Call, Caller, Trail, manager};

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
    /// caller's effective role now.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold(&self, tx: &mut Tx) -> Result<ProjectRole, Error> {
        let role = self.project.hold_roles(tx).await?.role;
        match role {
            Some(role) if self.is_leaving || role.allows(ProjectAction::ManageMembers) => Ok(role),
            None if self.is_leaving => Err(Code::MemberNotFound.into()),
            _ => Err(Code::InsufficientRole.into()),
        }
    }
}

impl Access for ProjectMember {
    type Scope = ProjectMemberScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ProjectMemberScope, Error> {
        let caller = manager(app, call).await?;
        let mut tx = app.db.read().await?;
        let found = Found::find(&mut tx, call, caller).await?;
        let member_id = UserId::parse(call.path("member_id")).ok_or(Code::MemberNotFound)?;
        if store::project_members::member(&mut tx, found.project_id, member_id).await?.is_none() {
            return Err(Code::MemberNotFound.into());
        }
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
