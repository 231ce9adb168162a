//! The output of the measurements.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use crate::client::{Load, Sample};
use crate::servers::Cores;

/// A target's measurements.
pub struct Row {
    label: String,
    samples: Vec<Sample>,
}

impl Row {
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), samples: Vec::new() }
    }

    pub fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    fn median(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples.iter().filter_map(value).collect())
    }

    /// Returns the floor's processor time per request relative to this target's. Other load on the machine
    /// affects processor time the least.
    fn frugality_to(&self, base: &Self) -> Option<f64> {
        Some(base.median(|sample| sample.server_us)? / self.median(|sample| sample.server_us)?)
    }

    /// Returns the median of the ratios within each round, which isn't affected by a slow round.
    fn ratio_to(&self, base: &Self) -> Option<f64> {
        let pairs = self.samples.iter().zip(&base.samples);
        median(pairs.map(|(own, base)| own.requests_per_s / base.requests_per_s).collect())
    }
}

/// Prints the parameters of the measurement.
pub fn head(load: Load, rounds: u32, database: &str, log: &Path, cores: Cores) {
    let pinned =
        if cores.pinned { "the servers on core 0, the client on the others" } else { "not pinned to cores" };
    let database = if database == "sqlite" { "SQLite" } else { "PostgreSQL" };
    print(format_args!(
        "tollkeeper {} on {database}, {} {}, cores available: {}.",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        cores.count
    ));
    print(format_args!(
        "{rounds} interleaved rounds of {:.1} s each after a warm-up, {} connections, no pipelining; one tokio \
         worker\na server; {pinned}. The access log has its default settings: text, one line per request, to {}.\n",
        load.length.as_secs_f64(),
        load.connections,
        log.display()
    ));
}

/// Prints medians over the rounds. The first row is the bare hello, the second the bare echo.
pub fn table(rows: &[Row]) {
    let widest = rows.iter().map(|row| row.label.len()).max().unwrap_or(0);
    let line = |label: &str, cells: [String; 8]| {
        let cells: Vec<_> = cells.into_iter().map(|cell| format!("{cell:>13}")).collect();
        print(format_args!("{label:widest$}{}", cells.join("")));
    };
    let head =
        ["req/s", "of hello", "of echo", "p50 µs", "p99 µs", "CPU µs/req", "CPU of hello", "server busy"];
    line("", head.map(str::to_owned));
    for row in rows {
        let percent = |value: Option<f64>| shown(value.map(|value| value * 100.0), 1, " %");
        let percentile = |at: usize| shown(row.median(|sample| percentile(&sample.latencies_us, at)), 0, "");
        line(
            &row.label,
            [
                shown(row.median(|sample| Some(sample.requests_per_s)), 0, ""),
                percent(rows.first().and_then(|base| row.ratio_to(base))),
                percent(rows.get(1).and_then(|base| row.ratio_to(base))),
                percentile(50),
                percentile(99),
                shown(row.median(|sample| sample.server_us), 2, ""),
                percent(rows.first().and_then(|base| row.frugality_to(base))),
                percent(row.median(|sample| sample.server_busy)),
            ],
        );
    }
}

/// Prints a row of a small table: a label and its values.
pub fn line(cells: &[String]) {
    let (label, values) = cells.split_first().map_or(("", cells), |(label, values)| (label.as_str(), values));
    let values: Vec<_> = values.iter().map(|value| format!("{value:>13}")).collect();
    print(format_args!("{label:28}{}", values.join("")));
}

/// Prints the error and returns the exit code.
#[allow(clippy::print_stderr, reason = "a program for the terminal")]
pub fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "a program for the terminal")]
pub fn print(line: impl Display) {
    println!("{line}");
}

/// Converts bytes to KiB.
pub fn kib(bytes: usize) -> f64 {
    u32::try_from(bytes).map_or(f64::NAN, |bytes| f64::from(bytes) / 1024.0)
}

pub fn shown(value: Option<f64>, decimals: usize, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}{unit}"))
}

/// Returns the percentile of sorted values.
pub fn percentile(sorted: &[u32], at: usize) -> Option<f64> {
    sorted.get(sorted.len() * at / 100).copied().map(f64::from)
}

/// Returns the middle value, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some((upper + values.get(values.len() / 2 - 1)?) / 2.0),
    }
}
