//! Calls that are refused because of the request, the key or its money, or by the upstream.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Scene, with_catalog, with_upstream};
use support::billed::budgets_path;
use support::upstream::{Step, end_of_body, event, json_answer, plain, stream_head};
use support::{Database, on_each_database};

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

#[on_each_database]
fn bad_requests_ask_no_upstream(database: Database) {
    with_upstream(database, "llamacpp", "", async |scene| {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let cases = [
            (json!({"messages": messages}), 400, "invalid_request", "model"),
            (json!({"model": 3, "messages": messages}), 400, "invalid_request", "model"),
            (json!({"model": "chat-1"}), 400, "invalid_request", "messages"),
            (json!({"model": "chat-1", "messages": []}), 400, "invalid_request", "messages"),
            (json!({"model": "chat-1", "messages": "hi"}), 400, "invalid_request", "messages"),
            (
                json!({"model": "chat-1", "messages": messages, "stream": "yes"}),
                400,
                "invalid_request",
                "stream",
            ),
            (
                json!({"model": "chat-1", "messages": messages, "max_tokens": 0}),
                400,
                "invalid_request",
                "max_tokens",
            ),
            (json!({"model": "chat-1", "messages": messages, "n": 129}), 400, "invalid_request", "n"),
            (json!({"model": "chat-1", "messages": messages, "n": 2}), 400, "unsupported_parameter", "n"),
            (json!({"model": "chat-3", "messages": messages}), 404, "model_not_found", "model"),
        ];
        for (body, status, code, param) in cases {
            let answer = scene.chat(&body).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (status, code), "{body}: {}", answer.text);
            let error = &answer.json()["error"];
            assert_eq!(error["param"], param, "{body}");
            assert_eq!(answer.json().as_object().unwrap().len(), 1, "no envelope: {}", answer.text);
        }
        for text in ["", "[]", "{", "{\"model\": \"chat-1\", \"model\": \"chat-1\", \"messages\": [{}]}"] {
            let call = scene.chat(&json!({})).raw(text);
            let answer = call.send().await;
            assert_eq!(answer.status, 400, "{text}: {}", answer.text);
        }
        let large = scene.chat(&json!({})).raw(vec![b' '; (16 << 20) + 1]).send().await;
        assert_eq!((large.status, large.code().as_str()), (413, "payload_too_large"));
        assert_eq!(scene.upstream.received().len(), 0);
        assert_eq!(scene.used().await, []);
    });
}

#[on_each_database]
fn credentials_are_checked_before_the_body(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let world = &scene.world;
        let bad = "{\"not\": ";
        let call = |token: &str| world.post("/v1/chat/completions", &json!({})).raw(bad).bearer(token);
        assert_eq!(call("").refused().await, (401, "missing_credentials".to_owned()));
        assert_eq!(call("tk_nonsense").refused().await, (401, "invalid_api_key".to_owned()));
        assert_eq!(call("a.b.c").refused().await, (401, "invalid_access_token".to_owned()));
        let (_, key) =
            world.key(&scene.ada, &scene.place, &json!({"name": "e", "permissions": ["embeddings"]})).await;
        assert_eq!(call(&key).refused().await, (403, "missing_permission".to_owned()));
        let ada = &scene.ada.access_token;
        assert_eq!(call(ada).refused().await, (400, "project_required".to_owned()));
        let bob = world.user("bob").await;
        let named = |token: &str| {
            let call = call(token).header("openai-organization", &scene.place.organization);
            call.header("openai-project", &scene.place.project)
        };
        assert_eq!(named(&bob.access_token).refused().await, (403, "insufficient_role".to_owned()));
        assert_eq!(named(ada).refused().await, (400, "invalid_json".to_owned()));
    });
}

#[on_each_database]
fn person_calls_for_a_project(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
        scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage}))]);
        let call = scene.world.post("/v1/chat/completions", &body()).bearer(&scene.ada.access_token);
        let call = call.header("openai-organization", &scene.place.organization);
        let answer = call.header("openai-project", &scene.place.project).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(scene.used().await, [(1, 1)]);
    });
}

