//! Scopes of one member of an organization: managed by others, or leaving.

use crate::roles::{OrganizationAction, OrganizationRole};
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, UserId};

use crate::Tenants;
use crate::store::organization_members::Member;

use super::{Caller, HeldTx, KeyKind};
use trail::Trail;

/// The right to change or remove a member.
#[derive(Clone, Debug)]
pub struct MemberScope {
    caller: Caller,
    organization_id: OrganizationId,
    member_id: UserId,
    is_leaving: bool,
    trail: Trail,
}

impl MemberScope {
    /// Lets in a caller who manages members and, with `may_leave`, the member.
    ///
    /// # Errors
    /// 404 and 403.
    pub async fn admit(
        tenants: &Tenants,
        organization_id: OrganizationId,
        member_id: Option<UserId>,
        caller: Caller,
        may_leave: bool,
        trail: Trail,
    ) -> Result<Self, Error> {
        let mut tx = tenants.db.read().await?;
        let roles = store::organization_members::roles(&mut tx, organization_id, caller.user_id, member_id)
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        let role = caller.organization_role(&mut tx, organization_id, roles.one).await?;
        let member_id = member_id.filter(|_| roles.other.is_some()).ok_or(Code::MemberNotFound)?;
        caller.confine(organization_id, None)?;
        caller.may_manage(KeyKind::Whole)?;
        let is_oneself = caller.key.is_none() && caller.user_id == member_id;
        let is_leaving = may_leave && is_oneself && role.is_some();
        let manages = role.is_some_and(|role| role.allows(OrganizationAction::ManageMembers));
        if !manages && !is_leaving {
            return Err(Code::InsufficientRole.into());
        }
        Ok(Self { caller, organization_id, member_id, is_leaving, trail })
    }

    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    /// The member.
    pub fn member_id(&self) -> UserId {
        self.member_id
    }
    /// Returns `true` if the caller is that member, and a person: a key acts for its maker, but is not them.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Takes the organization's lock and asks again what the gate asked, because the answer may have changed since;
    /// the caller's role now, and the member.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, HeldMember), Error> {
        store::organizations::lock(tx, self.organization_id).await?;
        let two =
            store::organization_members::two(tx, self.organization_id, self.caller.user_id, self.member_id)
                .await?
                .ok_or(Code::OrganizationNotFound)?;
        let role = self.caller.organization_role(tx, self.organization_id, two.caller_role).await?;
        let role = match role {
            Some(role) if self.is_leaving || role.allows(OrganizationAction::ManageMembers) => role,
            None if self.is_leaving => return Err(Code::MemberNotFound.into()),
            _ => return Err(Code::InsufficientRole.into()),
        };
        let row = two.member.ok_or(Code::MemberNotFound)?;
        let grantor = Grantor { role, is_key: self.caller.key.is_some() };
        Ok((HeldTx::new(tx), HeldMember { grantor, row, has_other_owner: two.has_other_owner }))
    }
}

/// A member while the organization's lock is held.
#[derive(Clone, Debug)]
pub struct HeldMember {
    /// The caller, as far as it gives roles to others.
    pub grantor: Grantor<OrganizationRole>,
    /// The member.
    pub row: Member,
    /// `true` if the organization has an owner besides the member.
    pub has_other_owner: bool,
}
