//! GET /console/organizations/{organization_id}/usage

pub mod csv;

use api::gate::Visit;
use askama::Template;
use billing::usage_reports;
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::QueryForm;

use crate::console::Console;
use crate::form_view::FormView;
use crate::page::Page;
use crate::shell::Shell;
use crate::usage::{self, LABELS, OrganizationBy, UsageFilters, UsageView};

#[derive(Template)]
#[template(path = "usage.html")]
pub struct UsagePage {
    pub shell: Shell,
    pub view: UsageView,
    /// The link to this page without a query.
    pub here: String,
    /// The text for a report without usage.
    pub nothing: &'static str,
}

impl UsagePage {
    /// Returns the link to the CSV file with the same filters.
    fn csv_link(&self, question: &str) -> String {
        format!("{}/csv{question}", self.here)
    }
}

/// Show an organization's usage.
pub async fn read(
    console: Console,
    visit: Visit<OrgScope>,
    query: QueryForm<UsageFilters<OrganizationBy>>,
) -> Result<Page, Error> {
    let QueryForm(mut form) = query;
    let view = match form.take() {
        Ok(filters) => {
            let question = filters.query(console.clock.now().day());
            let id = visit.scope.organization_id();
            let report = usage_reports::of_organization(&console.billing, id, question).await;
            report.and_then(|report| Ok(UsageView::new(&filters, &filters.apply(report)?, form.pairs())))
        }
        Err(error) => Err(error),
    };
    let view = match view {
        Ok(view) => view,
        Err(error) => {
            UsageView::refused::<OrganizationBy>(FormView::refused(LABELS, &form, usage::of_form(error))?)
        }
    };
    let shell = Shell::read(&console, &visit.person).await?;
    let here = shell.organization_link("/usage");
    let nothing = "No usage in this period. Usage appears here a few seconds after a call.";
    let page = UsagePage { shell, view, here, nothing };
    Page::with_form(&page.view.form, &page)
}
