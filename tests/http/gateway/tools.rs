//! Features that let common tools work with only a base URL, a key and a model: Claude Code, Codex, OpenCode
//! and others.

use serde_json::{Value, json};

use super::{MODEL, Scene, with_catalog, with_settings, with_upstream};
use tollkeeper::db::sql;

use support::billed::budgets_path;
use support::http::Answer;
use support::upstream::{Received, Upstream, json_answer};
use support::{Database, on_each_database};

fn chat() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

fn message() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 32_000})
}

/// Answers every call, regardless of its operation, with a `usage` object of one token each.
fn answer_all(scene: &Scene) {
    scene.upstream.choose(|request: &Received| {
        let is_message = request.head[0].contains("/messages");
        let usage = if is_message {
            json!({"input_tokens": 1, "output_tokens": 1})
        } else {
            json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
        };
        json_answer(200, &json!({"model": request.body["model"], "choices": [], "content": [], "output": [], "usage": usage}))
    });
}

fn last_body(scene: &Scene) -> Value {
    scene.upstream.received().last().unwrap().body.clone()
}

/// Runs a test with a model `tool-1`, which is like `chat-1` with these additional lines.
fn with_model(database: Database, lines: &'static str, test: impl AsyncFn(&Scene)) {
    with_catalog(
        database,
        |upstream: &Upstream| {
            let url = upstream.url();
            let routes = "routes = [{ upstream = \"engine\", model = \"org/engine-model\" }]".to_owned();
            let tables = format!(
                r#"
[[models]]
id = "tool-1"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
context_length = 5000
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.00001" }}]
{routes}
{lines}

[[upstreams]]
id = "engine"
kind = "vllm"
url = "{url}"
shared_prefix_cache = true
"#
            );
            (routes, tables)
        },
        test,
    );
}

fn of_tool_1(mut body: Value) -> Value {
    body["model"] = json!("tool-1");
    body
}

#[on_each_database]
fn limit_above_the_models_is_lowered(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let with = |field: &str, tokens: i64| {
            let mut body = chat();
            body[field] = json!(tokens);
            body
        };
        let response = json!({"model": "chat-1", "input": "hi", "max_output_tokens": 128_000});
        let cases = [
            ("/v1/chat/completions", with("max_tokens", 32_000), "max_tokens", 1_000),
            ("/v1/chat/completions", with("max_completion_tokens", 32_000), "max_completion_tokens", 1_000),
            ("/v1/messages", message(), "max_tokens", 1_000),
            ("/v1/responses", response, "max_output_tokens", 1_000),
        ];
        for (path, body, field, expected) in cases {
            let answer = scene.call(path, &body).send().await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            assert_eq!(answer.header("x-tollkeeper-max-tokens"), expected.to_string(), "{path}");
            assert_eq!(last_body(scene)[field], expected, "{path}");
        }
        // The key's limit is even lower.
        let restricted = json!({"name": "ten", "restrictions": {"max_tokens": 10}});
        let (_, key) = scene.world.key(&scene.ada, &scene.place, &restricted).await;
        let call = scene.world.post("/v1/messages", &message()).header("x-api-key", &key);
        let answer = call.send().await;
        assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, "10"), "{}", answer.text);
        assert_eq!(last_body(scene)["max_tokens"], 10);
        // A limit that fits is sent unchanged, and the answer doesn't have the header.
        let answer = scene.chat(&with("max_tokens", 1_000)).send().await;
        assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, ""));
        let answer = scene.chat(&chat()).send().await;
        assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, ""));
        assert_eq!(scene.used().await, [(1, 1); 7]);
    });
}

