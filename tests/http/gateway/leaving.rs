//! The cost of a call whose client disconnects: the upstream's work until then, by the upstream's own count
//! (docs/contract/gateway.md#what-a-call-costs).

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tollkeeper::db::sql;

use super::{Scene, with_upstream};
use support::http::Call;
use support::upstream::{Step, end_of_body, event, json_answer, named_event, piece, plain, stream_head};
use support::{Database, on_each_database};

fn chat() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true})
}

fn named(data: &Value) -> Step {
    named_event(data["type"].as_str().unwrap(), data)
}

/// Returns prompt, completion and cached tokens of the only event, 1 for an estimate, and the price in pico.
async fn recorded(scene: &Scene) -> (i64, i64, Option<i64>, i64, i64) {
    let mut tx = scene.world.app.db.read().await.unwrap();
    let tokens = "SELECT prompt_tokens, completion_tokens, cached_prompt_tokens FROM usage_events \
        WHERE source = 'gateway'";
    let (prompt, completion, cached) = sql(tokens).one(&mut tx).await.unwrap();
    let price = "SELECT estimated, amount_pico FROM usage_events WHERE source = 'gateway'";
    let (estimated, amount) = sql(price).one(&mut tx).await.unwrap();
    (prompt, completion, cached, estimated, amount)
}

/// Waits until the upstream has this many requests.
async fn received(scene: &Scene, count: usize) {
    while scene.upstream.received().len() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn metrics(scene: &Scene) -> String {
    let call = Call::new(&scene.world.service, Method::GET, "/metrics");
    call.bearer(scene.world.app.api.service_token.expose()).send().await.text
}

/// Disconnects a client from a stream after the first piece. The upstream continues once the client has left.
async fn leave(scene: &Scene, path: &str, body: &Value, first: Vec<Step>, rest: Vec<Step>) {
    let gate = Arc::new(Semaphore::new(0));
    let mut steps = vec![stream_head()];
    steps.extend(first);
    steps.push(Step::AwaitPermit(Arc::clone(&gate)));
    steps.extend(rest);
    scene.upstream.script([steps]);
    let mut stream = scene.call(path, body).open().await.into_body();
    assert!(stream.frame().await.unwrap().is_ok());
    drop(stream);
    gate.add_permits(1);
    scene.assert_settled().await;
}

fn delta(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

/// Returns the end of a chat, whose usage includes 2,000 tokens without text.
fn end_of_chat() -> Vec<Step> {
    let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 2_005}});
    vec![event(&finish), event(&usage), piece("data: [DONE]\n\n"), end_of_body()]
}

#[on_each_database]
fn chat_without_running_counts_is_read_to_its_end(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let mut body = chat();
        body["max_tokens"] = json!(1_000);
        body["n"] = json!(3);
        leave(scene, "/v1/chat/completions", &body, vec![event(&delta("four"))], end_of_chat()).await;
        // 900 × 0.000001 + 2,005 × 0.00001 = 0.02095
        assert_eq!(recorded(scene).await, (900, 2_005, None, 0, 20_950_000_000));
    });
}

#[on_each_database]
fn response_of_vllm_is_read_to_its_end(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let body = json!({"model": "chat-1", "input": "hi", "stream": true});
        let first = vec![
            named(&json!({"type": "response.created", "response": {"model": "m"}})),
            named(&json!({"type": "response.output_text.delta", "delta": "four"})),
        ];
        let usage = json!({"input_tokens": 900, "output_tokens": 705});
        let end = named(&json!({"type": "response.completed", "response": {"usage": usage}}));
        leave(scene, "/v1/responses", &body, first, vec![end, end_of_body()]).await;
        // 900 × 0.000001 + 705 × 0.00001 = 0.00795
        assert_eq!(recorded(scene).await, (900, 705, None, 0, 7_950_000_000));
    });
}

#[on_each_database]
fn message_of_vllm_is_read_to_its_end(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let mut body = chat();
        body["max_tokens"] = json!(900);
        let start = json!({"type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 900, "output_tokens": 0}}});
        let text = json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "four"}});
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 705}});
        let rest = vec![named(&end), named(&json!({"type": "message_stop"})), end_of_body()];
        leave(scene, "/v1/messages", &body, vec![named(&start), named(&text)], rest).await;
        assert_eq!(recorded(scene).await, (900, 705, None, 0, 7_950_000_000));
    });
}

