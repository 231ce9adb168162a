//! The keys that members have created. A key keeps working when its creator leaves, so a user who removes a
//! member is shown the member's keys.

use kernel::error::Error;
use tenants::access::{MemberScope, ProjectMemberScope};

use crate::Keys;
use crate::store::api_keys::makers::{self, Filter};

pub use crate::store::api_keys::makers::MadeKey;

/// Maximum number of keys in a list.
const MAX_LISTED: usize = 50;

/// Keys that a member has created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MadeKeys {
    /// At most 50 keys, newest first.
    pub shown: Vec<MadeKey>,
    /// `true` if the member has created more keys.
    pub has_more: bool,
}

/// Returns the unexpired keys that a member has created in the organization.
///
/// # Errors
/// The database fails.
pub async fn of_member(keys: &Keys, scope: &MemberScope) -> Result<MadeKeys, Error> {
    let (organization_id, maker) = (scope.organization_id(), scope.member_id());
    list(keys, Filter { organization_id, project_id: None, maker, now: keys.clock.now() }).await
}

/// Returns the keys that a member has created in the project, like [`of_member`].
///
/// # Errors
/// The database fails.
pub async fn of_project_member(keys: &Keys, scope: &ProjectMemberScope) -> Result<MadeKeys, Error> {
    let (organization_id, maker) = (scope.project().organization_id(), scope.member_id());
    let project_id = Some(scope.project_id());
    list(keys, Filter { organization_id, project_id, maker, now: keys.clock.now() }).await
}

async fn list(keys: &Keys, filter: Filter) -> Result<MadeKeys, Error> {
    let mut tx = keys.db.read().await?;
    let limit = i64::try_from(MAX_LISTED).unwrap_or(i64::MAX).saturating_add(1);
    let mut shown = makers::list(&mut tx, &filter, limit).await?;
    let has_more = shown.len() > MAX_LISTED;
    shown.truncate(MAX_LISTED);
    Ok(MadeKeys { shown, has_more })
}
