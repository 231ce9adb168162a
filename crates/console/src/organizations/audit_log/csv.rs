//! GET /console/organizations/{organization_id}/audit-log/csv

use api::csv::CsvFile;
use api::gate::Visit;
use api::organizations::audit_log;
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::Filters;

use crate::console::Console;
use crate::organizations::audit_log::AuditLogFilters;

/// Get the entries of an audit log as a file.
pub async fn read(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<AuditLogFilters>,
) -> Result<CsvFile, Error> {
    audit_log::export(&console.tenants, &visit.scope, &query.fields.filter).await
}
