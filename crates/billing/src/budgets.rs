//! Budgets of organizations, projects and API keys (docs/contract/billing.md#budgets). [`crate::books`]
//! counts the usage of calls.

use std::collections::BTreeMap;

use crate::Billing;
use crate::books::locked_budgets::Progress;
use crate::rules::budgets::{self as rules, Period, Subject, Thresholds};
use crate::store::budgets::{self as store, Use};
use crate::store::wallets::{self, Wallet};
use db::{Page, Tx, Uncommitted};
use kernel::clock::{Day, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{ApiKeyId, BudgetId, OrganizationId, ProjectId};
use kernel::money::{Nano, Pico};
use kernel::naming::Name;
use kernel::version::{Expected, Version};
use tenants::access::OrgScope;
use trail::{Action, Event};

pub use crate::rules::budgets::Scope;
pub use crate::store::budgets::Budget;

/// A budget with its use in the current period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningBudget {
    pub budget: Budget,
    /// The first day of the period.
    pub period_start: Day,
    /// The list price of the usage in the period.
    pub spent: Pico,
    /// ISO 4217 code.
    pub currency: String,
}

impl RunningBudget {
    fn new(budget: Budget, used: Use, today: Day, currency: &str) -> Self {
        let period_start = budget.period.start(today);
        Self { budget, period_start, spent: used.spent, currency: currency.to_owned() }
    }

    /// Returns the remaining limit: negative if more than the limit is spent and reserved.
    pub fn left(&self) -> Pico {
        rules::left(self.budget.limit, self.spent, self.budget.reserved)
    }

    /// Returns the end of the period, exclusive; `None` for `total`.
    pub fn period_end(&self) -> Option<Time> {
        self.budget.period.end(self.period_start)
    }

    /// Returns the version of the budget.
    ///
    /// # Errors
    /// The budget can't be written as JSON.
    pub fn version(&self) -> Result<Version, Error> {
        self.budget.version()
    }
}

/// The subject of a new budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSubject {
    Organization,
    Project(ProjectId),
    ApiKey(ApiKeyId),
}

/// A new budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct New {
    /// Unique in the organization.
    pub name: Name,
    pub subject: NewSubject,
    pub period: Period,
    pub limit: Nano,
    /// `true` if calls that could exceed the limit are refused.
    pub hard: bool,
    pub thresholds: Thresholds,
}

/// A change of a budget; `None` keeps a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub name: Option<Name>,
    pub limit: Option<Nano>,
    pub hard: Option<bool>,
    pub thresholds: Option<Thresholds>,
}

/// Creates a budget, and returns it with the earlier usage in the current period: the usage of the period's
/// days, and the reserved amounts.
///
/// # Errors
/// 404 and 403 from the scope; 404 if the organization has no such project or key; 409 if it has a budget
/// with this name, or the maximum number of budgets.
pub fn create<'a>(
    billing: &'a Billing,
    scope: &'a OrgScope,
    new: New,
) -> BoxFuture<'a, Result<Uncommitted<RunningBudget>, Error>> {
    Box::pin(async move {
        let (organization_id, now) = (scope.organization_id(), billing.clock.now());
        let mut tx = billing.db().write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        let (subject, project_id) = find_subject(&mut held, organization_id, new.subject).await?;
        let wallet = lock_wallet(billing, &mut held, organization_id).await?;
        rules::check_count(wallet.budgets, store::count_of_subject(&mut held, subject).await?)?;
        let mut budget = Budget {
            id: BudgetId::new(now, &billing.random),
            organization_id,
            subject,
            project_id,
            name: new.name.display,
            period: new.period,
            limit: new.limit,
            hard: new.hard,
            thresholds: new.thresholds,
            reserved: Nano::ZERO,
            created_at: now,
            updated_at: now,
        };
        budget.reserved = store::reserved(&mut held, &budget).await?;
        store::insert(&mut held, &budget, &new.name.folded).await?;
        let spent = count_usage(&mut held, &budget).await?;
        let period_start = budget.period.start(now.day());
        let used = Use { spent: spent.get(&period_start).copied().unwrap_or_default(), highest_threshold: 0 };
        let currency = wallet.currency.as_str();
        let progress = Progress { budget: &budget, currency, period_start, used, was_used_up: false };
        progress.record(billing, &mut held, now).await?;
        record_event(billing, &mut held, scope, Action::BudgetCreated, (budget.id, now)).await?;
        Ok(Uncommitted::new(tx, RunningBudget::new(budget, used, now.day(), &wallet.currency)))
    })
}

