//! Who may do what: from a caller to a scope.
//!
//! A scope is the right to one action in one place. Its fields are private, and only its `admit` makes it, so an operation
//! that takes one can't run unchecked. A write asks again under its lock (`hold`), and gets a [`HeldTx`] for it. The order
//! of refusals is fixed: 404 from the outside in, then 403.

mod caller;
mod callers;
mod held;
mod members;
mod organizations;
mod project_members;
mod projects;

pub use caller::{Caller, KeyKind, KeyLimits};
pub use callers::{CallerScope, PersonScope};
pub use held::{HeldTx, hold_invitation};
pub use members::{HeldMember, MemberScope};
pub use organizations::{FoundOrganization, HeldOrganization, OrgScope};
pub use project_members::ProjectMemberScope;
pub use projects::{FoundProject, Held, Place, ProjectScope, Roles, roles};
