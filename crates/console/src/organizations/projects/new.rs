//! GET and POST /console/organizations/{organization_id}/projects/new

use api::gate::Visit;
use api::organizations::projects::CreateProject;
use askama::Template;
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::LABELS;
use crate::console::Console;
use crate::form_view::FormView;
use crate::notices::Done;
use crate::options::{self, Choice};
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/projects/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
    models: Vec<Choice>,
}

/// Show the form for a new project.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS)).await
}

/// Create a project.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<CreateProject>,
) -> Result<Page, Error> {
    let created = async {
        let new = form.take()?.into_new();
        let created = tenants::projects::create(&console.tenants, &visit.scope, new).await?;
        Ok(created.commit().await?)
    };
    match created.await {
        Ok(row) => {
            let path = format!("/organizations/{}/projects/{}", row.organization_id, row.id);
            Page::done(&console.link(&path), Done::ProjectCreated)
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<OrgScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let page = NewPage { shell, form, models: options::models(console, []) };
    Page::with_form(&page.form, &page)
}
