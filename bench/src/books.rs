//! Measures the duration of an audit of many usage events, and of the close of a month with many daily rows.
//! The service's own commands run both, while a server on the same database is idle.
//!
//! All data belongs to a single organization. Events, daily rows, and movements of the last month are
//! inserted directly with SQL, as if the events had been reported in batches of a hundred. The audit must
//! find no drift, neither before nor after the close.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tollkeeper::clock::{Clock, DAY_MS, Month};
use tollkeeper::db::{Db, Settings, sql};

use crate::servers::{self, Cores, Folder, Tollkeeper};
use crate::{process, report, tenant};

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Usage events of the month
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    events: u64,
    /// Daily rows that aggregate the events
    #[arg(long, default_value_t = 100_000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    rows: u64,
    /// Number of audits measured before the close; a month closes only once
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

/// The number of events in one transaction.
const AT_ONCE: u64 = 100_000;
/// The number of events in one batch, which has one movement in the ledger.
const BATCH: u64 = 100;
const PROJECTS: u64 = 10;
/// 120 prompt tokens at 0.000002 and 240 completion tokens at 0.000006: `svc-1` of the built-in models.
const EVENT_PICO: u64 = 1_680_000_000;
const EVENT_NANO: u64 = EVENT_PICO / 1_000;
const SETTINGS: &str = "[limits]\nenabled = false\n";

/// Fills the database, measures, and prints the results.
pub async fn run(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    if arguments.events < arguments.rows {
        return Err("each row needs an event: --events must not be less than --rows".to_owned());
    }
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let service = Tollkeeper::start(&this, &place, &arguments.database, &arguments.log, cores).await?;
    let owner = tenant::person(service.public, "owner").await?;
    let organization =
        tenant::post(service.public, "/v1/organizations", Some(&owner), &json!({"name": "Large"})).await?;
    let settings = match arguments.database.as_str() {
        "sqlite" => Settings::Sqlite { path: place.join("tollkeeper.db") },
        url => Settings::Postgres { url: url.to_owned() },
    };
    let begun = Instant::now();
    let filling = Filling {
        db: Db::open(&settings).map_err(|error| error.to_string())?,
        organization: tenant::text(&organization, "id")?,
        month: Clock::System.now().day().month().plus(-1),
        events: arguments.events,
        rows: arguments.rows,
    };
    filling.fill().await?;
    report::line(&["", "seconds", "memory"].map(str::to_owned));
    report::line(&["filled".to_owned(), format!("{:.0}", begun.elapsed().as_secs_f64()), String::new()]);
    let cli = ServiceCommands { program: &this, folder: &place, database: &arguments.database, cores };
    for _ in 0..arguments.rounds {
        cli.measure("audit", &["audit"], "")?;
    }
    cli.measure("close of the month", &["billing", "close", "--skip-wait"], "invoice 1 ")?;
    cli.measure("audit after the close", &["audit"], "1 invoices")
}

/// The commands of the service on one database.
struct ServiceCommands<'a> {
    program: &'a Path,
    folder: &'a Path,
    database: &'a str,
    cores: Cores,
}

impl ServiceCommands<'_> {
    /// Runs a command to its end, and prints its duration, maximum resident memory, and last line.
    fn measure(&self, label: &str, arguments: &[&str], expected: &str) -> Result<(), String> {
        let mut command = self.cores.of_servers(self.program);
        servers::set_database(&mut command, self.folder, self.database)?;
        // Use a file: with many drifts, a pipe that is read only at the end would block.
        let path = self.folder.join("output");
        let output = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let log = output.try_clone().map_err(|error| error.to_string())?;
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(log);
        let begun = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("can't start {command:?}: {error}"))?;
        let (status, memory_mib) = watch(&mut child)?;
        let took_s = begun.elapsed().as_secs_f64();
        let printed = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        if !status.success() || !printed.contains(expected) {
            let lines: Vec<_> = printed.lines().rev().take(10).collect();
            return Err(format!("{label}: {status}\n{}", lines.join("\n")));
        }
        let last = printed.lines().last().unwrap_or_default().to_owned();
        report::line(&[
            label.to_owned(),
            format!("{took_s:.2}"),
            format!("{memory_mib:.0} MiB"),
            format!("  {last}"),
        ]);
        Ok(())
    }
}

/// Waits for a process to exit. Returns its status and its maximum resident memory.
fn watch(child: &mut Child) -> Result<(ExitStatus, f64), String> {
    let mut most_mib: f64 = 0.0;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok((status, most_mib));
        }
        most_mib = most_mib.max(process::resident_mib(child.id()).unwrap_or(0.0));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The books of one organization and one month.
struct Filling {
    db: Db,
    organization: String,
    month: Month,
    events: u64,
    rows: u64,
}

