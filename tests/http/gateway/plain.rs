//! Answers that aren't streamed.

use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::db::sql;

use super::{Scene, with_upstream};
use support::upstream::{Step, json_answer, plain};
use support::{Database, on_each_database};

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

fn answer(usage: Option<Value>) -> Value {
    let mut answer = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "org/engine-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello there"},
            "logprobs": null, "finish_reason": "stop"}],
    });
    if let Some(usage) = usage {
        answer["usage"] = usage;
    }
    answer
}

/// Returns the cached tokens of the only event, 1 if it is an estimate, and its price in pico.
async fn recorded(scene: &Scene) -> (Option<i64>, i64, i64) {
    let mut tx = scene.world.app.db.read().await.unwrap();
    let text =
        "SELECT cached_prompt_tokens, estimated, amount_pico FROM usage_events WHERE source = 'gateway'";
    sql(text).one(&mut tx).await.unwrap()
}

#[on_each_database]
fn plain_answer_is_passed_on_and_counted(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let usage = json!({"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 2}});
        scene.upstream.script([json_answer(200, &answer(Some(usage.clone())))]);
        let response = scene.chat(&body()).send().await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, "application/json"),
            "{}",
            response.text
        );
        let mut expected = answer(Some(usage));
        expected["model"] = json!("chat-1");
        assert_eq!(response.json(), expected);
        assert!(!response.text.contains("stream"));
        assert_eq!(scene.upstream.received()[0].body.get("stream_options"), None);
        assert_eq!(scene.used().await, [(11, 3)]);
        // 9 × 0.000001 + 2 × 0.0000005 + 3 × 0.00001 = 0.00004
        assert_eq!(recorded(scene).await, (Some(2), 0, 40_000_000));
    });
}

#[on_each_database]
fn client_that_leaves_a_plain_call_pays_for_it(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let usage = json!({"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14});
        let mut steps = vec![Step::Pause(Duration::from_millis(600))];
        steps.extend(json_answer(200, &answer(Some(usage))));
        scene.upstream.script([steps]);
        let asked = scene.chat(&body()).send();
        assert!(tokio::time::timeout(Duration::from_millis(200), asked).await.is_err());
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(11, 3)]);
    });
}

#[on_each_database]
fn missing_usage_is_estimated(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.script([json_answer(200, &answer(None))]);
        let response = scene.chat(&body()).send().await;
        assert_eq!(response.status, 200);
        let used = scene.used().await;
        // Three for the message and one for its two letters, and the letters of the answer:
        // 4 × 0.000001 + 3 × 0.00001.
        assert_eq!(used, [(4, 3)]);
        assert_eq!(recorded(scene).await, (None, 1, 34_000_000));
    });
}

#[on_each_database]
fn answer_that_is_no_json_fails(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        for (content_type, text) in [("text/html", "<html>10.1.2.3"), ("application/json", "")] {
            scene.upstream.script([plain(200, content_type, text)]);
            let response = scene.chat(&body()).send().await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (502, "upstream_failed"),
                "{}",
                response.text
            );
            assert!(!response.text.contains("10.1"), "{}", response.text);
        }
        assert_eq!(scene.used().await, []);
    });
}
