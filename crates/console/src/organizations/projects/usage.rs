//! GET /console/organizations/{organization_id}/projects/{project_id}/usage

pub mod csv;

use api::gate::Visit;
use billing::usage_reports;
use kernel::error::Error;
use tenants::access::ProjectScope;
use web::forms::QueryForm;

use crate::console::Console;
use crate::form_view::FormView;
use crate::organizations::usage::UsagePage;
use crate::page::Page;
use crate::shell::Shell;
use crate::usage::{self, LABELS, ProjectBy, UsageFilters, UsageView};

/// Show a project's usage.
pub async fn read(
    console: Console,
    visit: Visit<ProjectScope>,
    query: QueryForm<UsageFilters<ProjectBy>>,
) -> Result<Page, Error> {
    let QueryForm(mut form) = query;
    let view = match form.take() {
        Ok(filters) => {
            let question = filters.query(console.clock.now().day());
            let (organization_id, id) = (visit.scope.organization_id(), visit.scope.project_id());
            let report = usage_reports::of_project(&console.billing, organization_id, id, question).await;
            report.and_then(|report| Ok(UsageView::new(&filters, &filters.apply(report)?, form.pairs())))
        }
        Err(error) => Err(error),
    };
    let view = match view {
        Ok(view) => view,
        Err(error) => {
            UsageView::refused::<ProjectBy>(FormView::refused(LABELS, &form, usage::of_form(error))?)
        }
    };
    let shell = Shell::read(&console, &visit.person).await?;
    let here = shell.project_link("/usage");
    let nothing = "No usage of this project in this period. Usage appears here a few seconds \
                   after a call.";
    let page = UsagePage { shell, view, here, nothing };
    Page::with_form(&page.view.form, &page)
}
