//! Locks for changes without a scope: a guest accepts an invitation, or a sign-on with a provider sets a
//! membership.

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};

use super::LockedTx;
use crate::store;
use crate::store::invitations::{InvitationRoles, OpenInvitation};
use crate::store::organization_members::MemberAndCaller;

/// Locks the organization of the invitation, and reads the current roles of the sender and the guest; `None`
/// if the invitation is no longer open. The guest has no scope yet: the invitation is the permission.
///
/// # Errors
/// The database fails.
pub async fn lock_invitation<'t>(
    tx: &'t mut Tx,
    invitation: &OpenInvitation,
    guest: UserId,
    now: Time,
) -> Result<Option<(LockedTx<'t>, InvitationRoles)>, Error> {
    store::organizations::lock(tx, invitation.organization_id).await?;
    let roles = store::invitations::roles(tx, invitation.id, guest, now).await?;
    Ok(roles.map(|roles| (LockedTx::new(tx), roles)))
}

/// Locks the organization that a provider's sign-ons are for, and reads the user's membership; `None` if the
/// organization doesn't exist. The permission comes from the operator, who configured the provider.
///
/// # Errors
/// The database fails.
pub async fn lock_for_sign_on<'t>(
    tx: &'t mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<Option<(LockedTx<'t>, MemberAndCaller)>, Error> {
    store::organizations::lock(tx, organization_id).await?;
    let found = store::organization_members::member_and_caller(tx, organization_id, user_id, user_id).await?;
    Ok(found.map(|found| (LockedTx::new(tx), found)))
}
