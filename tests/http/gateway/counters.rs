//! The counters of calls, as Prometheus reads them.

use http::Method;
use serde_json::{Value, json};

use super::{Scene, with_upstream};
use support::http::Call;
use support::upstream::{Step, event, json_answer, stream, stream_head};
use support::{Database, on_each_database};

/// Returns the lines of the gateway's metrics, without histograms.
pub async fn lines(scene: &Scene) -> Vec<String> {
    let call = Call::new(&scene.world.service, Method::GET, "/metrics");
    let text = call.bearer(scene.world.app.api.service_token.expose()).send().await.text;
    let is_ours = |line: &&str| line.starts_with("tollkeeper_gateway_") && !line.contains("_seconds");
    text.lines().filter(is_ours).map(str::to_owned).collect()
}

#[on_each_database]
fn calls_attempts_and_tokens_are_counted(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let word = |finish: Value| json!({"choices": [{"index": 0, "delta": {"content": "four"}, "finish_reason": finish}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 3}}});
        scene.upstream.script([
            stream(&[word(json!("stop")), usage]),
            vec![stream_head(), event(&word(Value::Null)), Step::Close],
            json_answer(500, &json!({})),
        ]);
        for _ in 0..3 {
            scene.chat(&body).send().await;
        }
        scene.assert_settled().await;
        // The cut stream is estimated: three tokens for the message, one for its letters, and one for the
        // event.
        let expected = [
            "tollkeeper_gateway_attempts_total{code=\"answered\",upstream=\"engine\"} 2",
            "tollkeeper_gateway_attempts_total{code=\"upstream_failed\",upstream=\"engine\"} 1",
            "tollkeeper_gateway_calls_open 0",
            "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"completed\"} 1",
            "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"cut\"} 1",
            "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"failed\"} 1",
            "tollkeeper_gateway_estimates_total{model=\"chat-1\",upstream=\"engine\"} 1",
            "tollkeeper_gateway_tokens_total{kind=\"cached_prompt\",model=\"chat-1\"} 3",
            "tollkeeper_gateway_tokens_total{kind=\"completion\",model=\"chat-1\"} 3",
            "tollkeeper_gateway_tokens_total{kind=\"prompt\",model=\"chat-1\"} 11",
            "tollkeeper_gateway_upstream_tokens_total{source=\"counted\",upstream=\"engine\"} 9",
            "tollkeeper_gateway_upstream_tokens_total{source=\"estimated\",upstream=\"engine\"} 5",
        ];
        assert_eq!(lines(scene).await, expected);
    });
}
