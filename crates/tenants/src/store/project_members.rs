//! Members of projects, and their roles.

use crate::access::LockedTx;
use crate::store::members;
use kernel::clock::Time;
use kernel::ids::{ProjectId, UserId};

pub use crate::store::members::{add, audience, insert, list, set_role};

/// A member of a project.
pub type Member = members::Member<ProjectId>;
/// The filter of a list of a project's members.
pub type Filter = members::Filter<ProjectId>;

/// Removes a user from the project, and notifies every replica. Must be the last statement of its
/// transaction.
pub async fn remove(
    tx: &mut LockedTx<'_>,
    project_id: ProjectId,
    user_id: UserId,
    now: Time,
) -> Result<(), db::Error> {
    members::remove(tx, project_id, user_id, now).await
}
