//! `/console/installation/organizations` and `…/{organization_id}`

pub mod credit;
pub mod credit_limit;

use api::Api;
use api::gate::{OperatorScope, Visit};
use askama::Template;
use billing::wallets::WalletOverview;
use input::fields::{Fields, Record};
use input::types::Text;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::naming;
use kernel::page::Page as PageOfList;
use operators::organizations::{self, Overview};
use web::forms::Filters;
use web::input::NoInput;

use super::found;
use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, SharedColumn};

/// The filters of the list.
#[derive(Debug)]
pub struct OrganizationQuery {
    page: PageOfList,
    search_folded: String,
}

impl Record<Api> for OrganizationQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = api::paging::PageQuery::read(fields);
        let search = fields.optional::<Text<200>>("search");
        let search_folded = search?.map(|text| naming::fold(text.0.trim())).unwrap_or_default();
        Some(Self { page: page?.0, search_folded })
    }
}

#[derive(Template)]
#[template(path = "installation/organizations/list.html")]
struct ListPage {
    shell: Shell,
    organizations: Vec<WalletOverview>,
    /// The formats of the balances, the reserved amounts and the credit limits.
    balances: SharedColumn,
    reserved: SharedColumn,
    limits: SharedColumn,
    listing: Listing,
    search: String,
}

/// List organizations with their balances.
pub async fn list(
    console: Console,
    visit: Visit<OperatorScope>,
    query: Filters<OrganizationQuery>,
) -> Result<Page, Error> {
    let search = query.sent("search").to_owned();
    let OrganizationQuery { page, search_folded } = query.fields;
    let listed = organizations::list(&console.operators, &search_folded, page).await?;
    let amounts = |amount: fn(&WalletOverview) -> Nano| {
        listed.rows.iter().map(move |row| (amount(row), row.wallet.currency.as_str()))
    };
    Page::new(&ListPage {
        shell: Shell::read(&console, &visit.person).await?,
        balances: SharedColumn::held(amounts(|row| row.wallet.posted)),
        reserved: SharedColumn::owed(amounts(|row| row.wallet.reserved)),
        limits: SharedColumn::held(amounts(|row| row.credit_limit)),
        organizations: listed.rows,
        listing: Listing::new(page, listed.total, &query.sent),
        search,
    })
}

#[derive(Template)]
#[template(path = "installation/organizations/organization.html")]
struct OrganizationPage {
    shell: Shell,
    overview: Overview,
}

/// Show an organization: basic data, balance and members.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    let overview = one(&console, &visit).await?;
    Page::new(&OrganizationPage { shell: Shell::read(&console, &visit.person).await?, overview })
}

/// Returns the organization in the path.
async fn one(console: &Console, visit: &Visit<OperatorScope>) -> Result<Overview, Error> {
    let id = found(OrganizationId::parse(visit.person.target().parameter("organization_id")))?;
    found(organizations::read(&console.operators, id).await?)
}

/// Returns the name of an organization, or `(no name)`.
fn name(wallet: &WalletOverview) -> &str {
    wallet.name.as_deref().unwrap_or("(no name)")
}
