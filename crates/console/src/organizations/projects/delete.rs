//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/delete

use api::Api;
use api::gate::Visit;
use askama::Template;
use input::record;
use input::types::Text;
use kernel::error::{Code, Detail, Error};
use kernel::version::{Expected, Version};
use tenants::access::ProjectScope;
use tenants::projects::ProjectDetail;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels, VERSION};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// The name of the project to delete, typed again.
    #[derive(Debug)]
    pub struct Confirmation in Api {
        name: Text<400> = required,
    }
}

const LABELS: Labels = &[("name", "Project name")];

#[derive(Template)]
#[template(path = "organizations/projects/delete.html")]
struct DeletePage {
    shell: Shell,
    form: FormView,
    detail: ProjectDetail,
    version: Version,
}

/// Ask whether to delete the project.
pub async fn read(console: Console, visit: Visit<ProjectScope>, _: NoInput) -> Result<Page, Error> {
    let detail = tenants::projects::read(&console.tenants, &visit.scope).await?;
    show(&console, &visit, detail, FormView::new(LABELS)).await
}

/// Delete the project.
///
/// The project must not have changed since the page was shown, because the page lists everything that is
/// deleted with the project.
pub async fn create(
    console: Console,
    visit: Visit<ProjectScope>,
    mut form: ObjectForm<Confirmation>,
) -> Result<Page, Error> {
    let detail = tenants::projects::read(&console.tenants, &visit.scope).await?;
    let confirmed =
        form.take().and_then(
            |Confirmation { name }| {
                if name.0.trim() == detail.project.name { Ok(()) } else { Err(another_name()) }
            },
        );
    if let Err(error) = confirmed {
        return show(&console, &visit, detail, FormView::refused(LABELS, &form, error)?).await;
    }
    let expected = Expected::OneOf(Version::parse(form.sent(VERSION)).into_iter().collect());
    match tenants::projects::delete(&console.tenants, &visit.scope, &expected).await {
        Ok(()) => {
            let path = format!("/organizations/{}/projects", detail.project.organization_id);
            Page::done(&console.link(&path), Done::ProjectDeleted)
        }
        Err(error) if error.code == Code::PreconditionFailed => {
            let sentence = "The project was changed after you opened the page. Review it again.";
            let error = Error::new(Code::InvalidRequest).message(sentence);
            let detail = tenants::projects::read(&console.tenants, &visit.scope).await?;
            show(&console, &visit, detail, FormView::refused(LABELS, &form, error)?).await
        }
        Err(error) => Err(error),
    }
}

fn another_name() -> Error {
    let (param, message) = ("name".to_owned(), "The name doesn't match the project's name.".to_owned());
    Error::invalid(vec![Detail { param, code: "does_not_match", message }])
}

async fn show(
    console: &Console,
    visit: &Visit<ProjectScope>,
    detail: ProjectDetail,
    form: FormView,
) -> Result<Page, Error> {
    let (shell, version) = (Shell::read(console, &visit.person).await?, detail.version()?);
    let page = DeletePage { shell, form, detail, version };
    Page::with_form(&page.form, &page)
}
