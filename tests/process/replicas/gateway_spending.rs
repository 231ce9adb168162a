//! A small balance and more gateway clients than it pays for, which call all replicas at the same time.

use std::io::Read;

use serde_json::{Value, json};

use support::chance::number;
use support::process::Wire;
use support::replicas::{Fleet, Replicas};
use support::upstream::{Received, Step, Upstream, json_answer, stream};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

const CLIENTS: u64 = 64;

/// The cost of a call in nano, which is also its reservation: 100 x 0.000001 and 10 x 0.00001.
const CALL_NANO: u64 = 200_000;
const CATALOG: &str = r#"
currency = "USD"

[[models]]
id = "chat-1"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 10
context_length = 100
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

/// Returns an answer of the maximum length.
fn answer(received: &Received) -> Vec<Step> {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    let choice = |part: &str| json!([{"index": 0, part: {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]);
    if received.body["stream"] == true {
        return stream(&[json!({"choices": choice("delta"), "usage": usage})]);
    }
    json_answer(200, &json!({"choices": choice("message"), "usage": usage}))
}

/// Makes calls until no money is left. Returns the number of answers.
fn spend(fleet: &Fleet, key: &str, client: u64) -> u64 {
    for answers in 0.. {
        // The text is longer than the context, so the whole context is reserved.
        let text = "word ".repeat(40);
        let body = json!({"model": "chat-1", "stream": (client + answers).is_multiple_of(2),
                          "messages": [{"role": "user", "content": text}]});
        let wire = Wire::new(fleet.next().public, "POST", "/v1/chat/completions").bearer(key).json(&body);
        let mut answer = String::new();
        wire.open().read_to_string(&mut answer).unwrap();
        let (head, rest) = answer.split_once("\r\n\r\n").unwrap();
        if !head.contains(" 200 ") {
            assert!(head.contains(" 402 ") && rest.contains("insufficient_quota"), "{answer}");
            return answers;
        }
        assert!(rest.contains("\"content\":\"a\""), "{answer}");
    }
    0
}

fn spend_exactly(count: usize, url: Option<&str>, folder: &Folder) {
    // The amount must be in whole cents: 500 calls cost 0.10.
    let calls = number("TOLLKEEPER_TEST_CALLS").unwrap_or(500);
    assert!(calls.is_multiple_of(50), "TOLLKEEPER_TEST_CALLS is a multiple of 50");
    let cents = calls * CALL_NANO / 10_000_000;
    let served = runtime();
    let upstream = served.block_on(Upstream::start());
    upstream.choose(answer);
    let file = folder.0.join("catalog.toml");
    std::fs::write(&file, format!("{CATALOG}url = \"{}\"\n", upstream.url())).unwrap();
    let replicas = Replicas::new(count, url, folder)
        .set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())
        .set("TOLLKEEPER_LIMITS__ENABLED", "false")
        .set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0");
    let fleet = replicas.run();
    let ada = fleet.sign_up("ada");
    let place = fleet.settle(&ada, "Acme");
    assert_eq!(spend(&fleet, &place.key, 0), 0, "it is prepaid");
    let amount = format!("{}.{:02}", cents / 100, cents % 100);
    let credit =
        ["credit", "add", "--organization", place.organization(), "--amount", &amount, "--reference", "p"];
    let added = replicas.starts[0].command(&credit);
    assert_eq!(added.code, Some(0), "{}", added.log);

    let answers: u64 = std::thread::scope(|scope| {
        let (fleet, key) = (&fleet, place.key.as_str());
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || spend(fleet, key, client))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(answers, calls, "each call that is paid for, and no other");
    let path = format!("/v1/organizations/{}/billing/summary", place.organization());
    let summary: Value = fleet.get(&path).bearer(&ada.access_token).data();
    let balance = &summary["balance"];
    assert_eq!((balance["available"].as_f64(), balance["reserved"].as_f64()), (Some(0.0), Some(0.0)));
    assert_eq!(fleet.next().requests(&place, &ada), i64::try_from(calls).unwrap());
    fleet.stop();
    let audit = replicas.starts[0].command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
}

/// Two replicas run on PostgreSQL, and one on SQLite.
#[on_each_database]
fn balance_pays_for_no_call_too_many(database: Database) {
    database.run_processes(|url, folder| spend_exactly(if url.is_some() { 2 } else { 1 }, url, folder));
}
