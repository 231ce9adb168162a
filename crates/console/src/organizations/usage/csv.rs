//! GET /console/organizations/{organization_id}/usage/csv

use api::csv::CsvFile;
use api::gate::Visit;
use billing::usage_reports::{self, Query};
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::Filters;

use crate::console::Console;
use crate::usage::{OrganizationBy, UsageFilters};

/// Get an organization's usage as a file.
pub async fn read(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<UsageFilters<OrganizationBy>>,
) -> Result<CsvFile, Error> {
    let id = visit.scope.organization_id();
    let query_of_page = query.fields.query(console.clock.now().day());
    let question = Query { needs_components: true, ..query_of_page };
    let report = usage_reports::of_organization(&console.billing, id, question).await?;
    query.fields.file(report, &id.to_string())
}
