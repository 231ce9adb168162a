//! No organization can use up a resource that all calls share (docs/operations.md#bounds): each of these
//! tests fills a limit from one organization, and calls from another.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollkeeper::web::reply::Body;

use super::{Scene, with_settings, with_upstream};
use support::http::{Answer, Call};
use support::upstream::{Step, Upstream, event, json_answer, piece, stream, stream_head};
use support::{Database, on_each_database};

const MIB: usize = 1 << 20;
/// Pieces of 64 KiB of a long stream.
const PIECES: usize = 40;

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
        // A third of 256 MiB is enough for at most two of the bodies, because each is read and copied.
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
        // The copy of the second one doesn't fit if a refused body still had its memory.
        let mut answered = 0;
        while let Some(response) = calls.next().await {
            assert!(matches!(response.status, 200 | 503), "{}", response.text);
            answered += i32::from(response.status == 200);
        }
        assert!(answered >= 1);
    });
}

/// The copy of a prompt whose tokens an upstream counts takes memory, too. Without it the count is an estimate.
#[on_each_database]
fn counts_of_large_prompts_take_memory_of_their_organization(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let permits = Arc::new(Semaphore::new(0));
        let waiting = Arc::clone(&permits);
        scene.upstream.choose(move |request| match request.head[0].contains("count_tokens") {
            true => json_answer(200, &json!({"input_tokens": 42})),
            false => [vec![Step::AwaitPermit(Arc::clone(&waiting))], answer()].concat(),
        });
        let other = other_key(scene).await;
        let mut large = hello();
        large["metadata"] = json!("j".repeat(16 * MIB - 1_000));
        // Two calls have two thirds of what one key gets, with their copies.
        let calls = futures_util::future::join_all((0..2).map(|_| scene.chat(&large).send()));
        let counts = async {
            while scene.upstream.received().len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let count = async |key: &str| {
                scene.world.clock.advance_ms(1);
                let call = scene.world.post("/v1/messages/count_tokens", &large).bearer(key);
                let response = call.send().await;
                assert_eq!(response.status, 200, "{}", response.text);
                response.header("x-tollkeeper-estimated") == "true"
            };
            assert!(count(&scene.key).await, "no memory is available for its copy");
            assert!(!count(&other).await, "another organization has enough memory");
            permits.add_permits(2);
        };
        let (calls, ()) = tokio::join!(calls, counts);
        assert!(calls.iter().all(|response| response.status == 200));
    });
}

/// A place is free once the upstream has ended its answer, however slowly the client reads it.
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

/// A client that reads nothing of an answer longer than its buffer holds up the upstream, but uses no more memory. The
/// same answer is read twice by others meanwhile: without a bound, it would have been read to its end before.
#[on_each_database]
fn unread_stream_is_kept_up_to_a_bound(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let words = "w".repeat(64 * 1024);
        let long = json!({"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": null}]});
        let mut steps = vec![stream_head()];
        steps.extend((0..PIECES).map(|_| event(&long)));
        steps.extend([event(&chunk(json!("stop"))), piece("data: [DONE]\n\n")]);
        steps.extend(stream(&[]).into_iter().next_back());
        scene.upstream.choose(move |_| steps.clone());
        let other = other_key(scene).await;
        let mut body = hello();
        body["stream"] = json!(true);
        let unread = scene.chat(&body).open().await;
        for _ in 0..2 {
            let response = chat_with(scene, &other, &body).send().await;
            assert_eq!(response.text.matches(&words).count(), PIECES);
        }
        // A call is charged when its upstream has been read, whether or not its client has taken everything.
        assert_eq!(scene.used().await.len(), 2, "the answer was read completely");
        let text = read(unread).await;
        assert_eq!(text.matches(&words).count(), PIECES);
        assert!(text.ends_with("data: [DONE]\n\n"));
        assert_eq!(scene.used().await.len(), 3);
    });
}

