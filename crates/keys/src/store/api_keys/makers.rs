//! The keys that a member of an organization has created.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};

/// A key that a member has created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MadeKey {
    pub id: ApiKeyId,
    pub name: String,
    pub project_id: ProjectId,
    /// The project's name.
    pub project: String,
}

db::row!(MadeKey { id, name, project_id, project });

/// A filter of keys by creator, organization and project.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    pub organization_id: OrganizationId,
    /// The project; `None` for the whole organization.
    pub project_id: Option<ProjectId>,
    pub maker: UserId,
    /// The time at which the keys must not have expired.
    pub now: Time,
}

/// Returns at most `limit` keys, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, limit: i64) -> Result<Vec<MadeKey>, db::Error> {
    let project_id = filter.project_id.map_or_else(String::new, |id| id.to_string());
    sql(LIST)
        .bind(filter.organization_id)
        .bind(filter.maker)
        .bind(project_id)
        .bind(filter.now)
        .bind(limit)
        .all(tx)
        .await
}

/// The statement of [`list`]. It uses the index on the creator.
pub const LIST: &str = "SELECT k.id, k.name, k.project_id, p.name AS project
     FROM api_keys k /*+ INDEXED BY api_keys_created_by */ CROSS JOIN projects p
     WHERE k.created_by = $2 AND k.organization_id = $1 AND ($3 = '' OR k.project_id = $3)
       AND (k.expires_at IS NULL OR k.expires_at > $4) AND p.id = k.project_id
     ORDER BY k.created_at DESC, k.id LIMIT $5";
