//! Kills replicas repeatedly in the middle of streams through the gateway. Nothing may be counted twice, at
//! most a third of a reservation's lifetime may be lost of a stream, and the money of dead calls must be free
//! when their reservations have expired (docs/contract/gateway.md#what-a-killed-server-costs).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::billing::audit;
use tollkeeper::clock::Clock;
use tollkeeper::db::{Db, sql};

use support::chance::{Chance, first_seed, number};
use support::process::{Start, Wire};
use support::replicas::{Fleet, Replicas};
use support::upstream::{Received, Step, Upstream, end_of_body, event, piece, stream_head};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

const REPLICAS: usize = 3;
const CLIENTS: usize = 12;
/// The lifetime of reservations. Their progress is stored four times per lifetime.
const LIFETIME: Duration = Duration::from_secs(12);
/// Maximum length of the unpaid part of a stream. It is a third of the lifetime, which is 20 of 60 seconds by
/// default.
const MAX_GIVEN_AWAY: Duration = Duration::from_secs(4);
/// Maximum time until a replica sweeps expired reservations, on a busy machine.
const SWEEP: Duration = Duration::from_secs(8);
/// The time between two tokens from the upstream.
const TOKEN: Duration = Duration::from_millis(25);
const PROMPT_TOKENS: i64 = 9;

const CATALOG: &str = r#"
currency = "USD"

