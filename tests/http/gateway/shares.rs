//! No organization can use up a resource that all calls share (docs/operations.md#bounds): each of these
//! tests fills a limit from one organization, and calls from another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollkeeper::web::reply::Body;

use super::{Scene, with_upstream};
use support::http::{Answer, Call};
use support::upstream::{Step, event, json_answer, piece, stream, stream_head};
use support::{Database, on_each_database};

const MIB: usize = 1 << 20;

fn hello() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

/// Returns an API key of another user's organization.
async fn other_key(scene: &Scene) -> String {
    let bob = scene.world.user("bob").await;
    let place = scene.world.place(&bob, "other").await;
    scene.world.key(&bob, &place, &json!({"name": "k"})).await.1
}

fn chat_with(scene: &Scene, key: &str, body: &Value) -> Call {
    scene.world.clock.advance_ms(1);
    scene.world.post("/v1/chat/completions", body).bearer(key)
}

fn answer() -> Vec<Step> {
    let choice = json!({"index": 0, "message": {"content": "a"}, "finish_reason": "stop"});
    json_answer(200, &json!({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}))
}

fn chunk(finish: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": "four"}, "finish_reason": finish}]})
}

/// Returns the text of an answer that hasn't been read yet.
async fn read(answer: http::Response<Body>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Plain calls with an unused member of 16 MiB, which wait for their upstream.
#[on_each_database]
fn large_bodies_of_one_organization_leave_memory_for_others(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let permits = Arc::new(Semaphore::new(0));
        let waiting = Arc::clone(&permits);
        scene.upstream.choose(move |request| {
            let mut steps = answer();
            if request.body.get("metadata").is_some() {
                steps.insert(0, Step::AwaitPermit(Arc::clone(&waiting)));
            }
            steps
        });
        let other = other_key(scene).await;
        let mut large = hello();
        large["metadata"] = json!("j".repeat(16 * MIB - 1_000));
        let calls: FuturesUnordered<_> = (0..8).map(|_| scene.chat(&large).send()).collect();
        let mut calls = std::pin::pin!(calls);
        // A third of 256 MiB is enough for two of the bodies, because each is read and copied.
        let mut refused: Vec<Answer> = Vec::new();
        while refused.len() < 6 {
            refused.push(calls.next().await.unwrap());
        }
        for response in refused {
            assert_eq!(
                (response.status, response.code().as_str()),
                (503, "server_busy"),
                "{}",
                response.text
            );
        }
        for _ in 0..5 {
            let response = chat_with(scene, &other, &hello()).send().await;
            assert_eq!(response.status, 200, "{}", response.text);
        }
        permits.add_permits(100);
        while let Some(response) = calls.next().await {
            assert_eq!(response.status, 200, "{}", response.text);
        }
    });
}

/// A place is free once the upstream has ended its answer, regardless of how slowly the client reads it.
#[on_each_database]
fn place_of_a_slow_reader_is_free_once_the_upstream_has_ended(database: Database) {
    with_upstream(database, "vllm", "max_concurrent = 1\nmax_wait_ms = 30000\n", async |scene| {
        // More pieces than are buffered for a client, each sent separately.
        let mut slow = vec![stream_head()];
        for _ in 0..50 {
            slow.extend([event(&chunk(Value::Null)), Step::Pause(Duration::from_millis(2))]);
        }
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 51}});
        let last = stream(&[chunk(json!("stop")), usage]);
        slow.extend(last.into_iter().skip(1));
        scene.upstream.choose(move |request| match request.body.get("seed") {
            Some(_) => slow.clone(),
            None => answer(),
        });
        let other = other_key(scene).await;
        let mut body = hello();
        body["stream"] = json!(true);
        body["seed"] = json!(1);
        // The client gets the head of the answer, but doesn't read the body.
        let unread = scene.chat(&body).open().await;
        assert_eq!(unread.status(), 200);
        let response = timeout(Duration::from_secs(60), chat_with(scene, &other, &hello()).send()).await;
        assert_eq!(response.unwrap().status, 200);
        // No event is lost, and the whole answer is charged.
        let text = read(unread).await;
        assert_eq!(text.matches("\"four\"").count(), 51, "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert_eq!(scene.used().await.iter().map(|used| used.1).sum::<i64>(), 52);
    });
}

/// If a client doesn't read an answer that is longer than its buffer, the upstream has to wait, and no more
/// memory is used.
#[on_each_database]
fn unread_stream_is_kept_up_to_a_bound(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let words = "w".repeat(64 * 1024);
        let long = json!({"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": null}]});
        let mut steps = vec![stream_head()];
        steps.extend((0..64).map(|_| event(&long)));
        steps.extend([event(&chunk(json!("stop"))), piece("data: [DONE]\n\n")]);
        steps.extend(stream(&[]).into_iter().next_back());
        scene.upstream.choose(move |_| steps.clone());
        let mut body = hello();
        body["stream"] = json!(true);
        let unread = scene.chat(&body).open().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(scene.world.app.gateway.open_calls(), 1, "it hasn't been read to its end");
        let text = read(unread).await;
        assert_eq!(text.matches(&words).count(), 64);
        assert!(text.ends_with("data: [DONE]\n\n"));
    });
}
