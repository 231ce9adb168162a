//! `tollkeeper margin`

use clap::{Args, ValueEnum};
use kernel::clock::{Day, Month};
use kernel::ids::OrganizationId;
use kernel::money::{Decimal, Pico};
use operators::margins::{self, CostGroups, CostSums, GroupCosts, Range, Report};
use serde::Serialize;

use crate::config::Config;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The first day, such as 2026-01-01, in UTC; defaults to the first of the current month
    #[arg(long, value_name = "DATE", value_parser = day)]
    from: Option<Day>,
    /// The last day; defaults to the last of the current month
    #[arg(long, value_name = "DATE", value_parser = day, requires = "from")]
    to: Option<Day>,
    /// All days of this month, such as 2026-01
    #[arg(long, value_name = "MONTH", value_parser = super::export::month, conflicts_with_all = ["from", "to"])]
    month: Option<Month>,
    /// The columns to group by, separated by commas
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', default_value = "model")]
    by: Vec<By>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Columns by which margins are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Model,
    Organization,
    Upstream,
}

fn day(text: &str) -> Result<Day, String> {
    Day::parse(text).ok_or_else(|| "write a date such as 2026-01-31".to_owned())
}

impl Arguments {
    /// Returns the requested days; `today` is in UTC.
    fn range(&self, today: Day) -> Result<Range, String> {
        if let Some(month) = self.month {
            return Ok(margins::days_of(month));
        }
        let this_month = margins::days_of(today.month());
        let first = self.from.unwrap_or(this_month.start);
        let last = self.to.unwrap_or_else(|| first.max(this_month.end_exclusive.plus(-1)));
        let range = margins::days_between(first, last);
        range.ok_or_else(|| format!("--to: {last} is before the first day, {first}"))
    }

    fn groups(&self) -> CostGroups {
        let has = |by| self.by.contains(&by);
        CostGroups { model: has(By::Model), organization: has(By::Organization), upstream: has(By::Upstream) }
    }
}

pub fn run(config: Config, arguments: &Arguments) -> Result<(), String> {
    let groups = arguments.groups();
    let report = super::runtime()?.block_on(async {
        let app = super::app(config).await?;
        let range = arguments.range(app.clock.now().day())?;
        margins::read(&app.operators, range, groups).await.map_err(|error| error.to_string())
    })?;
    super::print(&if arguments.json { json(&report, &arguments.by)? } else { text(&report, groups) });
    Ok(())
}

/// The JSON output.
#[derive(Serialize)]
struct Output<'a> {
    start_date: String,
    last_date: String,
    currency: &'a str,
    by: &'a [By],
    rows: Vec<Row<'a>>,
    total: Figures,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organization_id: Option<OrganizationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organization_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(flatten)]
    figures: Figures,
}

impl<'a> From<&'a GroupCosts> for Row<'a> {
    fn from(row: &'a GroupCosts) -> Self {
        Self {
            model: row.model.as_deref(),
            organization_id: row.organization_id,
            organization_name: row.organization_name.as_deref(),
            upstream: row.upstream.as_deref(),
            figures: (&row.sums).into(),
        }
    }
}

#[derive(Serialize)]
struct Figures {
    calls: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    income: Pico,
    cost: Pico,
    margin: Pico,
    margin_percent: Option<Decimal<2>>,
}

impl From<&CostSums> for Figures {
    fn from(sums: &CostSums) -> Self {
        Self {
            calls: sums.requests,
            prompt_tokens: sums.prompt_tokens,
            completion_tokens: sums.completion_tokens,
            income: sums.amount,
            cost: sums.cost,
            margin: sums.margin(),
            margin_percent: sums.percent(),
        }
    }
}

fn json(report: &Report, by: &[By]) -> Result<String, String> {
    let output = Output {
        start_date: report.range.start.to_string(),
        last_date: report.range.end_exclusive.plus(-1).to_string(),
        currency: &report.currency,
        by,
        rows: report.rows.iter().map(Row::from).collect(),
        total: (&report.total).into(),
    };
    serde_json::to_string(&output).map_err(|error| error.to_string())
}

/// Returns a table with the names of groups and aligned figures.
fn text(report: &Report, groups: CostGroups) -> String {
    let (first, last) = (report.range.start, report.range.end_exclusive.plus(-1));
    if report.rows.is_empty() {
        return format!(
            "No call from {first} to {last} has a cost. Give the routes of models a `cost` in the catalog file: what you \
             pay for each token there."
        );
    }
    let shown =
        [(groups.model, "model"), (groups.organization, "organization"), (groups.upstream, "upstream")];
    let names = shown.iter().filter(|(is_shown, _)| *is_shown).map(|(_, name)| (*name).to_owned());
    let names: Vec<String> = names.collect();
    let numbers = ["calls", "income", "cost", "margin", "percent"].map(str::to_owned);
    let mut lines = vec![names.iter().cloned().chain(numbers).collect::<Vec<_>>()];
    for row in &report.rows {
        let organization = row.organization_id.map(|id| match &row.organization_name {
            Some(name) => format!("{name} ({id})"),
            None => format!("(deleted) ({id})"),
        });
        let groups = [row.model.clone(), organization, row.upstream.clone()].into_iter().flatten();
        lines.push(groups.chain(figures(&row.sums)).collect());
    }
    let total = (0..names.len()).map(|at| if at == 0 { "total".to_owned() } else { String::new() });
    lines.push(total.chain(figures(&report.total)).collect());
    let table = aligned(&lines, names.len());
    format!("{first} to {last}, in {}, income at list price\n{table}", report.currency)
}

fn figures(sums: &CostSums) -> [String; 5] {
    [
        sums.requests.to_string(),
        sums.amount.to_string(),
        sums.cost.to_string(),
        sums.margin().to_string(),
        sums.percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent}%")),
    ]
}

/// Returns lines with aligned columns. The first `names` columns are aligned left, the others right.
fn aligned(lines: &[Vec<String>], names: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let cell = |(at, (cell, width)): (usize, (&String, &usize))| {
        let width = *width;
        if at < names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    };
    let line = |line: &Vec<String>| {
        let cells: Vec<_> = line.iter().zip(&widths).enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}
