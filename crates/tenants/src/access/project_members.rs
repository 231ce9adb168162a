//! The scope for managing a member of a project, or for leaving it.

use crate::Tenants;
use crate::roles::{ProjectAction, ProjectRole};
use crate::rules::membership::Grantor;
use crate::store::project_members::Member;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{ProjectId, UserId};

use super::{Caller, FoundProject, KeyKind, LockedTx, ProjectPath, ProjectScope, Roles};
use trail::Trail;

/// The permission to change or remove a member.
#[derive(Clone, Debug)]
pub struct ProjectMemberScope {
    project: ProjectScope,
    member_id: UserId,
    is_leaving: bool,
}

impl ProjectMemberScope {
    /// Admits a caller who may manage members and, with `may_leave`, the member.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        tenants: &Tenants,
        path: ProjectPath,
        member_id: Option<UserId>,
        caller: Caller,
        may_leave: bool,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let mut tx = tenants.db().read().await?;
            let found = FoundProject::<Member>::find(&mut tx, path, member_id, caller).await?;
            let member_id = found.found.as_ref().ok_or(Code::MemberNotFound)?.user_id;
            let is_leaving = may_leave && found.is_caller(member_id);
            let action = ProjectAction::ManageMembers;
            let allowed = |role: ProjectRole| is_leaving || role.allows(action);
            let project = found.admit_if(action, allowed, KeyKind::Unrestricted, trail)?;
            Ok(Self { project, member_id, is_leaving })
        })
    }

    /// Returns the scope of the project, for audit entries. It isn't a permission for anything except the
    /// change of the member, which this scope's own `lock_and_recheck` checks.
    pub fn project(&self) -> &ProjectScope {
        &self.project
    }
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id()
    }
    pub fn member_id(&self) -> UserId {
        self.member_id
    }
    /// Returns `true` if the caller is the member. This is never the case for an API key, even if the member
    /// created it.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Locks the organization and repeats the check of `admit`, because its result may have changed. Returns
    /// the caller's current effective role, and the member.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck<'t>(
        &self,
        tx: &'t mut Tx,
    ) -> Result<(LockedTx<'t>, Grantor<ProjectRole>, Member), Error> {
        let found = self.project.lock::<Member>(tx, Some(self.member_id)).await?;
        let (grantor, member) = self.check(found)?;
        Ok((LockedTx::new(tx), grantor, member))
    }

    /// Reads the member and repeats the check of `admit`. The result is reliable only under the
    /// organization's lock.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub(crate) async fn find(&self, tx: &mut Tx) -> Result<(Grantor<ProjectRole>, Member), Error> {
        self.check(self.project.find::<Member>(tx, Some(self.member_id)).await?)
    }

    fn check(&self, found: (Roles, Option<Member>)) -> Result<(Grantor<ProjectRole>, Member), Error> {
        let (roles, member) = found;
        let role = match roles.role {
            Some(role) if self.is_leaving || role.allows(ProjectAction::ManageMembers) => role,
            None if self.is_leaving => return Err(Code::MemberNotFound.into()),
            _ => return Err(Code::InsufficientRole.into()),
        };
        let grantor = Grantor { role, is_key: self.project.caller().key.is_some() };
        Ok((grantor, member.ok_or(Code::MemberNotFound)?))
    }
}
