//! Headers in both directions: complete lists of the headers that are passed on.

use serde_json::json;

use super::{Scene, with_upstream};
use support::upstream::{Step, stream};
use support::{Database, on_each_database};

fn script() -> Vec<Step> {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
    let mut steps = stream(&[chunk]);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\
        server: uvicorn\r\nset-cookie: session=1\r\nx-upstream-address: 10.1.2.3\r\nx-request-id: theirs\r\n\r\n";
    steps[0] = Step::Send(head.as_bytes().to_vec());
    steps
}

#[on_each_database]
fn only_listed_headers_pass(database: Database) {
    with_upstream(database, "vllm", "credential_file = \"engine.key\"", async |scene: &Scene| {
        scene.upstream.script([script()]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let call = scene.chat(&body).header("cookie", "session=2").header("x-forwarded-for", "10.9.8.7");
        let call = call
            .header("openai-organization", &scene.place.organization)
            .header("user-agent", "OpenAI/Python");
        let answer = call.header("x-stainless-lang", "python").header("accept-encoding", "gzip").send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);

        let sent = &scene.upstream.received()[0];
        let names: Vec<_> = sent.head.iter().map(|line| line.split(':').next().unwrap()).collect();
        let expected = [
            "post /v1/chat/completions http/1.1",
            "accept",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-request-id",
        ];
        assert_eq!(names, expected);
        let head = sent.head.join("\n");
        assert!(head.contains("authorization: bearer sk-upstream"), "{head}");
        assert!(
            head.contains("user-agent: tollkeeper/") && head.contains("accept: text/event-stream"),
            "{head}"
        );
        assert!(head.contains(&format!("x-request-id: {}", answer.header("x-request-id"))), "{head}");

        let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
        names.sort();
        let expected = [
            "cache-control",
            "content-type",
            "x-accel-buffering",
            "x-content-type-options",
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
            "x-request-id",
            "x-tollkeeper-call-id",
        ];
        assert_eq!(names, expected);
        let text = format!("{:?}{}", answer.headers, answer.text);
        for secret in ["10.1.2.3", "uvicorn", "session", "theirs", "sk-upstream", &scene.upstream.address] {
            assert!(!text.contains(secret), "{text}");
        }
    });
}
