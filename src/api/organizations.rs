//! `/v1/organizations` and `/v1/organizations/{organization_id}` (section 4.2).

pub mod billing;
pub mod members;
pub mod projects;

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{CallerScope, OrgScope, PersonScope};
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, UserId};
use crate::input::types::{DefaultRole, DescriptionText, Name};
use crate::input::{Body, Fields, Nothing, Query, Record};
use crate::reply::{Enveloped, ok};
use crate::roles::OrganizationRole;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::organizations::{Filter, NewOrganization};

/// A new organization.
#[derive(Debug)]
pub struct CreateOrganization {
    name: Name,
    description: Option<DescriptionText>,
    settings: CreateSettings,
}

impl Record for CreateOrganization {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.required("name");
        let description = fields.optional("description");
        let settings = fields.object("settings");
        Some(Self { name: name?, description: description?, settings: settings? })
    }
}

#[derive(Debug)]
struct CreateSettings {
    default_role: OrganizationRole,
    allow_public_projects: bool,
}

impl Record for CreateSettings {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let default_role = fields.or("default_role", DefaultRole(OrganizationRole::Member));
        let allow_public_projects = fields.or("allow_public_projects", false);
        Some(Self { default_role: default_role?.0, allow_public_projects: allow_public_projects? })
    }
}

/// How an organization is set up.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Settings {
    default_role: OrganizationRole,
    allow_public_projects: bool,
}

/// A person, in short.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PersonBrief {
    /// Their id.
    pub id: UserId,
    /// Their address.
    pub email: String,
    /// Their name.
    pub username: String,
}

/// An organization right after its creation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedOrganization {
    id: OrganizationId,
    name: String,
    description: Option<String>,
    created_at: Time,
    updated_at: Time,
    settings: Settings,
    owner: PersonBrief,
}

/// POST /v1/organizations: the caller becomes its owner.
pub async fn create(
    app: App,
    scope: PersonScope,
    Body(body): Body<CreateOrganization>,
) -> Result<Enveloped<CreatedOrganization>, Error> {
    let now = app.clock.now();
    let id = OrganizationId::new(now, &app.random);
    let description = body.description.map(|text| text.0);
    let new = NewOrganization {
        id,
        name: &body.name.display,
        name_folded: &body.name.folded,
        description: description.as_deref(),
        default_role: body.settings.default_role,
        allow_public_projects: body.settings.allow_public_projects,
        currency: &app.config.billing.currency,
        credit_limit: app.config.billing.credit_limit,
        created_by: scope.user_id(),
    };
    let mut tx = app.db.write().await?;
    store::organizations::insert(&mut tx, &new, now).await?;
    store::organization_members::insert(&mut tx, id, scope.user_id(), OrganizationRole::Owner, now).await?;
    let owner = store::users::by_id(&mut tx, scope.user_id()).await?.ok_or(Code::InvalidAccessToken)?;
    let event =
        Event { action: Action::OrganizationCreated, target: id.to_string(), organization_id: Some(id) };
    store::audit_log::record(&mut tx, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    Ok(ok(CreatedOrganization {
        id,
        name: body.name.display,
        description,
        created_at: now,
        updated_at: now,
        settings: Settings {
            default_role: body.settings.default_role,
            allow_public_projects: body.settings.allow_public_projects,
        },
        owner: PersonBrief { id: owner.id, email: owner.email, username: owner.username },
    }))
}

/// One page of organizations.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationPage {
    organizations: Vec<ListedOrganization>,
    total: i64,
    page: i64,
    page_size: i64,
}

/// An organization in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedOrganization {
    id: OrganizationId,
    name: String,
    description: Option<String>,
    created_at: Time,
    updated_at: Time,
    role: OrganizationRole,
}

/// GET /v1/organizations: those that the caller belongs to. An API key sees its own.
pub async fn list(
    app: App,
    scope: CallerScope,
    Query(query): Query<ListQuery<OrganizationRole>>,
) -> Result<Enveloped<OrganizationPage>, Error> {
    let filter = Filter {
        user_id: scope.user_id(),
        only: scope.only_organization(),
        search_folded: query.search_folded,
        role: query.filter,
    };
    let mut tx = app.db.read().await?;
    let total = store::organizations::count(&mut tx, &filter).await?;
    let rows = store::organizations::list(&mut tx, &filter, query.page).await?;
    let organizations = rows.into_iter().map(|row| ListedOrganization {
        id: row.organization.id,
        name: row.organization.name,
        description: row.organization.description,
        created_at: row.organization.created_at,
        updated_at: row.organization.updated_at,
        role: row.role,
    });
    Ok(ok(OrganizationPage {
        organizations: organizations.collect(),
        total,
        page: query.page.page,
        page_size: query.page.page_size,
    }))
}

/// An organization, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Organization {
    id: OrganizationId,
    name: String,
    description: Option<String>,
    created_at: Time,
    updated_at: Time,
    settings: Settings,
    members_count: i64,
    projects_count: i64,
}

/// GET /v1/organizations/{organization_id}
pub async fn read(app: App, scope: OrgScope, _: Nothing) -> Result<Enveloped<Organization>, Error> {
    let mut tx = app.db.read().await?;
    let detail = store::organizations::detail(&mut tx, scope.organization_id())
        .await?
        .ok_or(Code::OrganizationNotFound)?;
    let row = detail.organization;
    Ok(ok(Organization {
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        settings: Settings {
            default_role: row.default_role,
            allow_public_projects: row.allow_public_projects,
        },
        members_count: detail.members_count,
        projects_count: detail.projects_count,
    }))
}
