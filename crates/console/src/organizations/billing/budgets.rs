//! `/console/organizations/{organization_id}/billing/budgets` and `…/{budget_id}`

pub mod delete;
pub mod new;

use std::collections::BTreeMap;

use api::gate::{BudgetScope, Visit};
use api::organizations::billing::budgets::UpdateBudget;
use api::paging::PageQuery;
use askama::Template;
use billing::budgets::{self, RunningBudget, Scope};
use kernel::error::Error;
use kernel::ids::{BudgetId, OrganizationId};
use kernel::money::{Nano, Pico};
use kernel::version::Expected;
use tenants::access::OrgScope;
use tenants::roles::OrganizationAction;
use web::forms::{Filters, ObjectForm};
use web::input::NoInput;

use super::Tab;
use crate::conflicts;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, Column};

/// The fields of the forms.
const LABELS: Labels = &[
    ("name", "Name"),
    ("scope", "Scope"),
    ("project_id", "Project"),
    ("api_key_id", "API key"),
    ("period", "Period"),
    ("limit", "Limit"),
    ("hard", "Block calls that would exceed the limit"),
    ("thresholds", "Alert at (% of limit)"),
];

#[derive(Template)]
#[template(path = "organizations/budgets/list.html")]
struct ListPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    budgets: Vec<RunningBudget>,
    columns: Columns,
    /// The names of the budgets' projects and keys, if they still exist.
    names: BTreeMap<BudgetId, String>,
    listing: Listing,
    may_manage: bool,
}

/// List an organization's budgets.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    let (id, page) = (visit.scope.organization_id(), query.fields.0);
    let listed = budgets::list(&console.billing, id, page).await?;
    let names = budgets::subject_names(&console.billing, id, page).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&ListPage {
        tabs: super::tabs(&shell, Tab::Budgets),
        may_manage: shell.may(OrganizationAction::ManageBilling),
        listing: Listing::new(page, listed.total, &query.sent),
        columns: Columns::new(&listed.budgets),
        budgets: listed.budgets,
        names,
        shell,
    })
}

impl ListPage {
    /// Returns the scope of a budget.
    fn subject(&self, running: &RunningBudget) -> String {
        let budget = &running.budget;
        subject(budget.subject.scope(), self.names.get(&budget.id).map(String::as_str))
    }
}

/// Returns the scope of a budget in words. `name` is the name of the project or key, if it exists.
fn subject(scope: Scope, name: Option<&str>) -> String {
    match (scope, name) {
        (Scope::Organization, _) => "The whole organization".to_owned(),
        (Scope::Project, Some(name)) => format!("Project {name}"),
        (Scope::Project, None) => "A deleted project".to_owned(),
        (Scope::ApiKey, Some(name)) => format!("API key {name}"),
        (Scope::ApiKey, None) => "A deleted API key".to_owned(),
    }
}

/// The part of a limit that is spent and reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Used {
    /// The percentage: 100 only if exactly the limit is used.
    percent: i128,
    /// The length of the bar, from 0 to 100.
    width: i128,
    /// The kind of the bar and of the badge.
    kind: &'static str,
    /// The standing in words, from [`NEAR`] percent on.
    words: Option<&'static str>,
}

/// The percentage from which a limit is nearly used up.
const NEAR: i128 = 80;

/// Returns the part of a budget's limit that is spent and reserved.
fn used(running: &RunningBudget) -> Used {
    let limit = running.budget.limit.to_pico().unwrap_or_default();
    used_of(limit.units(), limit.units().saturating_sub(running.left().units()))
}

/// Returns the part of a limit that is used, below the limit rounded down and above it up.
fn used_of(limit: i128, used: i128) -> Used {
    let (limit, parts) = (limit.max(1), used.max(0).saturating_mul(100));
    let whole = parts / limit;
    let is_over = used > limit;
    let percent = if is_over && parts % limit != 0 { whole.saturating_add(1) } else { whole };
    let (kind, words) = match percent {
        _ if is_over => ("bad", Some("Over the limit")),
        100 => ("warn", Some("Used up")),
        NEAR.. => ("warn", Some("Nearly used up")),
        _ => ("good", None),
    };
    Used { percent, width: percent.min(100), kind, words }
}

/// The formats of the amounts of a list of budgets.
struct Columns {
    spent: Column,
    reserved: Column,
    left: Column,
    limit: Column,
}

