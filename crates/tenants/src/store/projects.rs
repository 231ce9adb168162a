//! The table `projects`.

pub mod listing;

use std::sync::LazyLock;

use crate::access::LockedTx;
use crate::roles::Visibility;
use cluster::changes::{self, Change};
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use kernel::money::Ppm;
use kernel::version::Version;

/// A row of `projects`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    pub id: ProjectId,
    pub organization_id: OrganizationId,
    pub name: String,
    pub description: Option<String>,
    /// The id of the default model in the catalog.
    pub model: Option<String>,
    /// The default for the maximum number of tokens of one request.
    pub max_tokens: Option<i64>,
    pub temperature: Option<Ppm>,
    pub visibility: Visibility,
    pub created_at: Time,
    pub updated_at: Time,
}

db::row!(Project {
    id,
    organization_id,
    name,
    description,
    model,
    max_tokens,
    temperature: "temperature_ppm",
    visibility,
    created_at,
    updated_at
});

/// The columns of a [`ProjectDetail`], in the table `p`.
pub const COLUMNS: &str =
    "p.id, p.organization_id, p.name, p.description, p.model, p.max_tokens, p.temperature_ppm,
     p.visibility, p.created_at, p.updated_at, p.members_count, p.api_keys_count";

/// Adds a project.
///
/// # Errors
/// `Unique` with `ProjectName` if the organization has another project with this name.
pub async fn insert(
    tx: &mut LockedTx<'_>,
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
    .bind(project.visibility)
    .bind(created_by)
    .bind(project.created_at)
    .bind(project.updated_at)
    .defer(tx)
    .await
}

/// A project with its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectDetail {
    pub project: Project,
    /// The number of explicit members.
    pub members_count: i64,
    pub api_keys_count: i64,
}

db::row!(ProjectDetail { project: Project::from_row, members_count, api_keys_count });

impl ProjectDetail {
    /// Returns the version, which depends on all fields of the project in replies, except its usage.
    pub fn version(&self) -> Result<Version, Error> {
        let Self { project, members_count, api_keys_count } = self;
        let Project {
            id,
            organization_id,
            name,
            description,
            model,
            max_tokens,
            temperature,
            visibility,
            created_at,
            updated_at,
        } = project;
        let settings = (model, max_tokens, temperature);
        let (times, counts) = ((created_at, updated_at), (members_count, api_keys_count));
        Version::of(&(id, organization_id, name, description, settings, visibility, times, counts))
    }
}

/// The statement of [`detail`].
static DETAIL: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM projects p WHERE p.id = $2 AND p.organization_id = $1"));

/// Returns the project with this id in this organization.
pub async fn detail(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
) -> Result<Option<ProjectDetail>, db::Error> {
    sql(DETAIL.as_str()).bind(organization_id).bind(project_id).optional(tx).await
}

/// The values of a change.
pub struct Changes<'a> {
    /// The row after the change.
    pub row: &'a Project,
    /// The folded name, if it has changed.
    pub name_folded: Option<&'a str>,
}

/// Stores a change.
///
/// # Errors
/// `Unique` with `ProjectName` if the organization has another project with this name.
pub async fn update(tx: &mut LockedTx<'_>, changes: &Changes<'_>) -> Result<(), db::Error> {
    let row = changes.row;
    sql("UPDATE projects SET name = $3, name_folded = COALESCE($4, name_folded), description = $5, model = $6,
                max_tokens = $7, temperature_ppm = $8, visibility = $9, updated_at = $10
         WHERE id = $2 AND organization_id = $1")
    .bind(row.organization_id)
    .bind(row.id)
    .bind(row.name.as_str())
    .bind(changes.name_folded)
    .bind(row.description.as_deref())
    .bind(row.model.as_deref())
    .bind(row.max_tokens)
    .bind(row.temperature.and_then(Ppm::to_i64))
    .bind(row.visibility)
    .bind(row.updated_at)
    .defer(tx)
    .await
}

/// Returns the ids of a project's keys, newest first.
pub async fn api_keys(tx: &mut Tx, project_id: ProjectId) -> Result<Vec<ApiKeyId>, db::Error> {
    let keys: Vec<(ApiKeyId,)> = sql(API_KEYS).bind(project_id).all(tx).await?;
    Ok(keys.into_iter().map(|(id,)| id).collect())
}

/// The statement of [`api_keys`].
pub const API_KEYS: &str = "SELECT id FROM api_keys WHERE project_id = $1 ORDER BY created_at DESC, id";

/// Removes the project with its keys and memberships, and notifies every replica. Its usage and the names of
/// its keys are kept. Must be the last statement of its transaction.
pub async fn remove(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    project_id: ProjectId,
    now: Time,
) -> Result<(), db::Error> {
    sql("DELETE FROM projects WHERE id = $2 AND organization_id = $1")
        .bind(organization_id)
        .bind(project_id)
        .heavy()
        .defer(tx)
        .await?;
    changes::record(tx, Change::Project(project_id), now).await
}