#[on_each_database]
fn model_may_refuse_what_is_above_its_limit(database: Database) {
    with_model(database, "max_tokens_policy = \"refuse\"", async |scene| {
        answer_all(scene);
        let response = json!({"model": "tool-1", "input": "hi", "max_output_tokens": 1_001});
        for (path, body, param) in [
            ("/v1/messages", of_tool_1(message()), "max_tokens"),
            ("/v1/responses", response, "max_output_tokens"),
        ] {
            let answer = scene.call(path, &body).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "max_tokens_exceeded"), "{path}");
            assert_eq!(answer.json()["error"]["param"], param, "{path}");
            assert_eq!(answer.header("x-should-retry"), "false");
        }
        assert_eq!(scene.upstream.received().len(), 0);
    });
}

/// The context has 5,000 tokens and the prompt 4,600, so the limit of 1,000 is lowered to 400.
#[on_each_database]
fn limit_is_lowered_to_the_rest_of_the_context(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.choose(|request: &Received| match request.body["max_tokens"].as_i64() {
            Some(1_000) => json_answer(
                400,
                &json!({"error": {"message": "max_tokens is too large: 1000. The context is 5000 and your request has 4600 \
                    input tokens (1000 > 5000 - 4600)", "code": 400}}),
            ),
            _ => json_answer(200, &json!({"content": [], "usage": {"input_tokens": 1, "output_tokens": 1}})),
        });
        let answer = scene.call("/v1/messages", &message()).send().await;
        assert_eq!(
            (answer.status, answer.header("x-tollkeeper-max-tokens")),
            (200, "400"),
            "{}",
            answer.text
        );
        assert_eq!(last_body(scene)["max_tokens"], 400);
    });
    // With `refuse`, a limit that the client chose isn't changed.
    with_model(database, "max_tokens_policy = \"refuse\"", async |scene| {
        let message = "maximum context length is 5000 tokens. However, you requested 5500 tokens (4600 in the messages, 900 in the completion).";
        scene.upstream.choose(move |_: &Received| {
            json_answer(400, &json!({"error": {"message": message, "code": 400}}))
        });
        let mut body = of_tool_1(chat());
        body["max_tokens"] = json!(900);
        let answer = scene.chat(&body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "context_length_exceeded"));
        assert_eq!(scene.upstream.received().len(), 1);
    });
}

/// Without a limit, "hi" costs at most the default of 100 tokens of the answer (0.001) and a few of the
/// prompt, and not 1,000 tokens (0.01).
#[on_each_database]
fn call_without_a_limit_gets_the_models_default(database: Database) {
    with_model(database, "default_max_tokens = 100", async |scene| {
        answer_all(scene);
        scene.chat(&of_tool_1(chat())).bare().await;
        assert_eq!(last_body(scene)["max_tokens"], 100);
        let mut body = of_tool_1(chat());
        body["max_tokens"] = json!(900);
        scene.chat(&body).bare().await;
        assert_eq!(last_body(scene)["max_tokens"], 900, "a call may ask for more");
        let path = budgets_path(&scene.place.organization);
        let budget = json!({"name": "Small", "scope": "organization", "period": "total", "limit": "0.009", "hard": true});
        scene.world.post(&path, &budget).bearer(&scene.ada.access_token).data().await;
        scene.chat(&of_tool_1(chat())).bare().await;
        assert_eq!(scene.chat(&body).refused().await, (402, "budget_exceeded".to_owned()));
        let question =
            json!({"credential": scene.key, "operation": "chat", "model": "tool-1", "reserve": false});
        let decision = scene.world.ask("/service/v1/authorize", &question).bare().await;
        assert_eq!((&decision["allowed"], &decision["max_tokens"]), (&json!(true), &json!(100)));
    });
}

fn assert_lasting(answer: &Answer, status: u16, code: &str, kind: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text);
    assert_eq!(answer.json()["error"]["type"], kind, "{}", answer.text);
    assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), ("false", ""), "{code}");
}

