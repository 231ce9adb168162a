//! The write transaction that proves that the caller's right was checked under the lock.

use std::ops::{Deref, DerefMut};

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};

use crate::store;
use crate::store::invitations::{InvitationRoles, OpenInvitation};
use crate::store::organization_members::MemberAndCaller;

/// A write transaction in which the caller's right was checked again under the lock that the write needs.
///
/// The statements that change organizations, projects, members, invitations and API keys take this type, and
/// only the `lock_…` functions of this module's scopes create it. An operation that writes after no more than
/// the check of `admit` doesn't compile:
///
/// ```compile_fail,E0308
/// # use db::Db;
/// # use kernel::error::Error;
/// # use tenants::{access::OrgScope, store, store::organizations::Changes};
/// async fn rename(db: Db, scope: OrgScope, changes: Changes<'_>) -> Result<(), Error> {
///     let mut tx = db.write().await?;
///     store::organizations::update(&mut tx, &changes).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
///
/// With the check under the lock it does:
///
/// ```
/// # use db::Db;
/// # use kernel::error::Error;
/// # use tenants::{access::OrgScope, store, store::organizations::Changes};
/// async fn rename(db: Db, scope: OrgScope, changes: Changes<'_>) -> Result<(), Error> {
///     let mut tx = db.write().await?;
///     let (mut locked, _) = scope.lock_for_removal_and_recheck(&mut tx).await?;
///     store::organizations::update(&mut locked, &changes).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
pub struct LockedTx<'t>(&'t mut Tx);

impl<'t> LockedTx<'t> {
    /// For the `lock_…` functions, once the lock is taken and the right was checked.
    pub(super) fn new(tx: &'t mut Tx) -> Self {
        Self(tx)
    }
}

impl Deref for LockedTx<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        self.0
    }
}

impl DerefMut for LockedTx<'_> {
    fn deref_mut(&mut self) -> &mut Tx {
        self.0
    }
}

impl std::fmt::Debug for LockedTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LockedTx")
    }
}

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
