//! Several upstreams of one model.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tollkeeper::gateway::health::check_all;

use super::{Scene, with_catalog, with_upstream};
use support::http::Call;
use support::upstream::{Step, Upstream, json_answer, stream_head};
use support::world::runtime;
use support::{Database, on_each_database};

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

fn good() -> Vec<Step> {
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    json_answer(200, &json!({"choices": [], "usage": usage}))
}

/// Returns a catalog whose first upstream is at a port without a listener.
fn first_is_down(upstream: &Upstream) -> (String, String) {
    let (down, up) = ("http://127.0.0.1:9/v1", upstream.url());
    let routes =
        "routes = [{ upstream = \"up\", model = \"m\", tier = 1 }, { upstream = \"down\", model = \"m\" }]";
    let table =
        |id: &str, url: &str| format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{url}\"\n");
    (routes.to_owned(), table("down", down) + &table("up", &up))
}

#[on_each_database]
fn next_tier_serves_while_the_first_is_down(database: Database) {
    with_catalog(database, first_is_down, async |scene: &Scene| {
        scene.upstream.script([good()]);
        for _ in 0..3 {
            scene.chat(&body()).bare().await;
        }
        assert_eq!(scene.upstream.received().len(), 3);
        assert_eq!(scene.used().await, [(1, 1); 3]);
    });
}

/// After five failures in a row, the first upstream gets no calls for two seconds; then one call tries it.
#[on_each_database]
fn upstream_that_is_down_is_left_alone(database: Database) {
    with_catalog(database, first_is_down, async |scene: &Scene| {
        scene.upstream.script([good()]);
        let failures = async || {
            let call = Call::new(&scene.world.service, Method::GET, "/metrics");
            let text = call.bearer(scene.world.app.api.service_token.expose()).send().await.text;
            let name = "tollkeeper_gateway_attempts_total{code=\"upstream_failed\",upstream=\"down\"} ";
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u32>().unwrap()
        };
        for _ in 0..8 {
            scene.chat(&body()).bare().await;
        }
        assert_eq!(failures().await, 5);
        scene.world.clock.advance_ms(2_000);
        for _ in 0..3 {
            scene.chat(&body()).bare().await;
        }
        assert_eq!(failures().await, 6);
        assert_eq!(scene.used().await, [(1, 1); 11]);
    });
}

/// Returns a catalog whose first upstream can't count several answers.
fn two_kinds(upstream: &Upstream) -> (String, String) {
    let routes = "routes = [{ upstream = \"llamacpp\" }, { upstream = \"vllm\", tier = 1 }]";
    let table = |kind: &str| {
        format!("[[upstreams]]\nid = \"{kind}\"\nkind = \"{kind}\"\nurl = \"{}\"\n", upstream.url())
    };
    (routes.to_owned(), table("llamacpp") + &table("vllm"))
}

#[on_each_database]
fn upstream_that_cannot_do_it_is_passed_over(database: Database) {
    with_catalog(database, two_kinds, async |scene: &Scene| {
        scene.upstream.script([good()]);
        let mut body = body();
        body["n"] = json!(2);
        scene.chat(&body).bare().await;
        assert_eq!(scene.upstream.received().len(), 1);
        assert_eq!(scene.used().await, [(1, 1)]);
    });
}

/// Returns a catalog with two routes to the same server, under two names.
fn two_names(upstream: &Upstream) -> (String, String) {
    let url = upstream.url();
    let routes =
        "routes = [{ upstream = \"a\", model = \"m-a\" }, { upstream = \"b\", model = \"m-b\", tier = 1 }]";
    let table = |id: &str| {
        format!(
            "[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{url}\"\nmax_concurrent = 1\nmax_waiting = 1\nmax_wait_ms = 300\n"
        )
    };
    (routes.to_owned(), table("a") + &table("b"))
}

#[on_each_database]
fn busy_upstream_is_passed_over(database: Database) {
    with_catalog(database, two_names, async |scene: &Scene| {
        for status in [429, 502, 503, 504] {
            scene.upstream.script([json_answer(status, &json!({})), good()]);
            scene.chat(&body()).bare().await;
        }
        let asked: Vec<_> =
            scene.upstream.received().iter().map(|sent| sent.body["model"].to_string()).collect();
        assert_eq!(asked, ["\"m-a\"", "\"m-b\""].repeat(4));
        assert_eq!(scene.used().await, [(1, 1); 4]);
    });
}

