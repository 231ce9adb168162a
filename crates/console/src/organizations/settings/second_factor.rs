//! GET and POST /console/organizations/{organization_id}/settings/second-factor

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
    /// The new setting: `true` if a second factor is required.
    #[derive(Debug)]
    pub struct Requirement in Api {
        is_required: bool = required,
    }
}

#[derive(Template)]
#[template(path = "organizations/second_factor.html")]
struct SecondFactorPage {
    shell: Shell,
    is_required: bool,
}

/// Ask whether to require a second factor.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    if visit.scope.role() != OrganizationRole::Owner {
        return Err(Code::InsufficientRole.into());
    }
    if !console.accounts.is_fresh(visit.person.session()).await? {
        return Err(Code::ReauthenticationRequired.into());
    }
    let detail = tenants::organizations::read(visit.scope.clone());
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&SecondFactorPage { shell, is_required: detail.organization.require_second_factor })
}

/// Require a second factor of all members, or make it optional.
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
        require_second_factor: Some(is_required),
        require_sign_on: None,
    };
    tenants::organizations::update(&console.tenants, &visit.scope, &Expected::Any, update).await?;
    let path = format!("/organizations/{}/settings", visit.scope.organization_id());
    Page::done(&console.link(&path), Done::OrganizationChanged)
}
