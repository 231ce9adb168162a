//! GET and POST /console/organizations/new

use api::gate::Visit;
use api::organizations::bodies::CreateOrganization;
use askama::Template;
use kernel::error::Error;
use tenants::access::PersonScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

/// The labels of the fields of an organization.
pub const LABELS: Labels = &[
    ("name", "Name"),
    ("description", "Description"),
    ("settings.default_role", "Default role"),
    ("settings.allow_public_projects", "Allow projects that all members can view"),
];

#[derive(Template)]
#[template(path = "organizations/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
}

/// Show the form for a new organization.
pub async fn read(console: Console, visit: Visit<PersonScope>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS).with("settings.default_role", "member")).await
}

/// Create an organization.
pub async fn create(
    console: Console,
    visit: Visit<PersonScope>,
    mut form: ObjectForm<CreateOrganization>,
) -> Result<Page, Error> {
    let created = async {
        let new = form.take()?.into_new();
        let created = tenants::organizations::create(&console.tenants, &visit.scope, new).await?;
        Ok(created.commit().await?)
    };
    match created.await {
        Ok(created) => {
            let path = format!("/organizations/{}", created.organization.id);
            Page::done(&console.link(&path), Done::OrganizationCreated)
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<PersonScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let page = NewPage { shell, form };
    Page::with_form(&page.form, &page)
}