/// Waits until this many calls aren't settled.
async fn open_calls(scene: &Scene, count: usize) {
    let reached = async {
        while scene.world.app.gateway.open_calls() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let open = || scene.world.app.gateway.open_calls();
    assert!(timeout(Duration::from_secs(60), reached).await.is_ok(), "{} calls are open", open());
}

/// Opens a stream, reads its first event, and leaves.
async fn leave(scene: &Scene, key: &str, body: &Value) {
    let mut stream = chat_with(scene, key, body).open().await.into_body();
    assert!(stream.frame().await.unwrap().is_ok());
}

/// Streams that were left keep their places until the upstream has counted them. However many an organization leaves, an
/// eighth of the places stays free for others, whose streams are read to their ends as well.
#[on_each_database]
fn streams_that_one_organization_leaves_keep_no_other_one_out(database: Database) {
    let more = "max_concurrent = 8\nmax_wait_ms = 60000\n";
    with_upstream(database, "openai", more, async |scene| {
        let [hers, his] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        let gates = [Arc::clone(&hers), Arc::clone(&his)];
        scene.upstream.choose(move |request| {
            let Some(gate) = request.body["seed"].as_u64() else { return answer() };
            let gate = Arc::clone(&gates[usize::try_from(gate).unwrap()]);
            let mut steps = vec![stream_head(), event(&chunk(Value::Null)), Step::AwaitPermit(gate)];
            let usage = json!({"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 705}});
            steps.extend(stream(&[chunk(json!("stop")), usage]).into_iter().skip(1));
            steps
        });
        let bob = other_key(scene).await;
        assert_eq!(chat_with(scene, &bob, &hello()).send().await.status, 200);
        let mut left = hello();
        left["stream"] = json!(true);
        left["seed"] = json!(0);
        for _ in 0..7 {
            leave(scene, &scene.key, &left).await;
        }
        open_calls(scene, 7).await;
        // The eighth place isn't for the same organization.
        let mut eighth = std::pin::pin!(scene.chat(&hello()).send());
        assert!(timeout(Duration::from_millis(300), &mut eighth).await.is_err());
        for _ in 0..5 {
            let response = timeout(Duration::from_secs(60), chat_with(scene, &bob, &hello()).send()).await;
            assert_eq!(response.unwrap().status, 200);
        }
        // His stream isn't cheaper because of hers.
        left["seed"] = json!(1);
        leave(scene, &bob, &left).await;
        his.add_permits(1);
        open_calls(scene, 8).await;
        let mut used = scene.used().await;
        used.sort_unstable();
        assert_eq!(used, [vec![(1, 1); 6], vec![(900, 705)]].concat());
        hers.add_permits(7);
        assert_eq!(eighth.await.status, 200);
        open_calls(scene, 0).await;
        let mut used = scene.used().await;
        used.sort_unstable();
        assert_eq!(used, [vec![(1, 1); 7], vec![(900, 705); 8]].concat());
    });
}

/// Serves images. Those below `/slow` need a permit each, and are counted while they wait.
async fn image_server(permits: Arc<Semaphore>, waiting: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (permits, waiting) = (Arc::clone(&permits), Arc::clone(&waiting));
            tokio::spawn(async move {
                let mut request = [0; 4_096];
                let length = stream.read(&mut request).await.unwrap_or(0);
                if request[..length].starts_with(b"GET /slow") {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    permits.acquire().await.unwrap().forget();
                }
                let answer =
                    b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 4\r\n\r\n\x89PNG";
                stream.write_all(answer).await.ok();
            });
        }
    });
    url
}

/// A call with four images below this address.
fn with_images(url: &str) -> Value {
    let image = |number: usize| json!({"type": "image_url", "image_url": {"url": format!("{url}/{number}")}});
    let images: Vec<_> = (0..4).map(image).collect();
    json!({"model": "chat-1", "messages": [{"role": "user", "content": images}]})
}

/// Images of a server that doesn't answer.
#[on_each_database]
fn slow_media_of_one_organization_leave_places_for_others(database: Database) {
    let settings = [("TOLLKEEPER_GATEWAY__ALLOW_PRIVATE_MEDIA", "true")];
    let describe = |upstream: &Upstream| {
        let table =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        ("routes = [{ upstream = \"engine\" }]".to_owned(), table)
    };
    with_settings(database, &settings, describe, async |scene| {
        scene.upstream.choose(|_| answer());
        let other = other_key(scene).await;
        let (permits, waiting) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let url = image_server(Arc::clone(&permits), Arc::clone(&waiting)).await;
        let slow = |call: usize| scene.chat(&with_images(&format!("{url}/slow/{call}"))).send();
        // A third of 64 places has room for five calls of four images each.
        let held = futures_util::future::join_all((0..5).map(slow));
        let others = async {
            while waiting.load(Ordering::SeqCst) < 20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for call in 5..8 {
                let response = slow(call).await;
                assert_eq!(
                    (response.status, response.code().as_str()),
                    (503, "server_busy"),
                    "{}",
                    response.text
                );
            }
            for _ in 0..5 {
                let response = chat_with(scene, &other, &with_images(&url)).send().await;
                assert_eq!(response.status, 200, "{}", response.text);
            }
            permits.add_permits(100);
        };
        let (held, ()) = tokio::join!(held, others);
        for response in held {
            assert_eq!(response.status, 200, "{}", response.text);
        }
    });
}
