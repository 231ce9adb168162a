//! Counts of the tokens of a message (docs/contract/gateway.md#count-tokens).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Semaphore;

use super::{answer_all, chat, last_body};
use crate::gateway::{Scene, with_catalog, with_settings, with_upstream};

use support::upstream::{Received, Step, Upstream, json_answer, plain};
use support::{Database, on_each_database};

#[on_each_database]
fn tokens_are_counted_by_the_server_or_estimated(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.choose(|request: &Received| {
            assert!(request.head[0].contains("/v1/messages/count_tokens"), "{:?}", request.head);
            json_answer(200, &json!({"input_tokens": 42}))
        });
        let count = |key: &str| {
            let call =
                scene.world.post("/v1/messages/count_tokens?beta=true", &chat()).header("x-api-key", key);
            call.header("anthropic-version", "2023-06-01").header("anthropic-beta", "one-2026")
        };
        let answer = count(&scene.key).send().await;
        assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 42})));
        assert_eq!(answer.header("x-tollkeeper-estimated"), "");
        assert_eq!(last_body(scene)["model"], "org/engine-model");
        let head = scene.upstream.received()[0].head.join("\n");
        for sent in ["/count_tokens?beta=true", "anthropic-beta: one-2026", "anthropic-version: 2023-06-01"] {
            assert!(head.contains(sent), "{sent}: {head}");
        }
        // Without money, and without a use of the key's rate.
        let poor = scene.world.place(&scene.ada, "poor").await;
        let limited = json!({"name": "k", "restrictions": {"rate_limit": 1}});
        let (_, poor) = scene.world.key(&scene.ada, &poor, &limited).await;
        for _ in 0..3 {
            assert_eq!(count(&poor).bare().await["input_tokens"], 42);
        }
        // A server that can't: three tokens for the message, and one for its text.
        scene.upstream.choose(|_: &Received| json_answer(404, &json!({"detail": "Not Found"})));
        let answer = count(&scene.key).send().await;
        assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 4})));
        assert_eq!(answer.header("x-tollkeeper-estimated"), "true");
        // Media at an address isn't loaded for a count, here or there.
        let before = scene.upstream.received().len();
        let image = json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}});
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": [image]}]});
        let answer = scene.call("/v1/messages/count_tokens", &body).send().await;
        assert_eq!(
            (answer.status, answer.header("x-tollkeeper-estimated")),
            (200, "true"),
            "{}",
            answer.text
        );
        assert_eq!(scene.upstream.received().len(), before);
        // The refusals are those of a message.
        assert_eq!(count("tk_wrong").send().await.status, 401);
        let unknown = json!({"model": "nope", "messages": [{"role": "user", "content": "hi"}]});
        let answer = scene.call("/v1/messages/count_tokens", &unknown).send().await;
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
        let (_, key) = scene
            .world
            .key(&scene.ada, &scene.place, &json!({"name": "e", "permissions": ["embeddings"]}))
            .await;
        assert_eq!(count(&key).refused().await, (403, "missing_permission".to_owned()));
        assert_eq!(scene.used().await, []);
    });
}

/// Returns the status of a count, and `true` for an estimate.
async fn count(scene: &Scene) -> (u16, bool) {
    let answer = scene.call("/v1/messages/count_tokens", &chat()).send().await;
    let is_estimated = answer.header("x-tollkeeper-estimated") == "true";
    assert_eq!(answer.json()["input_tokens"], if is_estimated { 4 } else { 42 }, "{}", answer.text);
    (answer.status, is_estimated)
}

#[on_each_database]
fn servers_that_cannot_count_are_not_asked(database: Database) {
    for (kind, counts) in
        [("vllm", true), ("llamacpp", true), ("sglang", false), ("tgi", false), ("openai", false)]
    {
        with_upstream(database, kind, "", async |scene| {
            scene.upstream.script([json_answer(200, &json!({"input_tokens": 42}))]);
            assert_eq!(count(scene).await, (200, !counts), "{kind}");
            let received = scene.upstream.received();
            assert_eq!(received.len(), usize::from(counts), "{kind}");
        });
    }
    // The next of the model's servers counts.
    let describe = |upstream: &Upstream| {
        let route = |id: &str| format!("{{ upstream = \"{id}\", model = \"org/engine-model\" }}");
        let table = |id: &str, kind: &str| {
            format!("[[upstreams]]\nid = \"{id}\"\nkind = \"{kind}\"\nurl = \"{}\"\n", upstream.url())
        };
        let routes = format!("routes = [{}, {}]", route("one"), route("two"));
        (routes, table("one", "sglang") + &table("two", "vllm"))
    };
    with_catalog(database, describe, async |scene| {
        scene.upstream.script([json_answer(200, &json!({"input_tokens": 42}))]);
        assert_eq!(count(scene).await, (200, false));
        assert_eq!(scene.upstream.received().len(), 1);
    });
}

