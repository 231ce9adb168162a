//! GET /console/organizations/{organization_id}/billing

pub mod auto_top_up;
pub mod balance_alert;
pub mod budgets;
pub mod card;
pub mod export;
pub mod invoices;
pub mod movements;
pub mod payments;

use api::gate::Visit;
use api::paging::PageQuery;
use askama::Template;
use billing::credits::{self, Credit};
use billing::summary::{self, Summary};
use kernel::clock::{Day, Time};
use kernel::error::Error;
use kernel::ids::OrganizationId;
use tenants::access::OrgScope;
use tenants::roles::OrganizationAction;
use web::forms::Filters;

use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, Column};

use super::spending::Spending;

/// A billing page, as a tab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tab {
    Balance,
    Payments,
    Movements,
    Invoices,
    Budgets,
    Alert,
}

/// Returns the links between the billing pages.
pub fn tabs(shell: &Shell, here: Tab) -> Vec<(String, &'static str, bool)> {
    let tabs = [
        (Tab::Balance, "", "Balance"),
        (Tab::Payments, "/payments", "Payments"),
        (Tab::Movements, "/movements", "Transactions"),
        (Tab::Invoices, "/invoices", "Invoices"),
        (Tab::Budgets, "/budgets", "Budgets"),
        (Tab::Alert, "/balance-alert", "Alert"),
    ];
    tabs.map(|(tab, path, label)| (shell.organization_link(&format!("/billing{path}")), label, tab == here))
        .into()
}

/// Returns `true` if the user can pay. Actions that aren't allowed aren't offered.
fn may_pay(console: &Console, shell: &Shell) -> bool {
    console.payments.is_on() && shell.may(OrganizationAction::ManageBilling)
}

/// Returns the currency of an organization's wallet.
async fn currency(console: &Console, organization_id: OrganizationId) -> Result<String, Error> {
    Ok(billing::limits::read(&console.billing, organization_id).await?.wallet.currency)
}

/// Returns the link to the payments of an organization.
fn payments_link(console: &Console, organization_id: OrganizationId) -> String {
    console.link(&format!("/organizations/{organization_id}/billing/payments"))
}

#[derive(Template)]
#[template(path = "organizations/billing.html")]
struct BillingPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    summary: Summary,
    spending: Spending,
    /// The format of the amounts of the discounts.
    discount_column: Column,
    credits: Vec<Credit>,
    listing: Listing,
    /// The formats of the remaining and the original amounts of the credits.
    remaining: Column,
    original: Column,
    now: Time,
    may_pay: bool,
}

impl BillingPage {
    fn currency(&self) -> &str {
        &self.summary.wallet.currency
    }

    /// Returns the day on which the month's invoice is made: its first possible day, UTC.
    fn invoice_date(&self) -> Day {
        self.summary.month.plus(1).first_day().plus(1)
    }

    /// Returns the plan in words.
    fn plan(&self) -> String {
        let words = self.summary.plan.replace('_', " ");
        let mut letters = words.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
    }
}

/// Show an organization's balance, credits and plan.
pub async fn read(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    let (id, page) = (visit.scope.organization_id(), query.fields.0);
    let summary = summary::read(&console.billing, id).await?;
    let listed = credits::list(&console.billing, id, page).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let (currency, credits) = (&listed.currency, &listed.credits);
    Page::new(&BillingPage {
        tabs: tabs(&shell, Tab::Balance),
        spending: Spending::from(&summary),
        discount_column: Column::new(currency, summary.discounts.iter().map(|item| item.amount)),
        remaining: Column::held(currency, credits.iter().map(|credit| credit.remaining)),
        original: Column::held(currency, credits.iter().map(|credit| credit.amount)),
        listing: Listing::new(page, listed.total, &query.sent),
        credits: listed.credits,
        now: console.clock.now(),
        may_pay: may_pay(&console, &shell),
        shell,
        summary,
    })
}
