//! `/v1/organizations` and `/v1/organizations/{organization_id}` (section 4.2).

pub mod billing;
pub mod bodies;
pub mod invitations;
pub mod members;
pub mod projects;
pub mod usage_reports;

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{CallerScope, HeldOrganization, OrgScope, PersonScope};
use crate::api::auth::Message;
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::billing::settlement;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, UserId};
use crate::input::{Body, Nothing, Query};
use crate::mail::posting::Draft;
use crate::reply::{Enveloped, ok};
use crate::roles::OrganizationRole;
use crate::rules::counts::{self, Kind};
use crate::rules::credit_limits::CreditLimit;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::changes::Change;
use crate::store::mail_counters::Sender;
use crate::store::organizations::{Changes, Filter, NewOrganization};
use crate::store::outbox::{About, Template};
use crate::store::users::Audience;

use bodies::{CreateOrganization, UpdateOrganization};

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
    let mut tx = app.db.write().await?;
    let (mut held, maker) = scope.hold(&mut tx).await?;
    counts::one_more(&app.config.limits, Kind::Organizations, maker.organizations)?;
    let credit_limit = CreditLimit::of(app.config.billing.credit_limits(), maker.standing);
    let new = NewOrganization {
        id,
        name: &body.name.display,
        name_folded: &body.name.folded,
        description: description.as_deref(),
        default_role: body.settings.default_role,
        allow_public_projects: body.settings.allow_public_projects,
        currency: &app.config.billing.currency,
        credit_limit: credit_limit.amount(),
        created_by: scope.user_id(),
    };
    store::organizations::insert(&mut held, &new, now).await?;
    if let CreditLimit::First(_) = credit_limit {
        store::users::set_credit_granted(&mut held, scope.user_id(), now).await?;
    }
    store::organization_members::insert(&mut held, id, scope.user_id(), OrganizationRole::Owner, now).await?;
    let event =
        Event { action: Action::OrganizationCreated, target: id.to_string(), organization_id: Some(id) };
    store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
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
        owner: PersonBrief { id: scope.user_id(), email: maker.email, username: maker.username },
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
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
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
pub async fn read(_: App, scope: OrgScope, _: Nothing) -> Result<Enveloped<Organization>, Error> {
    let detail = scope.into_organization();
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

/// An organization after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatedOrganization {
    id: OrganizationId,
    name: String,
    description: Option<String>,
    updated_at: Time,
    settings: Settings,
}

/// PUT /v1/organizations/{organization_id}. What changes nothing leaves `updated_at` as it was.
pub async fn update(
    app: App,
    scope: OrgScope,
    Body(body): Body<UpdateOrganization>,
) -> Result<Enveloped<UpdatedOrganization>, Error> {
    let (id, now) = (scope.organization_id(), app.clock.now());
    let mut tx = app.db.write().await?;
    let (mut held, HeldOrganization { row: before, .. }) = match &body.name {
        Some(_) => scope.hold_whole(&mut tx).await?,
        None => scope.hold(&mut tx).await?,
    };
    let mut row = before.clone();
    if let Some(name) = &body.name {
        row.name.clone_from(&name.display);
    }
    row.description = body.description.map(|text| text.0).onto(row.description);
    row.default_role = body.settings.default_role.map_or(row.default_role, |role| role.0);
    row.allow_public_projects = body.settings.allow_public_projects.unwrap_or(row.allow_public_projects);
    if row != before {
        row.updated_at = now;
        let name_folded = body.name.as_ref().map(|name| name.folded.as_str());
        store::organizations::update(&mut held, &Changes { row: &row, name_folded }).await?;
        let event =
            Event { action: Action::OrganizationChanged, target: id.to_string(), organization_id: Some(id) };
        store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
    }
    tx.commit().await?;
    Ok(ok(UpdatedOrganization {
        id,
        name: row.name,
        description: row.description,
        updated_at: row.updated_at,
        settings: Settings {
            default_role: row.default_role,
            allow_public_projects: row.allow_public_projects,
        },
    }))
}

/// DELETE /v1/organizations/{organization_id}: with its projects, keys, memberships and invitations. What was used stays on
/// record. Members are told by mail, but for whoever did it.
pub async fn delete(app: App, scope: OrgScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let (id, now) = (scope.organization_id(), app.clock.now());
    let mut tx = app.db.write().await?;
    let (mut held, HeldOrganization { row, .. }) = scope.hold_whole(&mut tx).await?;
    settlement::settle(&app.billing, &mut held, scope.trail(), id, &row.name, now).await?;
    let audience = store::organization_members::audience(&mut held, id, scope.user_id()).await?;
    let Audience { by, others } = audience.ok_or(Code::InsufficientRole)?;
    let about = About { organization: Some(row.name), by: Some(by), ..About::default() };
    let sender = Sender::person(scope.trail(), scope.user_id());
    let draft = Draft { template: Template::OrganizationDeleted, about };
    app.outbox.post_all(&mut held, &sender, &draft, others, now).await?;
    store::organizations::remove(&mut held, id).await?;
    let event =
        Event { action: Action::OrganizationDeleted, target: id.to_string(), organization_id: Some(id) };
    store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
    store::changes::record(&mut held, Change::Organization(id), now).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    Ok(ok(Message { message: "The organization is deleted.".to_owned() }))
}
