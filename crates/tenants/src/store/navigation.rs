//! The contents of a page's navigation, which are read with one statement.

use crate::roles::{OrganizationRole, ProjectRole, effective_project_role};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, ProjectId, UserId};

/// The user who views the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    pub username: String,
    pub email: String,
    /// `true` if the user is an operator.
    pub is_operator: bool,
}

/// An organization with the user's role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Organization {
    pub id: OrganizationId,
    pub name: String,
    pub role: OrganizationRole,
}

/// A project with the user's effective role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    pub id: ProjectId,
    pub name: String,
    pub role: ProjectRole,
}

/// The organization and the project that a page is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub organization_id: Option<OrganizationId>,
    pub project_id: Option<ProjectId>,
}

/// A row of the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The first row: the user, and the organization and the project that the page is about.
    Visit {
        person: Person,
        /// The organization of the page, if the user has a role in it.
        organization: Option<Organization>,
        /// The project of the page, if the user has a role in it.
        project: Option<Project>,
    },
    /// An organization that the user belongs to.
    Listed(Organization),
}

impl FromRow for Entry {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        if let Some(listed) = organization(row, ["id", "name", "role"])? {
            return Ok(Self::Listed(listed));
        }
        Ok(Self::Visit {
            person: Person {
                username: row.get("username")?,
                email: row.get("email")?,
                is_operator: row.get::<Option<Time>>("operator_since")?.is_some(),
            },
            organization: organization(row, ["place_id", "place_name", "place_role"])?,
            project: project(row)?,
        })
    }
}

fn organization(row: &Row, [id, name, role]: [&str; 3]) -> Result<Option<Organization>, db::Error> {
    let Some(role) = row.get(role)? else { return Ok(None) };
    Ok(Some(Organization { id: row.get(id)?, name: row.get(name)?, role }))
}

fn project(row: &Row) -> Result<Option<Project>, db::Error> {
    let Some(id) = row.get("project_id")? else { return Ok(None) };
    let is_open = row.get("open_to_organization")?;
    let role = effective_project_role(row.get("place_role")?, row.get("project_role")?, is_open);
    let name = row.get("project_name")?;
    Ok(role.map(|role| Project { id, name, role }))
}

/// Returns the navigation of a page about `place`, with at most `limit` of the user's organizations, newest
/// first. Returns no rows if the user doesn't exist. If `only` is set, no other organizations are listed.
pub async fn read(
    tx: &mut Tx,
    user_id: UserId,
    place: Place,
    only: Option<OrganizationId>,
    limit: i64,
) -> Result<Vec<Entry>, db::Error> {
    sql(READ)
        .bind(user_id)
        .bind(place.organization_id)
        .bind(place.project_id)
        .bind(only.map(|id| id.to_string()).unwrap_or_default())
        .bind(limit)
        .all(tx)
        .await
}

/// The statement of [`read`]: the user and the place, then the user's organizations. Each part is read in the
/// order of an index. A sort would need a temporary table in SQLite, which would take as long as the rest of
/// the page.
pub const READ: &str =
    "SELECT u.username, u.email, u.operator_since, o.id AS place_id, o.name AS place_name, om.role AS place_role,
            p.id AS project_id, p.name AS project_name, pm.role AS project_role,
            CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization,
            NULL AS id, NULL AS name, NULL AS role
     FROM users u
     LEFT JOIN organizations o ON o.id = $2
     LEFT JOIN organization_members om ON om.organization_id = o.id AND om.user_id = u.id
     LEFT JOIN projects p ON p.id = $3 AND p.organization_id = o.id
     LEFT JOIN project_members pm ON pm.project_id = p.id AND pm.user_id = u.id
     WHERE u.id = $1
     UNION ALL
     SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, listed.id, listed.name, listed.role
     FROM (SELECT l.id, l.name, m.role FROM organization_members m JOIN organizations l ON l.id = m.organization_id
           WHERE m.user_id = $1 AND ($4 = '' OR m.organization_id = $4)
           ORDER BY m.organization_id DESC LIMIT $5) listed";
