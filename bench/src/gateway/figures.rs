//! The tables of figures: medians over the rounds, as text or as one Markdown table.

use super::load::Sample;
use super::stub::EVENTS;
use crate::report::{self, median, percentile, shown};

/// The measurements of one target.
pub struct Row {
    name: String,
    samples: Vec<Option<Sample>>,
    problem: Option<String>,
}

/// The columns of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Events per second, with the times until the first event.
    Event,
    /// Calls per second, with the times of complete answers.
    Call,
}

impl Unit {
    fn per_call(self) -> f64 {
        match self {
            Self::Event => f64::from(EVENTS),
            Self::Call => 1.0,
        }
    }

    fn times(self, sample: &Sample) -> &[u32] {
        match self {
            Self::Event => &sample.first_us,
            Self::Call => &sample.whole_us,
        }
    }
}

impl Row {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), samples: Vec::new(), problem: None }
    }

    /// Adds the result of a round.
    pub fn add(&mut self, sample: Result<Sample, String>) {
        match sample {
            Ok(sample) => self.samples.push(Some(sample)),
            Err(problem) => {
                self.samples.push(None);
                self.problem = Some(problem);
            }
        }
    }

    fn median(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples.iter().flatten().filter_map(value).collect())
    }

    /// Returns the median of the ratios within each round, which isn't affected by a slow round.
    fn ratio_to(&self, base: &Self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let pairs = self.samples.iter().zip(&base.samples);
        let ratio = |(own, base): (&Option<Sample>, &Option<Sample>)| {
            Some(value(own.as_ref()?)? / value(base.as_ref()?)?)
        };
        median(pairs.filter_map(ratio).collect())
    }

    /// Returns the median of the differences within each round.
    fn difference_to(&self, base: &Self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let pairs = self.samples.iter().zip(&base.samples);
        let difference = |(own, base): (&Option<Sample>, &Option<Sample>)| {
            Some(value(own.as_ref()?)? - value(base.as_ref()?)?)
        };
        median(pairs.filter_map(difference).collect())
    }
}

/// The number of columns of the Markdown table: a name, and the figures of the longest row.
const COLUMNS: usize = 8;

/// Prints groups of rows.
#[derive(Clone, Copy)]
pub struct Output {
    pub markdown: bool,
}

impl Output {
    /// Begins the table of all groups.
    pub fn begin(self) {
        if self.markdown {
            report::print(format_args!("\n|{}", " |".repeat(COLUMNS)));
            report::print(format_args!("|---|{}", "---:|".repeat(COLUMNS - 1)));
        }
    }

    /// Prints the title of a group and the names of its columns.
    pub fn group(self, title: &str, names: &[String]) {
        if self.markdown {
            self.line(&[&[format!("**{title}**")], names].concat());
            return;
        }
        report::print(format_args!("\n{title}"));
        if !names.is_empty() {
            report::line(&[&[String::new()], names].concat());
        }
    }

    /// Prints a row: a name, and its figures.
    pub fn line(self, cells: &[String]) {
        if self.markdown {
            let empty = " |".repeat(COLUMNS.saturating_sub(cells.len()));
            // An error may contain a server's answer, with characters that would break the table.
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace(['|', '\r', '\n'], " ")).collect();
            report::print(format_args!("| {} |{empty}", cells.join(" | ")));
        } else {
            report::line(cells);
        }
    }

    /// Prints an error.
    pub fn problem(self, problem: &str) {
        self.line(&[format!("! {problem}")]);
    }

    fn problems(self, rows: &[Row]) {
        for problem in rows.iter().filter_map(|row| row.problem.as_ref()) {
            self.problem(problem);
        }
    }
}

/// Prints the rates of a closed loop. The first row is the bare proxy.
pub fn rates(output: Output, title: &str, unit: Unit, rows: &[Row]) {
    let (many, one) = if unit == Unit::Event { ("events/s", "event") } else { ("calls/s", "call") };
    let first = if unit == Unit::Event { "first " } else { "" };
    let names = [
        many.to_owned(),
        "of bare".to_owned(),
        format!("{first}p50 µs"),
        format!("{first}p99 µs"),
        format!("CPU µs/{one}"),
        "times bare".to_owned(),
        "busy".to_owned(),
    ];
    output.group(title, &names);
    for row in rows {
        let rate = |sample: &Sample| Some(sample.calls_per_s * unit.per_call());
        let cpu = |sample: &Sample| Some(sample.cpu_us? / unit.per_call());
        let at = |at| shown(row.median(|sample| percentile(unit.times(sample), at)), 0, "");
        let to_bare =
            |value: fn(&Sample) -> Option<f64>| rows.first().and_then(|base| row.ratio_to(base, value));
        output.line(&[
            row.name.clone(),
            shown(row.median(rate), 0, ""),
            shown(to_bare(|sample| Some(sample.calls_per_s)).map(|ratio| ratio * 100.0), 0, " %"),
            at(50),
            at(99),
            shown(row.median(cpu), 2, ""),
            shown(to_bare(|sample| sample.cpu_us), 2, ""),
            shown(row.median(|sample| sample.busy).map(|busy| busy * 100.0), 0, " %"),
        ]);
    }
    output.problems(rows);
}

/// Prints the times at an even rate, and their differences from those of the bare proxy.
pub fn added(output: Output, title: &str, rows: &[Row]) {
    let names = ["first p50 µs", "added", "first p99 µs", "added", "whole p50 µs", "added", "busy"];
    output.group(title, &names.map(str::to_owned));
    for row in rows {
        let mut cells = vec![row.name.clone()];
        for (at, times) in [(50, true), (99, true), (50, false)] {
            let value =
                |sample: &Sample| percentile(if times { &sample.first_us } else { &sample.whole_us }, at);
            cells.push(shown(row.median(value), 0, ""));
            cells.push(shown(rows.first().and_then(|base| row.difference_to(base, value)), 0, ""));
        }
        cells.push(shown(row.median(|sample| sample.busy).map(|busy| busy * 100.0), 0, " %"));
        output.line(&cells);
    }
    output.problems(rows);
}
