//! GET /v1/organizations/{organization_id}/projects/{project_id}/usage (section 4.5)

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::ProjectScope;
use crate::api::organizations::billing::{UsageCells, UsageQuery};
use crate::app::App;
use crate::clock::Day;
use crate::error::{Code, Error};
use crate::ids::{ApiKeyId, ProjectId};
use crate::input::QueryOrBody;
use crate::reply::{Enveloped, private};
use crate::store;

/// What a project used, day by day and key by key.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectUsage {
    project_id: ProjectId,
    project_name: String,
    usage: Vec<ProjectUsageRow>,
    total: UsageCells,
}

/// One key on one day.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectUsageRow {
    date: Day,
    api_key_id: ApiKeyId,
    api_key_name: String,
    #[serde(flatten)]
    cells: UsageCells,
}

/// Days without usage are left out.
pub async fn read(
    app: App,
    scope: ProjectScope,
    QueryOrBody(query): QueryOrBody<UsageQuery>,
) -> Result<Enveloped<ProjectUsage>, Error> {
    let range = query.range(app.clock.now())?;
    let mut tx = app.db.read().await?;
    let (organization_id, project_id) = (scope.organization_id(), scope.project_id());
    let project =
        store::projects::detail(&mut tx, organization_id, project_id).await?.ok_or(Code::ProjectNotFound)?;
    let rows = store::usage::by_key_and_day(&mut tx, organization_id, project_id, range).await?;
    let mut usage: Vec<ProjectUsageRow> = Vec::new();
    let mut total = UsageCells::default();
    for row in rows {
        total.add(&row.usage)?;
        let same =
            |last: &&mut ProjectUsageRow| last.date == row.usage.day && last.api_key_id == row.api_key_id;
        match usage.last_mut().filter(same) {
            Some(last) => last.cells.add(&row.usage)?,
            None => {
                let mut cells = UsageCells::default();
                cells.add(&row.usage)?;
                usage.push(ProjectUsageRow {
                    date: row.usage.day,
                    api_key_id: row.api_key_id,
                    api_key_name: row.api_key_name,
                    cells,
                });
            }
        }
    }
    Ok(private(ProjectUsage { project_id, project_name: project.project.name, usage, total }))
}
