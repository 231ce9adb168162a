//! The gateway learns from its own requests, never from a client's, which fields an upstream accepts.

use serde_json::{Value, json};

use super::counters::lines;
use super::{Scene, with_upstream};
use support::http::Answer;
use support::upstream::{Received, Step, json_answer, stream};
use support::{Database, on_each_database};

/// The text of the gateway's own request.
const PROBE: &str = "Hello";

fn hello() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true})
}

/// Returns a stream with a few words, whose `usage` object reports 900 tokens.
fn good() -> Vec<Step> {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "five words of an answer"}, "finish_reason": "stop"}]});
    let usage =
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 900, "total_tokens": 909}});
    stream(&[chunk, usage])
}

fn refusal(message: &str) -> Vec<Step> {
    json_answer(400, &json!({"error": {"message": message, "type": "invalid_request_error", "code": null}}))
}

/// Makes the upstream refuse requests with this field.
fn refuse_field(scene: &Scene, pointer: &'static str, message: &'static str) {
    scene.upstream.choose(move |request| match request.body.pointer(pointer) {
        Some(_) => refusal(message),
        None => good(),
    });
}

fn is_probe(request: &Received) -> bool {
    request.body.pointer("/messages/0/content") == Some(&json!(PROBE))
}

/// Returns the requests since the previous call of this function.
fn sent(scene: &Scene, seen: &mut usize) -> Vec<Received> {
    let all = scene.upstream.received();
    let new = all[*seen..].to_vec();
    *seen = all.len();
    new
}

async fn chat(scene: &Scene, body: &Value) -> Answer {
    scene.chat(body).send().await
}

/// The upstream's error repeats a value that the client chose, as those of OpenAI and llama.cpp do. Other
/// calls are still counted: each costs 9 × 0.000001 + 900 × 0.00001 = 0.009009.
fn clients_teach_nothing(database: Database, kind: &str, field: &str, counted_by: &str) {
    with_upstream(database, kind, "", async |scene| {
        let message = format!("Invalid tool_choice: {field}");
        scene.upstream.choose(move |request| match request.body.get("tool_choice") {
            Some(_) => refusal(&message),
            None => good(),
        });
        let mut hostile = hello();
        hostile["tool_choice"] = json!(field);
        for _ in 0..3 {
            let response = chat(scene, &hostile).await;
            assert_eq!(
                (response.status, response.json()["error"]["code"].clone()),
                (400, json!("invalid_request"))
            );
            assert!(chat(scene, &hello()).await.text.ends_with("data: [DONE]\n\n"));
        }
        let requests = scene.upstream.received();
        assert!(
            requests.iter().all(|request| request.body.pointer(counted_by) == Some(&json!(true))),
            "{requests:?}"
        );
        // Only one probe per minute is sent, regardless of how often clients try.
        assert_eq!(requests.iter().filter(|request| is_probe(request)).count(), 1);
        assert_eq!(scene.used().await, [(9, 900); 3]);
        assert_eq!(refused_fields(scene).await, [""; 0]);
    });
}

#[on_each_database]
fn clients_cant_switch_off_the_counts_of_vllm(database: Database) {
    clients_teach_nothing(database, "vllm", "include_usage", "/stream_options/include_usage");
}

#[on_each_database]
fn clients_cant_switch_off_the_counts_of_openai(database: Database) {
    clients_teach_nothing(database, "openai", "stream_options", "/stream_options/include_usage");
}

#[on_each_database]
fn clients_cant_switch_off_the_counts_of_llamacpp(database: Database) {
    clients_teach_nothing(database, "llamacpp", "timings_per_token", "/timings_per_token");
}

/// Returns the lines of the metric of refused fields.
async fn refused_fields(scene: &Scene) -> Vec<String> {
    let is_one = |line: &String| line.starts_with("tollkeeper_gateway_upstream_field_refused");
    lines(scene).await.into_iter().filter(is_one).collect()
}