impl Columns {
    fn new(budgets: &[RunningBudget]) -> Self {
        let currency = budgets.first().map_or("", |running| &running.currency);
        Self {
            spent: Column::owed(currency, budgets.iter().map(|running| running.spent)),
            reserved: Column::owed(currency, budgets.iter().map(|running| running.budget.reserved)),
            left: Column::held(currency, budgets.iter().map(RunningBudget::left)),
            limit: Column::held(currency, budgets.iter().map(|running| running.budget.limit)),
        }
    }
}

/// Returns an amount as users type it, without thousands separators.
fn typed(amount: Nano) -> String {
    amount.to_string()
}

/// Returns the remaining amount, or the excess and `true` if the limit is exceeded.
fn left(running: &RunningBudget) -> (Pico, bool) {
    let left = running.left();
    (Pico::from_units(left.units().saturating_abs()), left < Pico::ZERO)
}

#[derive(Template)]
#[template(path = "organizations/budgets/budget.html")]
struct BudgetPage<'a> {
    shell: Shell,
    form: FormView,
    running: &'a RunningBudget,
    subject: String,
}

impl BudgetPage<'_> {
    fn currency(&self) -> &str {
        &self.running.currency
    }
}

/// Show a budget, with the form that changes it.
pub async fn read(console: Console, visit: Visit<BudgetScope>, _: NoInput) -> Result<Page, Error> {
    let form = filled(visit.scope.budget())?;
    show(&console, &visit, form).await
}

/// Change a budget.
pub async fn update(
    console: Console,
    visit: Visit<BudgetScope>,
    mut form: ObjectForm<UpdateBudget>,
) -> Result<Page, Error> {
    let (scope, budget) = (visit.scope.organization(), visit.scope.budget());
    let list = list_link(&console, scope.organization_id());
    let link = format!("{list}/{}", visit.scope.id());
    if let Some(page) = conflicts::check(&console, &visit.person, &form, &filled(budget)?, &link).await? {
        return Ok(page);
    }
    let expected = Expected::OneOf(vec![budget.version()?]);
    let changed = match form.take() {
        Ok(body) => {
            let change = body.into();
            budgets::update(&console.billing, scope, visit.scope.id(), &expected, change).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&list, Done::BudgetChanged),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Returns the link to the budgets of an organization.
fn list_link(console: &Console, organization_id: OrganizationId) -> String {
    console.link(&format!("/organizations/{organization_id}/billing/budgets"))
}

/// Returns the form filled with the current values of a budget.
fn filled(running: &RunningBudget) -> Result<FormView, Error> {
    let budget = &running.budget;
    FormView::new(LABELS)
        .with("name", budget.name.as_str())
        .with("limit", typed(budget.limit))
        .with("hard", budget.hard.to_string())
        .with_all("thresholds", budget.thresholds.percents().iter().map(i64::to_string))
        .versioned()
}

async fn show(console: &Console, visit: &Visit<BudgetScope>, form: FormView) -> Result<Page, Error> {
    let running = visit.scope.budget();
    let name = budgets::subject_name(&console.billing, &running.budget).await?;
    let page = BudgetPage {
        shell: Shell::read(console, &visit.person).await?,
        form,
        running,
        subject: subject(running.budget.subject.scope(), name.as_deref()),
    };
    Page::with_form(&page.form, &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_the_true_percentage() {
        // Limit, used: percentage, width, kind, words.
        let cases = [
            (200, 0, 0, 0, "good", None),
            (200, -5, 0, 0, "good", None),
            (1_000, 799, 79, 79, "good", None),
            (1_000, 800, 80, 80, "warn", Some("Nearly used up")),
            (1_000, 999, 99, 99, "warn", Some("Nearly used up")),
            (1_000, 1_000, 100, 100, "warn", Some("Used up")),
            (1_000, 1_001, 101, 100, "bad", Some("Over the limit")),
            (1_000, 1_610, 161, 100, "bad", Some("Over the limit")),
            (1_000, 1_611, 162, 100, "bad", Some("Over the limit")),
            (1, i128::MAX, i128::MAX, 100, "bad", Some("Over the limit")),
        ];
        for (limit, used, percent, width, kind, words) in cases {
            assert_eq!(used_of(limit, used), Used { percent, width, kind, words }, "{used} of {limit}");
        }
    }
}