/// Most tools retry a 429 for minutes, and also a 401.
#[on_each_database]
fn what_stays_refused_is_not_tried_again(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let poor = scene.world.place(&scene.ada, "poor").await;
        let (_, poor) = scene.world.key(&scene.ada, &poor, &json!({"name": "k"})).await;
        let world = &scene.world;
        let chat = chat();
        let ask = |path: &'static str, key: &str| {
            let body = if path == "/v1/responses" {
                json!({"model": "chat-1", "input": "hi"})
            } else {
                chat.clone()
            };
            world.post(path, &body).bearer(key)
        };
        for (path, kind) in [
            ("/v1/chat/completions", "insufficient_quota"),
            ("/v1/responses", "insufficient_quota"),
            ("/v1/messages", "billing_error"),
        ] {
            let answer = ask(path, &poor).send().await;
            assert_lasting(&answer, 402, "insufficient_quota", kind);
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("USD"), "{message}");
            assert_lasting(
                &ask(path, "tk_wrong").send().await,
                401,
                "invalid_api_key",
                "authentication_error",
            );
        }
        let unknown = json!({"model": "nope", "messages": [{"role": "user", "content": "hi"}]});
        let answer = scene.chat(&unknown).send().await;
        assert_lasting(&answer, 404, "model_not_found", "invalid_request_error");
        let broken = scene.chat(&json!({})).raw("{").send().await;
        assert_lasting(&broken, 400, "invalid_json", "invalid_request_error");
        let method = world.get("/v1/messages").send().await;
        assert_lasting(&method, 405, "method_not_allowed", "invalid_request_error");
        // These refusals are temporary.
        let limited = json!({"name": "r", "restrictions": {"rate_limit": 1}});
        let (_, limited) = world.key(&scene.ada, &scene.place, &limited).await;
        answer_all(scene);
        ask("/v1/chat/completions", &limited).bare().await;
        let rated = ask("/v1/chat/completions", &limited).send().await;
        assert_eq!((rated.status, rated.header("x-should-retry")), (429, ""));
        assert!(!rated.header("retry-after").is_empty());
    });
}

/// `OPENAI_ORG_ID` in the environment makes OpenAI's SDKs send headers with every call.
#[on_each_database]
fn headers_of_openais_organizations_mean_nothing_beside_a_key(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let bodies = [
            ("/v1/chat/completions", chat()),
            ("/v1/completions", json!({"model": "chat-1", "prompt": "hi"})),
            ("/v1/embeddings", json!({"model": "embed-1", "input": "hi"})),
            ("/v1/responses", json!({"model": "chat-1", "input": "hi"})),
            ("/v1/messages", chat()),
        ];
        for (path, body) in bodies {
            let call = scene.call(path, &body).header("openai-organization", "org-theirs");
            let answer = call.header("openai-project", "proj_theirs").send().await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
        let call =
            scene.world.get("/v1/models").bearer(&scene.key).header("openai-organization", "org-theirs");
        call.bare().await;
    });
}

#[on_each_database]
fn key_may_come_as_x_api_key_everywhere(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let bodies = [
            ("/v1/chat/completions", chat()),
            ("/v1/embeddings", json!({"model": "embed-1", "input": "hi"})),
            ("/v1/responses", json!({"model": "chat-1", "input": "hi"})),
            ("/v1/messages", chat()),
            ("/v1/messages/count_tokens", chat()),
        ];
        for (path, body) in bodies {
            let call = || scene.world.post(path, &body).header("x-api-key", &scene.key);
            assert_eq!(call().send().await.status, 200, "{path}");
            assert_eq!(call().bearer(&scene.key).send().await.status, 200, "{path}");
            let differ = call().bearer("tk_another").send().await;
            assert_eq!((differ.status, differ.code().as_str()), (400, "conflicting_credentials"), "{path}");
            assert_eq!(call().header("authorization", "Basic x").send().await.status, 400, "{path}");
        }
    });
}