/// Counts the usage of a new budget's subject since the beginning of its first period, by period. The usage
/// may include days after the current day of this replica's clock.
async fn count_usage(tx: &mut Tx, budget: &Budget) -> Result<BTreeMap<Day, Pico>, Error> {
    let mut spent: BTreeMap<Day, Pico> = BTreeMap::new();
    for (day, amount) in store::usage_since(tx, budget, budget.first_period()).await? {
        let sum = spent.entry(budget.period.start(day)).or_default();
        *sum = Pico::from_units(sum.units() + amount.units());
    }
    for (start, spent) in &spent {
        store::set_spent(tx, budget.id, *start, *spent).await?;
    }
    Ok(spent)
}

/// Returns the subject of a budget, and its project.
async fn find_subject(
    tx: &mut Tx,
    organization_id: OrganizationId,
    new: NewSubject,
) -> Result<(Subject, Option<ProjectId>), Error> {
    match new {
        NewSubject::Organization => Ok((Subject::Organization(organization_id), None)),
        NewSubject::Project(id) => {
            if !store::has_project(tx, organization_id, id).await? {
                return Err(Error::new(Code::ProjectNotFound).param("project_id"));
            }
            Ok((Subject::Project(id), Some(id)))
        }
        NewSubject::ApiKey(id) => {
            let project_id = store::project_of_key(tx, organization_id, id).await?;
            let project_id =
                project_id.ok_or_else(|| Error::new(Code::ApiKeyNotFound).param("api_key_id"))?;
            Ok((Subject::ApiKey(id), Some(project_id)))
        }
    }
}

async fn lock_wallet(
    billing: &Billing,
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Wallet, Error> {
    let wallet = wallets::lock(tx, organization_id, &billing.clock_guard).await?;
    Ok(wallet.ok_or(Code::OrganizationNotFound)?)
}

/// A page of budgets, and the number of budgets on all pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetList {
    pub budgets: Vec<RunningBudget>,
    pub total: i64,
}

/// Returns one page of an organization's budgets, the newest first.
///
/// # Errors
/// The database fails.
pub fn list(
    billing: &Billing,
    organization_id: OrganizationId,
    page: Page,
) -> BoxFuture<'_, Result<BudgetList, Error>> {
    Box::pin(async move {
        let today = billing.clock.now().day();
        let mut tx = billing.db().read().await?;
        let wallet = wallets::get(&mut tx, organization_id).await?.ok_or(Code::OrganizationNotFound)?;
        let total = store::count(&mut tx, organization_id).await?;
        let rows = store::page(&mut tx, organization_id, today, page).await?;
        let running =
            |row: store::BudgetAndUse| RunningBudget::new(row.budget, row.used, today, &wallet.currency);
        Ok(BudgetList { budgets: rows.into_iter().map(running).collect(), total })
    })
}

/// Returns a budget.
///
/// # Errors
/// 404 if the organization has no such budget.
pub async fn read(
    billing: &Billing,
    organization_id: OrganizationId,
    id: Option<BudgetId>,
) -> Result<RunningBudget, Error> {
    let id = id.ok_or(Code::BudgetNotFound)?;
    let today = billing.clock.now().day();
    let mut tx = billing.db().read().await?;
    let wallet = wallets::get(&mut tx, organization_id).await?.ok_or(Code::OrganizationNotFound)?;
    let row = store::get(&mut tx, organization_id, id, today).await?.ok_or(Code::BudgetNotFound)?;
    Ok(RunningBudget::new(row.budget, row.used, today, &wallet.currency))
}

