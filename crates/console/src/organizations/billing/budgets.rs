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
use crate::show;

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

/// Returns the period of a budget, in words.
fn period(running: &RunningBudget) -> String {
    match running.period_end() {
        Some(_) => running.budget.period.label(running.period_start),
        None => "All time".to_owned(),
    }
}

/// Returns the part of the limit that is spent and reserved, in percent from 0 to 100.
fn percent(running: &RunningBudget) -> i128 {
    let limit = running.budget.limit.units().max(1);
    let used = running.spent.ceil_nano().units().saturating_add(running.budget.reserved.units());
    (used.saturating_mul(100) / limit).clamp(0, 100)
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