[[models]]
id = "chat-1"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
context_length = 5000
max_requests_per_min = 1000000
max_concurrent_requests = 1000000
prices = [
  { effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.00001" },
]
routes = [{ upstream = "engine" }]

[[upstreams]]
id = "engine"
kind = "vllm"
max_concurrent = 1000
"#;

/// Writes a catalog with this upstream. Returns the path of the file.
fn catalog(folder: &Folder, upstream: &Upstream) -> String {
    let file = folder.0.join("streams.toml");
    std::fs::write(&file, format!("{CATALOG}url = \"{}\"\n", upstream.url())).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Returns an answer that streams the requested number of tokens one after another.
fn answer(received: &Received) -> Vec<Step> {
    let tokens = received.body["max_tokens"].as_i64().unwrap();
    let chunk = |delta: Value, finish: Value, generated: i64| {
        event(&json!({
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": generated},
        }))
    };
    let mut steps = vec![stream_head()];
    for generated in 1..=tokens {
        steps.extend([chunk(json!({"content": "a"}), Value::Null, generated), Step::Pause(TOKEN)]);
    }
    steps.extend([chunk(json!({}), json!("stop"), tokens), piece("data: [DONE]\n\n"), end_of_body()]);
    steps
}

/// A stream, from its client's point of view.
struct SeenCall {
    id: String,
    /// The number of tokens that the client requested.
    tokens: i64,
    /// The time at which each token arrived.
    seen: Vec<Instant>,
    /// The time at which the connection broke, or `None` after `[DONE]`.
    broken_at: Option<Instant>,
}

/// Reads a stream until it ends or its connection breaks. Returns `None` without a head.
fn read_stream(stream: &mut BufReader<TcpStream>, tokens: i64) -> Option<SeenCall> {
    let mut line = String::new();
    let mut read = move |stream: &mut BufReader<TcpStream>| {
        line.clear();
        let has_line = stream.read_line(&mut line).is_ok_and(|count| count > 0);
        has_line.then(|| line.trim_end().to_owned())
    };
    let mut call = SeenCall { id: String::new(), tokens, seen: Vec::new(), broken_at: None };
    let status = read(stream)?;
    assert!(status.contains(" 200 ") || status.contains(" 503 "), "{status}");
    loop {
        let line = read(stream)?;
        if line.is_empty() {
            break;
        }
        if let Some(id) = line.strip_prefix("x-tollkeeper-call-id: ") {
            id.clone_into(&mut call.id);
        }
    }
    if !status.contains(" 200 ") {
        return None;
    }
    while let Some(line) = read(stream) {
        if line == "data: [DONE]" {
            return Some(call);
        }
        assert!(!line.contains("upstream_cut"), "{line}");
        if line.contains("\"content\":\"a\"") {
            call.seen.push(Instant::now());
        }
    }
    call.broken_at = Some(Instant::now());
    Some(call)
}

/// The calls of one client.
#[derive(Default)]
struct ClientCalls {
    calls: Vec<SeenCall>,
    /// Requests without an answer.
    lost: usize,
}

/// Requests streams from one replica after another.
fn stream_answers(
    addresses: &RwLock<Vec<SocketAddr>>,
    key: &str,
    over: &AtomicBool,
    number: usize,
) -> ClientCalls {
    let mut chance = Chance::new(500 + number as u64);
    let mut client = ClientCalls::default();
    let turn = AtomicUsize::new(number);
    while !over.load(Ordering::Relaxed) {
        let address = {
            let addresses = addresses.read().unwrap();
            addresses[turn.fetch_add(1, Ordering::Relaxed) % addresses.len()]
        };
        // A stream takes up to fifteen seconds.
        let tokens = 10 + chance.below(590);
        let body = json!({"model": "chat-1", "stream": true, "max_tokens": tokens,
                          "messages": [{"role": "user", "content": "hi"}]});
        let wire = Wire::new(address, "POST", "/v1/chat/completions").bearer(key).json(&body);
        let seen = wire.try_open().ok().map(|mut stream| read_stream(&mut stream, tokens as i64));
        match seen {
            Some(Some(call)) => client.calls.push(call),
            Some(None) => client.lost += 1,
            // No server is listening.
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    client
}

/// The charge for a call.
#[derive(Default)]
struct Charged {
    events: usize,
    prompt: i64,
    completion: i64,
}

fn charged_by_call(db: &Db) -> BTreeMap<String, Charged> {
    let rows: Vec<(String, i64, i64)> = runtime().block_on(async {
        sql("SELECT event_id, prompt_tokens, completion_tokens FROM usage_events WHERE source = 'gateway'")
            .all(&mut db.read().await.unwrap())
            .await
            .unwrap()
    });
    let mut charged: BTreeMap<String, Charged> = BTreeMap::new();
    for (event_id, prompt, completion) in rows {
        let id = event_id.split('.').next().unwrap().to_owned();
        let call = charged.entry(id).or_default();
        call.events += 1;
        call.prompt += prompt;
        call.completion += completion;
    }
    charged
}

fn count(db: &Db, text: &'static str) -> i64 {
    runtime().block_on(async {
        let (count,): (i64,) = sql(text).one(&mut db.read().await.unwrap()).await.unwrap();
        count
    })
}

/// Waits until no money is reserved. Returns the time since the end of all streams.
fn wait_until_free(db: &Db, ended_at: Instant) -> Duration {
    while count(db, "SELECT COUNT(*) FROM reservations") > 0 {
        assert!(ended_at.elapsed() < LIFETIME + SWEEP, "money is still held");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(count(db, "SELECT COUNT(*) FROM wallets WHERE reserved_nano <> 0"), 0);
    ended_at.elapsed()
}

/// Compares the charges with the clients' counts. Returns a summary.
fn assert_charged(db: &Db, clients: &[ClientCalls]) -> String {
    let mut charged = charged_by_call(db);
    let (mut whole, mut broken, mut swept, mut longest) = (0, 0, 0, Duration::ZERO);
    for call in clients.iter().flat_map(|client| &client.calls) {
        let Charged { events, prompt, completion } = charged.remove(&call.id).unwrap_or_default();
        let Some(broken_at) = call.broken_at else {
            assert_eq!((prompt, completion), (PROMPT_TOKENS, call.tokens), "{} in {events} events", call.id);
            whole += 1;
            continue;
        };
        broken += 1;
        swept += usize::from(events > 0);
        assert!(completion <= call.tokens && events <= 1, "{}: {completion} of {}", call.id, call.tokens);
        assert!(prompt == PROMPT_TOKENS || (prompt, completion) == (0, 0), "{}: {prompt}", call.id);
        // The first unpaid token arrived at most this long before the end.
        if let Some(first) = call.seen.get(usize::try_from(completion).unwrap()) {
            let given_away = broken_at.duration_since(*first);
            longest = longest.max(given_away);
            assert!(given_away <= MAX_GIVEN_AWAY, "{}: {given_away:?} of a stream are given away", call.id);
        }
    }
    let lost: usize = clients.iter().map(|client| client.lost).sum();
    assert!(charged.len() <= lost, "calls that were never made are charged: {:?}", charged.keys());
    format!(
        "{whole} whole streams, {broken} broken ones of which {swept} are charged, {lost} requests without an \
         answer; at most {longest:?} of a stream were given away"
    )
}

fn assert_books(start: &Start) {
    let drifts = runtime().block_on(async {
        let app = App::new(start.config(), Clock::System).unwrap();
        app.boot().await.unwrap();
        audit::check(&app.billing, None).await.unwrap().drifts
    });
    assert!(drifts.is_empty(), "{drifts:#?}");
}

fn kill_streams(url: Option<&str>, folder: &Folder) {
    let kills = number("TOLLKEEPER_TEST_KILLS").unwrap_or(10);
    let served = runtime();
    let upstream = served.block_on(Upstream::start());
    upstream.choose(answer);
    let lifetime = LIFETIME.as_secs().to_string();
    let replicas = Replicas::new(REPLICAS, url, folder)
        .set("TOLLKEEPER_CATALOG_FILE", &catalog(folder, &upstream))
        .set("TOLLKEEPER_BILLING__GATEWAY_RESERVATION_SECONDS", &lifetime)
        .set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000");
    let mut fleet = replicas.run();
    let ada = fleet.sign_up("ada");
    let place = fleet.settle(&ada, "Acme");
    let addresses = |fleet: &Fleet| fleet.servers.iter().map(|server| server.public).collect::<Vec<_>>();
    let (listening, over) = (RwLock::new(addresses(&fleet)), AtomicBool::new(false));
    let mut chance = Chance::new(first_seed());
    let clients: Vec<ClientCalls> = std::thread::scope(|scope| {
        let (listening, over, key) = (&listening, &over, place.key.as_str());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || stream_answers(listening, key, over, number)))
            .collect();
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(chance.below(4_000) as u64));
            let victim = chance.below(REPLICAS);
            assert_eq!(fleet.servers.remove(victim).kill().code, None, "it died by the signal");
            fleet.servers.insert(victim, replicas.starts[victim].run());
            *listening.write().unwrap() = addresses(&fleet);
        }
        // In the end all servers are killed while streams are open.
        over.store(true, Ordering::Relaxed);
        fleet.servers.drain(..).for_each(|server| drop(server.kill()));
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let ended_at = Instant::now();
    let db = Db::open(&replicas.starts[0].database_settings()).unwrap();
    assert!(count(&db, "SELECT COUNT(*) FROM reservations") > 0, "no stream was open");
    fleet.servers = replicas.starts.iter().map(Start::run).collect();
    let free_after = wait_until_free(&db, ended_at);
    let figures = assert_charged(&db, &clients);
    let backend = if url.is_some() { "postgres" } else { "sqlite" };
    println!("{backend}, {kills} kills: {figures}; all money was free {free_after:?} after the last kill");
    fleet.stop();
    assert_books(&replicas.starts[0]);
}

#[on_each_database]
fn killed_streams_are_charged_once_and_almost_whole(database: Database) {
    database.run_processes(kill_streams);
}
