//! The floor of durable usage: only the drivers. They insert events and upsert their daily rows in tables
//! like the service's, with prepared statements and many events per transaction. SQLite is configured as in
//! the service. PostgreSQL uses one connection on which the statements of a transaction are pipelined.

#![allow(clippy::disallowed_types, reason = "this file measures the bare drivers")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::future::try_join_all;
use rusqlite::{Connection, params};
use tokio_postgres::types::ToSql;
use tollkeeper::db::Settings;

use crate::money::KEYS;
use crate::report;

/// The arguments of the measuring process.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A file, or the URL of a PostgreSQL database
    database: String,
    at_once: u64,
    /// Number of series of ids, which take turns with one transaction each; the number of the service's
    /// connections
    series: usize,
    milliseconds: u64,
}

pub const EVENTS: &str = "organization_id TEXT NOT NULL, source TEXT NOT NULL, event_id TEXT NOT NULL, payload_hash BYTES NOT NULL,
    project_id TEXT NOT NULL, api_key_id TEXT NOT NULL, model TEXT NOT NULL, kind TEXT NOT NULL,
    occurred_at BIGINT NOT NULL, received_at BIGINT NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
    price_version BIGINT NOT NULL, amount_pico BIGINT NOT NULL, PRIMARY KEY (organization_id, source, event_id)";
pub const DAYS: &str = "organization_id TEXT NOT NULL, project_id TEXT NOT NULL, api_key_id TEXT NOT NULL, model TEXT NOT NULL,
    price_version BIGINT NOT NULL, kind TEXT NOT NULL, day BIGINT NOT NULL, month BIGINT NOT NULL, requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, amount_pico BIGINT NOT NULL, posted_nano BIGINT NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, api_key_id, model, price_version, kind, month)";
pub const INSERT: &str = "INSERT INTO bare_events VALUES ($1, 'bench', $2, $3, $4, $5, 'svc-1', 'chat',
    1764000000000, 1764000000000, 120, 240, 1704067200000, 1680000000)";
pub const UPSERT: &str = "INSERT INTO bare_days VALUES ($1, $2, $3, 'svc-1', 1704067200000, 'chat', 20416, 670, $4, $5, $6, $7, $8)
    ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month) DO UPDATE
    SET requests = bare_days.requests + excluded.requests, prompt_tokens = bare_days.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = bare_days.completion_tokens + excluded.completion_tokens,
        amount_pico = bare_days.amount_pico + excluded.amount_pico, posted_nano = bare_days.posted_nano + excluded.posted_nano";
/// All columns are bound, as required if the rows differ.
const INSERT_ALL: &str =
    "INSERT INTO bare_events VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
const UPSERT_ALL: &str = "INSERT INTO bare_days VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month) DO UPDATE
    SET requests = bare_days.requests + excluded.requests, prompt_tokens = bare_days.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = bare_days.completion_tokens + excluded.completion_tokens,
        amount_pico = bare_days.amount_pico + excluded.amount_pico, posted_nano = bare_days.posted_nano + excluded.posted_nano";
const ORGANIZATION: &str = "org_01kfz3v9xee8tb2m6h0q5w7r4n";
const PROJECT: &str = "proj_01kfz3v9xee8tb2m6h0q5w7r4n";
const SOURCE: &str = "bench";
const MODEL: &str = "svc-1";
const KIND: &str = "chat";
const AT: i64 = 1_764_000_000_000;
const DAY: i64 = 20_416;
const MONTH: i64 = 670;
const TOKENS: (i64, i64) = (120, 240);
const PRICE_VERSION: i64 = 1_704_067_200_000;
const AMOUNT: i64 = 1_680_000_000;

/// Measures rows per second in a process on the server's core.
pub fn in_separate_process(
    program: &Path,
    settings: &Settings,
    (at_once, series): (u64, u16),
    length: Duration,
    pinned: bool,
) -> Result<f64, String> {
    let mut command = if pinned { Command::new("taskset") } else { Command::new(program) };
    if pinned {
        command.args(["-c", "0"]).arg(program);
    }
    let database = match settings {
        Settings::Sqlite { path } => path.display().to_string(),
        Settings::Postgres { url } => url.clone(),
    };
    let (at_once, series, length) = (at_once.to_string(), series.to_string(), length.as_millis().to_string());
    command.args(["bare-rows", &database, &at_once, &series, &length]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("unexpected output of bare-rows: {text:?}"))
}

/// Runs the measurement, and prints the rate.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let length = Duration::from_millis(arguments.milliseconds);
    let rows = Rows::new(arguments.at_once, arguments.series);
    let rate = if arguments.database.contains("://") {
        crate::block_on(postgres(&arguments.database, rows, length))
    } else {
        sqlite(&arguments.database, rows, length).map_err(|error| error.to_string())
    }?;
    report::print(format_args!("{rate}"));
    Ok(())
}

/// The rows of the transactions. Their ids are like those of the service, so that they are inserted at the
/// same positions in the indexes.
struct Rows {
    next: u64,
    run: u128,
    at_once: u64,
    /// The last number of each series.
    series: Vec<u64>,
    turn: usize,
}

impl Rows {
    fn new(at_once: u64, series: usize) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let run = since.unwrap_or_default().as_millis();
        Self { next: 0, run, at_once, series: vec![0; series.max(1)], turn: 0 }
    }

    /// Returns ids of events and their keys.
    fn events(&mut self) -> Vec<(String, String)> {
        self.turn = (self.turn + 1) % self.series.len();
        let (run, turn, mut events) = (self.run, self.turn, Vec::new());
        let Some(last) = self.series.get_mut(turn) else { return events };
        for _ in 0..self.at_once {
            self.next += 1;
            *last += 1;
            let mut id = String::new();
            // Writing to a string never fails.
            write!(id, "{run}-Batches-0-{turn}-{last}").ok();
            events.push((id, key(self.next)));
        }
        events
    }

    fn days(&self) -> Vec<(String, i64)> {
        let keys = self.at_once.min(KEYS as u64);
        let each = i64::try_from(self.at_once / keys).unwrap_or(0);
        (0..keys).map(|number| (key(self.next + number), each)).collect()
    }
}

