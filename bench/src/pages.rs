//! Compares pages of the console with the JSON of the same operations: an organization with a year of
//! usage, and a project with many API keys, on both databases.
//!
//! Keys and usage are inserted directly with SQL. The latency of a page is measured with one request at a
//! time, and includes the server's time and the transfer over loopback. Pages per second are measured with
//! one server core, for page and JSON in turn.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollkeeper::db::{Db, Settings, sql};
use tollkeeper::keys::secret::ApiKeySecret;
use tollkeeper::random::Random;

use crate::client::{self, Load, Target};
use crate::cluster::Cluster;
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::{report, tenant};

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// API keys of the project
    #[arg(long, default_value_t = 100_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    keys: u32,
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements of each kind, interleaved
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// `sqlite`, `postgres` or both; `postgres` starts a throwaway server where one is installed
    #[arg(long, value_delimiter = ',', default_value = "sqlite,postgres", value_name = "NAMES")]
    databases: Vec<String>,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

const SETTINGS: &str = "[limits]\nenabled = false\n";
/// The number of keys inserted by one transaction.
const AT_ONCE: u32 = 10_000;
const PAGE_SIZE: u32 = 20;
/// The number of keys and the models that have usage.
const USED_KEYS: u32 = 10;
const MODELS: [&str; 3] = ["svc-1-mini", "svc-1", "svc-1-pro"];
const DAYS: i64 = 365;
/// The first day with usage: 2025-01-01.
const FIRST_DAY: i64 = 20_089;

/// A page, and the JSON with the same content.
struct Case {
    label: &'static str,
    page: Target,
    json: Target,
}

/// Fills the database, measures, and prints the results.
pub async fn run(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    for database in &arguments.databases {
        match database.as_str() {
            "sqlite" => measure(arguments, cores, None).await?,
            "postgres" => match Cluster::start()? {
                Some(cluster) => measure(arguments, cores, Some(&cluster.database("pages").await?)).await?,
                None => return Err("PostgreSQL is not installed".to_owned()),
            },
            other => return Err(format!("unknown database `{other}`: use `sqlite` or `postgres`")),
        }
    }
    Ok(())
}

async fn measure(arguments: &Arguments, cores: Cores, url: Option<&str>) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let service = Tollkeeper::start(&this, &place, url.unwrap_or("sqlite"), &arguments.log, cores).await?;
    let settings = match url {
        None => Settings::Sqlite { path: place.join("tollkeeper.db") },
        Some(url) => Settings::Postgres { url: url.to_owned() },
    };
    let db = Db::open(&settings).map_err(|error| error.to_string())?;
    let cases = prepare(&service, &db, arguments.keys).await?;
    let length = Duration::from_secs_f64(arguments.seconds);
    let never_sleep = cores.pinned && !db.is_postgres();
    let [one, many] = [1, 32].map(|connections| Load { connections, length, never_sleep });
    let server = service.server.id();
    let name = if url.is_some() { "PostgreSQL" } else { "SQLite" };
    report::print(format_args!("{name}, {} API keys, {DAYS} days of usage", arguments.keys));
    report::line(&["", "KiB", "p50 ms", "p95 ms", "pages/s", "JSON/s", "pages/JSON"].map(str::to_owned));
    for case in &cases {
        let kib = report::kib(client::once(&case.page).await?.len());
        let (mut p50, mut p95, mut pages, mut json, mut ratios) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            let sample = client::load(&case.page, server, one).await?;
            p50.extend(report::percentile(&sample.latencies_us, 50));
            p95.extend(report::percentile(&sample.latencies_us, 95));
            let page = client::load(&case.page, server, many).await?.requests_per_s;
            let plain = client::load(&case.json, server, many).await?.requests_per_s;
            pages.push(page);
            json.push(plain);
            ratios.push(page / plain);
        }
        let ms = |values| report::shown(report::median(values).map(|us| us / 1e3), 2, "");
        report::line(&[
            case.label.to_owned(),
            format!("{kib:.1}"),
            ms(p50),
            ms(p95),
            report::shown(report::median(pages), 0, ""),
            report::shown(report::median(json), 0, ""),
            report::shown(report::median(ratios), 2, ""),
        ]);
    }
    Ok(())
}

