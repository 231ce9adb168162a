//! GET and POST /console/organizations/{organization_id}/billing/budgets/{budget_id}/delete

use api::gate::{BudgetScope, Visit};
use askama::Template;
use billing::budgets::{self, RunningBudget};
use kernel::error::Error;
use kernel::version::Expected;
use web::input::NoInput;

use super::list_link;
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/budgets/delete.html")]
struct DeletePage {
    shell: Shell,
    running: RunningBudget,
}

/// Ask whether to delete the budget.
pub async fn read(console: Console, visit: Visit<BudgetScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&DeletePage { shell, running: visit.scope.into_budget() })
}

/// Delete the budget.
pub async fn create(console: Console, visit: Visit<BudgetScope>, _: NoInput) -> Result<Page, Error> {
    let scope = visit.scope.organization();
    budgets::delete(&console.billing, scope, visit.scope.id(), &Expected::Any).await?;
    Page::done(&list_link(&console, scope.organization_id()), Done::BudgetDeleted)
}
