//! `/v1/organizations` and `/v1/organizations/{organization_id}` (docs/contract/organizations.md).

pub mod audit_log;
pub mod billing;
pub mod bodies;
pub mod calls;
pub mod invitations;
pub mod limits;
pub mod members;
pub mod projects;
pub mod usage;
pub mod usage_reports;
pub mod webhooks;

use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Message;
use crate::paging::{ListQuery, PageInfo};
use idempotency::Uncommitted;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, UserId};
use tenants::Tenants;
use tenants::access::{CallerScope, OrgScope, PersonScope};
use tenants::organizations::{Created, Organization as Row};
use tenants::roles::OrganizationRole;
use web::input::{Body, IfMatch, NoInput, Query};
use web::reply::{Enveloped, Versioned, ok, versioned};
use web::route::Operation;

use bodies::{CreateOrganization, UpdateOrganization};

/// The settings of an organization.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OrganizationSettings")]
pub struct Settings {
    /// The role of guests whose invitation doesn't specify one.
    default_role: OrganizationRole,
    /// `true` if projects may be `public`, so that every member of the organization can view them.
    allow_public_projects: bool,
    #[schemars(
        description = "`true` if only users with a second factor have access to the organization; API keys \
                       keep working. Only an owner with a fresh session can change this."
    )]
    require_second_factor: bool,
    #[schemars(
        description = "`true` if members managed by a provider of the organization have access only in the \
        console, after a sign-on with it; API keys keep working, and owners can use other sign-in \
        methods. Only an owner with a fresh session can change this."
    )]
    require_sign_on: bool,
}

impl Settings {
    fn of(row: &Row) -> Self {
        Self {
            default_role: row.default_role,
            allow_public_projects: row.allow_public_projects,
            require_second_factor: row.require_second_factor,
            require_sign_on: row.require_sign_on,
        }
    }
}

/// A short form of a user.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PersonBrief {
    /// The user's id.
    pub id: UserId,
    /// The e-mail address.
    pub email: String,
    /// The username.
    pub username: String,
}

/// A new organization.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedOrganization {
    /// The organization's id.
    id: OrganizationId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time when the organization was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
    /// The settings of the organization.
    settings: Settings,
    /// The user who created the organization.
    owner: PersonBrief,
}

pub const CREATE: Operation = Operation {
    errors: &[Code::LimitReached, Code::NameTaken],
    example: r#"{
  "name": "Acme",
  "description": "Makers of anvils"
}"#,
    ..Operation::new("create_organization")
};

/// Create an organization.
///
/// The caller becomes its owner.
pub async fn create(
    tenants: Tenants,
    scope: PersonScope,
    Body(body): Body<CreateOrganization>,
) -> Result<Uncommitted<Enveloped<CreatedOrganization>>, Error> {
    let created = tenants::organizations::create(&tenants, &scope, body.into_new()).await?;
    Ok(created.map(|Created { organization: row, email, username }| {
        ok(CreatedOrganization {
            id: row.id,
            settings: Settings::of(&row),
            name: row.name,
            description: row.description,
            created_at: row.created_at,
            updated_at: row.updated_at,
            owner: PersonBrief { id: scope.user_id(), email, username },
        })
    }))
}

/// A page of organizations.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationPage {
    /// The organizations of this page.
    organizations: Vec<ListedOrganization>,
    #[serde(flatten)]
    page: PageInfo,
}

/// An organization in a list, with the caller's role.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedOrganization {
    /// The organization's id.
    id: OrganizationId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time when the organization was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
    /// The caller's role.
    role: OrganizationRole,
}

pub const LIST: Operation = Operation::new("list_organizations");

/// List the caller's organizations.
///
/// An API key sees only its own organization.
pub async fn list(
    tenants: Tenants,
    scope: CallerScope,
    Query(query): Query<ListQuery<OrganizationRole>>,
) -> Result<Enveloped<OrganizationPage>, Error> {
    let page = query.page;
    let listed = tenants::organizations::list(&tenants, &scope, query.into()).await?;
    let organizations = listed.rows.into_iter().map(|row| ListedOrganization {
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        role: row.role,
    });
    Ok(ok(OrganizationPage {
        organizations: organizations.collect(),
        page: PageInfo::new(listed.total, page),
    }))
}

/// An organization with its settings and counts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Organization {
    /// The organization's id.
    id: OrganizationId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time when the organization was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
    /// The settings of the organization.
    settings: Settings,
    /// The number of members of the organization.
    members_count: i64,
    /// The number of projects of the organization.
    projects_count: i64,
}

pub const READ: Operation = Operation::new("get_organization");

/// Get an organization.
pub async fn read(_: Tenants, scope: OrgScope, _: NoInput) -> Result<Versioned<Organization>, Error> {
    let detail = tenants::organizations::read(scope);
    let (version, row) = (detail.version()?, detail.organization);
    let data = Organization {
        id: row.id,
        settings: Settings::of(&row),
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        members_count: detail.members_count,
        projects_count: detail.projects_count,
    };
    Ok(versioned(version, data))
}

/// An organization after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatedOrganization {
    /// The organization's id.
    id: OrganizationId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time of the last change.
    updated_at: Time,
    /// The settings of the organization.
    settings: Settings,
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::NameTaken, Code::OrganizationHasNoProvider, Code::ReauthenticationRequired],
    example: r#"{
  "description": "Makers of anvils and rockets",
  "settings": {"allow_public_projects": true}
}"#,
    ..Operation::new("update_organization")
};

/// Change an organization.
///
/// A change that sets the same values doesn't change `updated_at`.
pub async fn update(
    tenants: Tenants,
    scope: OrgScope,
    IfMatch(expected, Body(body)): IfMatch<Body<UpdateOrganization>>,
) -> Result<Versioned<UpdatedOrganization>, Error> {
    let detail = tenants::organizations::update(&tenants, &scope, &expected, body.into_update()).await?;
    let (version, row) = (detail.version()?, detail.organization);
    let data = UpdatedOrganization {
        id: row.id,
        settings: Settings::of(&row),
        name: row.name,
        description: row.description,
        updated_at: row.updated_at,
    };
    Ok(versioned(version, data))
}

pub const DELETE: Operation = Operation {
    errors: &[
        Code::CallsInProgress,
        Code::ClockNotTrusted,
        Code::ReauthenticationRequired,
        Code::UnsettledBalance,
    ],
    ..Operation::new("delete_organization")
};

/// Delete an organization.
///
/// Its projects and API keys are deleted with it. An organization with a debt or a positive balance can't be
/// deleted.
pub async fn delete(
    tenants: Tenants,
    scope: OrgScope,
    IfMatch(expected, _): IfMatch<NoInput>,
) -> Result<Enveloped<Message>, Error> {
    tenants::organizations::delete(&tenants, &scope, &expected).await?;
    Ok(ok(Message { message: "The organization is deleted.".to_owned() }))
}
