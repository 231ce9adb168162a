//! Tests whether the service stays stable under a mixed load at an even rate, for any length of time. Every
//! minute, it prints the resident memory, the file descriptors, the latencies and the errors. It fails if an
//! answer has an unexpected status, or if memory or descriptors grow ([`watch::grown`] defines growth).

mod steps;
pub mod watch;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;

use crate::process;
use crate::report::{self, percentile, shown};
use crate::servers::{Folder, Tollkeeper};

use watch::{Findings, MinuteSample};
use worker::{Place, Worker};

/// The arguments of the soak test.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Duration in minutes
    #[arg(long, default_value_t = 60, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,
    /// Requests per second, over all connections
    #[arg(long, default_value_t = 300, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    per_second: u32,
    /// Connections, each with one request in progress
    #[arg(long, default_value_t = 16, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// Test this program instead: another build of the service, or of `bench`
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

/// The limits stay on, but have their maximum values, because all calls come from one address.
const SETTINGS: &str = "[limits]
reads_per_minute = 1000000
writes_per_minute = 1000000
logins_per_minute = 1000000
registrations_per_minute = 1000000
password_resets_per_hour = 1000000
login_failures = 1000
[billing]
credit_limit = \"1000000000\"
";
/// The number of organizations to which the connections are assigned.
const PLACES: u16 = 4;
const MINUTE: Duration = Duration::from_secs(60);

/// Runs the soak test, and prints a line per minute.
pub async fn run(arguments: &Arguments) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let program = arguments.program.as_ref().unwrap_or(&this);
    let service = Tollkeeper::on_all_cores(program, &place, &arguments.database, &arguments.log).await?;
    let mut places = Vec::new();
    for number in 0..PLACES {
        places.push(Arc::new(Place::prepare(&service, number).await?));
    }
    head(arguments);
    let (found, between) = (Arc::new(Findings::default()), rhythm(arguments));
    let mut workers = JoinSet::new();
    for number in 0..arguments.connections {
        let place = places.get(usize::from(number % PLACES)).ok_or("no organization for the connection")?;
        let delay = between / u32::from(arguments.connections) * u32::from(number);
        let worker = Worker::new(Arc::clone(place), Arc::clone(&found), number);
        workers.spawn(worker.run(between, delay));
    }
    let mut looks = Vec::new();
    let begin = Instant::now();
    for minute in 1..=arguments.minutes {
        tokio::select! {
            () = tokio::time::sleep_until((begin + MINUTE * minute).into()) => {}
            Some(ended) = workers.join_next() => return Err(format!("a connection ended: {ended:?}")),
        }
        let look = MinuteSample {
            resident_mib: process::resident_mib(service.server.id())?,
            descriptors: process::descriptors(service.server.id())?,
        };
        line(minute, &found, &look)?;
        looks.push(look);
    }
    drop(workers);
    conclude(&looks, &found)
}

/// Returns the time between two requests of one connection.
fn rhythm(arguments: &Arguments) -> Duration {
    Duration::from_secs(1) * u32::from(arguments.connections) / arguments.per_second
}

fn head(arguments: &Arguments) {
    let database = if arguments.database == "sqlite" { "SQLite" } else { "PostgreSQL" };
    report::print(format_args!(
        "{} minutes on {database}, {} requests per second over {} connections; server and load share all cores.\n\
         Times are in µs, from the time at which each request was due; logins are counted separately.\n",
        arguments.minutes, arguments.per_second, arguments.connections
    ));
    let names = ["requests", "unexpected", "p50", "p99", "login p50", "memory MiB", "descriptors"];
    let names: Vec<_> = std::iter::once("minute").chain(names).map(str::to_owned).collect();
    report::line(&names);
}

fn line(minute: u32, found: &Findings, look: &MinuteSample) -> Result<(), String> {
    let (times, logins) = found.take_times()?;
    report::line(&[
        minute.to_string(),
        (times.len() + logins.len()).to_string(),
        found.unexpected().to_string(),
        shown(percentile(&times, 50), 0, ""),
        shown(percentile(&times, 99), 0, ""),
        shown(percentile(&logins, 50), 0, ""),
        format!("{:.1}", look.resident_mib),
        format!("{:.0}", look.descriptors),
    ]);
    Ok(())
}

/// Prints the number of runs of each step. Fails if an answer was unexpected or if anything grew.
fn conclude(looks: &[MinuteSample], found: &Findings) -> Result<(), String> {
    report::print("");
    for (step, count) in found.steps()? {
        report::line(&[step.to_owned(), count.to_string()]);
    }
    let problems = found.problems()?;
    if !problems.is_empty() {
        return Err(format!(
            "{} unexpected answers, including:\n{}",
            found.unexpected(),
            problems.join("\n")
        ));
    }
    let verdict = watch::grown(looks)?;
    report::print(format_args!("\n{verdict}"));
    Ok(())
}
