//! `/console/organizations/{organization_id}/projects/{project_id}/api-keys` and `…/{key_id}`

pub mod delete;
pub mod edit;
pub mod end_rotation;
pub mod new;
pub mod rotate;
mod samples;
mod secret;
mod tools;

use api::gate::{KeyAction, Visit};
use api::paging::ListQuery;
use askama::Template;
use billing::rules::periods::DateBound;
use billing::rules::usage_groups::{Groups, Period};
use billing::totals::Totals;
use billing::usage_reports::{self, Query, Report};
use kernel::clock::Time;
use kernel::error::Error;
use keys::access::KeyScope;
use keys::api_keys::{ApiKey, Secrets, StatusFilter};
use keys::rules::permissions::{Permission, Permissions};
use tenants::access::ProjectScope;
use web::forms::Filters;
use web::input::NoInput;

use crate::charts::Chart;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, Column};
use crate::usage;
use tools::Tool;

/// The fields of a key's forms.
const LABELS: Labels = &[
    ("name", "Name"),
    ("description", "Description"),
    ("permissions", "Permissions"),
    ("lasts", "Expires"),
    ("last_day", "Last day"),
    ("restrictions.allowed_ips", "Allowed IPs"),
    ("restrictions.rate_limit", "Requests per minute"),
    ("restrictions.max_tokens", "Max tokens per request"),
    ("restrictions.models", "Models"),
];

/// The permissions with their labels.
const PERMISSIONS: [(&str, &str); 4] =
    [("chat", "Chat"), ("embeddings", "Embeddings"), ("models", "List models"), ("files", "Files")];

/// The number of days whose usage a key's page shows.
const SHOWN_DAYS: i64 = 30;

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/list.html")]
struct ListPage {
    shell: Shell,
    keys: Vec<ApiKey>,
    now: Time,
    listing: Listing,
    search: String,
    status: String,
}

/// List the API keys of the project.
pub async fn list(
    console: Console,
    visit: Visit<ProjectScope>,
    query: Filters<ListQuery<StatusFilter>>,
) -> Result<Page, Error> {
    let [search, status] = ["search", "status"].map(|name| query.sent(name).to_owned());
    let ListQuery { page, search_folded, filter } = query.fields;
    let listed = keys::api_keys::list(&console.keys, &visit.scope, search_folded, filter, page).await?;
    let listing = Listing::new(page, listed.total, &query.sent);
    let shell = Shell::read(&console, &visit.person).await?;
    let (keys, now) = (listed.api_keys, listed.now);
    Page::new(&ListPage { shell, keys, now, listing, search, status })
}

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/key.html")]
struct KeyPage {
    shell: Shell,
    key: ApiKey,
    secrets: Secrets,
    totals: Totals,
    days: Report,
    caption: String,
    chart: Chart,
    column: Column,
    now: Time,
    may_change: bool,
    may_rotate: bool,
    tools: Vec<Tool>,
}

/// Show an API key.
pub async fn read(console: Console, visit: Visit<KeyScope>, _: NoInput) -> Result<Page, Error> {
    let (scope, now) = (&visit.scope, console.clock.now());
    let groups = Groups { period: Period::Day, model: false, project: false, api_key: false };
    let tomorrow = now.day().plus(1);
    let query = Query {
        start: Some(DateBound::Date(tomorrow.plus(-SHOWN_DAYS))),
        end: Some(DateBound::Date(tomorrow)),
        needs_currency: true,
        ..Query::by(groups)
    };
    let days = usage_reports::of_api_key(&console.billing, scope, query).await?;
    let amounts = days.rows.iter().map(|row| row.usage.amount()).chain([days.total.amount()]);
    let column = Column::new(days.currency.as_deref().unwrap_or_default(), amounts);
    let page = KeyPage {
        secrets: keys::api_keys::secrets(&console.keys, scope).await?,
        totals: billing::totals::api_key(&console.billing, scope).await?,
        caption: format!("Daily cost ({})", column.currency()),
        chart: usage::key_trend(&days, column.currency()),
        column,
        days,
        now,
        may_change: scope.may(&console.keys, KeyAction::Update).await?,
        may_rotate: scope.may(&console.keys, KeyAction::Rotate).await?,
        shell: Shell::read(&console, &visit.person).await?,
        tools: samples::tools(&console, visit.scope.api_key(), "YOUR_KEY"),
        key: visit.scope.into_api_key(),
    };
    Page::new(&page)
}

/// Returns the labels of a key's permissions.
fn permissions_in_short(permissions: Permissions) -> String {
    if permissions.is_all() {
        return "All".to_owned();
    }
    let label = |permission: Permission| {
        PERMISSIONS.iter().find(|(word, _)| *word == permission.as_str()).map_or("", |(_, label)| *label)
    };
    permissions.iter().map(label).collect::<Vec<_>>().join(", ")
}

/// Returns the restrictions of a key in one line; empty if it has none.
fn restrictions_in_short(key: &ApiKey) -> String {
    let count = |count: usize, noun: &str| show::count(i64::try_from(count).unwrap_or(i64::MAX), noun);
    let restrictions = &key.restrictions;
    let addresses = restrictions.allowed_ips.as_ref().map(|list| {
        let entries = list.texts().count();
        if entries == 1 { "1 address".to_owned() } else { format!("{entries} addresses") }
    });
    let rate = restrictions.rate_limit.map(|rate| format!("{} per minute", show::count(rate, "request")));
    let tokens =
        restrictions.max_tokens.map(|tokens| format!("{} per request", show::count(tokens, "token")));
    let models = restrictions.models.as_ref().map(|models| count(models.len(), "model"));
    [addresses, rate, tokens, models].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the link to the keys of a key's project.
fn list_link(console: &Console, scope: &KeyScope) -> String {
    let (organization_id, project_id) = (scope.organization_id(), scope.project_id());
    console.link(&format!("/organizations/{organization_id}/projects/{project_id}/api-keys"))
}

/// Returns the form filled with the current values of a key.
fn filled(key: &ApiKey) -> Result<FormView, Error> {
    let ApiKey { attributes, restrictions, .. } = key;
    FormView::new(LABELS)
        .with("name", &attributes.name.display)
        .with("description", attributes.description.as_deref().unwrap_or_default())
        .with_all("permissions", attributes.permissions.iter().map(Permission::as_str))
        .with_all("restrictions.allowed_ips", restrictions.allowed_ips.iter().flat_map(|list| list.texts()))
        .with_optional("restrictions.rate_limit", restrictions.rate_limit)
        .with_optional("restrictions.max_tokens", restrictions.max_tokens)
        .with_all("restrictions.models", restrictions.models.iter().flatten())
        .versioned()
}
