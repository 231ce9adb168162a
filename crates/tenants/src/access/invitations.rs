//! The scope for withdrawing an invitation or sending it again.

use crate::roles::{OrganizationAction, OrganizationRole};
use crate::rules::membership::Grantor;
use crate::store;
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{InvitationId, OrganizationId, UserId};

use crate::Tenants;
use crate::store::invitations::FoundInvitation;

use super::{Caller, KeyKind, LockedTx};
use trail::Trail;

/// The permission to withdraw an invitation, or to send it again.
#[derive(Clone, Debug)]
pub struct InvitationScope {
    caller: Caller,
    organization_id: OrganizationId,
    invitation_id: InvitationId,
    trail: Trail,
}

impl InvitationScope {
    /// Admits a caller who may invite members.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        tenants: &Tenants,
        organization_id: OrganizationId,
        invitation_id: Option<InvitationId>,
        caller: Caller,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let now = tenants.clock.now();
            let mut tx = tenants.db().read().await?;
            let found = store::invitations::invitation_and_caller(
                &mut tx,
                organization_id,
                invitation_id,
                caller.user_id,
                now,
            )
            .await?
            .ok_or(Code::OrganizationNotFound)?;
            let role = caller.organization_role(&mut tx, organization_id, found.caller_role).await?;
            let invitation = found.invitation.ok_or(Code::InvitationNotFound)?;
            caller.check_key_scope(organization_id, None)?;
            caller.check_may_manage(KeyKind::Unrestricted)?;
            inviter(role)?;
            caller.check_requirements_of(&mut tx, organization_id).await?;
            Ok(Self { caller, organization_id, invitation_id: invitation.id, trail })
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
    /// Returns the user whose roles apply; for an API key, its creator.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    pub fn invitation_id(&self) -> InvitationId {
        self.invitation_id
    }

    /// Locks the organization and repeats the check of `admit`, because its result may have changed. Returns
    /// the invitation with its status at the time `now`.
    ///
    /// # Errors
    /// 404 and 403, as from `admit`.
    pub async fn lock_and_recheck<'t>(
        &self,
        tx: &'t mut Tx,
        now: Time,
    ) -> Result<(LockedTx<'t>, LockedInvitation), Error> {
        store::organizations::lock(tx, self.organization_id).await?;
        let found = store::invitations::invitation_and_caller(
            tx,
            self.organization_id,
            Some(self.invitation_id),
            self.caller.user_id,
            now,
        )
        .await?
        .ok_or(Code::OrganizationNotFound)?;
        let role = self.caller.organization_role(tx, self.organization_id, found.caller_role).await?;
        let row = found.invitation.ok_or(Code::InvitationNotFound)?;
        let grantor = Grantor { role: inviter(role)?, is_key: self.caller.key.is_some() };
        Ok((LockedTx::new(tx), LockedInvitation { grantor, row }))
    }
}

/// Returns the role if it allows the caller to invite members.
fn inviter(role: Option<OrganizationRole>) -> Result<OrganizationRole, Error> {
    let role = role.filter(|role| role.allows(OrganizationAction::InviteMembers));
    Ok(role.ok_or(Code::InsufficientRole)?)
}

/// An invitation, read under the organization's lock.
#[derive(Clone, Debug)]
pub struct LockedInvitation {
    /// The caller as a grantor of roles.
    pub grantor: Grantor<OrganizationRole>,
    pub row: FoundInvitation,
}