#[on_each_database]
fn failure_that_the_request_may_cause_is_not_repeated(database: Database) {
    with_catalog(database, two_names, async |scene: &Scene| {
        for script in
            [json_answer(500, &json!({})), json_answer(400, &json!({})), vec![stream_head(), Step::Close]]
        {
            let before = scene.upstream.received().len();
            scene.upstream.script([script, good()]);
            assert_ne!(scene.chat(&body()).send().await.status, 200);
            assert_eq!(scene.upstream.received().len(), before + 1);
        }
        assert_eq!(scene.used().await, []);
    });
}

/// An upstream gets one call at a time; one more call waits, and the next call is refused.
#[on_each_database]
fn full_upstreams_refuse(database: Database) {
    with_catalog(database, two_names, async |scene: &Scene| {
        let mut slow = vec![Step::Pause(Duration::from_millis(1_500))];
        slow.extend(good());
        scene.upstream.script([slow]);
        let calls = (0..4).map(|_| scene.chat(&body()).send());
        let answers = futures_util::future::join_all(calls).await;
        let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 503, 503]);
        let refused = answers.iter().find(|answer| answer.status == 503).unwrap();
        assert_eq!(refused.code(), "model_overloaded");
        assert!(!refused.header("retry-after").is_empty());
        assert_eq!(scene.used().await, [(1, 1); 2]);
    });
}

/// A retry uses as much budget as five calls add. No call has added any at `b`, so only its first ten retries
/// are made.
#[on_each_database]
fn retries_end_with_their_budget(database: Database) {
    with_catalog(database, two_names, async |scene: &Scene| {
        scene.upstream.choose(|sent| match sent.body["model"].as_str() {
            // The upstream works, but is busy: its breaker stays closed.
            Some("m-a") => json_answer(429, &json!({})),
            _ => good(),
        });
        let mut statuses = Vec::new();
        for _ in 0..12 {
            statuses.push(scene.chat(&body()).send().await.status);
        }
        assert_eq!(statuses, [vec![200; 10], vec![503; 2]].concat());
        let asked =
            |name: &str| scene.upstream.received().iter().filter(|sent| sent.body["model"] == name).count();
        assert_eq!((asked("m-a"), asked("m-b")), (12, 10));
        assert_eq!(scene.used().await, [(1, 1); 10]);
    });
}

/// Returns the value of a metric, or 0 if it has no line.
async fn metric(scene: &Scene, name: &str) -> u32 {
    let call = Call::new(&scene.world.service, Method::GET, "/metrics");
    let text = call.bearer(scene.world.app.api.service_token.expose()).send().await.text;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

#[on_each_database]
fn upstream_that_fails_its_checks_gets_no_calls(database: Database) {
    with_catalog(database, first_is_down, async |scene: &Scene| {
        scene.upstream.script([good()]);
        for _ in 0..3 {
            check_all(&scene.world.app.gateway).await;
        }
        scene.chat(&body()).bare().await;
        let attempts = "tollkeeper_gateway_attempts_total{code=\"upstream_failed\",upstream=\"down\"}";
        assert_eq!(metric(scene, attempts).await, 0);
        assert_eq!(metric(scene, "tollkeeper_gateway_upstream_up{upstream=\"down\"}").await, 0);
        assert_eq!(metric(scene, "tollkeeper_gateway_upstream_up{upstream=\"up\"}").await, 1);
    });
    with_catalog(database, two_servers, async |scene: &Scene| {
        scene.upstream.script([good()]);
        let asked = async || {
            scene.chat(&body()).bare().await;
            scene.upstream.received().pop().unwrap().body["model"].as_str().unwrap().to_owned()
        };
        let check = async |status| {
            scene.upstream.set_health(status);
            check_all(&scene.world.app.gateway).await;
        };
        for (status, expected) in
            [(503, "m-a"), (503, "m-a"), (503, "m-b"), (500, "m-b"), (404, "m-a"), (503, "m-a")]
        {
            check(status).await;
            assert_eq!(asked().await, expected);
        }
    });
}

/// Returns a catalog whose first upstream has a health path, and whose second one is a provider.
fn two_servers(upstream: &Upstream) -> (String, String) {
    let routes =
        "routes = [{ upstream = \"a\", model = \"m-a\" }, { upstream = \"b\", model = \"m-b\", tier = 1 }]";
    let table = |id: &str, kind: &str| {
        format!("[[upstreams]]\nid = \"{id}\"\nkind = \"{kind}\"\nurl = \"{}\"\n", upstream.url())
    };
    (routes.to_owned(), table("a", "sglang") + &table("b", "openai"))
}

#[on_each_database]
fn connection_that_the_upstream_has_closed_is_no_failure(database: Database) {
    with_catalog(database, two_servers, async |scene: &Scene| {
        // The second request is sent on the first request's connection, which ends without an answer.
        scene.upstream.script([good(), vec![Step::Close], good()]);
        scene.chat(&body()).bare().await;
        scene.chat(&body()).bare().await;
        assert_eq!((scene.upstream.received().len(), scene.upstream.connections()), (3, 2));
        // If a new connection ends without an answer, the request fails.
        scene.upstream.script([vec![Step::Close]]);
        let before = scene.upstream.received().len();
        let answer = scene.chat(&body()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_failed"));
        // Two requests: on the connection of the previous call, and on a new one.
        assert_eq!(scene.upstream.received().len(), before + 2);
        let answer = scene.chat(&body()).send().await;
        assert_eq!((answer.status, scene.upstream.received().len()), (502, before + 3));
        assert_eq!(scene.used().await, [(1, 1); 2]);
    });
}

/// A check leaves a connection open, on which a call may be sent.
#[on_each_database]
fn connection_of_a_check_that_the_upstream_has_closed_is_no_failure(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        scene.upstream.script([vec![Step::Close], good()]);
        check_all(&scene.world.app.gateway).await;
        scene.chat(&body()).bare().await;
        assert_eq!((scene.upstream.received().len(), scene.upstream.connections()), (2, 2));
        assert_eq!(scene.used().await, [(1, 1)]);
    });
}

