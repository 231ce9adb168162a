//! The content of an organization's overview: its money, its projects, and the notices.

use std::collections::BTreeMap;

use billing::rules::balances::{self, LOW_DAYS};
use billing::summary::{self, Summary};
use billing::usage_reports::{self, Report, UsageByKind};
use kernel::clock::Day;
use kernel::error::Error;
use kernel::ids::ProjectId;
use kernel::money::{Nano, Pico};
use kernel::page::Page;
use keys::endings::{self, Endings};
use tenants::access::OrgScope;
use tenants::projects::ListedProject;
use tenants::roles::OrganizationAction;
use tenants::{ListPage, Search};

use crate::charts::Chart;
use crate::console::Console;
use crate::show::Column;
use crate::usage;

use super::spending::Spending;

/// The number of projects that an overview lists.
const PAGE: Page = Page { page: 1, page_size: 20 };

/// The maximum number of notices that are listed individually.
pub const MAX_NOTICES: usize = 5;

/// The content of an organization's overview.
pub struct Overview {
    /// The amount that can be spent; every member may see it.
    pub spending: Spending,
    /// `None` if the user may not see the billing pages.
    pub money: Option<Money>,
    /// The newest projects that the user can view.
    pub projects: ListPage<ListedProject>,
    /// This month's usage of these projects.
    pub usage: BTreeMap<ProjectId, UsageByKind>,
    /// The format of the projects' amounts.
    pub column: Column,
    /// The keys that end soon, among those that the user may manage.
    pub endings: Endings,
}

/// The content of an overview for users who may see the billing pages.
pub struct Money {
    pub summary: Summary,
    pub trend: Option<Chart>,
    /// The caption of the trend.
    pub caption: String,
    /// `true` if the spendable amount lasts for less than a week.
    pub is_low: bool,
}

impl Overview {
    /// Reads the parts of the overview that this user may see.
    pub async fn read(console: &Console, scope: &OrgScope) -> Result<Self, Error> {
        let id = scope.organization_id();
        let money = if scope.role().allows(OrganizationAction::ViewBilling) {
            Some(Money::read(console, scope).await?)
        } else {
            None
        };
        let spending = match &money {
            Some(money) => Spending::from(&money.summary),
            None => Spending::from(&billing::limits::read(&console.billing, id).await?),
        };
        let search = Search { page: PAGE, folded: String::new(), role: None };
        let projects = tenants::projects::list(&console.tenants, scope, search).await?;
        let ids: Vec<_> = projects.rows.iter().map(|project| project.id).collect();
        let usage = usage_reports::of_projects_this_month(&console.billing, id, &ids).await?;
        let amounts = usage.values().map(UsageByKind::amount).chain([Pico::ZERO]);
        Ok(Self {
            column: Column::new(&spending.wallet.currency, amounts),
            spending,
            money,
            projects,
            usage,
            endings: endings::list(&console.keys, scope).await?,
        })
    }

    /// Returns `true` if no amount is left to spend.
    pub fn is_used_up(&self) -> bool {
        self.spending.spendable <= Nano::ZERO
    }

    /// Returns this month's usage of a project.
    pub fn usage_of(&self, project: &ListedProject) -> UsageByKind {
        self.usage.get(&project.id).copied().unwrap_or_default()
    }
}

impl Money {
    async fn read(console: &Console, scope: &OrgScope) -> Result<Self, Error> {
        let id = scope.organization_id();
        let today = console.clock.now().day();
        let summary = summary::read(&console.billing, id).await?;
        let report = usage_reports::of_organization(&console.billing, id, usage::trend_query(today)).await?;
        let (caption, chart) = usage::trend(&report);
        let is_low = balances::is_low(summary.spendable, recent_cost(&report, today));
        Ok(Self { summary, trend: Some(chart).filter(|chart| !chart.is_empty()), caption, is_low })
    }
}

/// Returns the cost of the last [`LOW_DAYS`] days.
fn recent_cost(report: &Report, today: Day) -> Pico {
    let recent = report.rows.iter().filter(|row| row.date > today.plus(-LOW_DAYS));
    Pico::from_units(recent.map(|row| row.usage.amount().units()).sum())
}