/// After text without a count, the stream is read until the next count; then the upstream is stopped.
#[on_each_database]
fn upstream_that_counts_is_stopped_at_its_next_count(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let mut counted = delta("five");
        counted["usage"] = json!({"prompt_tokens": 9, "completion_tokens": 7});
        let rest = vec![event(&delta("four")), event(&counted), Step::AwaitClose];
        leave(scene, "/v1/chat/completions", &chat(), vec![event(&delta("four"))], rest).await;
        scene.upstream.left(1).await;
        // The number of tokens from a cache isn't known.
        assert_eq!(recorded(scene).await, (9, 7, None, 1, 79_000_000));
    });
}

/// Disconnects a client after its call has reached the upstream, and before the answer begins.
async fn leave_early(scene: &Scene, body: &Value, steps: Vec<Step>) {
    let gate = Arc::new(Semaphore::new(0));
    let mut script = vec![Step::AwaitPermit(Arc::clone(&gate))];
    script.extend(steps);
    scene.upstream.script([script]);
    {
        let asked = std::pin::pin!(scene.chat(body).send());
        tokio::select! {
            answer = asked => panic!("an answer: {}", answer.text),
            () = received(scene, 1) => {}
        }
    }
    gate.add_permits(1);
    scene.assert_settled().await;
}

#[on_each_database]
fn prompt_and_hidden_reasoning_are_counted_by_events_that_nobody_waits_for(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let role = json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
            "usage": {"prompt_tokens": 4_000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 3_000}}});
        // Before its first text, a model may have reasoned for a long time, so the gateway waits for the next
        // count.
        let mut first = delta("four");
        first["usage"] = json!({"prompt_tokens": 4_000, "completion_tokens": 373});
        leave_early(scene, &chat(), vec![stream_head(), event(&role), event(&first), Step::AwaitClose]).await;
        scene.upstream.left(1).await;
        // 1,000 × 0.000001 + 3,000 × 0.0000005 + 373 × 0.00001 = 0.00623
        assert_eq!(recorded(scene).await, (4_000, 373, Some(3_000), 0, 6_230_000_000));
    });
}

/// Events that had arrived when the gateway noticed the disconnection are counted, even if no one had read
/// them.
#[on_each_database]
fn events_that_have_arrived_are_counted(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let word = |generated: i64| {
            event(&json!({"choices": [{"index": 0, "delta": {"content": "a"}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": generated}}))
        };
        let mut bytes = Vec::new();
        for step in std::iter::once(stream_head()).chain((1..=200).map(word)) {
            let Step::Send(piece) = step else { panic!("{step:?}") };
            bytes.extend(piece);
        }
        leave_early(scene, &chat(), vec![Step::Send(bytes), Step::AwaitClose]).await;
        scene.upstream.left(1).await;
        let (prompt, completion, ..) = recorded(scene).await;
        assert_eq!((prompt, completion), (9, 200));
    });
}

#[on_each_database]
fn call_that_is_left_before_its_first_event_and_counted_at_its_end_is_read_to_it(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let mut body = chat();
        body["n"] = json!(3);
        let mut steps = vec![stream_head(), event(&delta("four"))];
        steps.extend(end_of_chat());
        leave_early(scene, &body, steps).await;
        assert_eq!(recorded(scene).await, (900, 2_005, None, 0, 20_950_000_000));
    });
}

#[on_each_database]
fn upstream_that_fails_without_a_client_costs_nothing_and_no_other_is_asked(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        leave_early(scene, &chat(), plain(503, "text/plain", "busy")).await;
        assert_eq!((scene.used().await, scene.upstream.received().len()), (Vec::new(), 1));
    });
}

