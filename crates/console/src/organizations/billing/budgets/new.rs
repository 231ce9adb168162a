//! GET and POST /console/organizations/{organization_id}/billing/budgets/new

use api::gate::Visit;
use api::organizations::billing::budgets::CreateBudget;
use askama::Template;
use billing::budgets;
use kernel::error::Error;
use kernel::page::Page as Slice;
use tenants::access::OrgScope;
use tenants::{ListPage, Search};
use web::forms::ObjectForm;
use web::input::NoInput;

use super::{LABELS, list_link};
use crate::console::Console;
use crate::form_view::FormView;
use crate::notices::Done;
use crate::options::Choice;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/budgets/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
    /// The ids and names of the organization's projects.
    projects: Vec<Choice>,
    /// The currency's ISO 4217 code.
    currency: String,
}

/// Show the form for a new budget.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let form = FormView::new(LABELS)
        .with("scope", "organization")
        .with("period", "month")
        .with("hard", "true")
        .with_all("thresholds", ["50", "80", "100"]);
    show(&console, &visit, form).await
}

/// Create a budget.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<CreateBudget>,
) -> Result<Page, Error> {
    let created = async {
        let created = budgets::create(&console.billing, &visit.scope, form.take()?.into()).await?;
        Ok::<_, Error>(created.commit().await?)
    };
    match created.await {
        Ok(_) => Page::done(&list_link(&console, visit.scope.organization_id()), Done::BudgetCreated),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<OrgScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let currency =
        billing::limits::read(&console.billing, visit.scope.organization_id()).await?.wallet.currency;
    let page = NewPage { shell, form, projects: projects(console, &visit.scope).await?, currency };
    Page::with_form(&page.form, &page)
}

/// Returns the projects of an organization, sorted by name.
async fn projects(console: &Console, scope: &OrgScope) -> Result<Vec<Choice>, Error> {
    let mut projects = Vec::new();
    for page in 1.. {
        let page = Slice { page, page_size: 100 };
        let search = Search { page, folded: String::new(), role: None };
        let ListPage { rows, total } = tenants::projects::list(&console.tenants, scope, search).await?;
        let is_last = rows.is_empty();
        projects.extend(rows.into_iter().map(|row| (row.id.to_string(), row.name)));
        if is_last || i64::try_from(projects.len()).is_ok_and(|found| found >= total) {
            break;
        }
    }
    projects.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(projects)
}
