//! Model calls with compressed bodies, which are decoded before they are sent to the upstream.

use serde_json::{Value, json};

use super::{with_catalog, with_upstream};
use crate::compressed_bodies::{CODINGS, encode};
use support::upstream::json_answer;
use support::{Database, on_each_database};

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "one two"}], "max_tokens": 3})
}

#[on_each_database]
fn demo_answers_compressed_chats(database: Database) {
    let routes = "routes = [{ upstream = \"demo\", model = \"m\" }]".to_owned();
    let demo = "[[upstreams]]\nid = \"demo\"\nkind = \"demo\"\n".to_owned();
    with_catalog(
        database,
        |_| (routes.clone(), demo.clone()),
        async |scene| {
            for coding in CODINGS {
                for is_stream in [false, true] {
                    let mut body = body();
                    body["stream"] = json!(is_stream);
                    let call = scene.chat(&body).header("content-encoding", coding);
                    let answer = call.raw(encode(coding, body.to_string())).send().await;
                    let marks = (answer.status, answer.header("x-tollkeeper-demo"));
                    assert_eq!(marks, (200, "true"), "{coding}: {}", answer.text);
                    assert_eq!(answer.text.contains("[DONE]"), is_stream, "{}", answer.text);
                }
            }
            assert_eq!(scene.used().await, [(2, 3); 6]);
        },
    );
}

#[on_each_database]
fn upstreams_get_what_is_decoded(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let answer = json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "org/engine-model",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"},
                "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
        });
        scene.upstream.script([json_answer(200, &answer)]);
        // Spaces make the body large without adding tokens. Small bodies are decoded immediately, and large
        // bodies wait for their turn.
        for length in [0, 300_000, 2_000_000] {
            let text = format!("{}{}", " ".repeat(length), body());
            let before = scene.upstream.received().len();
            let plain = scene.chat(&json!({})).raw(text.clone()).send().await;
            assert_eq!(plain.status, 200, "{}", plain.text);
            for coding in CODINGS {
                let call = scene.chat(&json!({})).header("content-encoding", coding);
                let answer = call.raw(encode(coding, &text)).send().await;
                assert_eq!(answer.status, 200, "{coding} {length}: {}", answer.text);
            }
            let marked = scene.chat(&json!({})).header("content-encoding", "gzip");
            let marked = marked.raw(encode("gzip", format!("\u{feff}{}", body()))).send().await;
            assert_eq!(marked.status, 200, "{}", marked.text);
            let received = &scene.upstream.received()[before..];
            assert_eq!(received.len(), 5);
            for request in received {
                assert_eq!(request.body, received[0].body);
                assert_eq!(request.body["messages"], body()["messages"]);
                let head = request.head.join("\n");
                assert!(!head.contains("content-encoding"), "{head}");
            }
        }
        assert_eq!(scene.used().await, [(11, 3); 15]);
    });
}

#[on_each_database]
fn bad_compressed_chats_ask_no_upstream(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        for coding in CODINGS {
            let call = |body: Vec<u8>| scene.chat(&json!({})).header("content-encoding", coding).raw(body);
            let bomb = encode(coding, vec![0_u8; (16 << 20) + 1]);
            assert!(bomb.len() < 40_000, "{coding}: {}", bomb.len());
            assert_eq!(call(bomb).refused().await, (413, "payload_too_large".to_owned()), "{coding}");
            let whole = encode(coding, body().to_string());
            let cut = whole[..whole.len() - 1].to_vec();
            assert_eq!(call(cut).refused().await, (400, "invalid_json".to_owned()), "{coding}");
            let longer = [whole, b"x".to_vec()].concat();
            assert_eq!(call(longer).refused().await, (400, "invalid_json".to_owned()), "{coding}");
        }
        for (path, coding) in [("/v1/chat/completions", "deflate"), ("/v1/messages", "gzip, zstd")] {
            let answer = scene.call(path, &body()).header("content-encoding", coding).send().await;
            assert_eq!(answer.code(), "unsupported_encoding", "{}", answer.text);
            assert_eq!((answer.status, answer.header("accept-encoding")), (415, "gzip, zstd, br"));
        }
        assert_eq!(scene.upstream.received().len(), 0);
        assert_eq!(scene.used().await, []);
        assert_eq!(scene.world.app.api.frame.body_budget.load().0, 0);
    });
}
