//! `/v1/organizations/{organization_id}/billing/budgets` and `…/{budget_id}`
//! (docs/contract/billing.md#budgets).

pub mod bodies;

use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Message;
use crate::gate::BudgetScope;
use crate::paging::{PageInfo, PageQuery};
use billing::Billing;
use billing::budgets::{self, Budget as BudgetRow, RunningBudget};
use idempotency::Uncommitted;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, BudgetId, ProjectId};
use kernel::money::{Nano, Pico};
use tenants::access::OrgScope;
use web::input::{Body, IfMatch, NoInput, Query};
use web::reply::{Enveloped, Versioned, ok, private, private_versioned};
use web::route::Operation;

pub use bodies::{CreateBudget, UpdateBudget};

/// A budget, with its usage in the current period.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Budget {
    /// The budget's id.
    id: BudgetId,
    /// The name, of 1 to 100 characters.
    name: String,
    /// `organization`, `project` or `api_key`.
    scope: &'static str,
    /// The project, or the project of the API key; null for the scope `organization`.
    project_id: Option<ProjectId>,
    /// The API key; null for other scopes.
    api_key_id: Option<ApiKeyId>,
    /// `day`, `month` or `total`, in UTC.
    period: &'static str,
    /// The maximum amount that can be used in a period.
    limit: Nano,
    /// `true` if calls that could exceed the limit are refused.
    hard: bool,
    /// The percentages of the limit at which owners and admins are notified by e-mail.
    thresholds: Vec<i64>,
    /// The currency's ISO 4217 code.
    currency: String,
    /// The start of the current period; null for `total`.
    period_start: Option<Time>,
    /// The end of the current period, exclusive; null for `total`.
    period_end: Option<Time>,
    /// The list price of the usage in the current period.
    spent: Pico,
    /// The amount reserved for calls in progress.
    reserved: Nano,
    /// The limit minus `spent` and `reserved`; negative if the limit is exceeded.
    left: Pico,
    /// The time when the budget was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
}

impl From<RunningBudget> for Budget {
    fn from(running: RunningBudget) -> Self {
        let (left, period_end) = (running.left(), running.period_end());
        let RunningBudget { budget, period_start, spent, currency } = running;
        let api_key_id = budget.api_key_id();
        let BudgetRow { id, subject, project_id, name, period, limit, hard, thresholds, .. } = budget;
        let BudgetRow { reserved, created_at, updated_at, .. } = budget;
        Self {
            id,
            name,
            scope: subject.scope().as_str(),
            project_id,
            api_key_id,
            period: period.as_str(),
            limit,
            hard,
            thresholds: thresholds.percents().to_vec(),
            currency,
            period_start: period_end.map(|_| period_start.start()),
            period_end,
            spent,
            reserved,
            left,
            created_at,
            updated_at,
        }
    }
}

pub const CREATE: Operation = Operation {
    errors: &[Code::ApiKeyNotFound, Code::LimitReached, Code::NameTaken, Code::ProjectNotFound],
    example: r#"{
  "name": "Everything",
  "scope": "organization",
  "period": "month",
  "limit": 500,
  "hard": true,
  "thresholds": [50, 80, 100]
}"#,
    ..Operation::new("create_budget")
};

/// Create a budget.
///
/// Usage and reservations of the current period count, even if they are older than the budget.
pub async fn create(
    billing: Billing,
    scope: OrgScope,
    Body(body): Body<CreateBudget>,
) -> Result<Uncommitted<Enveloped<Budget>>, Error> {
    let created = budgets::create(&billing, &scope, body.into()).await?;
    Ok(created.map(|budget| private(budget.into())))
}

/// A page of budgets.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BudgetPage {
    /// The budgets of this page.
    budgets: Vec<Budget>,
    #[serde(flatten)]
    page: PageInfo,
}

pub const LIST: Operation = Operation::new("list_budgets");

/// List budgets.
///
/// The newest come first.
pub async fn list(
    billing: Billing,
    scope: OrgScope,
    Query(PageQuery(page)): Query<PageQuery>,
) -> Result<Enveloped<BudgetPage>, Error> {
    let listed = budgets::list(&billing, scope.organization_id(), page).await?;
    Ok(private(BudgetPage {
        budgets: listed.budgets.into_iter().map(Budget::from).collect(),
        page: PageInfo::new(listed.total, page),
    }))
}

pub const READ: Operation = Operation::new("get_budget");

/// Get a budget.
pub async fn read(_: Billing, scope: BudgetScope, _: NoInput) -> Result<Versioned<Budget>, Error> {
    let budget = scope.into_budget();
    Ok(private_versioned(budget.version()?, budget.into()))
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::NameTaken],
    example: r#"{
  "limit": 750
}"#,
    ..Operation::new("update_budget")
};

/// Change a budget.
///
/// A merge patch: omitted fields don't change. The scope and period of a budget can't be changed.
pub async fn update(
    billing: Billing,
    scope: BudgetScope,
    IfMatch(expected, Body(body)): IfMatch<Body<UpdateBudget>>,
) -> Result<Versioned<Budget>, Error> {
    let change = body.into();
    let budget = budgets::update(&billing, scope.organization(), scope.id(), &expected, change).await?;
    Ok(private_versioned(budget.version()?, budget.into()))
}

pub const DELETE: Operation = Operation::new("delete_budget");

/// Delete a budget.
pub async fn delete(
    billing: Billing,
    scope: BudgetScope,
    IfMatch(expected, _): IfMatch<NoInput>,
) -> Result<Enveloped<Message>, Error> {
    budgets::delete(&billing, scope.organization(), scope.id(), &expected).await?;
    Ok(ok(Message { message: "The budget is deleted.".into() }))
}
