//! `/v1/organizations/{organization_id}/projects` and `…/{project_id}` (docs/contract/projects.md).

pub mod api_keys;
pub mod calls;
pub mod members;
pub mod usage;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::auth::Message;
use crate::paging::{ListQuery, PageInfo};
use billing::totals;
use catalog::CurrentCatalog;
use idempotency::Uncommitted;
use input::record;
use input::types::{DescriptionText, Integer, Name, Temperature, Text};
use kernel::clock::Time;
use kernel::error::{Code, Detail, Error};
use kernel::ids::{OrganizationId, ProjectId};
use kernel::money::Ppm;
use kernel::naming::Problem;
use kernel::patch::Patch;
use tenants::access::{OrgScope, ProjectScope};
use tenants::projects::{New, Project as Row, SettingsPatch, Update};
use tenants::roles::{ProjectRole, Visibility};
use tenants::rules::projects::check_settings;
use tenants::{Tenants, projects as operations};
use web::input::{Body, IfMatch, NoInput, Query};
use web::reply::{Enveloped, Versioned, ok, versioned};
use web::route::Operation;

record! {
    /// A new project.
    #[derive(Debug)]
    pub struct CreateProject in Api {
        /// The name, of 1 to 100 characters.
        name: Name = required,
        /// A description of up to 1,000 characters.
        description: Option<DescriptionText> = optional,
        /// The settings of the project.
        settings: CreateSettings = object,
        /// The visibility of the project.
        visibility: Visibility = or(Visibility::Private),
    }
}

record! {
    #[derive(Debug)]
    struct CreateSettings in Api {
        /// The id of the default model.
        model: Option<Text<128>> = optional,
        /// The maximum number of tokens per request; null for the model's limit.
        max_tokens: Option<Integer<1, 1_000_000_000>> = optional,
        /// The sampling temperature, from 0 to 2.
        temperature: Option<Temperature> = optional,
    }
    check(fields) {
        if let (Some(api), Some(model), Some(max_tokens)) = (fields.state(), &model, &max_tokens) {
            let id = model.as_ref().map(|id| id.0.as_str());
            let tokens = max_tokens.as_ref().map(|tokens| tokens.0);
            if let Err((field, problem)) = check_settings(&api.catalog.now(), id, tokens) {
                fields.problem::<()>(field, problem.code, problem.message);
            }
        }
    }
}

/// The defaults of a project's model calls. A value is null if it isn't set.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProjectSettings")]
pub struct Settings {
    /// The id of the default model.
    model: Option<String>,
    /// The maximum number of tokens per request; null for the model's limit.
    max_tokens: Option<i64>,
    temperature: Option<Ppm>,
}

/// A new project.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedProject {
    /// The project's id.
    id: ProjectId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time when the project was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
    /// The settings of the project.
    settings: Settings,
    /// The visibility of the project.
    visibility: Visibility,
    /// The id of the organization.
    organization_id: OrganizationId,
}

impl Settings {
    fn of(row: &Row) -> Self {
        Self { model: row.model.clone(), max_tokens: row.max_tokens, temperature: row.temperature }
    }
}

impl CreateProject {
    /// Returns the values for the operation.
    pub fn into_new(self) -> New {
        let CreateSettings { model, max_tokens, temperature } = self.settings;
        New {
            name: self.name.into(),
            description: self.description.map(|text| text.0),
            settings: operations::Settings {
                model: model.map(|text| text.0),
                max_tokens: max_tokens.map(|tokens| tokens.0),
                temperature: temperature.map(|temperature| temperature.0),
            },
            visibility: self.visibility,
        }
    }
}

pub const CREATE: Operation = Operation {
    errors: &[Code::LimitReached, Code::NameTaken, Code::PublicProjectsNotAllowed],
    example: r#"{
  "name": "Acme chat",
  "settings": {"model": "svc-1", "temperature": 0.7}
}"#,
    ..Operation::new("create_project")
};

/// Create a project.
///
/// The caller becomes its owner.
pub async fn create(
    tenants: Tenants,
    scope: OrgScope,
    Body(body): Body<CreateProject>,
) -> Result<Uncommitted<Enveloped<CreatedProject>>, Error> {
    let created = operations::create(&tenants, &scope, body.into_new()).await?;
    Ok(created.map(|row| {
        ok(CreatedProject {
            id: row.id,
            settings: Settings::of(&row),
            name: row.name,
            description: row.description,
            created_at: row.created_at,
            updated_at: row.updated_at,
            visibility: row.visibility,
            organization_id: row.organization_id,
        })
    }))
}

/// A page of projects.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectPage {
    /// The projects of this page.
    projects: Vec<ListedProject>,
    #[serde(flatten)]
    page: PageInfo,
}

/// A project in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedProject {
    /// The project's id.
    id: ProjectId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time when the project was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
    /// The visibility of the project.
    visibility: Visibility,
    /// The caller's effective role; null if the caller has none.
    role: Option<ProjectRole>,
}

pub const LIST: Operation = Operation::new("list_projects");

/// List the projects that the caller can view.
///
/// An API key sees only its own project.
pub async fn list(
    tenants: Tenants,
    scope: OrgScope,
    Query(query): Query<ListQuery<ProjectRole>>,
) -> Result<Enveloped<ProjectPage>, Error> {
    let page = query.page;
    let listed = operations::list(&tenants, &scope, query.into()).await?;
    let projects = listed.rows.into_iter().map(|row| ListedProject {
        id: row.id,
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        visibility: row.visibility,
        role: row.role,
    });
    Ok(ok(ProjectPage { projects: projects.collect(), page: PageInfo::new(listed.total, page) }))
}

