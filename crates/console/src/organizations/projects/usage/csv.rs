//! GET /console/organizations/{organization_id}/projects/{project_id}/usage/csv

use api::csv::CsvFile;
use api::gate::Visit;
use billing::usage_reports::{self, Query};
use kernel::error::Error;
use tenants::access::ProjectScope;
use web::forms::Filters;

use crate::console::Console;
use crate::usage::{ProjectBy, UsageFilters};

/// Get a project's usage as a file.
pub async fn read(
    console: Console,
    visit: Visit<ProjectScope>,
    query: Filters<UsageFilters<ProjectBy>>,
) -> Result<CsvFile, Error> {
    let (organization_id, id) = (visit.scope.organization_id(), visit.scope.project_id());
    let query_of_page = query.fields.query(console.clock.now().day());
    let question = Query { needs_components: true, ..query_of_page };
    let report = usage_reports::of_project(&console.billing, organization_id, id, question).await?;
    query.fields.file(report, &id.to_string())
}