/// Returns a listener whose queue is full, so that the kernel lets new connections wait.
async fn full_listener() -> (TcpSocketGuard, String) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut open = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        open.push(stream.unwrap());
    }
    ((listener, open), format!("http://{address}/v1"))
}

type TcpSocketGuard = (TcpListener, Vec<TcpStream>);

#[on_each_database]
fn upstream_that_takes_no_connection_is_passed_over(database: Database) {
    let (_guard, url) = runtime().block_on(full_listener());
    let describe = |upstream: &Upstream| {
        let routes = "routes = [{ upstream = \"up\", tier = 1 }, { upstream = \"full\" }]";
        let full =
            format!("[[upstreams]]\nid = \"full\"\nkind = \"vllm\"\nurl = \"{url}\"\nconnect_ms = 100\n");
        let up = format!("[[upstreams]]\nid = \"up\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        (routes.to_owned(), full + &up)
    };
    with_catalog(database, describe, async |scene: &Scene| {
        scene.upstream.script([good()]);
        scene.chat(&body()).bare().await;
        let attempts = "tollkeeper_gateway_attempts_total{code=\"upstream_failed\",upstream=\"full\"}";
        assert_eq!((metric(scene, attempts).await, scene.used().await.len()), (1, 1));
    });
}

/// Returns a catalog with an upstream that gets one call at a time, while two calls wait.
fn narrow(upstream: &Upstream) -> (String, String) {
    let upstream = format!(
        "[[upstreams]]\nid = \"a\"\nkind = \"vllm\"\nurl = \"{}\"\nmax_concurrent = 1\nmax_waiting = 2\n",
        upstream.url()
    );
    ("routes = [{ upstream = \"a\" }]".to_owned(), upstream)
}

#[on_each_database]
fn organization_with_many_calls_lets_others_in(database: Database) {
    with_catalog(database, narrow, async |scene: &Scene| {
        let bob = scene.world.user("bob").await;
        let place = scene.world.place(&bob, "other").await;
        let (_, key) = scene.world.key(&bob, &place, &json!({"name": "k"})).await;
        let mut slow = vec![Step::Pause(Duration::from_millis(1_000))];
        slow.extend(good());
        scene.upstream.script([slow]);
        let waiting = "tollkeeper_gateway_calls_waiting{upstream=\"a\"}";
        let first = scene.chat(&body()).send();
        let many = async {
            while scene.upstream.received().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
            futures_util::future::join_all((0..2).map(|_| scene.chat(&body()).send())).await
        };
        let late = async {
            while metric(scene, waiting).await < 2 {
                sleep(Duration::from_millis(5)).await;
            }
            let mut late = body();
            late["messages"][0]["content"] = json!("late");
            scene.world.post("/v1/chat/completions", &late).bearer(&key).send().await
        };
        let (first, many, late) = tokio::join!(first, many, late);
        assert_eq!((first.status, late.status), (200, 200), "{}", late.text);
        let mut statuses: Vec<_> = many.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(
            statuses,
            [200, 503],
            "the newest call of the organization with two waiting calls was refused"
        );
        let last = &scene.upstream.received()[2].body["messages"][0]["content"];
        assert_eq!((last, metric(scene, waiting).await), (&json!("late"), 0));
    });
}
