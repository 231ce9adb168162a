//! Clients that disconnect from a real llama.cpp after a random number of events. The charged tokens are
//! compared with the generated ones, as counted by llama.cpp.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tollkeeper::db::{Db, Settings, sql};
use tollkeeper::random::Random;

use super::line::Line;
use crate::report;
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::tenant;

/// The scripts of the test suite.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/llamacpp");
/// Each layer slows the model down: about 4 ms per token for four parallel streams on one core.
const LAYERS: &str = "8";
/// The number of slots of llama.cpp.
const CLIENTS: u32 = 4;
/// Maximum number of tokens of a complete answer.
const MAX_TOKENS: u32 = 200;
/// Maximum time until all calls are settled.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A running llama.cpp, which exits when its pipe closes.
struct LlamaCpp {
    address: SocketAddr,
    process: Child,
    commands: Option<ChildStdin>,
}

impl LlamaCpp {
    /// Creates a small model and serves it.
    fn start(python: &Path, folder: &Path) -> Result<Self, String> {
        let model = folder.join("tiny.gguf");
        let script = |name: &str| {
            let mut command = Command::new(python);
            command.arg(format!("{SCRIPTS}/{name}")).arg(&model);
            command
        };
        let made = script("make_gguf.py").arg(LAYERS).status().map_err(|error| error.to_string())?;
        if !made.success() {
            return Err("the model can't be created: run `pip install gguf xllamacpp`".to_owned());
        }
        // Low priority, because llama.cpp computes continuously. Otherwise, on two cores, the gateway and the
        // clients would wait for it, and it would generate more tokens after clients have disconnected.
        let mut server = Command::new("nice");
        server.args(["-n", "19"]).arg(python).arg(format!("{SCRIPTS}/serve.py")).arg(&model);
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = server.spawn().map_err(|error| error.to_string())?;
        let (commands, output) = (process.stdin.take(), process.stdout.take());
        let mut line = String::new();
        let mut output = BufReader::new(output.ok_or("llama.cpp has no output")?);
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
        let address = address.ok_or_else(|| format!("unexpected output of llama.cpp: {line:?}"))?;
        Ok(Self { address, process, commands })
    }

    /// Returns the number of generated tokens, once llama.cpp is idle.
    async fn generated(&self) -> Result<u64, String> {
        while self.metric("requests_processing").await? > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.metric("tokens_predicted_total").await
    }

    async fn metric(&self, name: &str) -> Result<u64, String> {
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        let mut line = Line::open(self.address).await?;
        line.call(request.as_bytes()).await?;
        let (text, prefix) = (line.whole_text(), format!("llamacpp:{name} "));
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        // From one million on, the value has six digits and an exponent.
        let value = value.and_then(|value| value.trim().parse::<f64>().ok());
        let value = value.and_then(|value| format!("{value:.0}").parse().ok());
        value.ok_or_else(|| format!("no {name}: {text}"))
    }
}

impl Drop for LlamaCpp {
    fn drop(&mut self) {
        drop(self.commands.take());
        // The process may already have exited, in which case nothing is left to do.
        drop(self.process.wait());
    }
}

/// Tokens of usage events.
struct Charged {
    events: u64,
    tokens: u64,
    estimated: u64,
}

async fn charged(db: &Db) -> Result<Charged, String> {
    let text = "SELECT COUNT(*) AS events, COALESCE(SUM(completion_tokens), 0) AS tokens,
                       COALESCE(SUM(estimated), 0) AS estimated
                FROM usage_events WHERE source = 'gateway'";
    let mut tx = db.read().await.map_err(|error| error.to_string())?;
    let sums: (i64, i64, i64) = sql(text).one(&mut tx).await.map_err(|error| error.to_string())?;
    let [events, tokens, estimated] = [sums.0, sums.1, sums.2].map(i64::unsigned_abs);
    Ok(Charged { events, tokens, estimated })
}

