//! Keys of an organization that end soon: expiring keys, and keys with a previous secret.

use crate::Keys;
use crate::store::api_keys::endings::{self, Ending};
use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;
use kernel::ids::{ApiKeyId, ProjectId};
use tenants::access::OrgScope;
use tenants::roles::{ProjectAction, effective_project_role};

/// The time before its end from which a key counts as ending soon.
const SOON_MS: i64 = 14 * DAY_MS;

/// Maximum number of keys that are read of each kind.
const MAX_ROWS: i64 = 200;

/// A key that ends soon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndingKey {
    pub id: ApiKeyId,
    pub name: String,
    pub project_id: ProjectId,
    pub project_name: String,
    /// The time from which the key or the secret no longer works.
    pub ends_at: Time,
}

/// Keys and secrets that end soon, the earliest end first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endings {
    /// Keys that expire within 14 days.
    pub expiring: Vec<EndingKey>,
    /// Keys whose previous secret still works.
    pub rotating: Vec<EndingKey>,
}

/// Lists the keys and secrets that end soon and that the caller may manage: at most 200 of each kind, the
/// earliest end first.
///
/// # Errors
/// The database fails.
pub async fn list(keys: &Keys, scope: &OrgScope) -> Result<Endings, Error> {
    let now = keys.clock.now();
    let (id, user_id) = (scope.organization_id(), scope.user_id());
    let managed = |row: Ending| {
        // The role that an open project gives isn't read, because viewers don't manage keys.
        let role = effective_project_role(Some(scope.role()), row.role, false);
        let may_manage = role.is_some_and(|role| role.allows(ProjectAction::ManageApiKeys));
        let is_in_reach = scope.only_project().is_none_or(|only| only == row.project_id);
        let Ending { id, name, project_id, project_name, ends_at, .. } = row;
        (may_manage && is_in_reach).then_some(EndingKey { id, name, project_id, project_name, ends_at })
    };
    let mut tx = keys.db.read().await?;
    let expiring = endings::expiring(&mut tx, id, user_id, (now, now.plus_ms(SOON_MS)), MAX_ROWS).await?;
    let rotating = endings::rotating(&mut tx, id, user_id, now, MAX_ROWS).await?;
    Ok(Endings {
        expiring: expiring.into_iter().filter_map(managed).collect(),
        rotating: rotating.into_iter().filter_map(managed).collect(),
    })
}
