//! The resources of the service: program size, start time, and memory and descriptors, both idle and during a
//! million requests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::report::{self, median};
use crate::servers::{Folder, Server, Tollkeeper};
use crate::tenant::{self, Tenant};
use crate::wire::{Wire, request};
use crate::{client, process};

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The program of the service
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/tollkeeper"), value_name = "PROGRAM")]
    program: PathBuf,
    /// Number of starts
    #[arg(long, default_value_t = 15, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    starts: u32,
    /// Number of requests
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(4..=1_000_000_000))]
    requests: u32,
    /// Connections, each with one request in progress
    #[arg(long, default_value_t = 32, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// The URL of an empty PostgreSQL database; without it, a throwaway server is started where one is
    /// installed
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

/// The pause before the service is considered idle.
const IDLE_TIME: Duration = Duration::from_secs(3);
/// The pause between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_micros(500);
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the measurements and prints the results.
pub async fn run(arguments: &Arguments) -> Result<(), String> {
    if !arguments.program.exists() {
        return Err(format!("{} is missing: run `cargo build --release`", arguments.program.display()));
    }
    size(&arguments.program)?;
    in_use(arguments, "sqlite", "SQLite").await?;
    let cluster = if arguments.postgres.is_none() { Cluster::start()? } else { None };
    match (&arguments.postgres, &cluster) {
        (Some(url), _) => in_use(arguments, url, "PostgreSQL").await,
        (None, Some(cluster)) => in_use(arguments, &cluster.database("bench").await?, "PostgreSQL").await,
        (None, None) => {
            report::print("PostgreSQL is not installed.");
            Ok(())
        }
    }
}

/// Measures the size of the program, as built and without debug information.
fn size(program: &Path) -> Result<(), String> {
    let mib = |path: &Path| {
        let size = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        let kib = u32::try_from(size / 1024).map_or(f64::INFINITY, f64::from);
        Ok::<_, String>(format!("{:.1} MiB", kib / 1024.0))
    };
    report::line(&["program".to_owned(), mib(program)?]);
    let folder = Folder::new()?;
    let stripped = folder.place(9)?.join("stripped");
    let mut strip = Command::new("strip");
    if strip.arg("-o").arg(&stripped).arg(program).status().is_ok_and(|status| status.success()) {
        report::line(&["program, stripped".to_owned(), mib(&stripped)?]);
    }
    Ok(())
}

async fn in_use(arguments: &Arguments, database: &str, name: &str) -> Result<(), String> {
    report::print(format_args!("\n{name}"));
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), "[limits]\nenabled = false\n")
        .map_err(|error| error.to_string())?;
    let start =
        async || Tollkeeper::on_all_cores(&arguments.program, &place, database, "/dev/null".as_ref()).await;
    // The first start creates the database.
    let service = start().await?;
    let tenant = tenant::prepare(service.public).await?;
    drop(service);
    let mut times = Vec::new();
    for _ in 0..arguments.starts {
        times.push(first_answer(arguments, &place, database, &tenant).await?);
    }
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let middle = median(times).unwrap_or(f64::NAN);
    report::line(&["first answer, median".to_owned(), format!("{middle:.0} ms")]);
    report::line(&["first answer, slowest".to_owned(), format!("{slowest:.0} ms")]);
    let service = start().await?;
    tokio::time::sleep(IDLE_TIME).await;
    report::line(&["requests".to_owned(), "memory MiB".to_owned(), "descriptors".to_owned()]);
    show("0, idle", &service)?;
    let quarter = arguments.requests / 4;
    for part in 1..=4 {
        drive(&service, &tenant, quarter, arguments.connections).await?;
        if part != 3 {
            show(&(quarter * part).to_string(), &service)?;
        }
    }
    tokio::time::sleep(IDLE_TIME).await;
    show("idle again", &service)
}

fn show(label: &str, service: &Tollkeeper) -> Result<(), String> {
    let id = service.server.id();
    report::line(&[
        label.to_owned(),
        format!("{:.1}", process::resident_mib(id)?),
        format!("{:.0}", process::descriptors(id)?),
    ]);
    Ok(())
}

/// Returns the milliseconds from the start of the program to its first answer to a call with an API key.
async fn first_answer(
    arguments: &Arguments,
    place: &Path,
    database: &str,
    tenant: &Tenant,
) -> Result<f64, String> {
    let (mut command, public, _) =
        Tollkeeper::command(&arguments.program, place, database, "/dev/null".as_ref())?;
    let request = request("GET", "/v1/models", public, Some(tenant.key()), None);
    let begin = Instant::now();
    let server = Server::spawn(&mut command)?;
    while begin.elapsed() < TIMEOUT {
        if let Ok(mut wire) = Wire::open(public).await
            && let Ok(answer) = wire.ask(&request).await
            && answer.status == 200
        {
            let took_ms = begin.elapsed().as_secs_f64() * 1e3;
            drop(server);
            return Ok(took_ms);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    Err("no answer".to_owned())
}

/// Sends this number of requests over separate connections. Half of them request the list of models, and half
/// of them a decision.
async fn drive(service: &Tollkeeper, tenant: &Tenant, requests: u32, connections: u16) -> Result<(), String> {
    let body: Value = tenant.question();
    let asked = [
        (service.public, request("GET", "/v1/models", service.public, Some(tenant.key()), None)),
        (
            service.service,
            request("POST", "/service/v1/authorize", service.service, Some(&service.token), Some(&body)),
        ),
    ];
    let mut tasks = tokio::task::JoinSet::new();
    for (address, request) in asked {
        for _ in 0..connections / 2 {
            let (each, request) = (requests / u32::from(connections / 2 * 2), request.clone());
            tasks.spawn(async move {
                let mut wire = Wire::open(address).await?;
                for _ in 0..each {
                    let status = wire.ask(&request).await?.status;
                    if status != 200 {
                        return Err(format!("unexpected status {status}"));
                    }
                }
                Ok(())
            });
        }
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.map_err(|error| error.to_string())??;
    }
    client::wait_for(service.public, "/healthz").await
}
