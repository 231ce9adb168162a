//! The scope for managing a member of an organization, or for leaving it.

use crate::roles::{OrganizationAction, OrganizationRole};
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{OrganizationId, UserId};

use crate::Tenants;
use crate::store::organization_members::Member;

use super::{Caller, KeyKind, LockedTx};
use trail::Trail;

/// The permission to change or remove a member.
#[derive(Clone, Debug)]
pub struct MemberScope {
    caller: Caller,
    organization_id: OrganizationId,
    member_id: UserId,
    is_leaving: bool,
    trail: Trail,
}

impl MemberScope {
    /// Admits a caller who may manage members and, with `may_leave`, the member.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        tenants: &Tenants,
        organization_id: OrganizationId,
        member_id: Option<UserId>,
        caller: Caller,
        may_leave: bool,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let mut tx = tenants.db().read().await?;
            let roles =
                store::organization_members::roles(&mut tx, organization_id, caller.user_id, member_id)
                    .await?
                    .ok_or(Code::OrganizationNotFound)?;
            let role = caller.organization_role(&mut tx, organization_id, roles.caller).await?;
            let member_id = member_id.filter(|_| roles.member.is_some()).ok_or(Code::MemberNotFound)?;
            caller.check_key_scope(organization_id, None)?;
            caller.check_may_manage(KeyKind::Unrestricted)?;
            let is_member = caller.key.is_none() && caller.user_id == member_id;
            let is_leaving = may_leave && is_member && role.is_some();
            if role.is_some() {
                caller.check_requirements_of(&mut tx, organization_id).await?;
            }
            let manages = role.is_some_and(|role| role.allows(OrganizationAction::ManageMembers));
            if !manages && !is_leaving {
                return Err(Code::InsufficientRole.into());
            }
            Ok(Self { caller, organization_id, member_id, is_leaving, trail })
        })
    }

    /// Returns the caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
    /// Returns the caller's data for the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
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
    /// the member, with the data that decides whether the member may be changed.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck<'t>(&self, tx: &'t mut Tx) -> Result<(LockedTx<'t>, LockedMember), Error> {
        store::organizations::lock(tx, self.organization_id).await?;
        let found = self.find(tx).await?;
        Ok((LockedTx::new(tx), found))
    }

    /// Reads the member and repeats the check of `admit`. The result is reliable only under the
    /// organization's lock.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub(crate) async fn find(&self, tx: &mut Tx) -> Result<LockedMember, Error> {
        let found = store::organization_members::member_and_caller(
            tx,
            self.organization_id,
            self.caller.user_id,
            self.member_id,
        )
        .await?
        .ok_or(Code::OrganizationNotFound)?;
        let role = self.caller.organization_role(tx, self.organization_id, found.caller_role).await?;
        let role = match role {
            Some(role) if self.is_leaving || role.allows(OrganizationAction::ManageMembers) => role,
            None if self.is_leaving => return Err(Code::MemberNotFound.into()),
            _ => return Err(Code::InsufficientRole.into()),
        };
        let row = found.member.ok_or(Code::MemberNotFound)?;
        let grantor = Grantor { role, is_key: self.caller.key.is_some() };
        Ok(LockedMember { grantor, row, has_other_owner: found.has_other_owner })
    }
}

/// A member, read under the organization's lock.
#[derive(Clone, Debug)]
pub struct LockedMember {
    /// The caller as a grantor of roles.
    pub grantor: Grantor<OrganizationRole>,
    pub row: Member,
    /// `true` if the organization has an owner other than the member.
    pub has_other_owner: bool,
}
