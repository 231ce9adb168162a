//! The database temporarily refuses writes to one of the tables: no write is done in part, and afterward each
//! call is settled exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::credits::{self, NewCredit};
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::db::sql;
use tollkeeper::ids::OrganizationId;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;
use tollkeeper::web::reply::Body;

use super::counters::lines;
use super::{Scene, with_upstream};
use support::books::{assert_books, number, wallet};
use support::refusals::{accept_writes, refuse_writes};
use support::upstream::{Received, Step, end_of_body, event, json_answer, piece, stream_head};
use support::{Database, on_each_database};

/// The tables that a call writes at its start and at its end.
const WRITTEN_AT_THE_START: [&str; 2] = ["reservations", "wallets"];
/// The tables that a call writes only at its end.
const WRITTEN_AT_THE_END: [&str; 9] = [
    "usage_events",
    "usage_daily",
    "usage_daily_sums",
    "usage_totals",
    "ledger_transactions",
    "ledger_entries",
    "credits",
    "credit_uses",
    "calls",
];

const RESERVATIONS: &str = "SELECT COUNT(*) FROM reservations";

/// Counts and sums of all rows that the ends of calls have written so far.
const BOOKED: [&str; 9] = [
    "SELECT COUNT(*) FROM usage_events",
    "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) FROM usage_daily",
    "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) FROM usage_daily_sums",
    "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) FROM usage_totals",
    "SELECT COUNT(*) FROM ledger_transactions",
    "SELECT COUNT(*) FROM ledger_entries",
    "SELECT CAST(SUM(remaining_nano) AS BIGINT) FROM credits",
    "SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM credit_uses",
    "SELECT CAST(SUM(posted_nano) AS BIGINT) FROM wallets",
];

fn word(generated: i64) -> Step {
    event(&json!({
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated},
    }))
}

fn end(generated: i64) -> [Step; 3] {
    let last = json!({
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated},
    });
    [event(&last), piece("data: [DONE]\n\n"), end_of_body()]
}

/// Answers a call according to the name in its message. Each answer waits for a permit before its end, except
/// for `new`.
fn answer(received: &Received, permits: &Arc<Semaphore>) -> Vec<Step> {
    let permit = Step::AwaitPermit(Arc::clone(permits));
    match received.body["messages"][0]["content"].as_str().unwrap() {
        "good" => [vec![stream_head(), word(1), word(2), permit, word(3)], end(3).to_vec()].concat(),
        "left" => vec![stream_head(), word(1), word(2), Step::AwaitClose],
        "plain" => {
            let choice = json!({"index": 0, "message": {"content": "a"}, "finish_reason": "stop"});
            let usage = json!({"prompt_tokens": 9, "completion_tokens": 5});
            [vec![permit], json_answer(200, &json!({"choices": [choice], "usage": usage}))].concat()
        }
        "failed" => [vec![permit], json_answer(500, &json!({}))].concat(),
        "new" => [vec![stream_head(), word(1)], end(1).to_vec()].concat(),
        other => panic!("{other}"),
    }
}

fn body(name: &str) -> Value {
    let is_stream = !["plain", "failed"].contains(&name);
    json!({"model": "chat-1", "messages": [{"role": "user", "content": name}], "stream": is_stream})
}

/// A client that reads a stream.
struct Client {
    call_id: String,
    stream: Body,
    text: String,
}

impl Client {
    async fn begin(scene: &Scene, name: &str) -> Self {
        let response = scene.chat(&body(name)).open().await;
        assert_eq!(response.status(), 200);
        let call_id = response.headers()["x-tollkeeper-call-id"].to_str().unwrap().to_owned();
        Self { call_id, stream: response.into_body(), text: String::new() }
    }

    /// Reads the next piece; `false` at the end.
    async fn read(&mut self) -> bool {
        let next = timeout(Duration::from_secs(30), self.stream.frame()).await.expect("the stream continues");
        let Some(frame) = next else { return false };
        self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        true
    }

    async fn read_words(&mut self, count: usize) {
        while self.text.matches("\"content\":\"a\"").count() < count {
            assert!(self.read().await, "{}", self.text);
        }
    }

