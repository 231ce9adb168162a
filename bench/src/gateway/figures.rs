//! The tables of figures: medians over the rounds.

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
    /// Counted in events, with the times until first ones.
    Event,
    /// Counted in calls, with the times of whole answers.
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

    /// The median of each round's own ratio, which a slow round doesn't change.
    fn ratio_to(&self, base: &Self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let pairs = self.samples.iter().zip(&base.samples);
        let ratio = |(own, base): (&Option<Sample>, &Option<Sample>)| {
            Some(value(own.as_ref()?)? / value(base.as_ref()?)?)
        };
        median(pairs.filter_map(ratio).collect())
    }

    /// The median of each round's own difference.
    fn difference_to(&self, base: &Self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let pairs = self.samples.iter().zip(&base.samples);
        let difference = |(own, base): (&Option<Sample>, &Option<Sample>)| {
            Some(value(own.as_ref()?)? - value(base.as_ref()?)?)
        };
        median(pairs.filter_map(difference).collect())
    }
}

/// Prints the rates of a closed loop. The first row is the bare proxy.
pub fn rates(title: &str, unit: Unit, rows: &[Row]) {
    let (many, one) = if unit == Unit::Event { ("events/s", "event") } else { ("calls/s", "call") };
    let first = if unit == Unit::Event { "first " } else { "" };
    report::print(format_args!("\n{title}"));
    head(&[
        many.to_owned(),
        "of bare".to_owned(),
        format!("{first}p50 µs"),
        format!("{first}p99 µs"),
        format!("CPU µs/{one}"),
        "times bare".to_owned(),
        "busy".to_owned(),
    ]);
    for row in rows {
        let rate = |sample: &Sample| Some(sample.calls_per_s * unit.per_call());
        let cpu = |sample: &Sample| Some(sample.cpu_us? / unit.per_call());
        let at = |at| shown(row.median(|sample| percentile(unit.times(sample), at)), 0, "");
        let to_bare =
            |value: fn(&Sample) -> Option<f64>| rows.first().and_then(|base| row.ratio_to(base, value));
        line(
            row,
            &[
                shown(row.median(rate), 0, ""),
                shown(to_bare(|sample| Some(sample.calls_per_s)).map(|ratio| ratio * 100.0), 0, " %"),
                at(50),
                at(99),
                shown(row.median(cpu), 2, ""),
                shown(to_bare(|sample| sample.cpu_us), 2, ""),
                shown(row.median(|sample| sample.busy).map(|busy| busy * 100.0), 0, " %"),
            ],
        );
    }
    problems(rows);
}

/// Prints the times at an even rate, and how much they are above the bare proxy's.
pub fn added(title: &str, rows: &[Row]) {
    report::print(format_args!("\n{title}"));
    let names = ["first p50 µs", "added", "first p99 µs", "added", "whole p50 µs", "added", "busy"];
    head(&names.map(str::to_owned));
    for row in rows {
        let mut cells = Vec::new();
        for (at, times) in [(50, true), (99, true), (50, false)] {
            let value =
                |sample: &Sample| percentile(if times { &sample.first_us } else { &sample.whole_us }, at);
            cells.push(shown(row.median(value), 0, ""));
            cells.push(shown(rows.first().and_then(|base| row.difference_to(base, value)), 0, ""));
        }
        cells.push(shown(row.median(|sample| sample.busy).map(|busy| busy * 100.0), 0, " %"));
        line(row, &cells);
    }
    problems(rows);
}

/// Prints the names of columns.
pub fn head(names: &[String]) {
    report::line(&[&[String::new()], names].concat());
}

fn line(row: &Row, cells: &[String]) {
    report::line(&[std::slice::from_ref(&row.name), cells].concat());
}

fn problems(rows: &[Row]) {
    for problem in rows.iter().filter_map(|row| row.problem.as_ref()) {
        report::print(format_args!("! {problem}"));
    }
}
