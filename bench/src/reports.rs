//! Measures whether the latency of a report depends on the number of events. The usage of ten keys in a year
//! is requested by day over HTTP from the running service, while the number of events for the same daily rows
//! grows.
//!
//! Events are inserted directly with SQL, and each belongs to a daily row.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tollkeeper::db::{Db, Settings, sql};

use crate::client::{self, Load, Target};
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::{report, tenant};

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Numbers of events, in millions; one measurement each, in increasing order
    #[arg(long, value_delimiter = ',', default_value = "1,10", value_name = "MILLIONS")]
    millions: Vec<u32>,
    /// Duration of a measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements of each kind
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

const KEYS: u32 = 10;
const DAYS: i64 = 365;
/// The first day with usage: 2025-01-01.
const FIRST_DAY: i64 = 20_089;
/// The number of events in one transaction.
const AT_ONCE: u64 = 100_000;
const SETTINGS: &str = "[limits]\nenabled = false\n";

/// Fills the database, measures, and prints the results.
pub async fn run(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let service = Tollkeeper::start(&this, &place, &arguments.database, &arguments.log, cores).await?;
    let settings = match arguments.database.as_str() {
        "sqlite" => Settings::Sqlite { path: place.join("tollkeeper.db") },
        url => Settings::Postgres { url: url.to_owned() },
    };
    let db = Db::open(&settings).map_err(|error| error.to_string())?;
    let owner = tenant::person(service.public, "owner").await?;
    let organization =
        tenant::post(service.public, "/v1/organizations", Some(&owner), &json!({"name": "Large"})).await?;
    let organization = tenant::text(&organization, "id")?;
    let query = "start_date=2025-01-01&end_date=2026-01-01";
    let path = format!("/v1/organizations/{organization}/billing/usage?{query}");
    let targets = [
        ("a year by day", Target::get(service.public, &path, Some(&owner), "2025-06-30")),
        ("a year by month and key", {
            let path = format!("{path}&group_by=month,api_key");
            Target::get(service.public, &path, Some(&owner), "2025-06-01")
        }),
    ];
    days(&db, &organization).await?;
    report::line(&[
        "p50 in µs".to_owned(),
        "events".to_owned(),
        "by day".to_owned(),
        "by month, key".to_owned(),
    ]);
    let (mut filled, begin) = (0, Instant::now());
    for millions in &arguments.millions {
        let due = u64::from(*millions) * 1_000_000;
        events(&db, &organization, filled, due).await?;
        filled = filled.max(due);
        let mut cells =
            vec![format!("after {:.0} s", begin.elapsed().as_secs_f64()), format!("{millions} million")];
        for (_, target) in &targets {
            let mut medians = Vec::new();
            for _ in 0..arguments.rounds {
                let length = Duration::from_secs_f64(arguments.seconds);
                let load = Load { connections: 1, length, never_sleep: cores.pinned && !db.is_postgres() };
                let sample = client::load(target, service.server.id(), load).await?;
                medians.extend(report::percentile(&sample.latencies_us, 50));
            }
            cells.push(report::shown(report::median(medians), 0, ""));
        }
        report::line(&cells);
    }
    Ok(())
}

/// Inserts the daily rows: a thousand requests per key and day.
async fn days(db: &Db, organization: &str) -> Result<(), String> {
    let last = i64::from(KEYS) * DAYS - 1;
    let text = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last})
         INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                  requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         SELECT '{organization}', 'proj_0', 'key_' || CAST(i % {KEYS} AS TEXT), 'svc-1', 1704067200000, 'chat',
                {FIRST_DAY} + i / {KEYS}, 660 + i / {KEYS} / 31, 1000, 120000, 240000, 1680000000000, 1680000000 FROM n"
    );
    write(db, &text).await
}

async fn events(db: &Db, organization: &str, from: u64, to: u64) -> Result<(), String> {
    let mut first = from;
    while first < to {
        let last = to.min(first + AT_ONCE) - 1;
        let hash = if db.is_postgres() { "decode(repeat('00', 32), 'hex')" } else { "zeroblob(32)" };
        let text = format!(
            "WITH RECURSIVE n(i) AS (SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {last})
             INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id, model, kind,
                 occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico)
             SELECT '{organization}', 'bench', 'event-' || CAST(1000000000 + i AS TEXT), {hash}, 'proj_0',
                    'key_' || CAST(i % {KEYS} AS TEXT), 'svc-1', 'chat', ({FIRST_DAY} + i / {KEYS} % {DAYS}) * 86400000,
                    1767225600000, 120, 240, 1704067200000, 1680000000 FROM n"
        );
        write(db, &text).await?;
        first = last + 1;
    }
    Ok(())
}

async fn write(db: &Db, text: &str) -> Result<(), String> {
    let mut tx = db.write().await.map_err(|error| error.to_string())?;
    sql(text.to_owned()).heavy().execute(&mut tx).await.map_err(|error| format!("{error}: {text}"))?;
    tx.commit().await.map_err(|error| error.to_string())
}
