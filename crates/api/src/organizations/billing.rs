//! `/v1/organizations/{organization_id}/billing/…` (docs/contract/billing.md).

pub mod auto_top_up;
pub mod balance_alert;
pub mod budgets;
pub mod credits;
pub mod export;
pub mod invoices;
pub mod movements;
pub mod payment_method;
pub mod payments;
pub mod summary;

use schemars::JsonSchema;
use serde::Serialize;

use crate::csv::JsonOrCsv;
use crate::organizations::usage_reports::{Cells, OrganizationQuery};
use crate::refusals::BODY;
use billing::Billing;
use billing::usage_reports::{self, Group};
use kernel::clock::Day;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, ProjectId, UserId};
use tenants::access::OrgScope;
use web::input::QueryOrBody;
use web::route::Operation;

pub use export::export;
pub use summary::summary;

/// Usage of an organization.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationUsage {
    /// The rows of the report.
    usage: Vec<UsageRow>,
    /// The sum of all rows.
    total: Cells,
}

/// Usage in a day, week or month, and in the groups of `group_by`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageRow {
    /// The day, or the first day of the week or month.
    date: Day,
    /// The id of the model, if the report is grouped by `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The id of the project, if the report is grouped by `project`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProjectId>")]
    project_id: Option<String>,
    #[serde(flatten)]
    caller: Option<UsageCaller>,
    #[serde(flatten)]
    cells: Cells,
}

/// The caller: a key or a user.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageCaller {
    /// The id of the API key; null for calls of a user without a key. Only if the report is grouped by
    /// `api_key`.
    #[schemars(with = "Option<ApiKeyId>")]
    api_key_id: Option<String>,
    /// The id of the user who called without a key; otherwise null. Only if the report is grouped by
    /// `api_key`.
    #[schemars(with = "Option<UserId>")]
    user_id: Option<String>,
}

impl From<(Day, Group, Cells)> for UsageRow {
    fn from((date, group, cells): (Day, Group, Cells)) -> Self {
        let Group { model, project_id, api_key_id, user_id, .. } = group;
        let by_caller = api_key_id.is_some() || user_id.is_some();
        let caller = by_caller.then_some(UsageCaller { api_key_id, user_id });
        Self { date, model, project_id, caller, cells }
    }
}

pub const USAGE: Operation = Operation {
    error_groups: &[BODY],
    query: &[("start_date", "2026-01-01"), ("end_date", "2026-02-01"), ("group_by", "day,model")],
    ..Operation::new("get_organization_usage")
};

/// Report an organization's usage.
///
/// Days without usage are omitted.
pub async fn usage(
    billing: Billing,
    scope: OrgScope,
    QueryOrBody(OrganizationQuery(query)): QueryOrBody<OrganizationQuery>,
) -> Result<JsonOrCsv<OrganizationUsage>, Error> {
    let id = scope.organization_id();
    let report = usage_reports::of_organization(&billing, id, query.query()).await?;
    let json = |rows: Vec<_>, total| OrganizationUsage {
        usage: rows.into_iter().map(UsageRow::from).collect(),
        total,
    };
    Ok(query.answer(report, &id.to_string(), json))
}
