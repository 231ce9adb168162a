//! Features that let common tools work with nothing but a base URL, a key and a model: Claude Code, Codex,
//! OpenCode and the like.

mod aliases;
mod credentials;
mod limits;
mod other_apis;
mod token_counts;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Scene, with_catalog, with_settings, with_upstream};

use support::http::Answer;
use support::upstream::{Received, Upstream, json_answer};
use support::{Database, on_each_database};

fn chat() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

fn message() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 32_000})
}

/// Answers every call, regardless of its form, with a usage of one token each.
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

/// Runs a test with a model `tool-1`, which is like `chat-1` but for these lines.
fn with_model(database: Database, lines: &'static str, test: impl AsyncFn(&Scene)) {
    let defaults = ["max_tokens = 1000", "context_length = 5000", "max_requests_per_min = 6000"];
    let is_set = |key: &str| lines.lines().any(|line| line.starts_with(key));
    let defaults = defaults.into_iter().filter(|line| !is_set(line.split('=').next().unwrap()));
    let lines = defaults.chain(lines.lines()).collect::<Vec<_>>().join("\n");
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

fn assert_lasting(answer: &Answer, status: u16, code: &str, kind: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text);
    assert_eq!(answer.json()["error"]["type"], kind, "{}", answer.text);
    assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), ("false", ""), "{code}");
}

/// Most tools try a 429 again for minutes, and a 401 too.
#[on_each_database]
fn what_stays_refused_is_not_tried_again(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let poor = scene.world.place(&scene.ada, "poor").await;
        let (_, poor) = scene.world.key(&scene.ada, &poor, &json!({"name": "k"})).await;
        let world = &scene.world;
        let ask = |path: &'static str, key: &str| {
            let body = match path {
                "/v1/completions" => json!({"model": "chat-1", "prompt": "hi"}),
                "/v1/embeddings" => json!({"model": "embed-1", "input": "hi"}),
                "/v1/responses" => json!({"model": "chat-1", "input": "hi"}),
                _ => chat(),
            };
            world.post(path, &body).bearer(key)
        };
        for (path, kind) in [
            ("/v1/chat/completions", "insufficient_quota"),
            ("/v1/completions", "insufficient_quota"),
            ("/v1/embeddings", "insufficient_quota"),
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
        // These pass by themselves.
        let limited = json!({"name": "r", "restrictions": {"rate_limit": 1}});
        let (_, limited) = world.key(&scene.ada, &scene.place, &limited).await;
        answer_all(scene);
        ask("/v1/chat/completions", &limited).bare().await;
        let rated = ask("/v1/chat/completions", &limited).send().await;
        assert_eq!((rated.status, rated.header("x-should-retry")), (429, ""));
        assert!(!rated.header("retry-after").is_empty());
    });
}

/// Returns the sentence that docs/tools.md has for a problem, without its numbers.
fn sentence(problem: &str, status: u16) -> String {
    let start = format!("| {problem} | {status} | ");
    let page = include_str!("../../../docs/tools.md");
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(&start)).collect();
    assert_eq!(rows.len(), 1, "{start}");
    without_numbers(rows[0].strip_suffix(" |").unwrap())
}

fn without_numbers(text: &str) -> String {
    let words = text.split(' ').filter(|word| !word.starts_with(|first: char| first.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// Tools show these sentences, so a user looks for them on the page.
#[on_each_database]
fn page_of_tools_has_the_sentences_of_refusals(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let world = &scene.world;
        let poor = world.place(&scene.ada, "poor").await;
        let (_, poor) = world.key(&scene.ada, &poor, &json!({"name": "k"})).await;
        let limited = json!({"name": "r", "restrictions": {"rate_limit": 1}});
        let (_, limited) = world.key(&scene.ada, &scene.place, &limited).await;
        world.post("/v1/chat/completions", &chat()).bearer(&limited).bare().await;
        let mut unknown = chat();
        unknown["model"] = json!("nope");
        for (problem, status, key, body) in [
            ("money", 402, &poor, chat()),
            ("key", 401, &"tk_wrong".to_owned(), chat()),
            ("model", 404, &scene.key, unknown),
            ("rate", 429, &limited, chat()),
        ] {
            for path in ["/v1/chat/completions", "/v1/messages"] {
                let answer = world.post(path, &body).bearer(key).send().await;
                assert_eq!(answer.status, status, "{problem}: {}", answer.text);
                let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
                assert_eq!(without_numbers(&message), sentence(problem, status), "{path}");
            }
        }
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
        // A page can also read why a call is refused.
        let refused = scene.world.post("/v1/messages", &chat()).header("x-api-key", "tk_wrong");
        let refused = refused.header("origin", "https://page.example").send().await;
        assert_eq!(
            (refused.status, refused.header("access-control-allow-origin")),
            (401, "https://page.example")
        );
        for path in ["/v1/organizations", "/v1/auth/login", "/console"] {
            assert_eq!(preflight(scene, path).await.header("access-control-allow-origin"), "", "{path}");
        }
    });
    with_settings(database, &[], route, async |scene| {
        assert_eq!(preflight(scene, "/v1/chat/completions").await.status, 405);
    });
}

/// Every tool's first word at the built-in demo, with the fields that it sends by default, from design and
/// measurement.
#[on_each_database]
async fn demo_answers_every_tools_first_word(world: support::world::World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        // Claude Code, for its default model and for one that it doesn't know.
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
        // A program that has its prompt cached.
        ("/v1/messages", json!({"model": "svc-1", "max_tokens": 0, "messages": messages})),
    ] {
        let answer = world.post(path, &body).bearer(&key).send().await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        assert_eq!(answer.header("x-tollkeeper-demo"), "true");
    }
}

#[on_each_database]
async fn demos_vectors_have_the_dimension_of_their_model(world: support::world::World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let list = world.get("/v1/models").bearer(&key).bare().await;
    let models = list["data"].as_array().unwrap().iter().filter(|model| !model["dimension"].is_null());
    let mut dimensions = Vec::new();
    for model in models {
        let body = json!({"model": model["id"], "input": ["hi", "there"]});
        let answer = world.post("/v1/embeddings", &body).bearer(&key).bare().await;
        for vector in answer["data"].as_array().unwrap() {
            assert_eq!(json!(vector["embedding"].as_array().unwrap().len()), model["dimension"], "{model}");
        }
        // OpenAI's SDKs ask for base64: each number has four bytes.
        let mut base64 = body.clone();
        base64["encoding_format"] = json!("base64");
        let answer = world.post("/v1/embeddings", &base64).bearer(&key).bare().await;
        let bytes = STANDARD.decode(answer["data"][1]["embedding"].as_str().unwrap()).unwrap();
        assert_eq!(json!(bytes.len() / 4), model["dimension"], "{model}");
        dimensions.push(bytes.len() / 4);
    }
    assert_eq!(dimensions, [1024, 512, 2048]);
}
