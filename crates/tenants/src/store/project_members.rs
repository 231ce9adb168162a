//! Members of projects: who belongs to which, and with what role.

use crate::access::HeldTx;
use crate::store::members;
use kernel::clock::Time;
use kernel::ids::{ProjectId, UserId};

pub use crate::store::members::{add, audience, insert, list, set_role};

/// A member of a project.
pub type Member = members::Member<ProjectId>;
/// Which members of a project a list shows.
pub type Filter = members::Filter<ProjectId>;

/// Takes a person out of the project. Replicas let go of what they hold of the person; the last statement of its transaction.
pub async fn remove(
    tx: &mut HeldTx<'_>,
    project_id: ProjectId,
    user_id: UserId,
    now: Time,
) -> Result<(), db::Error> {
    members::remove(tx, project_id, user_id, now).await
}
