//! GET and POST /console/organizations/{organization_id}/billing/balance-alert

use api::gate::Visit;
use api::organizations::billing::balance_alert::UpdateBalanceAlert;
use askama::Template;
use billing::balance_alerts::{self, BalanceAlert};
use kernel::error::Error;
use kernel::patch::Patch;
use kernel::version::Expected;
use tenants::access::OrgScope;
use tenants::roles::OrganizationAction;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::Tab;
use crate::conflicts;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

const LABELS: Labels = &[("below", "Alert when balance drops below")];

#[derive(Template)]
#[template(path = "organizations/balance_alert.html")]
struct AlertPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    form: FormView,
    alert: BalanceAlert,
    may_manage: bool,
}

/// Show the balance alert of an organization. Users who manage its money also see the form that changes it.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let alert = balance_alerts::read(&console.billing, visit.scope.organization_id()).await?;
    show(&console, &visit, filled(&alert)?, alert).await
}

/// Set the alert, or remove it.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<UpdateBalanceAlert>,
) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    let link = console.link(&format!("/organizations/{organization_id}/billing/balance-alert"));
    let alert = balance_alerts::read(&console.billing, organization_id).await?;
    if let Some(page) = conflicts::check(&console, &visit.person, &form, &filled(&alert)?, &link).await? {
        return Ok(page);
    }
    let expected = Expected::OneOf(vec![balance_alerts::version(alert.below)?]);
    let set = async {
        let below = match form.take()?.below {
            Patch::Keep => alert.below,
            Patch::Clear => None,
            Patch::Set(below) => Some(below.0),
        };
        balance_alerts::update(&console.billing, &visit.scope, &expected, below).await
    };
    match set.await {
        Ok(_) => Page::done(&link, Done::BalanceAlertSet),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?, alert).await,
    }
}

/// Returns the form filled with the current alert.
fn filled(alert: &BalanceAlert) -> Result<FormView, Error> {
    FormView::new(LABELS).with_optional("below", alert.below).versioned()
}

async fn show(
    console: &Console,
    visit: &Visit<OrgScope>,
    form: FormView,
    alert: BalanceAlert,
) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let page = AlertPage {
        tabs: super::tabs(&shell, Tab::Alert),
        may_manage: shell.may(OrganizationAction::ManageBilling),
        form,
        alert,
        shell,
    };
    Page::with_form(&page.form, &page)
}
