//! `/console/organizations` and `/console/organizations/{organization_id}`

pub mod audit_log;
pub mod billing;
pub mod delete;
pub mod limits;
pub mod members;
pub mod new;
mod overview;
pub mod projects;
pub mod settings;
mod spending;
pub mod usage;
pub mod webhooks;

use api::gate::Visit;
use api::paging::ListQuery;
use askama::Template;
use kernel::error::Error;
use keys::endings::EndingKey;
use tenants::access::{OrgScope, PersonScope};
use tenants::organizations::{ListedOrganization, OrganizationDetail};
use tenants::roles::{OrganizationAction, OrganizationRole};
use web::forms::Filters;
use web::input::NoInput;

use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

use overview::{MAX_NOTICES, Overview};

#[derive(Template)]
#[template(path = "organizations/list.html")]
struct ListPage {
    shell: Shell,
    organizations: Vec<ListedOrganization>,
    listing: Listing,
    search: String,
}

/// List the user's organizations.
pub async fn list(
    console: Console,
    visit: Visit<PersonScope>,
    query: Filters<ListQuery<OrganizationRole>>,
) -> Result<Page, Error> {
    let search = query.sent("search").to_owned();
    let page = query.fields.page;
    let caller = visit.person.caller()?;
    let listed = tenants::organizations::list(&console.tenants, &caller, query.fields.into()).await?;
    let listing = Listing::new(page, listed.total, &query.sent);
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&ListPage { shell, organizations: listed.rows, listing, search })
}

#[derive(Template)]
#[template(path = "organizations/overview.html")]
struct OverviewPage {
    shell: Shell,
    detail: OrganizationDetail,
    role: OrganizationRole,
    overview: Overview,
}

impl OverviewPage {
    /// Returns the link to a key.
    fn key_link(&self, key: &EndingKey) -> String {
        self.shell.organization_link(&format!("/projects/{}/api-keys/{}", key.project_id, key.id))
    }
}

/// Show an organization.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let role = visit.scope.role();
    let overview = Overview::read(&console, &visit.scope).await?;
    Page::new(&OverviewPage { shell, detail: tenants::organizations::read(visit.scope), role, overview })
}