#[on_each_database]
fn limits_of_key_model_and_money_hold(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
        scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage}))]);
        let (world, place) = (&scene.world, &scene.place);
        let restricted =
            |restrictions: Value| json!({"name": restrictions.to_string(), "restrictions": restrictions});
        let (_, key) = world.key(&scene.ada, place, &restricted(json!({"rate_limit": 1}))).await;
        let call = || world.post("/v1/chat/completions", &body()).bearer(&key);
        let first = call().send().await;
        assert_eq!((first.status, first.header("x-ratelimit-limit-requests")), (200, "1"), "{}", first.text);
        assert_eq!(first.header("x-ratelimit-remaining-requests"), "0");
        let second = call().send().await;
        assert_eq!((second.status, second.code().as_str()), (429, "rate_limited"));
        assert!(!second.header("retry-after").is_empty());
        let (_, key) = world.key(&scene.ada, place, &restricted(json!({"models": ["chat-2"]}))).await;
        let call = world.post("/v1/chat/completions", &body()).bearer(&key);
        let refused = call.refused().await;
        assert_eq!(refused, (403, "model_not_allowed".to_owned()));
        let (_, key) = world.key(&scene.ada, place, &restricted(json!({"max_tokens": 10}))).await;
        world.post("/v1/chat/completions", &body()).bearer(&key).bare().await;
        assert_eq!(
            scene.upstream.received().last().unwrap().body["max_tokens"],
            10,
            "the key's limit is added"
        );
        // The second organization of a user has no credit limit.
        let poor = world.place(&scene.ada, "poor").await;
        let (_, key) = world.key(&scene.ada, &poor, &json!({"name": "k"})).await;
        let refused = world.post("/v1/chat/completions", &body()).bearer(&key).refused().await;
        assert_eq!(refused, (402, "insufficient_quota".to_owned()));
        assert_eq!(scene.upstream.received().len(), 2);
    });
}

#[on_each_database]
fn budget_refuses_before_the_upstream_is_asked(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let world = &scene.world;
        let path = budgets_path(&scene.place.organization);
        let budget = json!({"name": "Tiny", "scope": "organization", "period": "total", "limit": "0.000000001",
            "hard": true});
        world.post(&path, &budget).bearer(&scene.ada.access_token).data().await;
        let answer = scene.chat(&body()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (402, "budget_exceeded"), "{}", answer.text);
        assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), ("false", ""));
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "insufficient_quota");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("\"Tiny\" (in all) has 0.000000001 of 0.000000001 USD left"), "{message}");
        assert_eq!(scene.upstream.received().len(), 0);
    });
}

#[on_each_database]
fn model_without_routes_is_not_served(database: Database) {
    with_catalog(
        database,
        |_| (String::new(), String::new()),
        async |scene: &Scene| {
            let answer = scene.chat(&body()).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (503, "model_not_served"), "{}", answer.text);
            assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), ("false", ""));
            assert_eq!(scene.used().await, []);
        },
    );
}

