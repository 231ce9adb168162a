//! `/v1/organizations/{organization_id}/projects` and `…/{project_id}` (section 4.3).

pub mod api_keys;
pub mod members;
pub mod usage;

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{Held, HeldOrganization, OrgScope, ProjectScope};
use crate::api::auth::Message;
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Detail, Error};
use crate::ids::{OrganizationId, ProjectId};
use crate::input::types::{DescriptionText, Integer, Name, Temperature, Text};
use crate::input::{Body, Fields, Nothing, Patch, Query, Record};
use crate::live::totals::Subject;
use crate::mail::posting::Draft;
use crate::money::Ppm;
use crate::reply::{Enveloped, ok};
use crate::roles::{ProjectRole, Visibility, effective_project_role};
use crate::rules::counts::{self, Kind};
use crate::rules::naming::Problem;
use crate::rules::projects::{check_settings, check_visibility};
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::changes::Change;
use crate::store::mail_counters::Sender;
use crate::store::outbox::{About, Template};
use crate::store::projects::listing::{self, Filter};
use crate::store::projects::{Changes, Project as ProjectRow};
use crate::store::standings::ProjectAndOrganization;
use crate::store::users::Audience;
use crate::tenants;

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
            if let Err((field, problem)) = check_settings(&app.catalog.now(), id, tokens) {
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
    let (mut held, HeldOrganization { row: organization, projects_count, .. }) = scope.hold(&mut tx).await?;
    check_visibility(row.visibility, organization.allow_public_projects)?;
    counts::one_more(&app.config.limits, Kind::Projects, projects_count)?;
    store::projects::insert(&mut held, &row, &body.name.folded, scope.user_id()).await?;
    store::project_members::insert(&mut held, row.id, scope.user_id(), ProjectRole::Owner, now).await?;
    let event = Event {
        action: Action::ProjectCreated,
        target: row.id.to_string(),
        organization_id: Some(row.organization_id),
    };
    store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
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
    let (total, rows) = listing::list(&mut tx, &filter, query.page).await?;
    let projects = rows.into_iter().map(|row| ListedProject {
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        visibility: row.visibility,
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
    let detail = tenants::projects::read(&app.tenants, &scope).await?;
    let subject = Subject::Project(detail.project.id);
    let totals = app.usage_totals.total(scope.organization_id(), subject).await?;
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

/// New values for a project; what is left out stays.
#[derive(Debug)]
pub struct UpdateProject {
    name: Option<Name>,
    description: Patch<DescriptionText>,
    settings: Patch<UpdateSettings>,
    visibility: Option<Visibility>,
}

impl Record for UpdateProject {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.change("name");
        let description = fields.patch("description");
        let settings = fields.patch_object("settings");
        let visibility = fields.change("visibility");
        Some(Self { name: name?, description: description?, settings: settings?, visibility: visibility? })
    }
}

#[derive(Debug)]
struct UpdateSettings {
    model: Patch<Text<128>>,
    max_tokens: Patch<Integer<1, 1_000_000_000>>,
    temperature: Patch<Temperature>,
}

impl Record for UpdateSettings {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let model = fields.patch::<Text<128>>("model");
        let max_tokens = fields.patch("max_tokens");
        let temperature = fields.patch("temperature");
        // What they come to together with the old ones is held against each other later.
        if let (Some(app), Some(Patch::Set(id))) = (fields.app(), &model)
            && let Err((field, problem)) = check_settings(&app.catalog.now(), Some(&id.0), None)
        {
            fields.problem::<()>(field, problem.code, problem.message);
        }
        Some(Self { model: model?, max_tokens: max_tokens?, temperature: temperature? })
    }
}

impl UpdateProject {
    /// The project after the patch.
    fn onto(self, before: &ProjectRow) -> ProjectRow {
        let mut row = before.clone();
        row.name = self.name.map_or(row.name, |name| name.display);
        row.description = self.description.map(|text| text.0).onto(row.description);
        row.visibility = self.visibility.unwrap_or(row.visibility);
        match self.settings {
            Patch::Keep => {}
            Patch::Clear => (row.model, row.max_tokens, row.temperature) = (None, None, None),
            Patch::Set(settings) => {
                row.model = settings.model.map(|id| id.0).onto(row.model);
                row.max_tokens = settings.max_tokens.map(|tokens| tokens.0).onto(row.max_tokens);
                row.temperature = settings.temperature.map(|value| value.0).onto(row.temperature);
            }
        }
        row
    }
}

/// A project after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatedProject {
    id: ProjectId,
    name: String,
    description: Option<String>,
    updated_at: Time,
    settings: Settings,
}

