//! GET /v1/organizations/{organization_id}/projects/{project_id}/usage
//! (docs/contract/usage.md#project-usage)

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::csv::JsonOrCsv;
use crate::organizations::usage_reports::{Cells, ProjectQuery};
use crate::refusals::BODY;
use billing::usage_reports::{self, Group};
use kernel::clock::Day;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, ProjectId, UserId};
use tenants::access::ProjectScope;
use web::input::QueryOrBody;
use web::route::Operation;

/// Usage of a project, by key and user.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectUsage {
    /// The id of the project.
    project_id: ProjectId,
    /// The name of the project.
    project_name: String,
    /// The rows of the report.
    usage: Vec<ProjectUsageRow>,
    /// The sum of all rows.
    total: Cells,
}

/// Usage of a key, or of a user without a key, in a day, week or month.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectUsageRow {
    /// The day, or the first day of the week or month.
    date: Day,
    /// The id of the model, if the report is grouped by `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The id of the API key; null for calls of a user without a key.
    #[schemars(with = "Option<ApiKeyId>")]
    api_key_id: Option<String>,
    /// The name of the key; the username for calls without a key.
    api_key_name: String,
    /// The id of the user who called without a key; otherwise null.
    #[schemars(with = "Option<UserId>")]
    user_id: Option<String>,
    #[serde(flatten)]
    cells: Cells,
}

impl From<(Day, Group, Cells)> for ProjectUsageRow {
    fn from((date, group, cells): (Day, Group, Cells)) -> Self {
        Self {
            date,
            model: group.model,
            api_key_id: group.api_key_id,
            // Always present, because a project's report is always grouped by key.
            api_key_name: group.api_key_name.unwrap_or_default(),
            user_id: group.user_id,
            cells,
        }
    }
}

pub const READ: Operation = Operation {
    error_groups: &[BODY],
    query: &[("start_date", "2026-01-01"), ("end_date", "2026-02-01"), ("group_by", "day,model")],
    ..Operation::new("get_project_usage")
};

/// Report a project's usage.
///
/// Days without usage are omitted.
pub async fn read(
    api: Api,
    scope: ProjectScope,
    QueryOrBody(ProjectQuery(query)): QueryOrBody<ProjectQuery>,
) -> Result<JsonOrCsv<ProjectUsage>, Error> {
    let project = tenants::projects::read(&api.tenants, &scope).await?.project;
    let (organization_id, id) = (project.organization_id, project.id);
    let report = usage_reports::of_project(&api.billing, organization_id, id, query.query()).await?;
    let json = |rows: Vec<_>, total| ProjectUsage {
        project_id: id,
        project_name: project.name,
        usage: rows.into_iter().map(ProjectUsageRow::from).collect(),
        total,
    };
    Ok(query.answer(report, &id.to_string(), json))
}
