//! The tables as text, and as one Markdown table.

use super::floors::Floor;
use super::operations::Operation;
use crate::client::Sample;
use crate::report::{self, median, percentile, shown};

/// The measurements of one row.
#[derive(Default)]
pub struct Row {
    samples: Vec<Sample>,
    problem: Option<String>,
}

impl Row {
    /// Adds the result of a round. After a failure, further results are ignored.
    pub fn add(&mut self, found: Result<Sample, String>) {
        match found {
            Ok(sample) => self.samples.push(sample),
            Err(problem) => self.problem = self.problem.take().or(Some(problem)),
        }
    }

    fn median(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples.iter().filter_map(value).collect())
    }

    fn at(&self, percent: usize) -> Option<f64> {
        self.median(|sample| percentile(&sample.latencies_us, percent))
    }

    /// Returns the median of the ratios within each round.
    fn ratio(&self, floor: &Self) -> Option<f64> {
        let pairs = self.samples.iter().zip(&floor.samples);
        median(pairs.map(|(own, floor)| own.requests_per_s / floor.requests_per_s).collect())
    }

    /// Returns the floor's processor time per request relative to this row's.
    fn frugality(&self, floor: &Self) -> Option<f64> {
        let pairs = self.samples.iter().zip(&floor.samples);
        median(pairs.filter_map(|(own, floor)| Some(floor.server_us? / own.server_us?)).collect())
    }
}

/// A line of the table.
pub enum Line {
    Group(&'static str),
    Floor(Floor, Row),
    Operation(Operation, Row),
}

impl Line {
    pub fn floor(floor: Floor) -> Self {
        Self::Floor(floor, Row::default())
    }

    pub fn operation(operation: Operation) -> Self {
        Self::Operation(operation, Row::default())
    }
}

/// A table with all its lines.
pub struct Table {
    title: String,
    head: String,
    pub lines: Vec<Line>,
}

const COLUMNS: [&str; 9] =
    ["operation", "floor", "req/s", "of floor", "of hello", "p50 µs", "p99 µs", "CPU µs", "CPU of floor"];

impl Table {
    pub fn new(title: String, head: String, lines: Vec<Line>) -> Self {
        Self { title, head, lines }
    }

    /// Returns the failures.
    pub fn problems(&self) -> Vec<String> {
        let problem = |line: &Line| match line {
            Line::Group(_) => None,
            Line::Floor(floor, row) => row.problem.as_ref().map(|text| format!("{}: {text}", floor.name())),
            Line::Operation(_, row) => row.problem.clone(),
        };
        self.lines.iter().filter_map(problem).map(|problem| format!("{}: {problem}", self.title)).collect()
    }

    /// Prints the table as text.
    pub fn print(&self) {
        report::print(format_args!("{}\n\n{}\n", self.title, self.head));
        print_text(&self.rows());
        report::print("");
    }

    fn rows(&self) -> Vec<Vec<String>> {
        self.lines.iter().map(|line| self.cells(line)).collect()
    }

    fn row_of(&self, wanted: Floor) -> Option<&Row> {
        self.lines.iter().find_map(|line| match line {
            Line::Floor(floor, row) if *floor == wanted => Some(row),
            _ => None,
        })
    }

    fn cells(&self, line: &Line) -> Vec<String> {
        let (label, floor, row) = match line {
            Line::Group(name) => return vec![(*name).to_owned()],
            Line::Floor(floor, row) => (floor.name().to_owned(), None, row),
            Line::Operation(operation, row) => (operation.label(), Some(operation.floor), row),
        };
        let percent = |value: Option<f64>| shown(value.map(|value| value * 100.0), 0, " %");
        let of = |floor: Option<Floor>, ratio: fn(&Row, &Row) -> Option<f64>| match floor {
            None => String::new(),
            Some(floor) => percent(self.row_of(floor).and_then(|floor| ratio(row, floor))),
        };
        // A comparison with hello is only meaningful for reads.
        let read =
            floor.filter(|floor| matches!(floor, Floor::Hello | Floor::Echo | Floor::Point | Floor::Page));
        vec![
            label,
            floor.map(|floor| floor.name().to_owned()).unwrap_or_default(),
            shown(row.median(|sample| Some(sample.requests_per_s)), 0, ""),
            of(floor, Row::ratio),
            of(read.map(|_| Floor::Hello), Row::ratio),
            shown(row.at(50), 0, ""),
            shown(row.at(99), 0, ""),
            shown(row.median(|sample| sample.server_us), 1, ""),
            of(floor, Row::frugality),
        ]
    }
}

/// Prints tables with the same lines as one table: the requests per second, and their share of the floor's.
pub fn print_markdown(tables: &[Table]) {
    let titles: Vec<_> = tables.iter().map(|table| format!(" {} | of floor |", table.title)).collect();
    report::print(format_args!("| requests per second | floor |{}", titles.concat()));
    report::print(format_args!("|---|---|{}", "---:|---:|".repeat(tables.len())));
    let tables: Vec<_> = tables.iter().map(Table::rows).collect();
    for (number, cells) in tables.first().into_iter().flatten().enumerate() {
        match cells.as_slice() {
            [label, floor, ..] => {
                let rows = tables.iter().filter_map(|rows| rows.get(number));
                let figures = rows.filter_map(|cells| cells.get(2..4)).flatten();
                let cells: Vec<_> = [label, floor].into_iter().chain(figures).map(String::as_str).collect();
                report::print(format_args!("| {} |", cells.join(" | ")));
            }
            cells => {
                let empty = " |".repeat(1 + 2 * tables.len());
                report::print(format_args!("| **{}** |{empty}", cells.concat()));
            }
        }
    }
}

fn print_text(rows: &[Vec<String>]) {
    let widest = rows.iter().filter_map(|cells| Some(cells.first()?.chars().count())).max().unwrap_or(0);
    let line = |cells: &[String]| {
        let Some((label, values)) = cells.split_first() else { return };
        let values: Vec<_> = values.iter().map(|value| format!("{value:>13}")).collect();
        report::print(format_args!("{label:widest$}{}", values.join("")));
    };
    line(&COLUMNS.map(str::to_owned));
    for cells in rows {
        line(cells);
    }
}