/// PUT /v1/organizations/{organization_id}/projects/{project_id}. What changes nothing leaves `updated_at` as it was.
pub async fn update(
    app: App,
    scope: ProjectScope,
    Body(body): Body<UpdateProject>,
) -> Result<Enveloped<UpdatedProject>, Error> {
    let (organization_id, id, now) = (scope.organization_id(), scope.project_id(), app.clock.now());
    let mut tx = app.db.write().await?;
    let (mut held, Held { found, .. }) = scope.hold(&mut tx).await?;
    let before = found.detail.project;
    check_visibility(body.visibility.unwrap_or(Visibility::Private), found.allow_public_projects)?;
    let name_folded = body.name.as_ref().map(|name| name.folded.clone());
    let mut row = body.onto(&before);
    if (&row.model, row.max_tokens) != (&before.model, before.max_tokens) {
        check_settings(&app.catalog.now(), row.model.as_deref(), row.max_tokens).map_err(in_settings)?;
    }
    if row != before {
        row.updated_at = now;
        let changes = Changes { row: &row, name_folded: name_folded.as_deref() };
        store::projects::update(&mut held, &changes).await?;
        let (action, target) = (Action::ProjectChanged, id.to_string());
        let event = Event { action, target, organization_id: Some(organization_id) };
        store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
    }
    tx.commit().await?;
    Ok(ok(UpdatedProject {
        id,
        name: row.name,
        description: row.description,
        updated_at: row.updated_at,
        settings: Settings { model: row.model, max_tokens: row.max_tokens, temperature: row.temperature },
    }))
}

fn in_settings((field, problem): (&'static str, Problem)) -> Error {
    let (param, code, message) = (format!("settings.{field}"), problem.code, problem.message);
    Error::invalid(vec![Detail { param, code, message }])
}

/// DELETE /v1/organizations/{organization_id}/projects/{project_id}: with its keys and memberships. What was used stays on
/// record. Members are told by mail, but for whoever did it.
pub async fn delete(app: App, scope: ProjectScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let (organization_id, id, now) = (scope.organization_id(), scope.project_id(), app.clock.now());
    let mut tx = app.db.write().await?;
    let (mut held, Held { found, .. }) = scope.hold(&mut tx).await?;
    let audience = store::project_members::audience(&mut held, id, scope.user_id()).await?;
    let Audience { by, others } = audience.ok_or(Code::InsufficientRole)?;
    let sender = Sender::person(scope.trail(), scope.user_id());
    let draft = Draft { template: Template::ProjectDeleted, about: about(&found, by) };
    app.outbox.post_all(&mut held, &sender, &draft, others, now).await?;
    store::projects::remove(&mut held, organization_id, id).await?;
    let (action, target) = (Action::ProjectDeleted, id.to_string());
    let event = Event { action, target, organization_id: Some(organization_id) };
    store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
    store::changes::record(&mut held, Change::Project(id), now).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    Ok(ok(Message { message: "The project is deleted.".to_owned() }))
}

/// What a mail about this project says of it, and of who did it.
fn about(project: &ProjectAndOrganization, by: String) -> About {
    About {
        organization: Some(project.organization_name.clone()),
        project: Some(project.detail.project.name.clone()),
        by: Some(by),
        ..About::default()
    }
}
