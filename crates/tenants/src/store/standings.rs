//! A person's standing, with what they ask about: one statement for both, because every call asks for it, and every change
//! again under the organization's lock.

use std::sync::LazyLock;

use crate::roles::{OrganizationRole, ProjectRole};
use crate::store::organizations::OrganizationDetail;
use crate::store::project_members::Member;
use crate::store::projects::{self, ProjectDetail};
use db::{FromRow, Row, Statement, Tx, sql};
use kernel::ids::{OrganizationId, ProjectId, UserId};

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

impl<T: Beside> FromRow for InProject<T> {
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
        let found = if project.is_some() { T::read(row)? } else { None };
        let organization_role = organization_role.as_deref().and_then(OrganizationRole::parse);
        Ok(Self { organization_role, project, found })
    }
}

/// Something that is read in one statement with a person's standing in a project.
pub trait Beside: Sized {
    /// What it is found by, besides the project.
    type Id: Copy + Send;
    /// The statement, made by [`text`].
    fn text() -> &'static str;
    /// Binds the id, where the statement has a parameter for it.
    fn bind(statement: Statement, id: Self::Id) -> Statement;
    /// Reads it, if it is there.
    fn read(row: &Row) -> Result<Option<Self>, db::Error>;
}

const STANDING: &str = "om.role AS organization_role, p.id AS found_project_id, pm.role AS project_role,
     CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization";

const PLACES: &str = "organizations o
     LEFT JOIN organization_members om ON om.organization_id = o.id AND om.user_id = $3
     LEFT JOIN projects p ON p.id = $2 AND p.organization_id = o.id
     LEFT JOIN project_members pm ON pm.project_id = p.id AND pm.user_id = $3";

/// The statement of the standing of the person `$3` in the project `$2` of the organization `$1`, with further columns. They
/// are of the organization `o`, of the project `p`, or of tables that `joins` adds by the id `$4`.
pub fn text(columns: &str, joins: &str) -> String {
    format!("SELECT {STANDING}{columns} FROM {PLACES} {joins} WHERE o.id = $1")
}

/// A person's standing in a project, with something else; `None` when there is no such organization.
pub async fn in_project<T: Beside>(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
    id: T::Id,
) -> Result<Option<InProject<T>>, db::Error> {
    let statement = sql(T::text()).bind(organization_id).bind(project_id).bind(user_id);
    T::bind(statement, id).batched().optional(tx).await
}

/// Nothing.
impl Beside for () {
    type Id = ();
    fn text() -> &'static str {
        static TEXT: LazyLock<String> = LazyLock::new(|| text("", ""));
        &TEXT
    }
    fn bind(statement: Statement, (): ()) -> Statement {
        statement
    }
    fn read(_: &Row) -> Result<Option<Self>, db::Error> {
        Ok(Some(()))
    }
}

/// A project and the settings of its organization that concern it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectAndOrganization {
    /// The project.
    pub detail: ProjectDetail,
    /// The organization's name.
    pub organization_name: String,
    /// Whether the organization's projects may be public.
    pub allow_public_projects: bool,
}

impl Beside for ProjectAndOrganization {
    type Id = ();
    fn text() -> &'static str {
        static TEXT: LazyLock<String> = LazyLock::new(|| {
            let columns =
                format!(", o.name AS organization_name, o.allow_public_projects, {}", projects::COLUMNS);
            text(&columns, "")
        });
        &TEXT
    }
    fn bind(statement: Statement, (): ()) -> Statement {
        statement
    }
    fn read(row: &Row) -> Result<Option<Self>, db::Error> {
        Ok(Some(Self {
            detail: ProjectDetail::from_row(row)?,
            organization_name: row.get("organization_name")?,
            allow_public_projects: row.get("allow_public_projects")?,
        }))
    }
}

impl Beside for Member {
    type Id = Option<UserId>;
    fn text() -> &'static str {
        static TEXT: LazyLock<String> = LazyLock::new(|| {
            let joins = "LEFT JOIN project_members pn ON pn.project_id = p.id AND pn.user_id = $4
                         LEFT JOIN users nu ON nu.id = pn.user_id";
            let columns =
                ", pn.user_id, nu.email, nu.email_folded, nu.username, pn.role, pn.added_at AS joined_at,
                 pn.updated_at";
            text(columns, joins)
        });
        &TEXT
    }
    fn bind(statement: Statement, id: Option<UserId>) -> Statement {
        statement.bind(id)
    }
    fn read(row: &Row) -> Result<Option<Self>, db::Error> {
        Self::optional(row)
    }
}
