//! Compares tollkeeper with bare axum servers: `cargo run --release -p bench`.
//!
//! One process serves, and this one generates the load over loopback: `servers` starts the server, and
//! `client` sends the requests. `tenant` prepares objects through the service's own API, and `report` prints
//! the results. docs/benchmarks.md explains the table.

#![allow(
    clippy::disallowed_methods,
    reason = "the service has an injected clock; a stopwatch needs the real one"
)]

mod bare;
mod bare_rows;
mod books;
mod client;
mod cluster;
mod decision;
mod footprint;
mod gateway;
mod keys;
mod lists;
mod logins;
mod money;
mod pages;
mod process;
mod report;
mod reports;
mod revocation;
mod servers;
mod soak;
mod table;
mod tenant;
mod timing;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use client::{Load, Target};
use report::Row;
use servers::{Cores, Folder, Server, Tollkeeper};

/// The service's allocator, also used for the bare servers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares tollkeeper with bare axum servers, over loopback
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Arguments {
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Number of measurements per target, interleaved with the other targets
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections, each with one request in progress
    #[arg(long, default_value_t = 64, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
    /// Also measure this program: an earlier build of the service or of this program
    #[arg(long, value_name = "PROGRAM")]
    compare: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare every operation with its floor, on both databases
    All(table::Arguments),
    /// The service itself, configured by the environment (started by this program)
    #[command(hide = true)]
    Serve,
    /// The service's command with this name (started by this program)
    #[command(hide = true)]
    Audit,
    /// The service's commands with this name (started by this program)
    #[command(hide = true)]
    Billing {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure the audit of many events, and closing a month with many daily rows
    Books(books::Arguments),
    /// Measure logins, their effect on other calls, and the savings from a cached token
    Logins(logins::Arguments),
    /// The bare servers (started by this program)
    #[command(hide = true)]
    Bare,
    /// Write rows with only the database's driver (started by this program)
    #[command(hide = true)]
    BareRows(bare_rows::Arguments),
    /// Measure how fast usage and reservations become durable, compared with the database's own driver
    Money(money::Arguments),
    /// Measure a decision in process, and its individual steps
    Decision {
        /// Number of measurements per step, interleaved with the other steps
        #[arg(long, default_value_t = 7, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=9))]
        rounds: u32,
    },
    /// Measure the program's size, start time, memory, and descriptors
    Footprint(footprint::Arguments),
    /// Compare model calls through the gateway with a bare proxy and other gateways
    Gateway(gateway::Arguments),
    /// The bare proxy (started by this program)
    #[command(hide = true)]
    Proxy,
    /// Measure memory and decisions with a million live keys
    Keys(keys::Arguments),
    /// Measure pages and searches of lists in organizations of several sizes
    Lists,
    /// Compare pages of the console with the JSON of the same operations
    Pages(pages::Arguments),
    /// Measure whether reports take longer with more events
    Reports(reports::Arguments),
    /// Measure how long a deleted key keeps working, here and on another replica
    Revocation(revocation::Arguments),
    /// Sustain a mixed load for a long time; fails if memory or descriptors grow or a response is wrong
    Soak(soak::Arguments),
    /// Compare response times for addresses with and without an account
    Timing {
        /// Pairs to measure, for each kind of request
        #[arg(long, default_value_t = 1000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(10..=9_000))]
        samples: u32,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.command {
        Some(Command::Serve) => {
            servers::end_with_parent();
            tollkeeper::cli::run()
        }
        // The service parses the arguments of this process, which have the same form as its own.
        Some(Command::Audit | Command::Billing { .. }) => tollkeeper::cli::run(),
        Some(Command::Books(arguments)) => {
            let cores = Cores::share();
            report::exit_code(block_on(books::run(arguments, cores)))
        }
        Some(Command::Bare) => {
            servers::end_with_parent();
            report::exit_code(bare::serve())
        }
        Some(Command::BareRows(arguments)) => report::exit_code(bare_rows::run(arguments)),
        Some(Command::Proxy) => {
            servers::end_with_parent();
            report::exit_code(gateway::proxy::serve())
        }
        Some(Command::Gateway(arguments)) => report::exit_code(gateway::run(arguments)),
        Some(Command::Reports(arguments)) => {
            let cores = Cores::share();
            report::exit_code(block_on(reports::run(arguments, cores)))
        }
        Some(Command::Money(arguments)) => report::exit_code(money::run(arguments)),
        Some(Command::Decision { rounds }) => report::exit_code(block_on(decision::run(*rounds))),
        Some(Command::Keys(arguments)) => {
            let cores = Cores::share();
            report::exit_code(block_on(keys::run(arguments, cores)))
        }
        Some(Command::Lists) => {
            let cores = Cores::share();
            report::exit_code(block_on(lists::run(&arguments, cores)))
        }
        Some(Command::Pages(arguments)) => {
            let cores = Cores::share();
            report::exit_code(block_on(pages::run(arguments, cores)))
        }
        Some(Command::Timing { samples }) => {
            let cores = Cores::share();
            report::exit_code(block_on(timing::run(&arguments.database, &arguments.log, *samples, cores)))
        }
        Some(Command::Footprint(arguments)) => report::exit_code(block_on(footprint::run(arguments))),
        Some(Command::All(arguments)) => report::exit_code(block_on(table::run(arguments))),
        Some(Command::Soak(arguments)) => report::exit_code(block_on(soak::run(arguments))),
        Some(Command::Logins(arguments)) => report::exit_code(logins::run(arguments)),
        Some(Command::Revocation(arguments)) => report::exit_code(revocation::run(arguments)),
        None => report::exit_code(run(&arguments)),
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let cores = Cores::share();
    block_on(measure(arguments, cores))
}

fn block_on<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

async fn measure(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    let folder = Folder::new()?;
    let (bare, bare_address) = Server::bare(cores, None)?;
    client::wait_for(bare_address, "/hello").await?;
    let mut targets = vec![
        (Row::new("hello json"), bare.id(), Target::get(bare_address, "/hello", None, "Hello")),
        (Row::new("json echo"), bare.id(), tenant::echo(bare_address)),
    ];
    let mut running = vec![bare];
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let builds = [("", Some(&this)), (" (compared)", arguments.compare.as_ref())];
    for (label, program) in builds.into_iter().filter_map(|(label, program)| Some((label, program?))) {
        let place = folder.place(running.len())?;
        let service = Tollkeeper::start(program, &place, &arguments.database, &arguments.log, cores).await?;
        let tenant = tenant::prepare(service.public).await?;
        let models = tenant.models(service.public)?;
        let authorize = tenant.authorize(service.service, &service.token);
        targets.push((Row::new(format!("GET /v1/models{label}")), service.server.id(), models));
        targets.push((Row::new(format!("POST authorize{label}")), service.server.id(), authorize));
        running.push(service.server);
    }
    let length = Duration::from_secs_f64(arguments.seconds);
    let load = Load { connections: arguments.connections, length, never_sleep: cores.pinned };
    report::head(load, arguments.rounds, &arguments.database, &arguments.log, cores);
    for (_, id, target) in &targets {
        client::load(target, *id, Load { length: length.min(Duration::from_secs(1)), ..load }).await?;
    }
    for round in 0..arguments.rounds {
        // Alternating order, so that no target is always first.
        let order: Vec<usize> = match round % 2 {
            0 => (0..targets.len()).collect(),
            _ => (0..targets.len()).rev().collect(),
        };
        for index in order {
            if let Some((row, id, target)) = targets.get_mut(index) {
                row.add(client::load(target, *id, load).await?);
            }
        }
    }
    report::table(&targets.into_iter().map(|(row, _, _)| row).collect::<Vec<_>>());
    Ok(())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.2..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.2 to 600".to_owned()),
    }
}
