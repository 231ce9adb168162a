//! GET /console/organizations/{organization_id}/billing/movements

pub mod csv;

use api::Api;
use api::gate::Visit;
use api::paging::PageQuery;
use askama::Template;
use billing::movements::{self, Movement, Query};
use billing::rules::periods::DateBound;
use input::fields::{Fields, Record};
use kernel::clock::Day;
use kernel::error::Error;
use tenants::access::OrgScope;
use web::forms::QueryForm;

use super::Tab;
use crate::console::Console;
use crate::days::Days;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::Column;

const LABELS: Labels = &[("start_date", "First day"), ("end_date", "Last day")];

/// The filters of the movements.
#[derive(Clone, Copy, Debug)]
pub struct MovementFilters {
    days: Days,
    page: kernel::page::Page,
}

impl Record<Api> for MovementFilters {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let days = Days::read(fields);
        Some(Self { days: days?, page: page?.0 })
    }
}

impl MovementFilters {
    /// Returns the bounds for billing.
    pub fn query(&self) -> Query {
        let bound = |day: Option<Day>| day.map(DateBound::Date);
        Query { start: bound(self.days.first), end: bound(self.days.end_exclusive()) }
    }
}

#[derive(Template)]
#[template(path = "organizations/movements.html")]
struct MovementsPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    form: FormView,
    /// The movements of the page; `None` if the filters have a mistake.
    list: Option<List>,
    here: String,
}

/// A page of movements.
struct List {
    rows: Vec<Movement>,
    listing: Listing,
    /// The format of the amounts.
    column: Column,
    csv: String,
}

/// List the movements of an organization's balance.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: QueryForm<MovementFilters>,
) -> Result<Page, Error> {
    let QueryForm(mut sent) = query;
    let listed = match sent.take() {
        Ok(filters) => {
            let id = visit.scope.organization_id();
            let listed = movements::list(&console.billing, id, filters.query(), filters.page).await;
            listed.map(|listed| (filters.page, listed))
        }
        Err(error) => Err(error),
    };
    let shell = Shell::read(&console, &visit.person).await?;
    let here = shell.organization_link("/billing/movements");
    let (form, list) = match listed {
        Ok((page, listed)) => {
            let form = FormView::new(LABELS)
                .with("start_date", sent.sent("start_date"))
                .with("end_date", sent.sent("end_date"));
            let list = List {
                column: Column::new(&listed.currency, listed.rows.iter().map(|row| row.amount)),
                rows: listed.rows,
                csv: format!("{here}/csv{}", crate::links::question(sent.pairs(), LABELS)),
                listing: Listing::new(page, listed.total, sent.pairs()),
            };
            (form, Some(list))
        }
        Err(error) => (FormView::refused(LABELS, &sent, error)?, None),
    };
    let page = MovementsPage { tabs: super::tabs(&shell, Tab::Movements), shell, form, list, here };
    Page::with_form(&page.form, &page)
}

/// Returns the label of a kind of movement.
fn label(kind: movements::Kind) -> &'static str {
    match kind.as_str() {
        "usage" => "Usage",
        "credit" => "Credit",
        "credit_expiry" => "Credit expiry",
        "discount" => "Volume discount",
        "payment" => "Payment",
        "void" => "Voided invoice",
        "write_off" => "Write-off",
        other => other,
    }
}
