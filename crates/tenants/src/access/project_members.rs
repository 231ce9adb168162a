//! Scopes of one member of a project: managed by others, or leaving.

use crate::Tenants;
use crate::roles::{ProjectAction, ProjectRole};
use crate::rules::membership::Grantor;
use crate::store::project_members::Member;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{ProjectId, UserId};

use super::{Caller, FoundProject, HeldTx, KeyKind, Place, ProjectScope};
use trail::Trail;

/// The right to change or remove a member.
#[derive(Clone, Debug)]
pub struct ProjectMemberScope {
    project: ProjectScope,
    member_id: UserId,
    is_leaving: bool,
}

impl ProjectMemberScope {
    /// Lets in a caller who manages members and, with `may_leave`, the member.
    ///
    /// # Errors
    /// 404 and 403.
    pub async fn admit(
        tenants: &Tenants,
        place: Place,
        member_id: Option<UserId>,
        caller: Caller,
        may_leave: bool,
        trail: Trail,
    ) -> Result<Self, Error> {
        let mut tx = tenants.db.read().await?;
        let found = FoundProject::<Member>::find(&mut tx, place, member_id, caller).await?;
        let member_id = found.found.as_ref().ok_or(Code::MemberNotFound)?.user_id;
        let is_leaving = may_leave && found.is_caller(member_id);
        let action = ProjectAction::ManageMembers;
        let allowed = |role: ProjectRole| is_leaving || role.allows(action);
        let project = found.admit_if(action, allowed, KeyKind::Whole, trail)?;
        Ok(Self { project, member_id, is_leaving })
    }

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
    /// Returns `true` if the caller is that member, and a person: a key acts for its maker, but is not them.
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
        let (roles, member) = self.project.lock::<Member>(tx, Some(self.member_id)).await?;
        let role = match roles.role {
            Some(role) if self.is_leaving || role.allows(ProjectAction::ManageMembers) => role,
            None if self.is_leaving => return Err(Code::MemberNotFound.into()),
            _ => return Err(Code::InsufficientRole.into()),
        };
        let grantor = Grantor { role, is_key: self.project.caller().key.is_some() };
        Ok((HeldTx::new(tx), grantor, member.ok_or(Code::MemberNotFound)?))
    }
}
