//! `/console/organizations/{organization_id}/projects` and `…/{project_id}`

pub mod api_keys;
pub mod delete;
pub mod members;
pub mod new;
pub mod playground;
pub mod settings;
pub mod usage;

use api::gate::Visit;
use api::paging::ListQuery;
use askama::Template;
use billing::rules::usage_groups::{Groups, Period};
use billing::totals::Totals;
use billing::usage_reports::{self, Query, UsageByKind};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::page::Page as PageOfList;
use keys::api_keys::ApiKey;
use tenants::access::{OrgScope, ProjectScope};
use tenants::projects::{ListedProject, ProjectDetail};
use tenants::roles::{OrganizationAction, ProjectAction, ProjectRole, Visibility};
use web::forms::Filters;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::Labels;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

/// The fields of a project's forms.
const LABELS: Labels = &[
    ("name", "Name"),
    ("description", "Description"),
    ("visibility", "Visibility"),
    ("settings.model", "Default model"),
    ("settings.max_tokens", "Max tokens per request"),
    ("settings.temperature", "Temperature"),
];

/// The number of keys that an overview shows.
const SHOWN_KEYS: i64 = 5;

#[derive(Template)]
#[template(path = "organizations/projects/list.html")]
struct ListPage {
    shell: Shell,
    projects: Vec<ListedProject>,
    listing: Listing,
    search: String,
}

/// List the projects that the user can view.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<ListQuery<ProjectRole>>,
) -> Result<Page, Error> {
    let search = query.sent("search").to_owned();
    let page = query.fields.page;
    let listed = tenants::projects::list(&console.tenants, &visit.scope, query.fields.into()).await?;
    let listing = Listing::new(page, listed.total, &query.sent);
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&ListPage { shell, projects: listed.rows, listing, search })
}

#[derive(Template)]
#[template(path = "organizations/projects/overview.html")]
struct OverviewPage {
    shell: Shell,
    detail: ProjectDetail,
    ever: Totals,
    month: UsageByKind,
    currency: String,
    keys: Vec<ApiKey>,
    now: Time,
}

/// Show a project.
pub async fn read(console: Console, visit: Visit<ProjectScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let detail = tenants::projects::read(&console.tenants, &visit.scope).await?;
    let (organization_id, id) = (detail.project.organization_id, detail.project.id);
    let ever = billing::totals::project(&console.billing, &visit.scope).await?;
    let groups = Groups { period: Period::Month, model: false, project: false, api_key: false };
    let query = Query { needs_currency: true, ..Query::by(groups) };
    let month = usage_reports::of_project(&console.billing, organization_id, id, query).await?;
    let mut keys = Vec::new();
    if shell.may_in_project(ProjectAction::ManageApiKeys) {
        let page = PageOfList { page: 1, page_size: SHOWN_KEYS };
        let listed = keys::api_keys::list(&console.keys, &visit.scope, String::new(), None, page).await?;
        keys = listed.api_keys;
    }
    let currency = month.currency.unwrap_or_default();
    let now = console.clock.now();
    Page::new(&OverviewPage { shell, detail, ever, month: month.total, currency, keys, now })
}