/// With `cancel` the upstream is stopped immediately. It already has the prompt, whose tokens are estimated:
/// three for the message, and one for its two letters.
#[on_each_database]
fn call_that_is_cancelled_before_its_first_event_costs_an_estimate_of_its_prompt(database: Database) {
    with_upstream(database, "vllm", "on_disconnect = \"cancel\"", async |scene| {
        scene.upstream.script([vec![stream_head(), Step::AwaitClose]]);
        {
            let asked = std::pin::pin!(scene.chat(&chat()).send());
            tokio::select! {
                answer = asked => panic!("an answer: {}", answer.text),
                () = received(scene, 1) => {}
            }
        }
        scene.upstream.left(1).await;
        scene.assert_settled().await;
        assert_eq!(recorded(scene).await, (4, 0, None, 1, 4_000_000));
    });
}

#[on_each_database]
fn call_that_is_left_while_it_waits_for_a_place_costs_nothing(database: Database) {
    with_upstream(database, "vllm", "max_concurrent = 1", async |scene| {
        let gate = Arc::new(Semaphore::new(0));
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
        let choice = json!({"index": 0, "message": {"content": "a"}, "finish_reason": "stop"});
        let mut steps = vec![Step::AwaitPermit(Arc::clone(&gate))];
        steps.extend(json_answer(200, &json!({"choices": [choice], "usage": usage})));
        scene.upstream.script([steps]);
        let mut plain_body = chat();
        plain_body["stream"] = json!(false);
        let wait_for = async |count: usize| {
            let line = format!("tollkeeper_gateway_calls_waiting{{upstream=\"engine\"}} {count}\n");
            while !metrics(scene).await.contains(&line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let first = scene.chat(&plain_body).send();
        let others = async {
            received(scene, 1).await;
            for body in [chat(), plain_body.clone()] {
                {
                    let asked = std::pin::pin!(scene.chat(&body).send());
                    tokio::select! {
                        answer = asked => panic!("an answer: {}", answer.text),
                        () = wait_for(1) => {}
                    }
                }
                wait_for(0).await;
            }
            gate.add_permits(1);
        };
        let (answer, ()) = tokio::join!(first, others);
        assert_eq!(answer.status, 200, "{}", answer.text);
        scene.assert_settled().await;
        assert_eq!((scene.used().await, scene.upstream.received().len()), (vec![(1, 1)], 1));
    });
}

/// A prompt with a document may have more tokens than were reserved. They are charged up to the context of
/// 5,000.
#[on_each_database]
fn count_above_the_reservation_is_charged_up_to_the_context(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let mut body = chat();
        body["stream"] = json!(false);
        for counted in [4_900, 6_000] {
            let usage = json!({"prompt_tokens": counted, "completion_tokens": 1});
            let choice = json!({"index": 0, "message": {"content": "a"}, "finish_reason": "stop"});
            scene.upstream.script([json_answer(200, &json!({"choices": [choice], "usage": usage}))]);
            assert_eq!(scene.chat(&body).send().await.status, 200);
        }
        assert_eq!(scene.used().await, [(4_900, 1), (5_000, 1)]);
        let metrics = metrics(scene).await;
        let above =
            "tollkeeper_gateway_prompts_above_reservation_total{model=\"chat-1\",upstream=\"engine\"} 2";
        assert!(metrics.contains(above), "{metrics}");
    });
}

/// Embeddings of 65 MiB can't be passed on. They are charged, because the upstream has computed them, and the
/// error explains that.
#[on_each_database]
fn answer_that_is_too_large_is_charged(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let vector = "0.25,".repeat(13 << 20);
        for usage in [",\"usage\":{\"prompt_tokens\":70,\"total_tokens\":70}", ""] {
            let body = format!("{{\"data\":[{{\"embedding\":[{vector}0]}}]{usage}}}");
            scene.upstream.script([plain(200, "application/json", &body)]);
            let answer =
                scene.call("/v1/embeddings", &json!({"model": "embed-1", "input": "12345678"})).send().await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (413, "payload_too_large"),
                "{}",
                answer.text
            );
            assert!(answer.text.contains("more than 64 MiB"), "{}", answer.text);
        }
        scene.assert_settled().await;
        // Without a `usage` object, the tokens of eight digits are estimated.
        assert_eq!(scene.used().await, [(70, 0), (5, 0)]);
    });
}