/// A project with its settings and counts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Project {
    /// The project's id.
    id: ProjectId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time when the project was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
    /// The settings of the project.
    settings: Settings,
    /// The visibility of the project.
    visibility: Visibility,
    /// The id of the organization.
    organization_id: OrganizationId,
    /// The number of explicit members, not counting access through a role in the organization.
    members_count: i64,
    /// The number of API keys of the project.
    api_keys_count: i64,
    /// The project's total usage.
    usage: UsageTotals,
}

/// The total usage of a project.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageTotals {
    /// The number of tokens.
    tokens: i64,
    /// The number of calls.
    requests: i64,
}

pub const READ: Operation = Operation::new("get_project");

/// Get a project.
pub async fn read(api: Api, scope: ProjectScope, _: NoInput) -> Result<Versioned<Project>, Error> {
    let detail = operations::read(&api.tenants, &scope).await?;
    let totals = totals::project(&api.billing, &scope).await?;
    let (version, row) = (detail.version()?, detail.project);
    let data = Project {
        id: row.id,
        settings: Settings::of(&row),
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
        visibility: row.visibility,
        organization_id: row.organization_id,
        members_count: detail.members_count,
        api_keys_count: detail.api_keys_count,
        usage: UsageTotals { tokens: totals.tokens, requests: totals.requests },
    };
    Ok(versioned(version, data))
}

record! {
    /// A merge patch of a project.
    #[derive(Debug)]
    pub struct UpdateProject in Api {
        /// The name, of 1 to 100 characters.
        name: Option<Name> = change,
        /// A description of up to 1,000 characters.
        description: Patch<DescriptionText> = patch,
        /// The settings of the project.
        settings: Patch<UpdateSettings> = patch_object,
        /// The visibility of the project.
        visibility: Option<Visibility> = change,
    }
}

record! {
    #[derive(Debug)]
    struct UpdateSettings in Api {
        /// The id of the default model.
        model: Patch<Text<128>> = patch,
        /// The maximum number of tokens per request; null for the model's limit.
        max_tokens: Patch<Integer<1, 1_000_000_000>> = patch,
        /// The sampling temperature, from 0 to 2.
        temperature: Patch<Temperature> = patch,
    }
    check(fields) {
        // The combination with the stored settings is checked in the operation.
        if let (Some(api), Some(Patch::Set(id))) = (fields.state(), &model)
            && let Err((field, problem)) = check_settings(&api.catalog.now(), Some(&id.0), None)
        {
            fields.problem::<()>(field, problem.code, problem.message);
        }
    }
}

impl UpdateProject {
    /// Returns the change for the operation.
    pub fn into_update(self) -> Update {
        let settings = self.settings.map(|settings| SettingsPatch {
            model: settings.model.map(|id| id.0),
            max_tokens: settings.max_tokens.map(|tokens| tokens.0),
            temperature: settings.temperature.map(|temperature| temperature.0),
        });
        Update {
            name: self.name.map(Into::into),
            description: self.description.map(|text| text.0),
            settings,
            visibility: self.visibility,
        }
    }
}

/// A project after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatedProject {
    /// The project's id.
    id: ProjectId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The time of the last change.
    updated_at: Time,
    /// The settings of the project.
    settings: Settings,
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::NameTaken, Code::PublicProjectsNotAllowed],
    example: r#"{
  "description": "The assistant in the shop",
  "settings": {"max_tokens": 4096}
}"#,
    ..Operation::new("update_project")
};

/// Change a project.
///
/// A change that sets the same values doesn't change `updated_at`.
pub async fn update(
    api: Api,
    scope: ProjectScope,
    IfMatch(expected, Body(body)): IfMatch<Body<UpdateProject>>,
) -> Result<Versioned<UpdatedProject>, Error> {
    let check = settings_check(&api.catalog);
    let detail = operations::update(&api.tenants, &scope, &expected, body.into_update(), check).await?;
    let (version, row) = (detail.version()?, detail.project);
    let data = UpdatedProject {
        id: row.id,
        settings: Settings::of(&row),
        name: row.name,
        description: row.description,
        updated_at: row.updated_at,
    };
    Ok(versioned(version, data))
}

/// Returns the check of project settings against the current catalog.
pub fn settings_check(
    catalog: &CurrentCatalog,
) -> impl Fn(Option<&str>, Option<i64>) -> Result<(), Error> + Send {
    |model, max_tokens| check_settings(&catalog.now(), model, max_tokens).map_err(in_settings)
}

fn in_settings((field, problem): (&'static str, Problem)) -> Error {
    let (param, code, message) = (format!("settings.{field}"), problem.code, problem.message);
    Error::invalid(vec![Detail { param, code, message }])
}

pub const DELETE: Operation = Operation::new("delete_project");

/// Delete a project.
///
/// Its API keys are deleted with it.
pub async fn delete(
    tenants: Tenants,
    scope: ProjectScope,
    IfMatch(expected, _): IfMatch<NoInput>,
) -> Result<Enveloped<Message>, Error> {
    operations::delete(&tenants, &scope, &expected).await?;
    Ok(ok(Message { message: "The project is deleted.".to_owned() }))
}