/// Inserts keys and usage, and returns the cases to measure.
async fn prepare(service: &Tollkeeper, db: &Db, keys: u32) -> Result<Vec<Case>, String> {
    let address = service.public;
    let name = tenant::new_name()?;
    let bearer = tenant::person(address, &name).await?;
    let cookie = sign_in(address, &name).await?;
    let created =
        tenant::post(address, "/v1/organizations", Some(&bearer), &json!({"name": "Large"})).await?;
    let organization = tenant::text(&created, "id")?;
    let path = format!("/v1/organizations/{organization}/projects");
    let created = tenant::post(address, &path, Some(&bearer), &json!({"name": "Large"})).await?;
    let project = tenant::text(&created, "id")?;
    let path = format!("/organizations/{organization}/projects/{project}/api-keys");
    let template =
        tenant::post(address, &format!("/v1{path}"), Some(&bearer), &json!({"name": "n0"})).await?;
    insert_keys(db, &tenant::text(&template, "id")?, keys).await?;
    insert_usage(db, &organization, &project).await?;
    if db.is_postgres() {
        // Autovacuum would do this within a minute.
        write(db, "ANALYZE").await?;
    }
    let case = |label, page: &str, json: &str, expected: &str| Case {
        label,
        page: Target::page(address, &format!("/console{page}"), &cookie, expected),
        json: Target::get(address, &format!("/v1{json}"), Some(&bearer), expected),
    };
    let (first, last) = (format!("n{}", keys - 1), format!("page={}", keys / PAGE_SIZE));
    let with = |query: &str| format!("{path}?{query}");
    let usage =
        format!("/organizations/{organization}/usage?range=custom&start_date=2025-01-01&end_date=2025-12-31");
    let report =
        format!("/organizations/{organization}/billing/usage?start_date=2025-01-01&end_date=2026-01-01");
    let by = |by: &str, period: &str| format!("{usage}&by={by}&period={period}");
    let group_by = |groups: &str| format!("{report}&group_by={groups}");
    Ok(vec![
        case("keys, first page", &path, &path, &first),
        case("keys, last page", &with(&last), &with(&last), "n1"),
        case(
            "keys, search for one",
            &with(&format!("search={first}")),
            &with(&format!("search={first}")),
            &first,
        ),
        case("a year by month, model", &by("model", "month"), &group_by("month,model"), "svc-1-pro"),
        case("a year by day, model", &by("model", "day"), &group_by("day,model"), "svc-1-pro"),
        case("a year by week, key", &by("key", "week"), &group_by("week,api_key"), "2025-12-29"),
    ])
}

/// Signs in with the console's form, and returns the cookie in the form in which a browser sends it.
async fn sign_in(address: SocketAddr, name: &str) -> Result<String, String> {
    let body = format!("email={name}%40example.com&password={}", tenant::PASSWORD);
    let request = format!(
        "POST /console/sign-in HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: same-origin\r\nconnection: close\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.and_then(|cookie| cookie.split(';').next());
    cookie.map(str::to_owned).ok_or_else(|| format!("no cookie from sign-in: {answer}"))
}

/// Inserts copies of the first key, the template, each with a separate secret.
async fn insert_keys(db: &Db, template: &str, count: u32) -> Result<(), String> {
    let random = Random::system();
    let numbers: Vec<u32> = (1..count).collect();
    for part in numbers.chunks(AT_ONCE as usize) {
        let mut tx = db.write().await.map_err(|error| error.to_string())?;
        for number in part {
            let id = key_id(template, *number);
            let key = "INSERT INTO api_keys (id, organization_id, project_id, name, name_folded, permissions, created_by,
                    created_at, updated_at)
                SELECT $1, organization_id, project_id, $2, $2, permissions, created_by, created_at + $3, updated_at
                FROM api_keys WHERE id = $4";
            let key =
                sql(key).bind(id.as_str()).bind(format!("n{number}")).bind(i64::from(*number)).bind(template);
            key.execute(&mut tx).await.map_err(|error| error.to_string())?;
            let secret =
                "INSERT INTO api_key_secrets (secret_hash, api_key_id, created_at) VALUES ($1, $2, 0)";
            let secret = sql(secret).bind(ApiKeySecret::generate("tk_", &random).hash()).bind(id.as_str());
            secret.execute(&mut tx).await.map_err(|error| error.to_string())?;
        }
        tx.commit().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn key_id(template: &str, number: u32) -> String {
    format!("{}_{number:026}", template.split('_').next().unwrap_or_default())
}

/// Inserts a year of daily rows, one for each key, model and day.
async fn insert_usage(db: &Db, organization: &str, project: &str) -> Result<(), String> {
    let last = DAYS - 1;
    for (key, model) in (1..=USED_KEYS).flat_map(|key| MODELS.map(|model| (key, model))) {
        let id = key_id("key", key);
        let text = format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last})
             INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                      requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
             SELECT '{organization}', '{project}', '{id}', '{model}', 1704067200000, 'chat',
                    {FIRST_DAY} + i, 660 + i / 31, 1000, 120000, 240000, 1680000000000, 1680000000 FROM n"
        );
        write(db, &text).await?;
    }
    Ok(())
}

async fn write(db: &Db, text: &str) -> Result<(), String> {
    let mut tx = db.write().await.map_err(|error| error.to_string())?;
    sql(text.to_owned()).execute(&mut tx).await.map_err(|error| format!("{error}: {text}"))?;
    tx.commit().await.map_err(|error| error.to_string())
}
