//! A user's standing, which consists of their roles in an organization or a project, together with the
//! requested row. One statement reads the roles and the row, because every call needs both. Every change
//! reads them again under the organization's lock.

use std::sync::LazyLock;

use crate::roles::{OrganizationRole, ProjectRole};
use crate::store::organizations::{OrganizationDetail, Requirements};
use crate::store::project_members::Member;
use crate::store::projects::{self, ProjectDetail};
use db::{FromRow, Row, Statement, Tx, sql};
use kernel::ids::{OrganizationId, ProjectId, UserId};

/// An organization, and a user's role in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrganizationStanding {
    pub organization: OrganizationDetail,
    /// The user's role.
    pub role: Option<OrganizationRole>,
}

db::row!(OrganizationStanding { organization: OrganizationDetail::from_row, role });

/// Returns an organization and a user's role in it; `None` if the organization doesn't exist.
pub async fn in_organization(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<Option<OrganizationStanding>, db::Error> {
    sql("SELECT o.id, o.name, o.description, o.default_role, o.allow_public_projects, o.require_second_factor,
                o.require_sign_on, o.created_at, o.updated_at, o.members_count, o.projects_count, m.role AS role
         FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $2
         WHERE o.id = $1")
    .bind(organization_id)
    .bind(user_id)
    .optional(tx)
    .await
}

/// A user's roles in an organization and in one of its projects, with an extra row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandingWith<T> {
    /// The user's role in the organization.
    pub organization_role: Option<OrganizationRole>,
    /// The organization's requirements for its members.
    pub requirements: Requirements,
    /// The user's standing in the project; `None` if this organization has no such project.
    pub project: Option<ProjectStanding>,
    /// The extra row; `None` if the row or the project doesn't exist.
    pub found: Option<T>,
}

/// A user's standing in a project that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProjectStanding {
    /// The user's explicit role.
    pub role: Option<ProjectRole>,
    /// `true` if every member of the organization may view the project.
    pub open_to_organization: bool,
}

impl<T: Extra> FromRow for StandingWith<T> {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let organization_role = row.get("organization_role")?;
        let project: Option<String> = row.get("found_project_id")?;
        let project = match project {
            Some(_) => Some(ProjectStanding {
                role: row.get("project_role")?,
                open_to_organization: row.get("open_to_organization")?,
            }),
            None => None,
        };
        let found = if project.is_some() { T::read(row)? } else { None };
        Ok(Self { organization_role, requirements: Requirements::from_row(row)?, project, found })
    }
}

/// A row that is read with the same statement as a user's standing in a project.
pub trait Extra: Sized {
    /// The id of the row, in addition to the project's id.
    type Id: Copy + Send;
    /// Returns the statement, which [`text`] composes.
    fn text() -> &'static str;
    /// Binds the id, if the statement has a parameter for it.
    fn bind(statement: Statement, id: Self::Id) -> Statement;
    /// Reads the row, if it exists.
    fn read(row: &Row) -> Result<Option<Self>, db::Error>;
}

const STANDING: &str = "om.role AS organization_role, o.require_second_factor, o.require_sign_on, p.id AS found_project_id,
     pm.role AS project_role,
     CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization";

const JOINS: &str = "organizations o
     LEFT JOIN organization_members om ON om.organization_id = o.id AND om.user_id = $3
     LEFT JOIN projects p ON p.id = $2 AND p.organization_id = o.id
     LEFT JOIN project_members pm ON pm.project_id = p.id AND pm.user_id = $3";

/// Composes the statement for the standing of the user `$3` in the project `$2` of the organization `$1`,
/// with additional columns. These belong to the organization `o`, the project `p`, or tables that `joins`
/// adds by the id `$4`.
pub fn text(columns: &str, joins: &str) -> String {
    format!("SELECT {STANDING}{columns} FROM {JOINS} {joins} WHERE o.id = $1")
}

/// Returns a user's standing in a project, with an extra row; `None` if the organization doesn't exist.
pub async fn in_project<T: Extra>(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: Option<ProjectId>,
    user_id: UserId,
    id: T::Id,
) -> Result<Option<StandingWith<T>>, db::Error> {
    let statement = sql(T::text()).bind(organization_id).bind(project_id).bind(user_id);
    T::bind(statement, id).optional(tx).await
}

/// No extra row.
impl Extra for () {
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

/// A project and the fields of its organization that are needed with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectAndOrganization {
    pub detail: ProjectDetail,
    pub organization_name: String,
    pub allow_public_projects: bool,
}

impl Extra for ProjectAndOrganization {
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

impl Extra for Member {
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