/// Statuses of an upstream become errors for the client. The upstream's pages, addresses and stack traces
/// aren't passed on.
#[on_each_database]
fn statuses_of_an_upstream_are_translated(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let error =
            |message: &str| json!({"error": {"message": message, "type": "BadRequestError", "code": 400}});
        let flat = json!({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400});
        let page = "<html><h1>502 from http://10.1.2.3:8000</h1></html>";
        let cases = [
            (
                json_answer(400, &error("max_tokens is too large")),
                400,
                "invalid_request",
                "max_tokens is too large",
            ),
            (json_answer(400, &flat), 400, "invalid_request", "too long"),
            (json_answer(422, &json!({"detail": "bad tools"})), 400, "invalid_request", "bad tools"),
            (json_answer(404, &error("no such adapter")), 503, "model_not_served", "add a route"),
            (json_answer(413, &error("prompt too large")), 413, "payload_too_large", "prompt too large"),
            (json_answer(401, &error("bad key sk-secret")), 502, "upstream_failed", "failed"),
            (json_answer(403, &error("bad key sk-secret")), 502, "upstream_failed", "failed"),
            (json_answer(429, &error("queue full")), 503, "model_overloaded", "busy"),
            (json_answer(503, &error("loading")), 503, "model_overloaded", "busy"),
            (plain(502, "text/html", page), 502, "upstream_failed", "failed"),
            (plain(504, "text/html", page), 504, "upstream_timeout", "in time"),
            (plain(500, "text/plain", "Traceback: at 10.1.2.3"), 502, "upstream_failed", "failed"),
            (plain(302, "text/html", page), 502, "upstream_failed", "failed"),
            (vec![Step::Close], 502, "upstream_failed", "failed"),
        ];
        for (script, status, code, words) in cases {
            scene.upstream.script([script.clone()]);
            for stream in [false, true] {
                let mut body = body();
                body["stream"] = json!(stream);
                let answer = scene.chat(&body).send().await;
                assert_eq!(
                    (answer.status, answer.code().as_str()),
                    (status, code),
                    "{script:?}: {}",
                    answer.text
                );
                assert!(answer.text.contains(words), "{script:?}: {}", answer.text);
                for secret in ["10.1.2.3", "sk-secret", "Traceback", "<h1>"] {
                    assert!(!answer.text.contains(secret), "{script:?}: {}", answer.text);
                }
            }
        }
        assert_eq!(scene.used().await, []);
    });
}

#[on_each_database]
fn upstream_that_says_nothing_times_out(database: Database) {
    with_upstream(database, "vllm", "first_event_ms = 200\ntotal_ms = 400", async |scene| {
        for stream in [false, true] {
            scene.upstream.script([vec![Step::Pause(Duration::from_secs(5))]]);
            let mut body = body();
            body["stream"] = json!(stream);
            let answer = scene.chat(&body).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (504, "upstream_timeout"), "{}", answer.text);
        }
        assert_eq!(scene.used().await, []);
    });
}

/// The client gets the catalog's name of the model instead of the upstream's name.
#[on_each_database]
fn name_of_a_route_stays_here(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let message = "The model `org/engine-model` has no tools.";
        let error = json!({"error": {"message": message, "type": "BadRequestError", "code": 400}});
        scene.upstream.script([json_answer(400, &error)]);
        let response = scene.chat(&body()).send().await;
        assert_eq!(
            response.json()["error"]["message"],
            "The model `chat-1` has no tools.",
            "{}",
            response.text
        );
    });
}

/// Clients get no names of the operator's account at a provider, and no addresses in its network.
#[on_each_database]
fn accounts_and_addresses_of_a_refusal_stay_here(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        for (message, secret) in [
            ("The model `org/engine-model` has no tools in organization org-INTERNAL1", "org-INTERNAL1"),
            ("Incorrect API key provided: sk-proj-abc123xyz.", "sk-proj"),
            ("Cannot connect to host 169.254.169.254:80, timeout", "169.254"),
            ("no route to http://gpu-7.internal:8000/v1", "gpu-7"),
        ] {
            let error = json!({"error": {"message": message, "type": "invalid_request_error", "code": null}});
            let word = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]});
            let later = vec![stream_head(), event(&word), event(&error), end_of_body()];
            for (script, stream, is_late) in [
                (json_answer(400, &error), false, false),
                (json_answer(400, &error), true, false),
                (json_answer(404, &error), false, false),
                (later, true, true),
            ] {
                scene.upstream.script([script]);
                let mut body = body();
                body["stream"] = json!(stream);
                let response = scene.chat(&body).send().await;
                assert_eq!(response.status == 200, is_late, "{message}: {}", response.text);
                for secret in [secret, "org/engine-model"] {
                    assert!(!response.text.contains(secret), "{secret}: {}", response.text);
                }
            }
        }
    });
}
