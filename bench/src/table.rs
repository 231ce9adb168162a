//! Compares every operation with its floor in one run, on SQLite and PostgreSQL, with one core and with
//! two cores for the server.
//!
//! In each round, all floors and all operations are measured in turn. An operation that uses up objects (such
//! as a deletion or a token) uses objects of the previous round or of another operation of the same round.

pub mod call;
mod coverage;
mod floors;
mod operations;
mod output;
mod world;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tollkeeper::db::Settings;

use crate::client::{Load, Sample};
use crate::cluster::Cluster;
use crate::servers::{Cores, Folder, Server, Tollkeeper};
use crate::{logins, report};

use floors::Floor;
use operations::Operation;
use output::{Line, Table};
use world::World;

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 0.4, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements per operation, interleaved with the other operations
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections, each with one request in progress; 4 for operations that hash passwords, 1 for those with
    /// the floor `write`
    #[arg(long, default_value_t = 32, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Databases to measure on
    #[arg(long, value_delimiter = ',', default_value = "sqlite,postgres", value_name = "NAMES")]
    databases: Vec<Database>,
    /// The URL of an empty PostgreSQL database; without it, a throwaway server is started where one is
    /// installed
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Numbers of cores for the server
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "COUNTS", value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: Vec<u16>,
    /// Only operations whose route or group contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print all tables as one, in Markdown
    #[arg(long)]
    markdown: bool,
    /// Measure this build of this program instead
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
}

/// No limits, and enough credit.
const SETTINGS: &str = "[limits]\nenabled = false\n[billing]\ncredit_limit = \"1000000000\"\n";
/// The number of objects that one round may use up per second of a measurement, which is more than any
/// database writes.
const USED_PER_S: f64 = 4_000.0;

