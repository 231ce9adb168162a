//! Authorization: from a caller to a scope.
//!
//! A scope is the right to one action in one place. Its fields are private, and only its `admit` creates it,
//! so an operation that takes one can't run unchecked. A write checks the right again under its lock
//! (`lock_and_recheck`), and gets a [`LockedTx`] for it. The order of refusals is fixed: 404 from the outside
//! in, then 403.

mod caller;
mod callers;
mod invitations;
mod locked;
mod members;
mod organizations;
mod project_members;
mod projects;

pub use caller::{Caller, KeyKind, KeyLimits};
pub use callers::{CallerScope, PersonScope};
pub use invitations::{InvitationScope, LockedInvitation};
pub use locked::{LockedTx, lock_for_sign_on, lock_invitation};
pub use members::{LockedMember, MemberScope};
pub use organizations::{FoundOrganization, LockedOrganization, OrgScope};
pub use project_members::ProjectMemberScope;
pub use projects::{FoundProject, LockedProject, ProjectPath, ProjectScope, Roles, roles};

use accounts::second_factor;
use db::Tx;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};

/// Refuses a person without a second factor, where the organization requires one.
///
/// # Errors
/// `second_factor_enrolment_required`.
pub async fn check_second_factor(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<(), Error> {
    if crate::store::organizations::requires_second_factor(tx, organization_id).await? {
        second_factor::require(tx, user_id).await?;
    }
    Ok(())
}