#[on_each_database]
fn answer_that_is_no_count_is_replaced_by_an_estimate(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        for answer in [
            json_answer(500, &json!({"input_tokens": 42})),
            json_answer(200, &json!({"input_tokens": 0})),
            json_answer(200, &json!({"input_tokens": -42})),
            json_answer(200, &json!({"input_tokens": "42"})),
            json_answer(200, &json!({"count": 42})),
            plain(200, "text/html", "<html>"),
            vec![Step::Close],
        ] {
            scene.upstream.script([answer.clone()]);
            assert_eq!(count(scene).await, (200, true), "{answer:?}");
        }
    });
}

/// A count doesn't wait for a place, and 5 s for its answer.
#[on_each_database]
fn busy_and_slow_servers_do_not_delay_a_count(database: Database) {
    with_upstream(database, "vllm", "max_concurrent = 1", async |scene| {
        let permits = Arc::new(Semaphore::new(0));
        let waiting = Arc::clone(&permits);
        scene.upstream.choose(move |request: &Received| {
            if request.head[0].contains("/count_tokens") {
                return vec![Step::Pause(Duration::from_secs(30)), Step::Close];
            }
            let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
            let mut steps = json_answer(200, &json!({"choices": [], "usage": usage}));
            steps.insert(0, Step::AwaitPermit(Arc::clone(&waiting)));
            steps
        });
        let body = chat();
        let (answer, ()) = tokio::join!(scene.chat(&body).send(), async {
            while scene.upstream.received().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(count(scene).await, (200, true));
            assert_eq!(scene.upstream.received().len(), 1, "the server is busy, so it isn't called");
            permits.add_permits(1);
        });
        assert_eq!(answer.status, 200, "{}", answer.text);
        let begun = Instant::now();
        assert_eq!(count(scene).await, (200, true));
        let seconds = begun.elapsed().as_secs();
        assert!((4..20).contains(&seconds), "{seconds} s");
        assert_eq!(scene.upstream.received().len(), 2);
    });
}

#[on_each_database]
fn counts_have_a_rate_of_their_own(database: Database) {
    let describe = |upstream: &Upstream| {
        let engine =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        ("routes = [{ upstream = \"engine\", model = \"m\" }]".to_owned(), engine)
    };
    let reads = ("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "2");
    with_settings(database, &[reads], describe, async |scene| {
        scene.upstream.script([json_answer(404, &json!({}))]);
        for _ in 0..2 {
            assert_eq!(count(scene).await, (200, true));
        }
        let answer = scene.call("/v1/messages/count_tokens", &chat()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"), "{}", answer.text);
        assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
        assert_eq!(answer.header("x-should-retry"), "");
        assert!(!answer.header("retry-after").is_empty());
        // Calls, lists of models, and counts of others go on.
        answer_all(scene);
        scene.call("/v1/messages", &chat()).bare().await;
        scene.world.get("/v1/models").bearer(&scene.key).bare().await;
        let (_, other) = scene.world.key(&scene.ada, &scene.place, &json!({"name": "other"})).await;
        scene.world.post("/v1/messages/count_tokens", &chat()).bearer(&other).bare().await;
        // A person has one for all sessions.
        let again = scene.world.session(scene.ada.id).await;
        let by_person = |token: &str| {
            let call = scene.world.post("/v1/messages/count_tokens", &chat()).bearer(token);
            let call = call.header("openai-organization", &scene.place.organization);
            call.header("openai-project", &scene.place.project)
        };
        by_person(&scene.ada.access_token).bare().await;
        by_person(&again.access_token).bare().await;
        for token in [&scene.ada.access_token, &again.access_token] {
            assert_eq!(by_person(token).refused().await, (429, "rate_limited".to_owned()));
        }
    });
    with_settings(database, &[reads, ("TOLLKEEPER_LIMITS__ENABLED", "false")], describe, async |scene| {
        scene.upstream.script([json_answer(404, &json!({}))]);
        for _ in 0..4 {
            assert_eq!(count(scene).await, (200, true));
        }
    });
}
