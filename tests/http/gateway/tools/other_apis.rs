//! Requests that tools make of the APIs that they were written for.

use http::Method;
use serde_json::json;

use super::{answer_all, chat};
use crate::gateway::with_upstream;

use support::{Database, on_each_database};

/// Codex opens a WebSocket first, and uses HTTP at once when the answer is 426.
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
            // They belong to messages alone.
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
        // Anthropic's SDKs read the errors of `/v1/messages`.
        let answer =
            world.post("/v1/messages/batches", &json!({})).header("x-api-key", &scene.key).send().await;
        let error = answer.json();
        assert_eq!((answer.status, &error["type"]), (404, &json!("error")), "{}", answer.text);
        assert_eq!(
            (&error["error"]["type"], &error["error"]["code"]),
            (&json!("not_found_error"), &json!("unknown_path"))
        );
        for (method, path, instead) in [
            (Method::POST, "/v1/models/chat-1:generateContent", "POST /v1/chat/completions"),
            (
                Method::POST,
                "/v1beta/models/chat-1:streamGenerateContent?alt=sse",
                "POST /v1/chat/completions",
            ),
            (Method::POST, "/v1/models/embed-1:batchEmbedContents", "POST /v1/embeddings"),
            (Method::POST, "/v1beta/models/embed-1:embedContent", "POST /v1/embeddings"),
            (Method::POST, "/v1beta/models/chat-1:countTokens", "POST /v1/messages/count_tokens"),
            (Method::GET, "/v1beta/models?pageSize=50", "GET /v1/models"),
            (Method::GET, "/v1beta/models/chat-1", "GET /v1/models"),
            (Method::GET, "/v1alpha/models", "GET /v1/models"),
            (Method::POST, "/v1beta/cachedContents", "POST /v1/chat/completions"),
        ] {
            let call = world.call(method, path).header("x-goog-api-key", &scene.key);
            let answer = call.json(&json!({"contents": []})).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_path"), "{path}");
            assert_eq!(answer.json().as_object().unwrap().len(), 1, "{path}: {}", answer.text);
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(&format!("Call `{instead}`")), "{path}: {message}");
        }
        let other = world.post("/v1/models/chat-1", &json!({})).bearer(&scene.key).send().await;
        assert_eq!((other.status, other.code().as_str()), (405, "method_not_allowed"));
        // Claude Code calls this without a credential.
        let head = world.call(Method::HEAD, "/api/hello").send().await;
        assert_eq!((head.status, head.text.as_str()), (200, ""));
        assert_eq!(world.get("/api/hello").bare().await, json!({"message": "hello"}));
    });
}
