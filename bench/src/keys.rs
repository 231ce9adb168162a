//! Measurements with many live keys: the memory of each key, the latency of a cold server's first decision
//! about a key, and whether decisions about random keys are slower than decisions about a few of them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tollkeeper::db::{Db, Settings, sql};
use tollkeeper::keys::secret::ApiKeySecret;
use tollkeeper::random::Random;

use crate::client::{self, Load, Target};
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::{report, tenant};

/// The number of keys in the comparison with all keys.
const FEW_KEYS: usize = 100;
/// Keys inserted by one transaction.
const AT_ONCE: usize = 10_000;
/// Disables the limits on management calls.
const SETTINGS: &str = "[limits]\nenabled = false\n";

/// The arguments of the measurement.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Live keys
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1_000..=2_000_000))]
    keys: u32,
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements with few keys and with all keys, interleaved
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Runs the measurements and prints the results.
pub async fn run(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let start = async || Tollkeeper::start(&this, &place, "sqlite", "/dev/null".as_ref(), cores).await;
    let secrets = {
        let service = start().await?;
        let (template, _) = tenant::keeper(service.public).await?.key("template").await?;
        insert(&place.join("tollkeeper.db"), &template, arguments.keys).await?
    };
    let secrets = Arc::new(secrets);
    let few = Arc::new(secrets.iter().take(FEW_KEYS).cloned().collect::<Vec<_>>());

    let began = Instant::now();
    let service = start().await?;
    let ready = began.elapsed();
    let all = target(&service, &secrets)?;
    let asked = Instant::now();
    client::once(&all).await?;
    report::line(&["cold start until ready".to_owned(), format!("{:.0} ms", ready.as_secs_f64() * 1e3)]);
    let first_ms = asked.elapsed().as_secs_f64() * 1e3;
    report::line(&["first decision after that".to_owned(), format!("{first_ms:.1} ms")]);

    let few = target(&service, &few)?;
    let length = Duration::from_secs_f64(arguments.seconds);
    let load = Load { connections: 64, length, never_sleep: cores.pinned };
    let alone = measure(&service, &[&few], arguments.rounds, load).await?;
    memory(&service, &all, arguments.keys).await?;
    let among = measure(&service, &[&few, &all], arguments.rounds, load).await?;
    print(arguments.keys, &alone.into_iter().chain(among).collect::<Vec<_>>());
    Ok(())
}

/// Measures the memory of the keys, after each of them was used once.
async fn memory(service: &Tollkeeper, all: &Target, keys: u32) -> Result<(), String> {
    let empty = resident_bytes(service.server.id())?;
    let began = Instant::now();
    client::each_once(all, 64).await?;
    let took = began.elapsed().as_secs_f64();
    report::line(&["each key once, from disk".to_owned(), format!("{:.0} /s", f64::from(keys) / took)]);
    until_quiet(service.server.id()).await;
    let full = resident_bytes(service.server.id())?;
    report::line(&["resident before".to_owned(), format!("{:.0} MiB", empty / f64::from(1 << 20))]);
    report::line(&[format!("resident with {keys} keys"), format!("{:.0} MiB", full / f64::from(1 << 20))]);
    let each = (full - empty) / f64::from(keys);
    report::line(&["a key".to_owned(), format!("{each:.0} bytes")]);
    Ok(())
}

/// Measures decisions about the keys of each target. The targets take turns.
async fn measure(
    service: &Tollkeeper,
    targets: &[&Target],
    rounds: u32,
    load: Load,
) -> Result<Vec<Vec<client::Sample>>, String> {
    let mut samples: Vec<Vec<client::Sample>> = targets.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (target, samples) in targets.iter().zip(&mut samples) {
            samples.push(client::load(target, service.server.id(), load).await?);
            until_quiet(service.server.id()).await;
        }
    }
    Ok(samples)
}

