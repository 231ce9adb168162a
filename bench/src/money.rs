//! The throughput of durable usage and reservations, compared with the database driver alone on the same
//! rows.
//!
//! - Batches of 1,000 events, compared with bare prepared inserts of the same rows and upserts of the same
//!   daily rows, in transactions of 1,000.
//! - The same batches with two parts in each event.
//! - Requests with a single event from many connections, compared with one bare row per commit.
//! - Pairs of a reservation and its capture, all of one organization, and the same in an organization in
//!   which each call has three hard budgets: of its organization, its project and its key.
//!
//! Bare measurements run in a separate process on the server's core, like the service.

mod load;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};
use tollkeeper::db::Settings;

use crate::money::load::{Job, drive};
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::{bare_rows, report, tenant};

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements of each kind, interleaved
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections of single events and of pairs
    #[arg(long, default_value_t = 64, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Connections of batches
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    batch_connections: u16,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

/// The number of events per batch, and of rows per transaction.
pub const BATCH: u64 = 1_000;
/// The number of keys of the events. Each batch updates this number of daily rows.
pub const KEYS: usize = 10;

const SETTINGS: &str = "[limits]\nenabled = false\n[billing]\ncredit_limit = \"1000000000\"\n";

/// The objects required by the calls.
#[derive(Clone)]
pub struct Tenant {
    pub service: SocketAddr,
    pub token: String,
    /// The ids and secrets of the keys.
    pub keys: Vec<(String, String)>,
}

/// Runs the measurements and prints the results.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let cores = Cores::share();
    crate::block_on(measure(arguments, cores))
}

async fn measure(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let service = Tollkeeper::start(&this, &place, &arguments.database, &arguments.log, cores).await?;
    let tenant = tenant_of(&service, false).await?;
    let budgeted = tenant_of(&service, true).await?;
    let length = Duration::from_secs_f64(arguments.seconds);
    let bare = Bare { program: &this, folder: &folder, database: &arguments.database, length, cores };
    let mut rounds: Vec<[f64; 7]> = Vec::new();
    for round in 0..arguments.rounds {
        let number = u64::from(round);
        let jobs = [
            (&tenant, Job::Batches, arguments.batch_connections),
            (&tenant, Job::BatchesWithParts, arguments.batch_connections),
            (&tenant, Job::Singles, arguments.connections),
            (&tenant, Job::Pairs, arguments.connections),
            (&budgeted, Job::Pairs, arguments.connections),
        ];
        let mut rates = [0.0; 5];
        for ((tenant, job, connections), rate) in jobs.into_iter().zip(&mut rates) {
            *rate = drive(tenant, job, connections, length, number).await?;
        }
        let [batches, with_parts, singles, pairs, budgeted_pairs] = rates;
        let bare_batches = bare.rate(BATCH, arguments.batch_connections, round)?;
        let bare_singles = bare.rate(1, arguments.connections, round)?;
        rounds.push([bare_batches, batches, bare_singles, singles, pairs, budgeted_pairs, with_parts]);
    }
    print(arguments, &rounds);
    Ok(())
}

/// Creates an organization with keys, and with budgets that its calls don't use up.
async fn tenant_of(service: &Tollkeeper, has_budgets: bool) -> Result<Tenant, String> {
    let keeper = tenant::keeper(service.public).await?;
    let mut keys = Vec::new();
    for number in 0..KEYS {
        keys.push(keeper.key(&format!("key {number}")).await?);
    }
    if has_budgets {
        keeper.budget(&json!({"name": "organization", "scope": "organization", "period": "month"})).await?;
        let project = keeper.project_id();
        keeper
            .budget(&json!({"name": "project", "scope": "project", "project_id": project, "period": "day"}))
            .await?;
        for (id, _) in &keys {
            keeper
                .budget(&json!({"name": id, "scope": "api_key", "api_key_id": id, "period": "total"}))
                .await?;
        }
    }
    Ok(Tenant { service: service.service, token: service.token.clone(), keys })
}

struct Bare<'a> {
    program: &'a Path,
    folder: &'a Folder,
    database: &'a str,
    length: Duration,
    cores: Cores,
}

impl Bare<'_> {
    /// Measures rows per second with the driver alone, with `at_once` rows per transaction.
    fn rate(&self, at_once: u64, series: u16, round: u32) -> Result<f64, String> {
        let settings = match self.database {
            "sqlite" => {
                let place = self
                    .folder
                    .place(usize::try_from(at_once).unwrap_or(0) + 1_000 * (2 + round as usize))?;
                Settings::Sqlite { path: place.join("bare.db") }
            }
            url => Settings::Postgres { url: url.to_owned() },
        };
        let (rows, pinned) = ((at_once, series), self.cores.pinned);
        bare_rows::in_separate_process(self.program, &settings, rows, self.length, pinned)
    }
}

fn print(arguments: &Arguments, rounds: &[[f64; 7]]) {
    let database = if arguments.database == "sqlite" { "SQLite" } else { "PostgreSQL" };
    report::print(format_args!(
        "{database}; {} rounds of {:.1} s each; one tokio worker on one core; batches of {BATCH} from {} connections, \
         the rest from {};\nmedians over the rounds, of each round's own ratio.\n",
        arguments.rounds, arguments.seconds, arguments.batch_connections, arguments.connections
    ));
    let column =
        |at: usize| report::median(rounds.iter().filter_map(|round| round.get(at).copied()).collect());
    let ratio = |at: usize, of: usize| {
        report::median(rounds.iter().filter_map(|round| Some(round.get(at)? / round.get(of)?)).collect())
    };
    let row = |label: &str, rate: Option<f64>, ratio: Option<String>| {
        report::line(&[label.to_owned(), report::shown(rate, 0, " /s"), ratio.unwrap_or_default()]);
    };
    row("bare rows, 1,000 per commit", column(0), None);
    row("events in batches of 1,000", column(1), ratio(1, 0).map(|r| format!("{:.1} %", r * 100.0)));
    row(
        "with two parts per event",
        column(6),
        ratio(6, 1).map(|r| format!(" {:.1} % of batches", r * 100.0)),
    );
    row("bare rows, 1 per commit", column(2), None);
    row("requests with one event", column(3), ratio(3, 2).map(|r| format!("{r:.2} x")));
    row("reserve + capture pairs", column(4), ratio(4, 2).map(|r| format!("{r:.2} x")));
    row("with three hard budgets", column(5), ratio(5, 4).map(|r| format!(" {:.1} % of pairs", r * 100.0)));
}

/// Returns an event of this key.
pub fn event(key: &str, id: &str, time: &str) -> Value {
    json!({"id": id, "source": "bench", "time": time, "api_key_id": key, "model": "svc-1", "kind": "chat",
           "prompt_tokens": 120, "completion_tokens": 240})
}

/// Returns the current time in the format of events.
pub fn now() -> Result<String, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let ms = i64::try_from(since.as_millis()).map_err(|error| error.to_string())?;
    Ok(tollkeeper::clock::Time::from_unix_ms(ms).to_string())
}
