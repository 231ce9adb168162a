//! Credentials and headers as tools send them.

use serde_json::json;

use super::{answer_all, chat};
use crate::gateway::with_upstream;

use support::{Database, on_each_database};

/// `OPENAI_ORG_ID` in the environment has OpenAI's SDKs send headers with every call.
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
            ("/v1/messages/count_tokens", chat()),
        ];
        for (path, body) in bodies {
            let call = scene.call(path, &body).header("openai-organization", "org-theirs");
            let answer = call.header("openai-project", "proj_theirs").send().await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
        let call =
            scene.world.get("/v1/models").bearer(&scene.key).header("openai-organization", "org-theirs");
        call.bare().await;
        // A person has to name both, and these are theirs.
        let ada = &scene.ada.access_token;
        let call = scene.world.post("/v1/chat/completions", &chat()).bearer(ada);
        let call = call.header("openai-organization", "org-theirs").header("openai-project", "proj_theirs");
        assert_eq!(call.refused().await, (404, "organization_not_found".to_owned()));
    });
}

#[on_each_database]
fn key_may_come_as_x_api_key_everywhere(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let bodies = [
            ("/v1/chat/completions", chat()),
            ("/v1/completions", json!({"model": "chat-1", "prompt": "hi"})),
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

/// A program sends an empty header if the variable with the key is set and empty.
#[on_each_database]
fn empty_credential_is_none(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let world = &scene.world;
        for (name, call) in [
            ("chat", world.post("/v1/chat/completions", &chat())),
            ("message", world.post("/v1/messages", &chat())),
            ("models", world.get("/v1/models")),
        ] {
            let answer = call.header("x-api-key", "").bearer(&scene.key).send().await;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        }
        for empty in ["", "Bearer", "bearer "] {
            let call = world.post("/v1/messages", &chat()).header("authorization", empty);
            let answer = call.header("x-api-key", &scene.key).send().await;
            assert_eq!(answer.status, 200, "{empty:?}: {}", answer.text);
        }
        let none =
            world.post("/v1/messages", &chat()).header("x-api-key", " ").header("authorization", "Bearer");
        assert_eq!(none.refused().await, (401, "missing_credentials".to_owned()));
        let several = world.post("/v1/messages", &chat()).header("authorization", "Bearer");
        let several = several.header("authorization", "Bearer tk_another").header("x-api-key", &scene.key);
        assert_eq!(several.refused().await, (400, "conflicting_credentials".to_owned()));
    });
}