/// Prints a row for the few keys alone, one for the same keys among all, and one for all keys.
fn print(keys: u32, rows: &[Vec<client::Sample>]) {
    let labels = [
        format!("{FEW_KEYS} keys, no others in memory"),
        format!("{FEW_KEYS} keys among {keys}"),
        format!("any of {keys} keys"),
    ];
    report::line(
        &["decisions", "req/s", "p50 µs", "p99 µs", "CPU µs/req", "CPU vs. no others"].map(str::to_owned),
    );
    let cpu =
        |samples: &[client::Sample]| report::median(samples.iter().filter_map(|s| s.server_us).collect());
    let alone = rows.first().and_then(|samples| cpu(samples));
    for (label, samples) in labels.into_iter().zip(rows) {
        let median = |value: &dyn Fn(&client::Sample) -> Option<f64>| {
            report::shown(report::median(samples.iter().filter_map(value).collect()), 1, "")
        };
        let of_alone = alone.zip(cpu(samples)).map(|(alone, own)| alone / own * 100.0);
        report::line(&[
            label,
            median(&|sample| Some(sample.requests_per_s.round())),
            median(&|sample| report::percentile(&sample.latencies_us, 50)),
            median(&|sample| report::percentile(&sample.latencies_us, 99)),
            median(&|sample| sample.server_us),
            report::shown(of_alone, 1, " %"),
        ]);
    }
}

/// Returns the decisions about these keys as a target. The call costs nothing and has no rate, so no limit
/// applies.
fn target(service: &Tollkeeper, secrets: &Arc<Vec<String>>) -> Result<Target, String> {
    let secret = secrets.first().ok_or("no keys")?;
    let body = json!({"credential": secret, "client_address": "203.0.113.7", "operation": "files"});
    let path = "/service/v1/authorize";
    let target = Target::post(service.service, path, Some(&service.token), &body, "\"allowed\":true");
    target.with_texts(Arc::clone(secrets))
}

/// Inserts live keys directly into the database, as copies of a key that was created through the API.
async fn insert(path: &Path, template: &str, count: u32) -> Result<Vec<String>, String> {
    let db = Db::open(&Settings::Sqlite { path: path.to_owned() }).map_err(|error| error.to_string())?;
    let random = Random::system();
    let secrets: Vec<_> = (0..count).map(|_| ApiKeySecret::generate("tk_", &random)).collect();
    let prefix = template.split('_').next().unwrap_or_default();
    for (chunk, part) in secrets.chunks(AT_ONCE).enumerate() {
        let mut tx = db.write().await.map_err(|error| error.to_string())?;
        for (index, secret) in part.iter().enumerate() {
            let number = chunk * AT_ONCE + index;
            let id = format!("{prefix}_{number:026}");
            let key = "INSERT INTO api_keys (id, organization_id, project_id, name, name_folded, permissions, created_by,
                    created_at, updated_at)
                SELECT $1, organization_id, project_id, $2, $2, permissions, created_by, created_at, updated_at
                FROM api_keys WHERE id = $3";
            let key = sql(key).bind(id.as_str()).bind(format!("n{number}")).bind(template);
            key.execute(&mut tx).await.map_err(|error| error.to_string())?;
            let secret_row =
                "INSERT INTO api_key_secrets (secret_hash, api_key_id, created_at) VALUES ($1, $2, 0)";
            let secret_row = sql(secret_row).bind(secret.hash()).bind(id.as_str());
            secret_row.execute(&mut tx).await.map_err(|error| error.to_string())?;
        }
        tx.commit().await.map_err(|error| error.to_string())?;
    }
    Ok(secrets.iter().map(|secret| secret.expose().to_owned()).collect())
}

/// Waits until the server has written the last uses of keys, for at most two minutes.
async fn until_quiet(server: u32) {
    for _ in 0..120 {
        let before = client::processor_time(server);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let spent = before.zip(client::processor_time(server)).map_or(0.0, |(before, after)| after - before);
        if spent < 0.04 {
            return;
        }
    }
}

/// Returns the resident memory of the process in bytes (Linux: proc(5)).
fn resident_bytes(process: u32) -> Result<f64, String> {
    let status =
        std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024.0).ok_or_else(|| "/proc doesn't report its memory".to_owned())
}
