//! Where somebody stands, with what they ask about: one statement for both, because every call asks for it, and every change
//! again under the organization's lock.

use std::sync::LazyLock;

use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::roles::{OrganizationRole, ProjectRole};
use crate::store::api_keys::{self, ApiKey};
use crate::store::organizations::OrganizationDetail;
use crate::store::project_members::{self, Member};
use crate::store::projects::{self, ProjectDetail};
use crate::store::usage::totals::{self, Added, Limited, Part};

/// An organization, and somebody's role in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InOrganization {
    /// The organization.
    pub organization: OrganizationDetail,
    /// Their role.
    pub role: Option<OrganizationRole>,
}

impl FromRow for InOrganization {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let role: Option<String> = row.get("role")?;
        Ok(Self {
            organization: OrganizationDetail::from_row(row)?,
            role: role.as_deref().and_then(OrganizationRole::parse),
        })
    }
}

/// Somebody's standing in an organization; `None` when there is no such one.
pub async fn in_organization(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<Option<InOrganization>, db::Error> {
    sql("SELECT o.id, o.name, o.description, o.default_role, o.allow_public_projects, o.created_at, o.updated_at,
                o.members_count, o.projects_count, m.role AS role
         FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $2
         WHERE o.id = $1")
    .bind(organization_id)
    .bind(user_id)
    .batched()
    .optional(tx)
    .await
}

/// Where somebody stands in an organization that exists, and in a project of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InProject<T> {
    /// Their role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// What they are in the project, when there is such a one in this organization.
    pub project: Option<ProjectStanding>,
    /// What else was asked for; only where there is such a project.
    pub found: Option<T>,
}

/// Where somebody stands in a project that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProjectStanding {
    /// Their explicit role.
    pub role: Option<ProjectRole>,
    /// Whether every member of the organization may view it.
    pub open_to_organization: bool,
}

impl<T: Found> FromRow for InProject<T> {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let organization_role: Option<String> = row.get("organization_role")?;
        let (project, role): (Option<String>, Option<String>) =
            (row.get("found_project_id")?, row.get("project_role")?);
        let project = match project {
            Some(_) => Some(ProjectStanding {
                role: role.as_deref().and_then(ProjectRole::parse),
                open_to_organization: row.get("open_to_organization")?,
            }),
            None => None,
        };
        let found = if project.is_some() { T::find(row)? } else { None };
        let organization_role = organization_role.as_deref().and_then(OrganizationRole::parse);
        Ok(Self { organization_role, project, found })
    }
}

/// What is asked for beside a project that exists.
pub trait Found: Sized {
    /// Reads it, if it is there.
    fn find(row: &Row) -> Result<Option<Self>, db::Error>;
}

/// Nothing.
impl Found for () {
    fn find(_: &Row) -> Result<Option<Self>, db::Error> {
        Ok(Some(()))
    }
}

/// A project and what its organization says of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundProject {
    /// The project.
    pub detail: ProjectDetail,
    /// The organization's name.
    pub organization_name: String,
    /// Whether the organization's projects may be public.
    pub allow_public_projects: bool,
}

impl Found for FoundProject {
    fn find(row: &Row) -> Result<Option<Self>, db::Error> {
        Ok(Some(Self {
            detail: ProjectDetail::from_row(row)?,
            organization_name: row.get("organization_name")?,
            allow_public_projects: row.get("allow_public_projects")?,
        }))
    }
}

impl Found for ApiKey {
    fn find(row: &Row) -> Result<Option<Self>, db::Error> {
        let id: Option<String> = row.get("id")?;
        if id.is_some() { Self::from_row(row).map(Some) } else { Ok(None) }
    }
}

/// A key, and what was kept of its current secret: never shown.
#[derive(Clone)]
pub struct WithSecret {
    /// The key.
    pub key: ApiKey,
    /// The secret, sealed, where a copy was kept.
    pub sealed: Option<Vec<u8>>,
}

impl Found for WithSecret {
    fn find(row: &Row) -> Result<Option<Self>, db::Error> {
        let Some(key) = ApiKey::find(row)? else { return Ok(None) };
        Ok(Some(Self { key, sealed: row.get("sealed_secret")? }))
    }
}

/// Something, and what a part of its usage comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WithUse<T> {
    /// The project or the key.
    pub found: T,
    /// What was added up.
    pub added: Added,
}

impl<T: Found> Found for WithUse<T> {
    fn find(row: &Row) -> Result<Option<Self>, db::Error> {
        let Some(found) = T::find(row)? else { return Ok(None) };
        Ok(Some(Self { found, added: Added::from_row(row)? }))
    }
}

const STANDING: &str = "om.role AS organization_role, p.id AS found_project_id, pm.role AS project_role,
     CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization";

const PLACES: &str = "organizations o
     LEFT JOIN organization_members om ON om.organization_id = o.id AND om.user_id = $3
     LEFT JOIN projects p ON p.id = $2 AND p.organization_id = o.id
     LEFT JOIN project_members pm ON pm.project_id = p.id AND pm.user_id = $3";

