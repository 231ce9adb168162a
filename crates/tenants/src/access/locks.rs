//! Locks of changes that aren't a caller's: a guest accepts an invitation, or a provider's sign-on sets a membership.

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};

use super::LockedTx;
use crate::store;
use crate::store::invitations::{InvitationRoles, OpenInvitation};
use crate::store::organization_members::MemberAndCaller;

/// Takes the lock of the organization that the invitation is for, and reads the current roles of its sender
/// and its guest; `None` if the invitation is no longer open. An invitation is a right of its own: its guest
/// has no scope yet.
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

/// Takes the lock of the organization that a provider's sign-ons are for, and reads the person's membership;
/// `None` if the organization doesn't exist. The right comes from the operator, who configured the provider.
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