fn key(number: u64) -> String {
    format!("key_01kfz3v9xee8tb2m6h0q5w7r{:02}", number % KEYS as u64)
}

/// Counts rows for a duration, except in its first fifth.
struct Watch {
    from: Instant,
    until: Instant,
    rows: u64,
}

impl Watch {
    fn new(length: Duration) -> Self {
        let begin = Instant::now();
        Self { from: begin + length / 5, until: begin + length, rows: 0 }
    }

    fn count(&mut self, rows: u64) -> bool {
        let now = Instant::now();
        if now >= self.from && now < self.until {
            self.rows += rows;
        }
        now < self.until
    }

    fn rate(&self) -> f64 {
        let rows = u32::try_from(self.rows).map_or(f64::INFINITY, f64::from);
        rows / (self.until - self.from).as_secs_f64()
    }
}

fn sqlite(path: &str, mut rows: Rows, length: Duration) -> rusqlite::Result<f64> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    for (name, columns) in [("bare_events", EVENTS), ("bare_days", DAYS)] {
        let columns = columns.replace("BYTES", "BLOB").replace("BIGINT", "INTEGER");
        connection.execute_batch(&format!("CREATE TABLE {name} ({columns}) STRICT, WITHOUT ROWID"))?;
    }
    let (numbered, hash) = (|text: &str| text.replace('$', "?"), [7_u8; 32]);
    let mut insert = connection.prepare(&numbered(INSERT_ALL))?;
    let mut upsert = connection.prepare(&numbered(UPSERT_ALL))?;
    let (at_once, mut watch) = (rows.at_once, Watch::new(length));
    loop {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for (id, key) in rows.events() {
            insert.execute(params![
                ORGANIZATION,
                SOURCE,
                id,
                hash,
                PROJECT,
                key,
                MODEL,
                KIND,
                AT,
                AT,
                TOKENS.0,
                TOKENS.1,
                PRICE_VERSION,
                AMOUNT
            ])?;
        }
        for (key, each) in rows.days() {
            let (prompt, completion) = (each * TOKENS.0, each * TOKENS.1);
            upsert.execute(params![
                ORGANIZATION,
                PROJECT,
                key,
                MODEL,
                PRICE_VERSION,
                KIND,
                DAY,
                MONTH,
                each,
                prompt,
                completion,
                each,
                each
            ])?;
        }
        connection.execute_batch("COMMIT")?;
        if !watch.count(at_once) {
            return Ok(watch.rate());
        }
    }
}

/// The parameters of a statement.
type Parameters<'a, const N: usize> = [&'a (dyn ToSql + Sync); N];

fn event_row<'a>(id: &'a String, key: &'a String, hash: &'a Vec<u8>) -> Parameters<'a, 14> {
    [
        &ORGANIZATION,
        &SOURCE,
        id,
        hash,
        &PROJECT,
        key,
        &MODEL,
        &KIND,
        &AT,
        &AT,
        &TOKENS.0,
        &TOKENS.1,
        &PRICE_VERSION,
        &AMOUNT,
    ]
}

/// The key of a daily row, and its increments: calls, prompt tokens, completion tokens.
fn day_row<'a>((key, each, prompt, completion): &'a (&'a String, i64, i64, i64)) -> Parameters<'a, 13> {
    [
        &ORGANIZATION,
        &PROJECT,
        *key,
        &MODEL,
        &PRICE_VERSION,
        &KIND,
        &DAY,
        &MONTH,
        each,
        prompt,
        completion,
        each,
        each,
    ]
}

async fn postgres(url: &str, mut rows: Rows, length: Duration) -> Result<f64, String> {
    let fail = |error: tokio_postgres::Error| error.to_string();
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.map_err(fail)?;
    tokio::spawn(connection);
    for (name, columns) in [("bare_events", EVENTS), ("bare_days", DAYS)] {
        let columns = columns.replace("BYTES", "BYTEA").replace("TEXT", "TEXT COLLATE \"C\"");
        let text = format!("CREATE TABLE IF NOT EXISTS {name} ({columns})");
        client.batch_execute(&text).await.map_err(fail)?;
    }
    let insert = client.prepare(INSERT_ALL).await.map_err(fail)?;
    let upsert = client.prepare(UPSERT_ALL).await.map_err(fail)?;
    let (at_once, mut watch, hash) = (rows.at_once, Watch::new(length), vec![7_u8; 32]);
    loop {
        let (events, days) = (rows.events(), rows.days());
        let events: Vec<Parameters<'_, 14>> =
            events.iter().map(|(id, key)| event_row(id, key, &hash)).collect();
        let sums: Vec<_> =
            days.iter().map(|(key, each)| (key, *each, each * TOKENS.0, each * TOKENS.1)).collect();
        let days: Vec<Parameters<'_, 13>> = sums.iter().map(day_row).collect();
        client.batch_execute("BEGIN").await.map_err(fail)?;
        try_join_all(events.iter().map(|row| client.execute(&insert, row))).await.map_err(fail)?;
        try_join_all(days.iter().map(|row| client.execute(&upsert, row))).await.map_err(fail)?;
        client.batch_execute("COMMIT").await.map_err(fail)?;
        if !watch.count(at_once) {
            return Ok(watch.rate());
        }
    }
}