/// Codex opens a WebSocket first, and switches to HTTP immediately if the answer is 426.
#[on_each_database]
fn websocket_is_refused_as_codex_understands_it(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let upgrade = |path: &str| {
            let call = scene.world.get(path).bearer(&scene.key).header("connection", "Upgrade");
            call.header("upgrade", "websocket").header("sec-websocket-version", "13")
        };
        let answer = upgrade("/v1/responses").send().await;
        assert_eq!((answer.status, answer.code().as_str()), (426, "websocket_not_supported"));
        assert_eq!((answer.header("upgrade"), answer.header("x-should-retry")), ("HTTP/1.1", "false"));
        assert_eq!(scene.world.get("/v1/responses").bearer(&scene.key).send().await.status, 405);
        assert_eq!(upgrade("/v1/nothing").send().await.status, 404);
    });
}

#[on_each_database]
fn aliases_are_called_and_charged_as_their_model(database: Database) {
    with_model(database, "aliases = [\"gpt-5\", \"claude-sonnet-4-5\"]", async |scene| {
        answer_all(scene);
        let mut body = message();
        body["model"] = json!("claude-sonnet-4-5");
        let answer = scene.call("/v1/messages", &body).bare().await;
        assert_eq!(answer["model"], "claude-sonnet-4-5");
        assert_eq!(last_body(scene)["model"], "org/engine-model");
        // A key that is restricted to the model can use its aliases, and no others.
        let one = json!({"name": "one", "restrictions": {"models": ["tool-1"]}});
        let (_, one) = scene.world.key(&scene.ada, &scene.place, &one).await;
        let other = json!({"name": "other", "restrictions": {"models": ["chat-2"]}});
        let (_, other) = scene.world.key(&scene.ada, &scene.place, &other).await;
        let mut body = chat();
        body["model"] = json!("gpt-5");
        scene.world.post("/v1/chat/completions", &body).bearer(&one).bare().await;
        let refused = scene.world.post("/v1/chat/completions", &body).bearer(&other).refused().await;
        assert_eq!(refused, (403, "model_not_allowed".to_owned()));
        let by_alias = json!({"name": "alias", "restrictions": {"models": ["gpt-5"]}});
        let path = format!("{}/api-keys", scene.place.project_path());
        let refused = scene.world.post(&path, &by_alias).bearer(&scene.ada.access_token).send().await;
        assert_eq!(refused.status, 400, "restrictions name models by id: {}", refused.text);
        // Usage that another server reports under an alias also counts as usage of the model.
        let (key_id, key) = scene.world.key(&scene.ada, &scene.place, &json!({"name": "reported"})).await;
        let question = json!({"credential": key, "operation": "chat", "model": "gpt-5", "reserve": false});
        let decision = scene.world.ask("/service/v1/authorize", &question).bare().await;
        assert_eq!((&decision["allowed"], &decision["model"]), (&json!(true), &json!("gpt-5")));
        let event = json!({"id": "1", "source": "own", "time": scene.world.clock.now().to_string(), "api_key_id": key_id,
            "model": "gpt-5", "kind": "chat", "prompt_tokens": 5, "completion_tokens": 6});
        for expected in ["accepted", "duplicate"] {
            let results = scene.world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
            assert_eq!(results["results"][0]["status"], expected, "{results}");
        }
        let mut tx = scene.world.app.db.read().await.unwrap();
        let text = "SELECT model, prompt_tokens FROM usage_events ORDER BY prompt_tokens";
        let used: Vec<(String, i64)> = sql(text).all(&mut tx).await.unwrap();
        drop(tx);
        assert_eq!(used, [1, 1, 5].map(|tokens| ("tool-1".to_owned(), tokens)));
        // Aliases are listed only on request.
        let ids = async |path: &str| {
            let list = scene.world.get(path).bearer(&scene.key).bare().await;
            let data = list["data"].as_array().unwrap().clone();
            data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids("/v1/models").await, ["chat-1", "embed-1", "chat-2", "tool-1"]);
        let with_aliases = ["chat-1", "embed-1", "chat-2", "tool-1", "gpt-5", "claude-sonnet-4-5"];
        assert_eq!(ids("/v1/models?aliases=true").await, with_aliases);
        let one = scene.world.get("/v1/models/gpt-5").bearer(&scene.key).bare().await;
        assert_eq!((&one["id"], &one["root"]), (&json!("gpt-5"), &json!("tool-1")));
    });
}