/// Runs the measurements and prints the results.
pub async fn run(arguments: &Arguments) -> Result<(), String> {
    let begin = Instant::now();
    let wants_postgres = arguments.databases.contains(&Database::Postgres);
    let cluster = match (&arguments.postgres, wants_postgres) {
        (None, true) => Cluster::start()?,
        _ => None,
    };
    let (mut tables, mut problems, mut available) = (Vec::new(), Vec::new(), 0);
    for database in &arguments.databases {
        for cores in &arguments.cores {
            let url = match (database, &arguments.postgres, &cluster) {
                (Database::Sqlite, _, _) => None,
                (Database::Postgres, Some(url), _) => Some(url.clone()),
                (Database::Postgres, None, Some(cluster)) => {
                    Some(cluster.database(&format!("bench{cores}")).await?)
                }
                (Database::Postgres, None, None) => {
                    report::print("PostgreSQL is not installed, so its tables are omitted.\n");
                    continue;
                }
            };
            let cores = Cores::split(usize::from(*cores));
            available = cores.count;
            let table = Setup { arguments, cores, url: url.as_deref() }.measure().await?;
            problems.extend(table.problems());
            if arguments.markdown {
                tables.push(table);
            } else {
                table.print();
            }
        }
    }
    if arguments.markdown {
        let Arguments { seconds, rounds, connections, .. } = arguments;
        report::print(format_args!(
            "tollkeeper {}, {} {}, cores available: {available}. {rounds} rounds of {seconds} s each, \
             {connections} connections.\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        ));
        output::print_markdown(&tables);
    }
    for (route, reason) in coverage::unmeasured() {
        match reason {
            Some(_) if arguments.markdown => {}
            Some(reason) => report::print(format_args!("Not measured: {route} ({reason}).")),
            None => problems.push(format!("a route that this program doesn't know: {route}")),
        }
    }
    if !arguments.markdown {
        report::print(format_args!("It took {:.0} s.", begin.elapsed().as_secs_f64()));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// The setup of a table.
struct Setup<'a> {
    arguments: &'a Arguments,
    cores: Cores,
    /// The URL of PostgreSQL.
    url: Option<&'a str>,
}

impl Setup<'_> {
    async fn measure(&self) -> Result<Table, String> {
        let folder = Folder::new()?;
        let (place, bare_place) = (folder.place(1)?, folder.place(2)?);
        std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
        let this = std::env::current_exe()
            .map_err(|error| format!("can't find the path of this program: {error}"))?;
        let program = self.arguments.program.as_ref().unwrap_or(&this);
        let bare_file = bare_place.join("bare.db").display().to_string();
        let (bare, floors) = Server::bare(self.cores, Some(self.url.unwrap_or(&bare_file)))?;
        crate::client::wait_for(floors, "/hello").await?;
        let database = self.url.unwrap_or("sqlite");
        let service = Tollkeeper::start(program, &place, database, &self.arguments.log, self.cores).await?;
        let settings = match self.url {
            None => Settings::Sqlite { path: place.join("tollkeeper.db") },
            Some(url) => Settings::Postgres { url: url.to_owned() },
        };
        let size = (USED_PER_S * self.arguments.seconds).ceil();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 600 s")]
        let mut world = World::prepare(&service, &settings, floors, size as usize).await?;
        let mut table = Table::new(self.title(), self.head(), self.rows());
        for round in 0..self.arguments.rounds {
            world.refill(round).await?;
            world.settle().await?;
            self.round(&mut table, &world, bare.id(), service.server.id()).await?;
        }
        Ok(table)
    }

    async fn round(&self, table: &mut Table, world: &World, bare: u32, service: u32) -> Result<(), String> {
        let raw = logins::raw(1, Duration::from_secs_f64(self.arguments.seconds.max(0.5)))?;
        for line in &mut table.lines {
            match line {
                Line::Floor(Floor::Hash, row) => row.add(Ok(hashes(raw))),
                Line::Floor(Floor::TwoHashes, row) => row.add(Ok(hashes(raw / 2.0))),
                Line::Floor(floor, row) => {
                    let call = one_at_a_time(*floor, floor.call(world)?);
                    row.add(call::load(&call, bare, self.load()).await);
                }
                Line::Operation(operation, row) => {
                    let call = one_at_a_time(operation.floor, (operation.call)(world)?);
                    row.add(call::load(&call, service, self.load()).await);
                    world.settle().await?;
                }
                Line::Group(_) => {}
            }
        }
        Ok(())
    }

    fn load(&self) -> Load {
        let length = Duration::from_secs_f64(self.arguments.seconds);
        Load { connections: self.arguments.connections, length, never_sleep: self.cores.pinned }
    }

    fn rows(&self) -> Vec<Line> {
        let wanted = |group: &str, operation: &Operation| match &self.arguments.only {
            None => true,
            Some(text) => {
                operation.route.contains(text) || operation.label().contains(text) || group.contains(text)
            }
        };
        let mut lines = vec![Line::Group("Floors")];
        lines.extend(Floor::ALL.map(Line::floor));
        for (group, operations) in coverage::groups() {
            let operations: Vec<_> =
                operations.into_iter().filter(|operation| wanted(group, operation)).collect();
            if !operations.is_empty() {
                lines.push(Line::Group(group));
                lines.extend(operations.into_iter().map(Line::operation));
            }
        }
        lines
    }

    fn title(&self) -> String {
        let database = if self.url.is_some() { "PostgreSQL" } else { "SQLite" };
        let cores = self.cores.servers;
        format!("{database}, {cores} core{}", if cores == 1 { "" } else { "s" })
    }

    fn head(&self) -> String {
        let Arguments { seconds, rounds, connections, .. } = self.arguments;
        let shared = match (self.cores.pinned, self.url.is_some()) {
            (true, false) => "the client uses the others",
            (true, true) => "the client and PostgreSQL itself share the others",
            (false, false) => "the client shares them, so the rates are those of both together",
            (false, true) => {
                "the client and PostgreSQL itself share them, so the rates are those of all together"
            }
        };
        format!(
            "{rounds} rounds of {seconds} s each, {connections} connections; {} worker(s) a server, {shared} (cores \
             available: {}).",
            self.cores.servers, self.cores.count
        )
    }
}

/// Limits operations with the floor `write` to one connection. Writes of one organization wait for its lock,
/// so with several connections the queue would be measured. Grouped commits are compared with another floor.
fn one_at_a_time(floor: Floor, call: call::Call) -> call::Call {
    if floor == Floor::Write { call.over(1) } else { call }
}

/// Returns the measurement of the library alone, as if it were a server.
fn hashes(per_s: f64) -> Sample {
    Sample {
        requests_per_s: per_s,
        latencies_us: Vec::new(),
        server_us: Some(1e6 / per_s),
        server_busy: Some(1.0),
    }
}
