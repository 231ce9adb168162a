//! GET /console/installation/margins

use api::Api;
use api::gate::{OperatorScope, Visit};
use api::paging::PageQuery;
use askama::Template;
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::string;
use kernel::clock::Month;
use kernel::error::Error;
use kernel::page::Page as PageOfList;
use operators::margins::{self, CostGroups, CostSums, GroupCosts, Report};
use web::forms::Filters;

use crate::choice;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::options::Choice;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, Column, Money};

/// The number of months to choose from.
const MONTHS: i64 = 24;

const LABELS: Labels = &[("month", "Month"), ("by", "Group by")];

choice! {
    /// The columns by which margins are grouped.
    pub enum By {
        Model = ("model", "Model"),
        Customer = ("customer", "Customer"),
        Upstream = ("upstream", "Upstream"),
    }
}

/// The filters of the page.
#[derive(Debug)]
pub struct MarginQuery {
    page: PageOfList,
    /// The month; `None` for the current month.
    month: Option<Month>,
    by: By,
}

impl Record<Api> for MarginQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let month: Option<Option<MonthField>> = fields.optional("month");
        let by = fields.or("by", By::Model);
        Some(Self { page: page?.0, month: month?.map(|MonthField(month)| month), by: by? })
    }
}

struct MonthField(Month);

impl Field for MonthField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match Month::parse(&text) {
            Some(month) => Some(Self(month)),
            None => {
                let message = format!("`{}` must be a month such as 2026-01.", at.path);
                problems.add(at, "invalid_date", message)
            }
        }
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string"})
    }
}

#[derive(Template)]
#[template(path = "installation/margins.html")]
struct MarginPage {
    shell: Shell,
    form: FormView,
    months: Vec<Choice>,
    month: Month,
    by: By,
    currency: String,
    /// The rows of this page.
    rows: Vec<RowView>,
    total: RowView,
    listing: Listing,
}

/// A row as the page shows it.
struct RowView {
    name: String,
    /// The link to a customer's page; `None` for other groups.
    link: Option<String>,
    requests: String,
    income: Money,
    cost: Money,
    margin: Money,
    percent: String,
}

/// The columns of amounts.
struct Columns {
    income: Column,
    cost: Column,
    margin: Column,
}

impl Columns {
    fn new(report: &Report) -> Self {
        let sums = || report.rows.iter().map(|row| row.sums).chain([report.total]);
        let currency = &report.currency;
        Self {
            income: Column::new(currency, sums().map(|sums| sums.amount)),
            cost: Column::new(currency, sums().map(|sums| sums.cost)),
            margin: Column::new(currency, sums().map(|sums| sums.margin())),
        }
    }

    fn row(&self, name: String, link: Option<String>, sums: &CostSums) -> RowView {
        RowView {
            name,
            link,
            requests: show::number(sums.requests),
            income: self.income.write(sums.amount),
            cost: self.cost.write(sums.cost),
            margin: self.margin.write(sums.margin()),
            percent: sums.percent().map_or_else(|| "–".to_owned(), |percent| format!("{percent}%")),
        }
    }
}

/// Show the margins of a month by model, customer or upstream.
pub async fn list(
    console: Console,
    visit: Visit<OperatorScope>,
    query: Filters<MarginQuery>,
) -> Result<Page, Error> {
    let now = console.clock.now().day().month();
    let MarginQuery { page, month, by } = query.fields;
    let month = month.unwrap_or(now);
    let groups =
        CostGroups { model: by == By::Model, organization: by == By::Customer, upstream: by == By::Upstream };
    let report = margins::read(&console.operators, margins::days_of(month), groups).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let columns = Columns::new(&report);
    let row = |row: &GroupCosts| {
        let id = row.organization_id.filter(|_| row.organization_name.is_some());
        let link = id.map(|id| shell.installation_link("organizations", id, ""));
        columns.row(name(row), link, &row.sums)
    };
    let size = usize::try_from(page.page_size).unwrap_or(0);
    let before = usize::try_from(page.page.saturating_sub(1)).unwrap_or(0).saturating_mul(size);
    let total_rows = i64::try_from(report.rows.len()).unwrap_or(i64::MAX);
    Page::new(&MarginPage {
        rows: report.rows.iter().skip(before).take(size).map(row).collect(),
        total: columns.row("All".to_owned(), None, &report.total),
        form: FormView::new(LABELS).with("month", month.to_string()).with("by", by.word()),
        months: months(now, month),
        month,
        by,
        currency: report.currency,
        listing: Listing::new(page, total_rows, &query.sent),
        shell,
    })
}

/// Returns the name of a group. A deleted organization has only its id.
fn name(row: &GroupCosts) -> String {
    let organization = || match (&row.organization_name, row.organization_id) {
        (Some(name), _) => name.clone(),
        (None, Some(id)) => format!("{id} (deleted)"),
        (None, None) => String::new(),
    };
    row.model.clone().or_else(|| row.upstream.clone()).unwrap_or_else(organization)
}

/// Returns the months to choose from, newest first. The month that is shown is always included.
fn months(now: Month, shown: Month) -> Vec<Choice> {
    let mut months: Vec<Month> = (0..MONTHS).map(|ago| now.plus(-ago)).collect();
    if !months.contains(&shown) {
        months.push(shown);
        months.sort_by(|one, other| other.cmp(one));
    }
    months.iter().map(|month| (month.to_string(), show::month(month))).collect()
}
