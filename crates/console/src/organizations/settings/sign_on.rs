//! GET and POST /console/organizations/{organization_id}/settings/sign-on

use api::Api;
use api::gate::Visit;
use askama::Template;
use input::record;
use kernel::error::{Code, Error};
use kernel::patch::Patch;
use kernel::version::Expected;
use tenants::access::OrgScope;
use tenants::organizations::Update;
use tenants::roles::OrganizationRole;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// The new setting: `true` if the sign-on is required.
    #[derive(Debug)]
    pub struct Requirement in Api {
        is_required: bool = required,
    }
}

#[derive(Template)]
#[template(path = "organizations/sign_on.html")]
struct SignOnPage {
    shell: Shell,
    is_required: bool,
    /// The names of the organization's providers.
    providers: Vec<String>,
}

/// Ask whether to require a sign-on with the organization's provider.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    if visit.scope.role() != OrganizationRole::Owner {
        return Err(Code::InsufficientRole.into());
    }
    if !console.accounts.is_fresh(visit.person.session()).await? {
        return Err(Code::ReauthenticationRequired.into());
    }
    let detail = tenants::organizations::read(visit.scope.clone());
    Page::new(&SignOnPage {
        shell: Shell::read(&console, &visit.person).await?,
        is_required: detail.organization.require_sign_on,
        providers: providers(&console, &visit.scope),
    })
}

/// Require a sign-on for members managed by the organization's provider, or make it optional.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<Requirement>,
) -> Result<Page, Error> {
    let Requirement { is_required } = form.take()?;
    let update = Update {
        name: None,
        description: Patch::Keep,
        default_role: None,
        allow_public_projects: None,
        require_second_factor: None,
        require_sign_on: Some(is_required),
    };
    tenants::organizations::update(&console.tenants, &visit.scope, &Expected::Any, update).await?;
    let path = format!("/organizations/{}/settings", visit.scope.organization_id());
    Page::done(&console.link(&path), Done::OrganizationChanged)
}

/// Returns the names of the organization's providers.
pub fn providers(console: &Console, scope: &OrgScope) -> Vec<String> {
    let found = console.tenants.providers.of_organization(scope.organization_id());
    found.iter().map(|provider| provider.settings.name.clone()).collect()
}
