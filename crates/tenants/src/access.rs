//! Authorization: from a caller to a scope.
//!
//! A scope is the permission for one action on one object. Its fields are private, and only its `admit`
//! creates it, so an operation that takes a scope can't run unchecked. A write checks the permission again
//! under its lock (`lock_and_recheck`), and gets a [`LockedTx`]. The order of errors is fixed: first 404,
//! beginning with the outermost object, then 403.

mod caller;
mod callers;
mod invitations;
mod locked;
mod locks;
mod members;
mod organizations;
mod project_members;
mod project_roles;
mod projects;
mod sign_ons;

pub use caller::{Caller, KeyKind, KeyLimits};
pub use callers::{CallerScope, PersonScope};
pub use invitations::{InvitationScope, LockedInvitation};
pub use locked::LockedTx;
pub use locks::{lock_for_sign_on, lock_invitation};
pub use members::{LockedMember, MemberScope};
pub use organizations::{FoundOrganization, LockedOrganization, OrgScope};
pub use project_members::ProjectMemberScope;
pub use project_roles::{Roles, roles};
pub use projects::{FoundProject, LockedProject, ProjectPath, ProjectScope};
pub use sign_ons::SignedInBy;

use accounts::second_factor;
use db::Tx;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};

/// Checks that a member who calls with an access token meets the organization's requirements: a sign-on with
/// its provider, or a second factor.
///
/// # Errors
/// `sign_on_required`, `second_factor_enrolment_required`.
pub async fn check_requirements(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
    signed_in_by: &SignedInBy,
) -> Result<(), Error> {
    let requirements = crate::store::organizations::requirements(tx, organization_id).await?;
    if requirements.sign_on {
        signed_in_by.check(tx, organization_id, user_id).await?;
    }
    if requirements.second_factor {
        second_factor::require(tx, user_id).await?;
    }
    Ok(())
}
