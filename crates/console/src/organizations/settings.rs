//! GET and POST /console/organizations/{organization_id}/settings

pub mod second_factor;
pub mod sign_on;

use api::gate::Visit;
use api::organizations::bodies::UpdateOrganization;
use askama::Template;
use kernel::error::Error;
use kernel::version::Expected;
use tenants::access::OrgScope;
use tenants::organizations::OrganizationDetail;
use tenants::roles::OrganizationAction;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::conflicts;
use crate::console::Console;
use crate::form_view::FormView;
use crate::notices::Done;
use crate::organizations::new::LABELS;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/settings.html")]
struct SettingsPage {
    shell: Shell,
    form: FormView,
    may_delete: bool,
    /// `true` if members need a second factor to access the organization.
    requires_second_factor: bool,
    /// `true` if members managed by a provider need its sign-on to access the organization.
    requires_sign_on: bool,
    /// The names of the organization's providers.
    providers: Vec<String>,
}

/// Show the settings of an organization.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let form = form(&tenants::organizations::read(visit.scope.clone()))?;
    show(&console, &visit, form).await
}

/// Change an organization.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<UpdateOrganization>,
) -> Result<Page, Error> {
    let detail = tenants::organizations::read(visit.scope.clone());
    let link = console.link(&format!("/organizations/{}/settings", visit.scope.organization_id()));
    let current = self::form(&detail)?;
    if let Some(conflict) = conflicts::check(&console, &visit.person, &form, &current, &link).await? {
        return Ok(conflict);
    }
    let expected = Expected::OneOf(vec![detail.version()?]);
    let changed = match form.take() {
        Ok(body) => {
            let update = body.into_update();
            tenants::organizations::update(&console.tenants, &visit.scope, &expected, update).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&link, Done::OrganizationChanged),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Returns the form filled with the settings.
fn form(detail: &OrganizationDetail) -> Result<FormView, Error> {
    let organization = &detail.organization;
    FormView::new(LABELS)
        .with("name", &organization.name)
        .with("description", organization.description.as_deref().unwrap_or_default())
        .with("settings.default_role", organization.default_role.as_str())
        .with("settings.allow_public_projects", organization.allow_public_projects.to_string())
        .versioned()
}

async fn show(console: &Console, visit: &Visit<OrgScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let detail = tenants::organizations::read(visit.scope.clone());
    let page = SettingsPage {
        may_delete: shell.may(OrganizationAction::Delete),
        requires_second_factor: detail.organization.require_second_factor,
        requires_sign_on: detail.organization.require_sign_on,
        providers: sign_on::providers(console, &visit.scope),
        shell,
        form,
    };
    Page::with_form(&page.form, &page)
}
