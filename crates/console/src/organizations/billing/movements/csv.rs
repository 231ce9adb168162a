//! GET /console/organizations/{organization_id}/billing/movements/csv

use api::csv::CsvFile;
use api::gate::Visit;
use api::organizations::billing::movements::file;
use billing::movements;
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::Filters;

use super::MovementFilters;
use crate::console::Console;

/// Get the movements of an organization's balance as a file.
pub async fn read(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<MovementFilters>,
) -> Result<CsvFile, Error> {
    let id = visit.scope.organization_id();
    Ok(file(id, movements::list_all(&console.billing, id, query.fields.query()).await?))
}