/// The gateway's own probe confirms a refused field for ten minutes, for all calls with this operation and
/// model.
#[on_each_database]
fn field_that_a_probe_confirms_is_left_out_for_ten_minutes(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let pointer = "/stream_options/continuous_usage_stats";
        refuse_field(scene, pointer, "Unknown field: continuous_usage_stats");
        let is_sent = |request: &Received| (is_probe(request), request.body.pointer(pointer).is_some());
        let mut seen = 0;
        let rounds: [(i64, &[(bool, bool)]); 4] = [
            // The call, the probe with the field and without it, and the call again.
            (0, &[(false, true), (true, true), (true, false), (false, false)]),
            (599_998, &[(false, false)]),
            (0, &[(false, true), (true, true), (true, false), (false, false)]),
            (0, &[(false, false)]),
        ];
        for (pause_ms, expected) in rounds {
            scene.world.clock.advance_ms(pause_ms);
            assert!(chat(scene, &hello()).await.text.ends_with("data: [DONE]\n\n"));
            assert_eq!(sent(scene, &mut seen).iter().map(is_sent).collect::<Vec<_>>(), expected);
        }
        let line = "tollkeeper_gateway_upstream_field_refused{field=\"continuous_usage_stats\",model=\"org/engine-model\",upstream=\"engine\"} 1";
        assert_eq!(refused_fields(scene).await, [line]);
        assert_eq!(scene.used().await, [(9, 900); 4]);
    });
}

/// After an upgrade of the upstream, its tokens are counted exactly again without a restart.
#[on_each_database]
fn field_is_sent_again_once_the_upstream_takes_it(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        refuse_field(scene, "/stream_options", "Unknown field: stream_options");
        chat(scene, &hello()).await;
        scene.upstream.choose(|_| good());
        scene.world.clock.advance_ms(600_000);
        let mut seen = scene.upstream.received().len();
        assert!(chat(scene, &hello()).await.text.ends_with("data: [DONE]\n\n"));
        let requests = sent(scene, &mut seen);
        let options = json!({"include_usage": true, "continuous_usage_stats": true});
        assert_eq!(
            requests.iter().map(|request| &request.body["stream_options"]).collect::<Vec<_>>(),
            [&options]
        );
    });
}

/// A probe that isn't answered, or is refused for another reason, changes nothing: the client gets the
/// upstream's 400.
#[on_each_database]
fn probe_without_an_answer_changes_nothing(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.choose(|request| match is_probe(request) {
            true => json_answer(500, &json!({"error": {"message": "the engine died"}})),
            false if request.body.get("seed").is_some() => refusal("include_usage"),
            false => good(),
        });
        let mut odd = hello();
        odd["seed"] = json!(1);
        assert_eq!(chat(scene, &odd).await.status, 400);
        assert!(chat(scene, &hello()).await.text.ends_with("data: [DONE]\n\n"));
        let requests = scene.upstream.received();
        assert!(
            requests.iter().all(|request| request.body["stream_options"]["include_usage"] == json!(true))
        );
        assert_eq!(scene.used().await, [(9, 900)]);
    });
}

/// Unknown members of `stream_options` could make an upstream count differently, or refuse the gateway's
/// members, so they are never sent to it.
#[on_each_database]
fn unknown_stream_options_are_refused(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.choose(|_| good());
        for name in ["foo", "Include_Usage", "include_usage2"] {
            let mut body = hello();
            body["stream_options"] = json!({"include_obfuscation": false, name: true});
            let response = chat(scene, &body).await;
            let error = response.json()["error"].clone();
            assert_eq!(
                (response.status, &error["code"], &error["param"]),
                (400, &json!("unsupported_parameter"), &json!("stream_options"))
            );
            assert!(
                error["message"].as_str().unwrap().contains(&format!("`stream_options.{name}`")),
                "{error}"
            );
            let mut answer = json!({"model": "chat-1", "input": "hi", "stream": true});
            answer["stream_options"] = json!({name: true});
            assert_eq!(scene.call("/v1/responses", &answer).send().await.status, 400);
        }
        assert_eq!(scene.upstream.received().len(), 0);
        let mut body = hello();
        body["stream_options"] = json!({"include_obfuscation": false});
        assert_eq!(chat(scene, &body).await.status, 200);
        let expected = json!({"include_obfuscation": false, "include_usage": true});
        assert_eq!(scene.upstream.received()[0].body["stream_options"], expected);
    });
}
