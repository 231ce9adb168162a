//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/settings

use api::gate::Visit;
use api::organizations::projects::{UpdateProject, settings_check};
use askama::Template;
use kernel::error::Error;
use kernel::version::Expected;
use tenants::access::ProjectScope;
use tenants::projects::Project;
use tenants::roles::ProjectAction;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::LABELS;
use crate::conflicts;
use crate::console::Console;
use crate::form_view::FormView;
use crate::notices::Done;
use crate::options::{self, Choice};
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/projects/settings.html")]
struct SettingsPage {
    shell: Shell,
    form: FormView,
    models: Vec<Choice>,
    /// The current default model.
    model: String,
}

/// Show the settings of a project.
pub async fn read(console: Console, visit: Visit<ProjectScope>, _: NoInput) -> Result<Page, Error> {
    let detail = tenants::projects::read(&console.tenants, &visit.scope).await?;
    show(&console, &visit, &detail.project, filled(&detail.project)?).await
}

/// Change the settings of a project.
pub async fn create(
    console: Console,
    visit: Visit<ProjectScope>,
    mut form: ObjectForm<UpdateProject>,
) -> Result<Page, Error> {
    let detail = tenants::projects::read(&console.tenants, &visit.scope).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let current = filled(&detail.project)?;
    let back = shell.project_link("/settings");
    if let Some(page) = conflicts::check(&console, &visit.person, &form, &current, &back).await? {
        return Ok(page);
    }
    let expected = Expected::OneOf(vec![detail.version()?]);
    let (tenants, check) = (&console.tenants, settings_check(&console.catalog));
    let changed = match form.take() {
        Ok(body) => {
            let update = body.into_update();
            tenants::projects::update(tenants, &visit.scope, &expected, update, check).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&shell.project_link(""), Done::Changed),
        Err(error) => show(&console, &visit, &detail.project, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Returns the form filled with the current settings.
fn filled(project: &Project) -> Result<FormView, Error> {
    FormView::new(LABELS)
        .with("name", &project.name)
        .with("description", project.description.as_deref().unwrap_or_default())
        .with("visibility", project.visibility.as_str())
        .with("settings.model", project.model.as_deref().unwrap_or_default())
        .with_optional("settings.max_tokens", project.max_tokens)
        .with_optional("settings.temperature", project.temperature)
        .versioned()
}

async fn show(
    console: &Console,
    visit: &Visit<ProjectScope>,
    project: &Project,
    form: FormView,
) -> Result<Page, Error> {
    let page = SettingsPage {
        shell: Shell::read(console, &visit.person).await?,
        form,
        models: options::models(console, project.model.as_deref()),
        model: project.model.clone().unwrap_or_default(),
    };
    Page::with_form(&page.form, &page)
}
