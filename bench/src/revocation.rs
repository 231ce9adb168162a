//! Measures how long a deleted key continues to work. Two replicas use one database, and both are under load.
//! One of them deletes a key while a client keeps using it on each. On the deleting replica, no call that is
//! sent after the answer to the deletion may be allowed. On the other replica, the time of the last allowed
//! call is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::report;
use crate::servers::{Folder, Tollkeeper};
use crate::tenant::{self, KeyManager};

/// Limits are off, because management calls have a separate limit. With the same public URL, tokens are valid
/// on both replicas.
const SETTINGS: &str = "public_url = \"http://bench.test\"\n[limits]\nenabled = false\n";
/// Maximum time for which a deleted key may continue to work.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The arguments of the measurement.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Keys to delete
    #[arg(long, default_value_t = 10_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trials: u32,
    /// Keys that are being deleted at a time
    #[arg(long, default_value_t = 16, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    at_once: u16,
    /// Connections to each replica that continuously use another key
    #[arg(long, default_value_t = 16, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=1024))]
    load: u16,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
}

/// The result of one deletion.
struct Trial {
    /// Calls on the deleting replica that were sent after the answer to the deletion, but were allowed.
    late_here: u32,
    /// The time from that answer until the last call allowed by the other replica was sent; zero if that was
    /// before the answer.
    elsewhere: Duration,
}

/// Runs the measurement and prints the results.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(measure(arguments))
}

async fn measure(arguments: &Arguments) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let start = async |place: &Path| {
        Tollkeeper::on_all_cores(&this, place, &arguments.database, &arguments.log).await
    };
    let (here, elsewhere) = (start(&place).await?, start(&place).await?);
    let keeper = Arc::new(tenant::keeper(here.public).await?);
    let background =
        JoinSet::from_iter(load(arguments.load, &keeper, [here.public, elsewhere.public]).await?);
    let left = Arc::new(AtomicU32::new(arguments.trials));
    let mut workers = JoinSet::new();
    for number in 0..arguments.at_once {
        workers.spawn(work(number, Arc::clone(&left), Arc::clone(&keeper), [here.public, elsewhere.public]));
    }
    let mut trials = Vec::new();
    while let Some(outcome) = workers.join_next().await {
        trials.extend(outcome.map_err(|error| error.to_string())??);
    }
    drop(background);
    let late = trials.iter().map(|trial| trial.late_here).sum::<u32>();
    let mut lags: Vec<_> = trials.iter().map(|trial| trial.elsewhere).collect();
    lags.sort_unstable();
    let at =
        |share: usize| lags.get(lags.len().saturating_sub(1) * share / 1_000).copied().unwrap_or_default();
    report::print(format_args!(
        "{} keys deleted on one of two replicas ({}), {} at a time, {} connections of load on each.\n\
         Calls allowed by the same replica after the answer: {late}.\n\
         Last call allowed by the other replica, after the answer: p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, longest {:.1?}.",
        trials.len(),
        if arguments.database == "sqlite" { "SQLite" } else { "PostgreSQL" },
        arguments.at_once,
        arguments.load,
        at(500),
        at(990),
        at(999),
        at(1_000),
    ));
    if late == 0 { Ok(()) } else { Err(format!("{late} calls were allowed after the answer")) }
}

/// Keeps connections busy with a key that isn't deleted.
async fn load(
    connections: u16,
    keeper: &KeyManager,
    replicas: [SocketAddr; 2],
) -> Result<Vec<impl Future<Output = Result<(), String>> + Send + 'static>, String> {
    let (_, key) = keeper.key("stays").await?;
    let one = |address| {
        let request = request("GET", "/v1/models", address, &key);
        async move {
            let mut wire = Wire::open(address).await?;
            loop {
                wire.ask(&request).await?;
            }
        }
    };
    Ok((0..connections).flat_map(|_| replicas).map(one).collect())
}

async fn work(
    number: u16,
    left: Arc<AtomicU32>,
    keeper: Arc<KeyManager>,
    [here, elsewhere]: [SocketAddr; 2],
) -> Result<Vec<Trial>, String> {
    let mut trials = Vec::new();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let (id, key) = keeper.key(&format!("{number} {}", trials.len())).await?;
        let asking = [here, elsewhere].map(|address| {
            let request = request("GET", "/v1/models", address, &key);
            tokio::spawn(ask_until_refused(address, request))
        });
        // This is long enough for both replicas to cache the key.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let delete = request("DELETE", &keeper.path_of(&id), here, keeper.token());
        let status = Wire::open(here).await?.ask(&delete).await?;
        let answered_at = Instant::now();
        if status != 200 {
            return Err(format!("the key was not deleted: {status}"));
        }
        let [here, elsewhere] = asking;
        let [here, elsewhere] = [here.await, elsewhere.await];
        let (late_here, _) = late(&here.map_err(|error| error.to_string())??, answered_at);
        let (_, elsewhere) = late(&elsewhere.map_err(|error| error.to_string())??, answered_at);
        trials.push(Trial { late_here, elsewhere });
    }
    Ok(trials)
}

/// Returns the number of allowed calls sent after the answer to the deletion, and the delay of the last one.
fn late(accepted: &[Instant], answered_at: Instant) -> (u32, Duration) {
    let late = accepted.iter().filter(|sent| **sent > answered_at);
    let count = u32::try_from(late.clone().count()).unwrap_or(u32::MAX);
    (count, late.max().map_or(Duration::ZERO, |last| *last - answered_at))
}

/// Repeats the request until it is refused, and returns the time at which each allowed call was sent.
async fn ask_until_refused(address: SocketAddr, request: Vec<u8>) -> Result<Vec<Instant>, String> {
    let mut wire = Wire::open(address).await?;
    let (began, mut accepted) = (Instant::now(), Vec::new());
    while began.elapsed() < TIMEOUT {
        let sent = Instant::now();
        match wire.ask(&request).await? {
            200 => accepted.push(sent),
            401 => return Ok(accepted),
            status => return Err(format!("unexpected status {status}")),
        }
    }
    Err("a deleted key continues to work".to_owned())
}

/// Builds a request without a body.
fn request(method: &str, path: &str, address: SocketAddr, bearer: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {bearer}\r\n\r\n")
        .into_bytes()
}

/// A connection that returns statuses.
struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    /// Connects to a server.
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a request, reads the complete answer, and returns its status.
    async fn ask(&mut self, request: &[u8]) -> Result<u16, String> {
        self.stream.write_all(request).await.map_err(|error| error.to_string())?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await.map_err(|error| error.to_string())? == 0 {
                return Err("the server hung up".to_owned());
            }
            let text = String::from_utf8_lossy(&self.read);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
            let length = field("content-length: ").and_then(|length| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                return status.ok_or_else(|| format!("unexpected answer: {head}"));
            }
        }
    }
}
