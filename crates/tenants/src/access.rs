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