static ROLES: LazyLock<String> = LazyLock::new(|| format!("SELECT {STANDING} FROM {PLACES} WHERE o.id = $1"));

static PROJECT: LazyLock<String> = LazyLock::new(|| project_text("", ""));

static MEMBER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {STANDING}, {} FROM {PLACES}
         LEFT JOIN project_members pn ON pn.project_id = p.id AND pn.user_id = $4
         LEFT JOIN users nu ON nu.id = pn.user_id
         WHERE o.id = $1",
        project_members::BESIDE
    )
});

static API_KEY: LazyLock<String> = LazyLock::new(|| key_text("", ""));

static KEY_AND_SECRET: LazyLock<String> = LazyLock::new(|| {
    let secret = "LEFT JOIN api_key_secrets s ON s.api_key_id = k.id AND s.ends_at IS NULL";
    key_text(", s.sealed_secret", secret)
});

/// The statements of [`project_with_use`].
pub static PROJECT_WITH_USE: LazyLock<Limited> = LazyLock::new(|| {
    Limited::new(|most| {
        let used = format!("CROSS JOIN ({}) used", totals::of_project(4, Some(most)));
        project_text(&format!(", {}", totals::COLUMNS), &used)
    })
});

/// The statements of [`key_with_use`].
pub static KEY_WITH_USE: LazyLock<Limited> = LazyLock::new(|| {
    Limited::new(|most| {
        let used = format!("CROSS JOIN ({}) used", totals::of_key(4, 5, Some(most)));
        key_text(&format!(", {}", totals::COLUMNS), &used)
    })
});

/// The statement of [`in_project`], with further columns from another table.
fn project_text(columns: &str, table: &str) -> String {
    format!(
        "SELECT {STANDING}, o.name AS organization_name, o.allow_public_projects, {}{columns}
         FROM {PLACES} {table} WHERE o.id = $1",
        projects::COLUMNS
    )
}

/// The statement of [`of_key`], with further columns from another table.
fn key_text(columns: &str, table: &str) -> String {
    format!(
        "SELECT {STANDING}, {}{columns} FROM {PLACES}
         LEFT JOIN api_keys k ON k.id = $4 AND k.project_id = p.id
         LEFT JOIN users u ON u.id = k.created_by
         LEFT JOIN api_key_last_uses l ON l.api_key_id = k.id
         {table} WHERE o.id = $1",
        api_keys::COLUMNS
    )
}

/// Somebody's standing and no more; `None` when there is no such organization.
pub async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
) -> Result<Option<InProject<()>>, db::Error> {
    sql(ROLES.as_str()).bind(organization_id).bind(project_id).bind(user_id).batched().optional(tx).await
}

/// The same with the project.
pub async fn in_project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
) -> Result<Option<InProject<FoundProject>>, db::Error> {
    sql(PROJECT.as_str()).bind(organization_id).bind(project_id).bind(user_id).batched().optional(tx).await
}

/// The same with a member of the project, if it has such a one.
pub async fn of_member(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
    member_id: Option<UserId>,
) -> Result<Option<InProject<Member>>, db::Error> {
    let statement = sql(MEMBER.as_str()).bind(organization_id).bind(project_id).bind(user_id);
    statement.bind(member_id).batched().optional(tx).await
}

/// The same with an API key of the project, if it has such a one.
pub async fn of_key(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
    api_key_id: Option<ApiKeyId>,
) -> Result<Option<InProject<ApiKey>>, db::Error> {
    let statement = sql(API_KEY.as_str()).bind(organization_id).bind(project_id).bind(user_id);
    statement.bind(api_key_id).batched().optional(tx).await
}

/// The same with what was kept of the key's current secret.
pub async fn of_key_and_secret(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
    api_key_id: Option<ApiKeyId>,
) -> Result<Option<InProject<WithSecret>>, db::Error> {
    let statement = sql(KEY_AND_SECRET.as_str()).bind(organization_id).bind(project_id).bind(user_id);
    statement.bind(api_key_id).optional(tx).await
}

/// As [`in_project`], and what a part of the project's usage comes to. It is added up before anybody knows who may see it, so a
/// part should be small.
pub async fn project_with_use(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
    part: Part,
) -> Result<Option<InProject<WithUse<FoundProject>>>, db::Error> {
    let text = PROJECT_WITH_USE.text(part.most);
    let statement = sql(text).bind(organization_id).bind(project_id).bind(user_id);
    statement.bind(part.from).bind(totals::LAST).batched().optional(tx).await
}

/// As [`of_key`], and what a part of the key's usage comes to.
pub async fn key_with_use(
    tx: &mut Tx,
    (organization_id, project_id, api_key_id): (OrganizationId, Option<ProjectId>, Option<ApiKeyId>),
    user_id: UserId,
    part: Part,
) -> Result<Option<InProject<WithUse<ApiKey>>>, db::Error> {
    let text = KEY_WITH_USE.text(part.most);
    let statement = sql(text).bind(organization_id).bind(project_id).bind(user_id);
    statement.bind(api_key_id).bind(part.from).bind(totals::LAST).batched().optional(tx).await
}
