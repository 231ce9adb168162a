//! Complete streams: the client's bytes, and the counts.

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::with_upstream;
use support::upstream::{Step, end_of_body, event, piece, stream, stream_head};
use support::{Database, on_each_database};

fn chunk(delta: &Value, finish: Option<&str>, usage: &Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "org/engine-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": usage,
    })
}

fn usage(prompt: i64, completion: i64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

#[on_each_database]
fn vllm_stream_is_passed_on_without_what_was_added(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let last = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": "org/engine-model", "choices": [], "usage": usage(7, 2)});
        scene.upstream.script([stream(&[
            chunk(&json!({"role": "assistant", "content": ""}), None, &usage(7, 0)),
            chunk(&json!({"content": "Hé"}), None, &usage(7, 1)),
            chunk(&json!({"content": "llo"}), Some("stop"), &usage(7, 2)),
            last,
        ])]);
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true,
            "seed": 3, "logprobs": null});
        let answer = scene.chat(&body).send().await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "text/event-stream"),
            "{}",
            answer.text
        );
        assert!(answer.header("x-tollkeeper-call-id").starts_with("call_"));
        let events: Vec<_> = answer.text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 4, "{}", answer.text);
        assert_eq!(events[3], "data: [DONE]");
        for event in &events[..3] {
            let value: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!((&value["model"], value.get("usage")), (&json!("chat-1"), None), "{event}");
        }
        let sent = &scene.upstream.received()[0];
        assert_eq!(
            sent.body["stream_options"],
            json!({"include_usage": true, "continuous_usage_stats": true})
        );
        assert_eq!(
            (&sent.body["model"], &sent.body["max_tokens"]),
            (&json!("org/engine-model"), &json!(1000))
        );
        assert_eq!((&sent.body["seed"], &sent.body["logprobs"]), (&json!(3), &Value::Null));
        assert_eq!(scene.used().await, [(7, 2)]);
    });
}

#[on_each_database]
fn usage_that_the_client_asks_for_stays(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.script([stream(&[
            chunk(&json!({"content": "one"}), None, &usage(7, 1)),
            chunk(&json!({}), Some("length"), &usage(7, 1)),
            json!({"id": "1", "model": "org/engine-model", "choices": [], "usage": usage(7, 1)}),
        ])]);
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true,
            "stream_options": {"include_usage": true}, "max_tokens": 1});
        let answer = scene.chat(&body).send().await;
        let usages: Vec<Value> = answer
            .text
            .split_terminator("\n\n")
            .filter(|event| *event != "data: [DONE]")
            .map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ").unwrap()).unwrap())
            .map(|event| event["usage"].clone())
            .collect();
        assert_eq!(usages, [Value::Null, Value::Null, usage(7, 1)], "{}", answer.text);
        assert_eq!(scene.upstream.received()[0].body["max_tokens"], 1);
        assert_eq!(scene.used().await, [(7, 1)]);
    });
}

/// An event may be split anywhere, even within a character.
#[on_each_database]
fn pieces_of_events_are_put_together(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let first = chunk(&json!({"content": "ü"}), Some("stop"), &Value::Null).to_string();
        let last = json!({"model": "m", "choices": [], "usage": usage(4, 1)}).to_string();
        let text = format!(": hello\r\n\r\ndata:{first}\r\n\r\ndata: {last}\n\ndata: [DONE]\n\n");
        for size in [1, 7, text.len()] {
            let mut steps = vec![stream_head()];
            for bytes in text.as_bytes().chunks(size) {
                let mut step = format!("{:x}\r\n", bytes.len()).into_bytes();
                step.extend_from_slice(bytes);
                step.extend_from_slice(b"\r\n");
                steps.push(support::upstream::Step::Send(step));
            }
            steps.push(end_of_body());
            scene.upstream.script([steps]);
            let body =
                json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
            let answer = scene.chat(&body).send().await;
            assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
            assert!(answer.text.contains("\"content\":\"ü\""), "{}", answer.text);
        }
        assert_eq!(scene.used().await, [(4, 1); 3]);
    });
}

#[on_each_database]
fn connection_serves_several_streams(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let events = [chunk(&json!({"content": "a"}), Some("stop"), &usage(7, 1))];
        scene.upstream.script([stream(&events)]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        for _ in 0..5 {
            let answer = scene.chat(&body).send().await;
            assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(scene.upstream.connections(), 1);
    });
}

/// A comment shows that the upstream is working, but isn't an event: another upstream could still get the
/// call.
#[on_each_database]
fn comment_alone_begins_no_answer(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.script([vec![stream_head(), piece(": working\n\n"), end_of_body()]]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let answer = scene.chat(&body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_failed"), "{}", answer.text);
        assert_eq!(scene.used().await, []);
    });
}

#[on_each_database]
fn zero_is_no_count(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let content = chunk(&json!({"content": "four words"}), Some("stop"), &Value::Null);
        let last = json!({"model": "m", "choices": [], "usage": usage(0, 0)});
        scene.upstream.script([stream(&[content, last])]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let answer = scene.chat(&body).send().await;
        assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
        // Three for the message and one for its letters, and nine letters of the answer.
        assert_eq!(scene.used().await, [(4, 3)]);
    });
}

/// llama.cpp counts in `timings`, and may send several events in one piece.
#[on_each_database]
fn timings_of_llamacpp_are_counted_and_hidden(database: Database) {
    with_upstream(database, "llamacpp", "", async |scene| {
        let event = |content: &str, finish: Value, generated: i64| {
            json!({"choices": [{"finish_reason": finish, "index": 0, "delta": {"content": content}}],
                "model": "tiny", "object": "chat.completion.chunk",
                "timings": {"cache_n": 3, "prompt_n": 5, "predicted_n": generated}})
        };
        let events = [event(" zo", Value::Null, 1), event(" ba", json!("length"), 2)];
        let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        scene.upstream.script([vec![stream_head(), piece(&(text + "data: [DONE]\n\n")), end_of_body()]]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let answer = scene.chat(&body).send().await;
        assert!(
            answer.text.ends_with("data: [DONE]\n\n") && !answer.text.contains("timings"),
            "{}",
            answer.text
        );
        assert_eq!(scene.upstream.received()[0].body["timings_per_token"], true);
        assert_eq!(scene.used().await, [(8, 2)]);
    });
}

/// Events that the upstream sends together need few writes.
#[on_each_database]
fn events_that_arrive_together_are_passed_on_together(database: Database) {
    const EVENTS: usize = 40;
    with_upstream(database, "openai", "", async |scene| {
        let word = |number: usize| {
            let finish = (number + 1 == EVENTS).then_some("stop");
            event(&chunk(&json!({"content": format!("word {number}")}), finish, &Value::Null))
        };
        let bytes = (1..EVENTS).map(word).chain([piece("data: [DONE]\n\n"), end_of_body()]);
        let together = bytes.filter_map(|step| match step {
            Step::Send(bytes) => Some(bytes),
            _ => None,
        });
        let together = Step::Send(together.collect::<Vec<_>>().concat());
        scene.upstream.script([vec![stream_head(), word(0), together]]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let mut body = scene.chat(&body).open().await.into_body();
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap());
        }
        let text = pieces.concat();
        assert_eq!(text.matches("data: {").count(), EVENTS, "{text}");
        assert!((0..EVENTS).all(|number| text.contains(&format!("\"word {number}\""))), "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        // On several threads, some events are read before the next one has arrived.
        assert!(pieces.len() < EVENTS * 3 / 4, "{} pieces: {pieces:?}", pieces.len());
    });
}
