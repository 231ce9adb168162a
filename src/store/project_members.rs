//! Who belongs to which project, and as what.

use crate::clock::Time;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{OrganizationId, ProjectId, UserId};
use crate::roles::ProjectRole;

/// Where somebody stands in a project that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Their explicit role.
    pub role: Option<ProjectRole>,
    /// Whether every member of the organization may view it.
    pub open_to_organization: bool,
}

impl FromRow for Standing {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: Option<String> = row.get("role")?;
        Ok(Self {
            role: word.as_deref().and_then(ProjectRole::parse),
            open_to_organization: row.get("open_to_organization")?,
        })
    }
}

/// Somebody's standing; `None` when there is no such project in this organization.
pub async fn standing(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    user_id: UserId,
) -> Result<Option<Standing>, db::Error> {
    sql("SELECT m.role AS role,
                CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization
         FROM projects p JOIN organizations o ON o.id = p.organization_id
         LEFT JOIN project_members m ON m.project_id = p.id AND m.user_id = $3
         WHERE p.id = $2 AND p.organization_id = $1")
    .bind(organization_id)
    .bind(project_id)
    .bind(user_id)
    .optional(tx)
    .await
}

/// Adds a member.
pub async fn insert(
    tx: &mut Tx,
    project_id: ProjectId,
    user_id: UserId,
    role: ProjectRole,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO project_members (project_id, user_id, role, added_at, updated_at) VALUES ($1, $2, $3, $4, $4)")
        .bind(project_id)
        .bind(user_id)
        .bind(role.as_str())
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}