impl Filling {
    async fn fill(&self) -> Result<(), String> {
        let Self { events, rows, organization, .. } = self;
        for first in (0..*events).step_by(usize::try_from(AT_ONCE).unwrap_or(usize::MAX)) {
            let last = (*events).min(first + AT_ONCE) - 1;
            self.write(&self.events(first, last)).await?;
            for text in self.movements(first / BATCH, last / BATCH) {
                self.write(&text).await?;
            }
        }
        for first in (0..*rows).step_by(usize::try_from(AT_ONCE).unwrap_or(usize::MAX)) {
            self.write(&self.days(first, (*rows).min(first + AT_ONCE) - 1)).await?;
        }
        for (grouped_by, id) in [("model", "model"), ("caller", "api_key_id")] {
            self.write(&format!(
                "INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, day, group_id, kind, requests,
                     prompt_tokens, completion_tokens, amount_whole, amount_pico)
                 SELECT organization_id, project_id, '{grouped_by}', day, {id}, kind, SUM(requests), SUM(prompt_tokens),
                        SUM(completion_tokens), SUM(amount_pico / 1000000000000), SUM(amount_pico % 1000000000000)
                 FROM usage_daily WHERE organization_id = '{organization}'
                 GROUP BY organization_id, project_id, day, {id}, kind"
            ))
            .await?;
        }
        for subject in ["project_id", "api_key_id"] {
            self.write(&format!(
                "INSERT INTO usage_totals (organization_id, subject_id, requests, tokens)
                 SELECT organization_id, {subject}, SUM(requests), SUM(prompt_tokens) + SUM(completion_tokens)
                 FROM usage_daily WHERE organization_id = '{organization}' GROUP BY organization_id, {subject}"
            ))
            .await?;
        }
        let (all, month) = (events * EVENT_NANO, self.month.unix_months());
        self.write(&format!(
            "UPDATE wallets SET posted_nano = posted_nano - {all}, open_month = {month}
             WHERE organization_id = '{organization}'"
        ))
        .await
    }

    /// Returns the key columns of row `r`: a day of the month, a key, and the project of the key.
    fn key_columns(&self) -> String {
        let first_day = self.month.start().day().unix_days();
        let days = self.month.end().day().unix_days() - first_day;
        let id = |prefix: &str, number: &str| {
            format!("'{prefix}_0000000000000' || CAST(1000000000000 + {number} AS TEXT)")
        };
        let (project, key) =
            (id("proj", &format!("r / {days} % {PROJECTS}")), id("key", &format!("r / {days}")));
        format!("{first_day} + r % {days} AS day, {project} AS project_id, {key} AS api_key_id")
    }

    /// Returns the statement that inserts events. Event `i` belongs to row `i` modulo the number of rows.
    fn events(&self, first: u64, last: u64) -> String {
        let Self { organization, rows, month, .. } = self;
        let (columns, month) = (self.key_columns(), month.unix_months());
        let hash = if self.db.is_postgres() { "decode(repeat('00', 32), 'hex')" } else { "zeroblob(32)" };
        let noon = DAY_MS / 2;
        format!(
            "WITH RECURSIVE n(i) AS (SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {last}),
                 keyed AS (SELECT i, {columns} FROM (SELECT i, i % {rows} AS r FROM n) numbered)
             INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id, model,
                 kind, occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico, billed_month)
             SELECT '{organization}', 'bench', 'event-' || CAST(1000000000 + i AS TEXT), {hash}, project_id, api_key_id,
                    'svc-1', 'chat', day * {DAY_MS} + {noon}, day * {DAY_MS} + {noon}, 120, 240, 1704067200000,
                    {EVENT_PICO}, {month} FROM keyed"
        )
    }

    /// Returns the statements that insert the movements of batches.
    fn movements(&self, first: u64, last: u64) -> [String; 2] {
        let Self { organization, events, month, .. } = self;
        let happened_at = month.end().unix_ms() - 1;
        let batches = format!(
            "WITH RECURSIVE n(i) AS (SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {last}),
                 batch AS (SELECT 'ltx_0000000000000' || CAST(1000000000000 + i AS TEXT) AS id,
                     {EVENT_NANO} * CASE WHEN (i + 1) * {BATCH} > {events} THEN {events} - i * {BATCH} ELSE {BATCH} END AS nano
                     FROM n)"
        );
        [
            format!(
                "{batches} INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
                 SELECT id, '{organization}', 'usage', 'usage:' || id, {happened_at} FROM batch"
            ),
            format!(
                "{batches} INSERT INTO ledger_entries (transaction_id, account, organization_id, amount_nano)
                 SELECT id, 'wallet', '{organization}', -nano FROM batch
                 UNION ALL SELECT id, 'usage', '{organization}', nano FROM batch"
            ),
        ]
    }

    /// Returns the statement that inserts daily rows, the sums of their events.
    fn days(&self, first: u64, last: u64) -> String {
        let Self { organization, events, rows, month, .. } = self;
        let (columns, month) = (self.key_columns(), month.unix_months());
        let (each, more) = (events / rows, events % rows);
        format!(
            "WITH RECURSIVE n(r) AS (SELECT CAST({first} AS BIGINT) UNION ALL SELECT r + 1 FROM n WHERE r < {last}),
                 keyed AS (SELECT CAST({each} AS BIGINT) + CASE WHEN r < {more} THEN 1 ELSE 0 END AS requests, {columns} FROM n)
             INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                 requests, prompt_tokens, completion_tokens, amount_pico, posted_nano, additions)
             SELECT '{organization}', project_id, api_key_id, 'svc-1', 1704067200000, 'chat', day, {month},
                    requests, requests * 120, requests * 240, requests * {EVENT_PICO}, requests * {EVENT_NANO}, 2
             FROM keyed"
        )
    }

    async fn write(&self, text: &str) -> Result<(), String> {
        let mut tx = self.db.write().await.map_err(|error| error.to_string())?;
        sql(text.to_owned()).heavy().execute(&mut tx).await.map_err(|error| format!("{error}: {text}"))?;
        tx.commit().await.map_err(|error| error.to_string())
    }
}