#[on_each_database]
fn tokens_are_counted_by_the_server_or_estimated(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.choose(|request: &Received| {
            assert!(request.head[0].contains("/v1/messages/count_tokens"), "{:?}", request.head);
            json_answer(200, &json!({"input_tokens": 42}))
        });
        let count = |key: &str| {
            scene.world.post("/v1/messages/count_tokens?beta=true", &chat()).header("x-api-key", key)
        };
        let answer = count(&scene.key).send().await;
        assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 42})));
        assert_eq!(answer.header("x-tollkeeper-estimated"), "");
        assert_eq!(last_body(scene)["model"], "org/engine-model");
        // Counting needs no money, and doesn't use up the key's rate.
        let poor = scene.world.place(&scene.ada, "poor").await;
        let limited = json!({"name": "k", "restrictions": {"rate_limit": 1}});
        let (_, poor) = scene.world.key(&scene.ada, &poor, &limited).await;
        for _ in 0..3 {
            assert_eq!(count(&poor).bare().await["input_tokens"], 42);
        }
        // For a server that can't count, the tokens are estimated: three for the message, and one for its
        // text.
        scene.upstream.choose(|_: &Received| json_answer(404, &json!({"detail": "Not Found"})));
        let answer = count(&scene.key).send().await;
        assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 4})));
        assert_eq!(answer.header("x-tollkeeper-estimated"), "true");
        // Media at a URL isn't loaded for a count, neither by the gateway nor by the upstream.
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
        // The refusals are the same as for messages.
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

#[on_each_database]
fn betas_of_anthropic_reach_servers_of_ones_own(database: Database) {
    for (kind, more, passes) in [
        ("vllm", "", true),
        ("vllm", "deny_fields = [\"anthropic_beta\"]", false),
        ("openai", "", false),
        ("openai", "allow_fields = [\"anthropic_beta\"]", true),
    ] {
        with_upstream(database, kind, more, async |scene| {
            answer_all(scene);
            let call =
                scene.call("/v1/messages?beta=true", &chat()).header("anthropic-version", "2023-06-01");
            let answer = call.header("anthropic-beta", "one-2026,two-2026").send().await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let head = scene.upstream.received()[0].head.join("\n");
            assert!(head.contains("anthropic-version: 2023-06-01"), "{head}");
            assert_eq!(head.contains("anthropic-beta: one-2026,two-2026"), passes, "{kind} {more}: {head}");
            assert_eq!(head.contains("/v1/messages?beta=true"), passes, "{kind} {more}: {head}");
            // These headers are passed on only for messages.
            scene.chat(&chat()).header("anthropic-beta", "one-2026").bare().await;
            let head = scene.upstream.received()[1].head.join("\n");
            assert!(!head.contains("anthropic"), "{head}");
        });
    }
}

#[on_each_database]
fn paths_of_other_apis_answer_in_openais_form(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let world = &scene.world;
        for path in ["/v1/files", "/v1/moderations", "/v1/batches", "/v1/audio/speech"] {
            let answer = world.post(path, &json!({})).bearer(&scene.key).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_path"), "{path}");
            assert_eq!(answer.json().as_object().unwrap().len(), 1, "{path}: {}", answer.text);
        }
        for path in [
            "/v1/models/chat-1:generateContent",
            "/v1beta/models/chat-1:streamGenerateContent?alt=sse",
            "/v1beta/models/chat-1:countTokens",
        ] {
            let answer =
                world.post(path, &json!({"contents": []})).header("x-goog-api-key", &scene.key).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_path"), "{path}");
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("/v1/chat/completions"), "{path}: {message}");
        }
        let other = world.post("/v1/models/chat-1", &json!({})).bearer(&scene.key).send().await;
        assert_eq!((other.status, other.code().as_str()), (405, "method_not_allowed"));
        assert_eq!(world.call(http::Method::HEAD, "/api/hello").send().await.status, 200);
    });
}