/// Changes a budget, and returns it after the change, which applies from the next call on. A change to the
/// same values doesn't change `updated_at`.
///
/// # Errors
/// 404 and 403 from the scope; 412 if the budget doesn't have the expected version; 409 if the organization
/// has another budget with this name.
pub fn update<'a>(
    billing: &'a Billing,
    scope: &'a OrgScope,
    id: BudgetId,
    expected: &'a Expected,
    change: Change,
) -> BoxFuture<'a, Result<RunningBudget, Error>> {
    Box::pin(async move {
        let (organization_id, now) = (scope.organization_id(), billing.clock.now());
        let mut tx = billing.db().write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        let wallet = lock_wallet(billing, &mut held, organization_id).await?;
        let found =
            store::get(&mut held, organization_id, id, now.day()).await?.ok_or(Code::BudgetNotFound)?;
        let (before, used) = (found.budget, found.used);
        expected.check(before.version()?)?;
        let name_folded = change.name.as_ref().map(|name| name.folded.clone());
        let mut budget = change.onto(before.clone());
        if budget != before {
            budget.updated_at = now;
            store::update(&mut held, &budget, name_folded.as_deref()).await?;
            let period_start = budget.period.start(now.day());
            let was_used_up = rules::is_used_up(used.spent, before.limit);
            let currency = wallet.currency.as_str();
            let progress = Progress { budget: &budget, currency, period_start, used, was_used_up };
            progress.record(billing, &mut held, now).await?;
            record_event(billing, &mut held, scope, Action::BudgetChanged, (id, now)).await?;
        }
        tx.commit().await?;
        Ok(RunningBudget::new(budget, used, now.day(), &wallet.currency))
    })
}

impl Change {
    /// Returns the budget after the change.
    fn onto(self, mut budget: Budget) -> Budget {
        budget.name = self.name.map_or(budget.name, |name| name.display);
        budget.limit = self.limit.unwrap_or(budget.limit);
        budget.hard = self.hard.unwrap_or(budget.hard);
        budget.thresholds = self.thresholds.unwrap_or(budget.thresholds);
        budget
    }
}

/// Deletes a budget with its records. Usage is kept.
///
/// # Errors
/// 404 and 403 from the scope; 412 if the budget doesn't have the expected version.
pub fn delete<'a>(
    billing: &'a Billing,
    scope: &'a OrgScope,
    id: BudgetId,
    expected: &'a Expected,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let (organization_id, now) = (scope.organization_id(), billing.clock.now());
        let mut tx = billing.db().write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        lock_wallet(billing, &mut held, organization_id).await?;
        let found =
            store::get(&mut held, organization_id, id, now.day()).await?.ok_or(Code::BudgetNotFound)?;
        expected.check(found.budget.version()?)?;
        store::delete(&mut held, &found.budget).await?;
        record_event(billing, &mut held, scope, Action::BudgetDeleted, (id, now)).await?;
        Ok(tx.commit().await?)
    })
}

/// Adds an audit entry about a budget.
async fn record_event(
    billing: &Billing,
    tx: &mut Tx,
    scope: &OrgScope,
    action: Action,
    (id, now): (BudgetId, Time),
) -> Result<(), Error> {
    let organization_id = Some(scope.organization_id());
    let event = Event { action, target: id.to_string(), organization_id };
    Ok(trail::record(tx, scope.trail(), &event, now, &billing.random).await?)
}

/// Returns the names of the projects and keys that are the subjects of a page of budgets, without deleted
/// ones.
///
/// # Errors
/// The database fails.
pub async fn subject_names(
    billing: &Billing,
    organization_id: OrganizationId,
    page: Page,
) -> Result<BTreeMap<BudgetId, String>, Error> {
    let names = store::subject_names(&mut billing.db().read().await?, organization_id, page).await?;
    Ok(names.into_iter().filter_map(|(id, name)| Some((id, name?))).collect())
}

/// Returns the name of the project or key that is the subject of a budget; `None` if it was deleted.
///
/// # Errors
/// The database fails.
pub async fn subject_name(billing: &Billing, budget: &Budget) -> Result<Option<String>, Error> {
    Ok(store::subject_name(&mut billing.db().read().await?, budget.organization_id, budget.id).await?)
}