/// Lets this number of clients disconnect, and prints what they are charged.
pub async fn run(
    python: &Path,
    disconnects: u32,
    program: &Path,
    log: &Path,
    cores: Cores,
) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(7)?;
    let engine = LlamaCpp::start(python, &place)?;
    let upstream = format!(
        "[[upstreams]]\nid = \"stub\"\nkind = \"llamacpp\"\nurl = \"http://{}/v1\"\nmax_concurrent = {CLIENTS}\n",
        engine.address
    );
    std::fs::write(place.join("tollkeeper.toml"), super::SETTINGS).map_err(|error| error.to_string())?;
    let service = Tollkeeper::behind(cores.of_servers(program), &place, "sqlite", log, &upstream).await?;
    let (_, key) = tenant::keeper(service.public).await?.key("the first").await?;
    let asked = Asked { address: service.public, key: Some(key), model: "svc-1" };
    let (begin, before) = (Instant::now(), engine.generated().await?);
    let Left { complete, received } = leave(asked, disconnects).await?;
    let settings = Settings::Sqlite { path: place.join("tollkeeper.db") };
    let db = Db::open(&settings).map_err(|error| error.to_string())?;
    let settled = Instant::now();
    while charged(&db).await?.events < u64::from(disconnects) {
        if settled.elapsed() > SETTLE_TIMEOUT {
            return Err(format!("{} of {disconnects} calls are settled", charged(&db).await?.events));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let generated = engine.generated().await? - before;
    print(disconnects, &Left { complete, received }, &charged(&db).await?, generated, begin.elapsed());
    // The same without a gateway, in which case only llama.cpp counts the tokens.
    let (count, before) = (disconnects.div_ceil(10), engine.generated().await?);
    let asked = Asked { address: engine.address, key: None, model: "tiny" };
    let Left { complete, received } = leave(asked, count).await?;
    let generated = engine.generated().await? - before;
    report::print(format_args!(
        "Without a gateway, {count} streams: {received} tokens were received of {generated} generated: {:.4}.\n\
         {:.2} tokens of each abandoned stream were not received.",
        as_f64(received) / as_f64(generated),
        missing(generated, received, count - complete)
    ));
    Ok(())
}

/// The target of the calls.
#[derive(Clone)]
struct Asked {
    address: SocketAddr,
    key: Option<String>,
    model: &'static str,
}

/// The number of streams read to the end, and the sum of generated tokens that llama.cpp reported to the
/// clients.
#[derive(Default)]
struct Left {
    complete: u32,
    received: u64,
}

/// Makes calls repeatedly, and disconnects during each of them.
async fn leave(asked: Asked, disconnects: u32) -> Result<Left, String> {
    let left = Arc::new(AtomicU32::new(disconnects));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (left, asked) = (Arc::clone(&left), asked.clone());
        clients.spawn(async move {
            let random = Random::system();
            let take = |left: u32| left.checked_sub(1);
            let mut sums = Left::default();
            while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                // If the number exceeds the number of events, the client reads the stream to the end.
                let drawn = u16::from_le_bytes(random.bytes::<2>());
                let events = 1 + usize::from(drawn) % 220;
                let mut line = Line::open(asked.address).await?;
                line.begin(&request(&asked, number), events).await?;
                line.take_arrived();
                sums.complete += u32::from(line.has("[DONE]"));
                sums.received += predicted(&line.whole_text());
            }
            Ok::<_, String>(sums)
        });
    }
    let mut sums = Left::default();
    while let Some(client) = clients.join_next().await {
        let one = client.map_err(|error| error.to_string())??;
        sums.complete += one.complete;
        sums.received += one.received;
    }
    Ok(sums)
}

/// Returns the last number of generated tokens reported in a stream.
fn predicted(text: &str) -> u64 {
    let last = text.rsplit_once("\"predicted_n\":").map_or("", |(_, rest)| rest);
    let digits = last.split(|next: char| !next.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn request(asked: &Asked, seed: u32) -> Vec<u8> {
    let body = json!({"model": asked.model, "messages": [{"role": "user", "content": "hi there"}],
        "max_tokens": MAX_TOKENS, "temperature": 1, "seed": seed, "stream": true, "timings_per_token": true});
    crate::wire::request("POST", "/v1/chat/completions", asked.address, asked.key.as_deref(), Some(&body))
}

/// Returns the number of tokens per abandoned stream that the client didn't receive.
fn missing(generated: u64, seen: u64, streams: u32) -> f64 {
    (as_f64(generated) - as_f64(seen)) / f64::from(streams.max(1))
}

fn print(disconnects: u32, left: &Left, charged: &Charged, generated: u64, took: Duration) {
    let share = as_f64(charged.tokens) / as_f64(generated);
    report::print(format_args!(
        "\nA real llama.cpp: {disconnects} streams, {} of which were abandoned after a random number of events; {:.0} s.\n\
         The clients received {} tokens; {} events with {} tokens are charged ({} estimated); llama.cpp has\n\
         generated {generated}: {share:.4}.\n\
         {:.2} tokens of each abandoned stream are not charged.",
        disconnects - left.complete,
        took.as_secs_f64(),
        left.received,
        charged.events,
        charged.tokens,
        charged.estimated,
        missing(generated, charged.tokens, disconnects - left.complete)
    ));
}

fn as_f64(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
