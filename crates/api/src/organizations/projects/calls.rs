//! `/v1/organizations/{organization_id}/projects/{project_id}/calls` (docs/contract/calls.md).

use crate::accept::Negotiated;
use crate::csv::{CsvQuery, JsonOrCsv};
use crate::organizations::calls::{self, CallInPath, CallPage, CallQuery, LoggedCall};
use billing::Billing;
use kernel::error::Error;
use tenants::access::ProjectScope;
use web::reply::Enveloped;
use web::route::Operation;

pub const LIST: Operation =
    Operation { query: &[("ended", "refused"), ("limit", "50")], ..Operation::new("list_project_calls") };

/// List the model calls of a project.
///
/// The newest come first. With `Accept: text/csv`, the page is returned as a file.
pub async fn list(
    billing: Billing,
    scope: ProjectScope,
    query: CsvQuery<CallQuery>,
) -> Result<Negotiated<JsonOrCsv<CallPage>>, Error> {
    calls::page(&billing, (scope.organization_id(), Some(scope.project_id())), query).await
}

pub const READ: Operation = Operation::new("get_project_call");

/// Get a model call of a project.
pub async fn read(
    billing: Billing,
    scope: ProjectScope,
    CallInPath(call_id): CallInPath,
) -> Result<Enveloped<LoggedCall>, Error> {
    calls::one(&billing, (scope.organization_id(), Some(scope.project_id())), call_id).await
}
