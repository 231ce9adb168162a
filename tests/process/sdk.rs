//! The official SDKs of OpenAI and Anthropic with a real server: models and their answers, from the point of
//! view of existing programs.

mod llamacpp;
mod stories;

use std::process::Command;

use serde_json::{Value, json};

use support::node::node;
use support::process::{Start, run_to_end};
use support::python::python;
use support::upstream::{Received, Step, Upstream, event, named_event, stream_head};
use support::world::{Folder, runtime};

#[test]
fn openai_python_sdk_works() {
    if let Some(mut program) = python("openai", "openai", "the OpenAI SDK for Python") {
        program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/openai_client.py"));
        run_program(program);
    }
}

#[test]
fn anthropic_python_sdk_works() {
    if let Some(mut program) = python("anthropic", "anthropic", "the Anthropic SDK for Python") {
        program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/anthropic_client.py"));
        run_program(program);
    }
}

#[test]
fn openai_node_sdk_works() {
    if let Some(mut program) = node("openai", "the OpenAI SDK for Node") {
        program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/openai_client.cjs"));
        run_program(program);
    }
}

/// A model id with slashes and a colon, which programs encode in more than one way. Its upstream also ends
/// streams too early. The demo serves `svc-1`.
const SLASHES: &str = r#"
[[upstreams]]
id = "demo"
kind = "demo"

[[upstreams]]
id = "cutting"
kind = "vllm"
url = "CUTTING"

[[models]]
id = "acme/chat/v2:latest"
kind = "chat"
description = "A model of someone else"
owned_by = "acme"
created = 1704067200
max_tokens = 100
max_requests_per_min = 60
max_concurrent_requests = 5
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.000001" }]
routes = [{ upstream = "cutting" }]
"#;

/// Returns a stream with one word, after which the connection ends.
fn cut_stream(request: &Received) -> Vec<Step> {
    let path = request.head[0].split(' ').nth(1).unwrap();
    let word = match path {
        "/v1/chat/completions" => {
            event(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": null}]}))
        }
        "/v1/completions" => {
            event(&json!({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "text": "Hello", "logprobs": null, "finish_reason": null}]}))
        }
        "/v1/responses" => named_event(
            "response.output_text.delta",
            &json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
            "sequence_number": 0, "delta": "Hello", "logprobs": []}),
        ),
        "/v1/messages" => named_event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
        ),
        other => panic!("{other}"),
    };
    vec![stream_head(), word, Step::Close]
}

/// Runs the program with a URL and credentials for every case, and compares its number of requests with the
/// server's log.
fn run_program(mut program: Command) {
    let folder = Folder::new();
    let catalog = folder.0.join("catalog.toml");
    let built_in =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/default.toml")).unwrap();
    let runtime = runtime();
    let cutting = runtime.block_on(Upstream::start());
    cutting.choose(cut_stream);
    let demo = ["svc-1", "svc-embedding-1"].into_iter().fold(built_in, |text, model| {
        let id = format!("id = \"{model}\"");
        text.replace(&id, &format!("{id}\nroutes = [{{ upstream = \"demo\" }}]"))
    });
    std::fs::write(&catalog, demo + &SLASHES.replace("CUTTING", &cutting.url())).unwrap();
    let server = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let key = |body: Value| {
        let path = format!("{}/api-keys", place.project_path);
        let key = server.post(&path, &body).bearer(&ada.access_token).data();
        key["key"].as_str().unwrap().to_owned()
    };
    let ids: Vec<_> = place.project_path.split('/').collect();
    let &["", "v1", "organizations", organization, "projects", project] = ids.as_slice() else {
        panic!("{}", place.project_path)
    };
    // A person's second organization has no credit.
    let poor_key = {
        let post = |path: &str, name: &str| {
            server.post(path, &json!({"name": name})).bearer(&ada.access_token).data()
        };
        let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
        let projects = format!("/v1/organizations/{}/projects", id(&post("/v1/organizations", "Poor")));
        let keys = format!("{projects}/{}/api-keys", id(&post(&projects, "Bot")));
        post(&keys, "key")["key"].as_str().unwrap().to_owned()
    };
    let models = [
        "svc-1",
        "svc-1-turbo",
        "svc-1-pro",
        "svc-embedding-1",
        "svc-embedding-1-light",
        "svc-embedding-1-pro",
        "acme/chat/v2:latest",
    ];
    let setup = json!({
        "base_url": format!("http://{}/v1", server.public),
        "models": models,
        "key": place.key,
        "access_token": ada.access_token,
        "organization": organization,
        "project": project,
        "no_models_key": key(json!({"name": "chat only", "permissions": ["chat"]})),
        "no_chat_key": key(json!({"name": "models only", "permissions": ["models"]})),
        "one_model_key": key(json!({"name": "svc-1 only", "restrictions": {"models": ["svc-1"]}})),
        "poor_key": poor_key,
        "slow_key": key(json!({"name": "slow", "restrictions": {"rate_limit": 60}})),
    });
    // The log line of this request comes before those of the program.
    server.get("/openapi.json").bare();
    let ended = run_to_end({
        program.arg(setup.to_string());
        program
    });
    let sent = ended.stdout.trim().strip_prefix("all good ").and_then(|count| count.parse::<usize>().ok());
    assert!(ended.code == Some(0) && sent.is_some(), "{}\n{}", ended.stdout, ended.log);
    // The SDK retried no call silently, so it respects answers that forbid a retry.
    let log = server.stop().log;
    let of_the_program = log.split_once("/openapi.json").map_or("", |(_, rest)| rest);
    let seen = of_the_program.lines().filter(|line| line.contains("tollkeeper::access")).count();
    assert_eq!(Some(seen), sent, "{log}");
}
