//! Several upstreams of one model.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Scene, with_catalog};
use crate::support::http::Call;
use crate::support::upstream::{Step, Upstream, json_answer, stream_head};

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

fn good() -> Vec<Step> {
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    json_answer(200, &json!({"choices": [], "usage": usage}))
}

/// The first upstream is at a port where nobody listens.
fn first_is_down(upstream: &Upstream) -> (String, String) {
    let (down, up) = ("http://127.0.0.1:9/v1", upstream.url());
    let routes =
        "routes = [{ upstream = \"up\", model = \"m\", tier = 1 }, { upstream = \"down\", model = \"m\" }]";
    let table =
        |id: &str, url: &str| format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{url}\"\n");
    (routes.to_owned(), table("down", down) + &table("up", &up))
}

#[test]
fn next_tier_serves_while_the_first_is_down() {
    with_catalog(first_is_down, async |scene: &Scene| {
        scene.upstream.script([good()]);
        for _ in 0..3 {
            scene.chat(&body()).bare().await;
        }
        assert_eq!(scene.upstream.received().len(), 3);
        assert_eq!(scene.used().await, [(1, 1); 3]);
    });
}

/// After five failures in a row the first upstream is left alone for two seconds; then one call tries it.
#[test]
fn upstream_that_is_down_is_left_alone() {
    with_catalog(first_is_down, async |scene: &Scene| {
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

/// The first upstream can't count several answers.
fn two_kinds(upstream: &Upstream) -> (String, String) {
    let routes = "routes = [{ upstream = \"llamacpp\" }, { upstream = \"vllm\", tier = 1 }]";
    let table = |kind: &str| {
        format!("[[upstreams]]\nid = \"{kind}\"\nkind = \"{kind}\"\nurl = \"{}\"\n", upstream.url())
    };
    (routes.to_owned(), table("llamacpp") + &table("vllm"))
}

#[test]
fn upstream_that_cannot_do_it_is_passed_over() {
    with_catalog(two_kinds, async |scene: &Scene| {
        scene.upstream.script([good()]);
        let mut body = body();
        body["n"] = json!(2);
        scene.chat(&body).bare().await;
        assert_eq!(scene.upstream.received().len(), 1);
        assert_eq!(scene.used().await, [(1, 1)]);
    });
}

/// Both routes lead to the same server, under two names.
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

#[test]
fn busy_upstream_is_passed_over() {
    with_catalog(two_names, async |scene: &Scene| {
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

#[test]
fn failure_that_the_request_may_cause_is_not_repeated() {
    with_catalog(two_names, async |scene: &Scene| {
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

/// One call an upstream at a time, one that waits, and the next is refused.
#[test]
fn full_upstreams_refuse() {
    with_catalog(two_names, async |scene: &Scene| {
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
