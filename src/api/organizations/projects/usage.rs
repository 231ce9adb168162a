//! GET /v1/organizations/{organization_id}/projects/{project_id}/usage (section 4.5)

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::ProjectScope;
use crate::api::organizations::usage_reports::{Cells, ProjectQuery, Report, Row, too_many, usage_file};
use crate::app::App;
use crate::clock::Day;
use crate::error::Error;
use crate::ids::{ApiKeyId, ProjectId, UserId};
use crate::input::QueryOrBody;
use crate::store::usage::reports;
use crate::tenants;

/// Usage of a project, by key and person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectUsage {
    project_id: ProjectId,
    project_name: String,
    usage: Vec<ProjectUsageRow>,
    total: Cells,
}

/// One key, or one person without a key, in one day, week or month.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectUsageRow {
    /// The first day of the week or month.
    date: Day,
    /// With the group `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Null for the calls of a person without a key.
    #[schemars(with = "Option<ApiKeyId>")]
    api_key_id: Option<String>,
    /// The name of the key; the person's username where there is none.
    api_key_name: String,
    /// The person who called without a key; else null.
    #[schemars(with = "Option<UserId>")]
    user_id: Option<String>,
    #[serde(flatten)]
    cells: Cells,
}

impl From<Row> for ProjectUsageRow {
    fn from(row: Row) -> Self {
        let (date, group, cells) = (row.date, row.group, row.cells);
        Self {
            date,
            model: group.model,
            api_key_id: group.api_key_id,
            // Always there: a project's query groups by key whatever is asked for.
            api_key_name: group.api_key_name.unwrap_or_default(),
            user_id: group.user_id,
            cells,
        }
    }
}

/// Days without usage are left out.
pub async fn read(
    app: App,
    scope: ProjectScope,
    QueryOrBody(ProjectQuery(query)): QueryOrBody<ProjectQuery>,
) -> Result<Report<ProjectUsage>, Error> {
    let range = query.range(app.clock.now())?;
    let mut tx = app.db.read().await?;
    let (organization_id, project_id) = (scope.organization_id(), scope.project_id());
    let name = tenants::projects::read(&app.tenants, &scope).await?.project.name;
    let mut old = app.db.reports().await?;
    let days =
        reports::of_project(&mut old, organization_id, project_id, range, query.groups, too_many()).await?;
    let file = || usage_file(&project_id.to_string(), range);
    let json = |rows: Vec<Row>, total| ProjectUsage {
        project_id,
        project_name: name,
        usage: rows.into_iter().map(ProjectUsageRow::from).collect(),
        total,
    };
    query.report(&mut tx, organization_id, days, file, json).await
}