    /// Checks that every word arrives, but the end doesn't.
    async fn assert_waits(&mut self, words: usize) {
        self.read_words(words).await;
        let all = async { while self.read().await {} };
        assert!(timeout(Duration::from_millis(200), all).await.is_err(), "{}", self.text);
        assert!(!self.text.contains("[DONE]"), "{}", self.text);
    }

    async fn assert_ends_well(mut self) {
        while self.read().await {}
        assert!(self.text.ends_with("data: [DONE]\n\n"), "{}", self.text);
    }
}

/// Waits until money is reserved for this many calls.
async fn until_reserved(scene: &Scene, count: i64) {
    for _ in 0..800 {
        if number(&scene.world, RESERVATIONS).await == count {
            return;
        }
        sleep(Duration::from_millis(25)).await;
    }
    panic!("{} reservations", number(&scene.world, RESERVATIONS).await);
}

/// Waits until this many more transactions of the books have failed. Each call that has ended is retried.
async fn until_failed(scene: &Scene, before: u64, more: u64) {
    let failed = || scene.world.app.billing.metrics.books.failed.get();
    for _ in 0..800 {
        if failed() >= before + more {
            return;
        }
        sleep(Duration::from_millis(25)).await;
    }
    panic!("{} transactions have failed", failed() - before);
}

async fn booked(scene: &Scene) -> Vec<i64> {
    let mut all = Vec::new();
    for text in BOOKED {
        all.push(number(&scene.world, text).await);
    }
    all
}

/// Returns the usage events of the gateway by the ids of their calls.
async fn events(scene: &Scene) -> BTreeMap<String, (i64, i64)> {
    let text = "SELECT event_id, prompt_tokens, completion_tokens FROM usage_events WHERE source = 'gateway'";
    let rows: Vec<(String, i64, i64)> =
        sql(text).all(&mut scene.world.app.db.read().await.unwrap()).await.unwrap();
    rows.into_iter().map(|(id, prompt, completion)| (id, (prompt, completion))).collect()
}

/// Makes calls that end, and a call that begins, while this table can't be written. Returns the tokens of
/// each call, and the cost of all calls in nano.
async fn make_calls(scene: &Scene, permits: &Semaphore, table: &str) -> (BTreeMap<String, (i64, i64)>, i64) {
    let can_begin = !WRITTEN_AT_THE_START.contains(&table);
    let mut good = Client::begin(scene, "good").await;
    let mut left = Client::begin(scene, "left").await;
    good.read_words(2).await;
    left.read_words(2).await;
    let plain = tokio::spawn(scene.chat(&body("plain")).send());
    let failed = tokio::spawn(scene.chat(&body("failed")).send());
    until_reserved(scene, 4).await;
    let (before, failures) = (booked(scene).await, scene.world.app.billing.metrics.books.failed.get());

    refuse_writes(&scene.world, table).await;
    permits.add_permits(3);
    let left_id = left.call_id.clone();
    drop(left);
    let failed = failed.await.unwrap();
    assert_eq!((failed.status, failed.code().as_str()), (502, "upstream_failed"), "{table}: {}", failed.text);
    let mut new = None;
    if can_begin {
        new = Some(Client::begin(scene, "new").await);
    } else {
        let refused = scene.chat(&body("new")).send().await;
        assert_eq!((refused.status, refused.code().as_str()), (500, "internal_error"), "{}", refused.text);
        assert_eq!(refused.header("x-tollkeeper-call-id"), "");
    }
    until_failed(scene, failures, 12).await;
    good.assert_waits(3).await;
    if let Some(new) = &mut new {
        new.assert_waits(1).await;
    }
    assert!(!plain.is_finished(), "{table}: a plain answer before its call is settled");
    assert_eq!(booked(scene).await, before, "{table}: something is booked");
    // The fourth reservation is that of the new call, or that of the failed call, which can't be released.
    assert_eq!(number(&scene.world, RESERVATIONS).await, 4, "{table}");
    assert_books(&scene.world).await;

    accept_writes(&scene.world, table).await;
    // The 9 tokens of a prompt cost 9,000 nano, and each token of an answer costs 10,000.
    let mut tokens = BTreeMap::from([(good.call_id.clone(), (9, 3)), (left_id, (9, 2))]);
    let mut cost = 39_000 + 29_000 + 59_000;
    good.assert_ends_well().await;
    let plain = plain.await.unwrap();
    assert_eq!(plain.status, 200, "{}", plain.text);
    tokens.insert(plain.header("x-tollkeeper-call-id").to_owned(), (9, 5));
    if let Some(new) = new {
        tokens.insert(new.call_id.clone(), (9, 1));
        cost += 19_000;
        new.assert_ends_well().await;
    } else {
        until_reserved(scene, 1).await;
        scene.world.clock.advance_ms(61_000);
        assert_eq!(expire_due(&scene.world.app.billing).await.unwrap(), 1);
    }
    scene.assert_settled().await;
    (tokens, cost)
}

