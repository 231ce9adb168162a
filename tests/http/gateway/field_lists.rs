//! The fields that the contract lists (docs/contract/gateway.md#fields) are those that upstreams get.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Scene, with_upstream};
use support::upstream::{Received, Step, json_answer};
use support::{Database, on_each_database};

/// Operations by their names in the contract's table, with their paths and the smallest body of each.
const OPERATIONS: [(&str, &str, &str); 5] = [
    (
        "chat completions",
        "/v1/chat/completions",
        r#"{"model":"chat-1","messages":[{"role":"user","content":"hi"}]}"#,
    ),
    ("completions", "/v1/completions", r#"{"model":"chat-1","prompt":"hi"}"#),
    ("embeddings", "/v1/embeddings", r#"{"model":"embed-1","input":"hi"}"#),
    ("responses", "/v1/responses", r#"{"model":"chat-1","input":"hi"}"#),
    (
        "messages",
        "/v1/messages",
        r#"{"model":"chat-1","messages":[{"role":"user","content":"hi"}],"max_tokens":5}"#,
    ),
];

/// Fields whose values are read, with a value that passes.
const VALUES: &str = r#"{"stream":false,"n":1,"best_of":1,"max_tokens":5,"max_completion_tokens":5,"max_output_tokens":5,
    "max_tool_calls":1,"tools":[],"functions":[],"modalities":["text"],"store":false,"background":false,"include":[],
    "service_tier":"auto","speed":"standard","echo":false,"messages":[{"role":"user","content":"hi"}],"prompt":"hi","input":"hi",
    "system":"be short","instructions":"be short","suffix":"x","encoding_format":"float","stop":"x","user":"u"}"#;

/// Fields that are read together with others, and the model, whose name is changed.
const ELSEWHERE: [&str; 2] = ["model", "stream_options"];

/// Names that no list has.
const UNLISTED: [&str; 5] = ["made_up", "web_search_options", "audio", "prediction", "inference_geo"];

fn names(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the fields that the operator's own servers don't get, and those that a provider gets, by operation.
fn lists() -> (BTreeSet<String>, BTreeMap<String, BTreeSet<String>>) {
    let text = std::fs::read_to_string("docs/contract/gateway.md").unwrap();
    let section = text.split("\n## Fields\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no row {name}"));
    let refused = names(row("fields")[1].strip_prefix("all but ").unwrap());
    let of = |operation: &str| {
        let mut all = &names(row("all")[1]) | &names(row(operation)[1]);
        if operation != "embeddings" {
            all.extend(names(row("all but embeddings")[1]));
        }
        (operation.to_owned(), all)
    };
    (refused, OPERATIONS.iter().map(|(operation, ..)| of(operation)).collect())
}

/// Answers each operation with one token of a prompt and none of an answer.
fn answer(request: &Received) -> Vec<Step> {
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1});
    let text = match request.head[0].split(' ').nth(1).unwrap() {
        "/v1/embeddings" => json!({"data": [{"index": 0, "embedding": [0.5]}], "usage": usage}),
        "/v1/responses" => json!({"object": "response", "status": "completed", "output": [],
            "usage": {"input_tokens": 1, "output_tokens": 0, "total_tokens": 1}}),
        "/v1/messages" => json!({"type": "message", "content": [], "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 0}}),
        _ => {
            json!({"choices": [{"index": 0, "text": "", "message": {"content": ""}, "finish_reason": "stop"}],
            "usage": usage})
        }
    };
    json_answer(200, &text)
}

/// Sends a call with this field; returns the name that it is refused for.
async fn refused(scene: &Scene, path: &str, body: &str, name: &str, value: &Value) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).unwrap();
    body[name] = value.clone();
    let response = scene.call(path, &body).send().await;
    if response.status == 200 {
        return None;
    }
    assert_eq!(
        (response.status, response.code().as_str()),
        (400, "unsupported_parameter"),
        "{name}: {}",
        response.text
    );
    Some(response.json()["error"]["param"].as_str().unwrap().to_owned())
}

#[on_each_database]
fn own_servers_get_no_field_of_their_list(database: Database) {
    let (listed, _) = lists();
    assert!(listed.len() > 30, "{listed:?}");
    for kind in ["vllm", "sglang", "llamacpp", "tgi"] {
        with_upstream(database, kind, "", async |scene| {
            scene.upstream.choose(answer);
            let (_, path, body) = OPERATIONS[0];
            for name in &listed {
                let found = refused(scene, path, body, name, &json!(1)).await;
                assert_eq!(found.as_ref(), Some(name), "{name} at {kind}");
            }
            assert!(scene.upstream.received().is_empty(), "no refused call reaches the upstream");
            for name in UNLISTED {
                assert_eq!(refused(scene, path, body, name, &json!(1)).await, None, "{name} at {kind}");
            }
        });
    }
}

#[on_each_database]
fn providers_get_the_fields_of_their_lists_only(database: Database) {
    let (of_own_servers, listed) = lists();
    let values: Value = serde_json::from_str(VALUES).unwrap();
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.choose(answer);
        for (operation, path, body) in OPERATIONS {
            let listed = &listed[operation];
            for name in listed.iter().filter(|name| !ELSEWHERE.contains(&name.as_str())) {
                let value = values.get(name).cloned().unwrap_or(json!(1));
                assert_eq!(refused(scene, path, body, name, &value).await, None, "{name} of {operation}");
                let received = scene.upstream.received().pop().unwrap().body;
                assert_eq!(received[name], value, "{name} of {operation}");
            }
            let asked = scene.upstream.received().len();
            let others = of_own_servers.iter().map(String::as_str).chain(UNLISTED);
            for name in others.filter(|name| !listed.contains(*name)) {
                let found = refused(scene, path, body, name, &json!(1)).await;
                assert_eq!(found.as_deref(), Some(name), "{name} of {operation}");
            }
            assert_eq!(scene.upstream.received().len(), asked);
        }
    });
}