#[on_each_database]
fn pages_of_every_origin_may_call_models_where_that_is_allowed(database: Database) {
    let route = |upstream: &Upstream| {
        let engine =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        ("routes = [{ upstream = \"engine\", model = \"m\" }]".to_owned(), engine)
    };
    let preflight = async |scene: &Scene, path: &str| {
        let call = scene.world.call(http::Method::OPTIONS, path).header("origin", "https://page.example");
        let call = call.header("access-control-request-method", "POST");
        call.header("access-control-request-headers", "authorization,x-stainless-lang").send().await
    };
    with_settings(database, &[("TOLLKEEPER_GATEWAY__ALLOW_BROWSERS", "true")], route, async |scene| {
        for path in ["/v1/chat/completions", "/v1/messages/count_tokens", "/v1/models"] {
            let answer = preflight(scene, path).await;
            assert_eq!(
                (answer.status, answer.header("access-control-allow-origin")),
                (200, "https://page.example"),
                "{path}"
            );
            assert_eq!(answer.header("access-control-allow-headers"), "authorization,x-stainless-lang");
        }
        answer_all(scene);
        let answer = scene.chat(&chat()).header("origin", "https://page.example").send().await;
        assert_eq!(
            (answer.status, answer.header("access-control-allow-origin")),
            (200, "https://page.example")
        );
        assert!(answer.header("access-control-expose-headers").contains("x-tollkeeper-max-tokens"));
        assert_eq!(answer.header("access-control-allow-credentials"), "");
        for path in ["/v1/organizations", "/v1/auth/login", "/console"] {
            assert_eq!(preflight(scene, path).await.header("access-control-allow-origin"), "", "{path}");
        }
    });
    with_settings(database, &[], route, async |scene| {
        assert_eq!(preflight(scene, "/v1/chat/completions").await.status, 405);
    });
}

/// The first call of each tool to the built-in demo, with the fields that the tool sends by default.
#[on_each_database]
async fn demo_answers_every_tools_first_word(world: support::world::World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        // Claude Code, for its default model and for a model that it doesn't know.
        (
            "/v1/messages?beta=true",
            json!({"model": "svc-1", "max_tokens": 128_000, "messages": messages, "stream": true}),
        ),
        (
            "/v1/messages?beta=true",
            json!({"model": "svc-1", "max_tokens": 32_000, "messages": messages, "stream": true,
            "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}, "context_management": {"edits": []}}),
        ),
        // OpenCode, Qwen Code.
        (
            "/v1/chat/completions",
            json!({"model": "svc-1", "max_tokens": 32_000, "messages": messages, "stream": true,
            "stream_options": {"include_usage": true}}),
        ),
        // Codex.
        (
            "/v1/responses",
            json!({"model": "svc-1", "input": "hi", "store": false, "stream": true,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {},
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}}]}),
        ),
        // pydantic-ai.
        ("/v1/messages", json!({"model": "svc-1", "max_tokens": 16_384, "messages": messages})),
    ] {
        let answer = world.post(path, &body).bearer(&key).send().await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        assert_eq!(answer.header("x-tollkeeper-demo"), "true");
    }
    let body = json!({"model": "svc-embedding-1-light", "input": "hi"});
    let answer = world.post("/v1/embeddings", &body).bearer(&key).bare().await;
    assert_eq!(answer["data"][0]["embedding"].as_array().unwrap().len(), 512, "as the catalog says");
    assert!(MODEL.contains("chat-1"));
}
