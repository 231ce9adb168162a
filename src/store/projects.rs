//! Projects inside organizations.

use crate::clock::Time;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{OrganizationId, ProjectId, UserId};
use crate::money::Ppm;
use crate::roles::{OrganizationAction, OrganizationRole, ProjectRole, Visibility};
use crate::store::{Page, contains_pattern};

/// A row of `projects`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    /// Primary key.
    pub id: ProjectId,
    /// The tenant.
    pub organization_id: OrganizationId,
    /// As given.
    pub name: String,
    /// As given.
    pub description: Option<String>,
    /// A model of the catalog.
    pub model: Option<String>,
    /// Tokens.
    pub max_tokens: Option<i64>,
    /// Sampling temperature.
    pub temperature: Option<Ppm>,
    /// Who can see it.
    pub visibility: Visibility,
    /// Creation.
    pub created_at: Time,
    /// Last change.
    pub updated_at: Time,
}

impl FromRow for Project {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let visibility: String = row.get("visibility")?;
        let temperature_ppm: Option<i64> = row.get("temperature_ppm")?;
        Ok(Self {
            id: row.get("id")?,
            organization_id: row.get("organization_id")?,
            name: row.get("name")?,
            description: row.get("description")?,
            model: row.get("model")?,
            max_tokens: row.get("max_tokens")?,
            temperature: temperature_ppm.map(|ppm| Ppm::from_units(i128::from(ppm))),
            visibility: Visibility::parse(&visibility)
                .ok_or_else(|| db::Error::Internal(format!("visibility is {visibility:?}")))?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

/// Adds a project.
///
/// # Errors
/// `Unique` with `ProjectName`.
pub async fn insert(
    tx: &mut Tx,
    project: &Project,
    name_folded: &str,
    created_by: UserId,
) -> Result<(), db::Error> {
    sql("INSERT INTO projects (id, organization_id, name, name_folded, description, model, max_tokens, temperature_ppm,
                               visibility, created_by, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)")
    .bind(project.id)
    .bind(project.organization_id)
    .bind(project.name.as_str())
    .bind(name_folded)
    .bind(project.description.as_deref())
    .bind(project.model.as_deref())
    .bind(project.max_tokens)
    .bind(project.temperature.and_then(Ppm::to_i64))
    .bind(project.visibility.as_str())
    .bind(created_by)
    .bind(project.created_at)
    .bind(project.updated_at)
    .execute(tx)
    .await?;
    Ok(())
}

/// One project with its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectDetail {
    /// The row.
    pub project: Project,
    /// Explicit members.
    pub members_count: i64,
    /// API keys.
    pub api_keys_count: i64,
}

impl FromRow for ProjectDetail {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            project: Project::from_row(row)?,
            members_count: row.get("members_count")?,
            api_keys_count: row.get("api_keys_count")?,
        })
    }
}

/// The project with this id in this organization.
pub async fn detail(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
) -> Result<Option<ProjectDetail>, db::Error> {
    sql("SELECT * FROM projects WHERE id = $2 AND organization_id = $1")
        .bind(organization_id)
        .bind(project_id)
        .optional(tx)
        .await
}

/// A project and the caller's explicit role in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedProject {
    /// The row.
    pub project: Project,
    /// The caller's explicit role.
    pub role: Option<ProjectRole>,
    /// Whether every member of the organization may view it.
    pub open_to_organization: bool,
}

impl FromRow for ListedProject {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let role: Option<String> = row.get("role")?;
        Ok(Self {
            project: Project::from_row(row)?,
            role: role.as_deref().and_then(ProjectRole::parse),
            open_to_organization: row.get("open_to_organization")?,
        })
    }
}

/// Which projects a list shows: those that the caller can view.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The tenant.
    pub organization_id: OrganizationId,
    /// The caller.
    pub user_id: UserId,
    /// The caller's role in the organization.
    pub organization_role: OrganizationRole,
    /// Only this one, for an API key.
    pub only: Option<ProjectId>,
    /// Only those whose folded name holds this.
    pub search_folded: String,
    /// Only those in which the caller has this effective role.
    pub role: Option<ProjectRole>,
}

// $3 = 1: the caller manages every project, and so is owner of each (`roles::effective_project_role`).
const LISTED: &str = "FROM projects p JOIN organizations o ON o.id = p.organization_id
     LEFT JOIN project_members m ON m.project_id = p.id AND m.user_id = $2
     WHERE p.organization_id = $1
       AND ($3 = 1 OR m.role IS NOT NULL OR (p.visibility = 'public' AND o.allow_public_projects = 1))
       AND ($4 = '' OR p.id = $4) AND p.name_folded LIKE $5 ESCAPE '\\'
       AND ($6 = '' OR CASE WHEN $3 = 1 THEN 'owner' ELSE COALESCE(m.role, 'viewer') END = $6)";

/// One page of them, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<Vec<ListedProject>, db::Error> {
    let text = format!(
        "SELECT p.*, m.role AS role,
                CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization
         {LISTED} ORDER BY p.created_at DESC, p.id LIMIT $7 OFFSET $8"
    );
    bind(sql(text), filter).bind(page.page_size).bind(page.offset()).all(tx).await
}

/// How many there are.
pub async fn count(tx: &mut Tx, filter: &Filter) -> Result<i64, db::Error> {
    let (count,): (i64,) = bind(sql(format!("SELECT COUNT(*) AS value {LISTED}")), filter).one(tx).await?;
    Ok(count)
}

fn bind(statement: db::Statement, filter: &Filter) -> db::Statement {
    statement
        .bind(filter.organization_id)
        .bind(filter.user_id)
        .bind(filter.organization_role.allows(OrganizationAction::ManageProjects))
        .bind(filter.only.map(|id| id.to_string()).unwrap_or_default())
        .bind(contains_pattern(&filter.search_folded))
        .bind(filter.role.map_or("", ProjectRole::as_str))
}