/// Adds a credit of 1 USD, from which calls are paid.
async fn buy_credit(scene: &Scene) {
    let new = NewCredit {
        organization_id: OrganizationId::parse(&scene.place.organization).unwrap(),
        amount: Nano::parse("1").unwrap(),
        reference: "payment 1".to_owned(),
        is_grant: false,
        expires_at: None,
    };
    credits::add(&scene.world.app.billing, &new, &Trail::operator()).await.unwrap();
}

#[on_each_database]
fn calls_are_settled_once_the_database_takes_them(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let permits = Arc::new(Semaphore::new(0));
        scene.upstream.choose({
            let permits = Arc::clone(&permits);
            move |received: &Received| answer(received, &permits)
        });
        buy_credit(scene).await;
        let (mut tokens, mut balance) = (BTreeMap::new(), 1_000_000_000);
        for table in WRITTEN_AT_THE_START.into_iter().chain(WRITTEN_AT_THE_END) {
            let (called, cost) = make_calls(scene, &permits, table).await;
            tokens.extend(called);
            balance -= cost;
            assert_eq!(events(scene).await, tokens, "{table}");
            assert_eq!(wallet(&scene.world, &scene.place.organization).await, (balance, 0), "{table}");
        }
        // Three calls for each of two tables, and four calls for each of nine tables.
        assert_eq!((tokens.len(), balance), (42, 1_000_000_000 - 2 * 127_000 - 9 * 146_000));
        let report = audit::check(&scene.world.app.billing, None).await.unwrap();
        assert!(report.drifts.is_empty(), "{:#?}", report.drifts);
        let counted = lines(scene).await;
        for line in [
            "tollkeeper_gateway_calls_open 0",
            "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"client_left\"} 11",
            "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"completed\"} 31",
            "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"failed\"} 11",
            "tollkeeper_gateway_tokens_total{kind=\"completion\",model=\"chat-1\"} 119",
            "tollkeeper_gateway_tokens_total{kind=\"prompt\",model=\"chat-1\"} 378",
        ] {
            assert!(counted.iter().any(|counted| counted == line), "{line} isn't among {counted:#?}");
        }
    });
}

/// Calls write only the tables that are listed above.
#[on_each_database]
fn calls_write_no_other_table(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let permits = Arc::new(Semaphore::new(100));
        scene.upstream.choose(move |received: &Received| answer(received, &permits));
        buy_credit(scene).await;
        let tables = match scene.world.backend {
            "sqlite" => "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
            _ => "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()",
        };
        let tables: Vec<(String,)> =
            sql(tables).all(&mut scene.world.app.db.read().await.unwrap()).await.unwrap();
        // The log of calls gives each name its number once.
        let written = [&WRITTEN_AT_THE_START[..], &WRITTEN_AT_THE_END[..], &["call_names"]].concat();
        for (table,) in tables.iter().filter(|(table,)| !written.contains(&table.as_str())) {
            refuse_writes(&scene.world, table).await;
        }
        assert!(tables.len() > 20, "{tables:?}");
        for name in ["good", "new"] {
            Client::begin(scene, name).await.assert_ends_well().await;
        }
        let mut left = Client::begin(scene, "left").await;
        left.read_words(2).await;
        drop(left);
        assert_eq!(scene.chat(&body("plain")).send().await.status, 200);
        assert_eq!(scene.chat(&body("failed")).send().await.status, 502);
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(9, 3), (9, 1), (9, 2), (9, 5)]);
    });
}
