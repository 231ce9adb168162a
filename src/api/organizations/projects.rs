//! `/v1/organizations/{organization_id}/projects` and `…/{project_id}` (section 4.3).

pub mod api_keys;
pub mod usage;

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{OrgScope, ProjectScope};
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, ProjectId};
use crate::input::types::{DescriptionText, Integer, Name, Temperature, Text};
use crate::input::{Body, Fields, Nothing, Query, Record};
use crate::money::Ppm;
use crate::reply::{Enveloped, ok};
use crate::roles::{ProjectRole, Visibility, effective_project_role};
use crate::rules::projects::{check_settings, check_visibility};
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::projects::{Filter, Project as ProjectRow};

/// A new project.
#[derive(Debug)]
pub struct CreateProject {
    name: Name,
    description: Option<DescriptionText>,
    settings: CreateSettings,
    visibility: Visibility,
}

impl Record for CreateProject {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.required("name");
        let description = fields.optional("description");
        let settings = fields.object("settings");
        let visibility = fields.or("visibility", Visibility::Private);
        Some(Self { name: name?, description: description?, settings: settings?, visibility: visibility? })
    }
}

#[derive(Debug)]
struct CreateSettings {
    model: Option<Text<128>>,
    max_tokens: Option<Integer<1, 1_000_000_000>>,
    temperature: Option<Temperature>,
}

impl Record for CreateSettings {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let model = fields.optional("model");
        let max_tokens = fields.optional("max_tokens");
        let temperature = fields.optional("temperature");
        let (model, max_tokens): (Option<Text<128>>, Option<Integer<1, 1_000_000_000>>) =
            (model?, max_tokens?);
        if let Some(app) = fields.app() {
            let (id, tokens) = (model.as_ref().map(|id| id.0.as_str()), max_tokens.map(|tokens| tokens.0));
            if let Err((field, problem)) = check_settings(&app.catalog, id, tokens) {
                fields.problem::<()>(field, problem.code, problem.message);
            }
        }
        Some(Self { model, max_tokens, temperature: temperature? })
    }
}

/// What a project's model calls start from; null where nothing is set.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Settings {
    model: Option<String>,
    max_tokens: Option<i64>,
    temperature: Option<Ppm>,
}

/// A project right after its creation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedProject {
    id: ProjectId,
    name: String,
    description: Option<String>,
    created_at: Time,
    updated_at: Time,
    settings: Settings,
    visibility: Visibility,
    organization_id: OrganizationId,
}

/// POST /v1/organizations/{organization_id}/projects: the caller becomes its owner.
pub async fn create(
    app: App,
    scope: OrgScope,
    Body(body): Body<CreateProject>,
) -> Result<Enveloped<CreatedProject>, Error> {
    let now = app.clock.now();
    let row = ProjectRow {
        id: ProjectId::new(now, &app.random),
        organization_id: scope.organization_id(),
        name: body.name.display,
        description: body.description.map(|text| text.0),
        model: body.settings.model.map(|text| text.0),
        max_tokens: body.settings.max_tokens.map(|tokens| tokens.0),
        temperature: body.settings.temperature.map(|temperature| temperature.0),
        visibility: body.visibility,
        created_at: now,
        updated_at: now,
    };
    let mut tx = app.db.write().await?;
    let organization = store::organizations::detail(&mut tx, scope.organization_id())
        .await?
        .ok_or(Code::OrganizationNotFound)?;
    check_visibility(row.visibility, organization.organization.allow_public_projects)?;
    store::projects::insert(&mut tx, &row, &body.name.folded, scope.user_id()).await?;
    store::project_members::insert(&mut tx, row.id, scope.user_id(), ProjectRole::Owner, now).await?;
    let event = Event {
        action: Action::ProjectCreated,
        target: row.id.to_string(),
        organization_id: Some(row.organization_id),
    };
    store::audit_log::record(&mut tx, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    Ok(ok(CreatedProject {
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: now,
        updated_at: now,
        settings: Settings { model: row.model, max_tokens: row.max_tokens, temperature: row.temperature },
        visibility: row.visibility,
        organization_id: row.organization_id,
    }))
}

/// One page of projects.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectPage {
    projects: Vec<ListedProject>,
    total: i64,
    page: i64,
    page_size: i64,
}

/// A project in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedProject {
    id: ProjectId,
    name: String,
    description: Option<String>,
    created_at: Time,
    updated_at: Time,
    visibility: Visibility,
    /// The caller's effective role.
    role: Option<ProjectRole>,
}

/// GET /v1/organizations/{organization_id}/projects: those that the caller can view. An API key sees its own.
pub async fn list(
    app: App,
    scope: OrgScope,
    Query(query): Query<ListQuery<ProjectRole>>,
) -> Result<Enveloped<ProjectPage>, Error> {
    let filter = Filter {
        organization_id: scope.organization_id(),
        user_id: scope.user_id(),
        organization_role: scope.role(),
        only: scope.only_project(),
        search_folded: query.search_folded,
        role: query.filter,
    };
    let mut tx = app.db.read().await?;
    let total = store::projects::count(&mut tx, &filter).await?;
    let rows = store::projects::list(&mut tx, &filter, query.page).await?;
    let projects = rows.into_iter().map(|row| ListedProject {
        id: row.project.id,
        name: row.project.name,
        description: row.project.description,
        created_at: row.project.created_at,
        updated_at: row.project.updated_at,
        visibility: row.project.visibility,
        role: effective_project_role(Some(scope.role()), row.role, row.open_to_organization),
    });
    Ok(ok(ProjectPage {
        projects: projects.collect(),
        total,
        page: query.page.page,
        page_size: query.page.page_size,
    }))
}

/// A project, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Project {
    id: ProjectId,
    name: String,
    description: Option<String>,
    created_at: Time,
    updated_at: Time,
    settings: Settings,
    visibility: Visibility,
    organization_id: OrganizationId,
    /// Explicit members.
    members_count: i64,
    api_keys_count: i64,
    usage: UsageTotals,
}

/// Everything that the project ever used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageTotals {
    tokens: i64,
    requests: i64,
}

/// GET /v1/organizations/{organization_id}/projects/{project_id}
pub async fn read(app: App, scope: ProjectScope, _: Nothing) -> Result<Enveloped<Project>, Error> {
    let mut tx = app.db.read().await?;
    let (organization_id, project_id) = (scope.organization_id(), scope.project_id());
    let detail =
        store::projects::detail(&mut tx, organization_id, project_id).await?.ok_or(Code::ProjectNotFound)?;
    let totals = store::usage::project_totals(&mut tx, organization_id, project_id).await?;
    let row = detail.project;
    Ok(ok(Project {
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        settings: Settings { model: row.model, max_tokens: row.max_tokens, temperature: row.temperature },
        visibility: row.visibility,
        organization_id: row.organization_id,
        members_count: detail.members_count,
        api_keys_count: detail.api_keys_count,
        usage: UsageTotals { tokens: totals.tokens, requests: totals.requests },
    }))
}
