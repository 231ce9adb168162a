//! An operator's view of a call: its line in the log, its span, and the trace that continues at the upstream.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Scene, with_upstream};
use support::http::Answer;
use support::process::{Server, Start, read_answer, until};
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, piece, stream, stream_head};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

const MODEL: &str = r#"
currency = "USD"

[[models]]
id = "chat-1"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
max_requests_per_min = 600
max_concurrent_requests = 5
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.00001" }]
routes = [{ upstream = "busy", model = "m" }, { upstream = "engine", model = "m", tier = 1 }]
"#;

fn word(text: &str, generated: i64) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated, "prompt_tokens_details": {"cached_tokens": 4}}})
}

#[test]
fn every_call_has_one_line() {
    let runtime = runtime();
    let (busy, engine) = (runtime.block_on(Upstream::start()), runtime.block_on(Upstream::start()));
    busy.script([json_answer(429, &json!({}))]);
    let cut = || vec![stream_head(), event(&word("a", 1)), event(&word("b", 2)), Step::Close];
    engine.script([cut()]);
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    let table = |id: &str, upstream: &Upstream| {
        format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url())
    };
    std::fs::write(&file, MODEL.to_owned() + &table("busy", &busy) + &table("engine", &engine)).unwrap();
    let server = Start::new(&folder.0)
        .set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())
        .set("TOLLKEEPER_LOG__FORMAT", "json")
        .run();
    let place = server.settle(&server.sign_up("ada"));
    let ask = |stream: bool| {
        let messages = json!([{"role": "user", "content": "secret words"}]);
        let body = json!({"model": "chat-1", "messages": messages, "stream": stream});
        server.post("/v1/chat/completions", &body).bearer(&place.key)
    };
    let mut connection = ask(true).open();
    let streamed = read_answer(&mut connection, false).unwrap();
    assert_eq!(streamed.status, 200);
    // A client that leaves doesn't count as a cut stream.
    connection.read_to_end(&mut Vec::new()).unwrap();
    engine.script([json_answer(500, &json!({}))]);
    assert_eq!(ask(false).send().status, 502);
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 5});
    engine.script([json_answer(200, &json!({"choices": [], "usage": usage}))]);
    assert_eq!(ask(false).send().status, 200);
    let lines = || -> Vec<Value> {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("tollkeeper::calls"));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert!(until(|| lines().len() == 3), "{}", server.log());
    let lines = lines();
    let organization = place.project_path.split('/').nth(3).unwrap();
    let expect = |line: &Value, expected: Value| {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&line[name], value, "{name} of {line:#}");
        }
    };
    expect(
        &lines[0],
        json!({"level": "INFO", "call_id": streamed.header("x-tollkeeper-call-id"), "organization_id": organization,
            "request_id": streamed.header("x-request-id"), "model": "chat-1", "operation": "/chat/completions",
            "stream": true, "upstream": "engine", "attempts": 2, "prompt_tokens": 9, "cached_prompt_tokens": 4,
            "completion_tokens": 2, "estimated": false, "ended": "cut"}),
    );
    assert!(lines[0]["first_event_ms"].is_u64() && lines[0]["duration_ms"].is_u64(), "{:#}", lines[0]);
    expect(&lines[1], json!({"attempts": 2, "prompt_tokens": 0, "completion_tokens": 0, "ended": "failed"}));
    assert_eq!(lines[1].get("first_event_ms"), None);
    expect(
        &lines[2],
        json!({"stream": false, "prompt_tokens": 3, "completion_tokens": 5, "ended": "completed"}),
    );
    assert!(!server.log().contains("secret words"));
}

/// Warnings are logged for a count above the reservation, parts that are larger than their whole, and an
/// answer without a count.
#[test]
fn odd_counts_are_warnings() {
    let runtime = runtime();
    let engine = runtime.block_on(Upstream::start());
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    let model = MODEL
        .replace("{ upstream = \"busy\", model = \"m\" }, ", "")
        .replace("max_tokens = 1000\n", "max_tokens = 1000\ncontext_length = 5000\n");
    let table = format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", engine.url());
    std::fs::write(&file, model + &table).unwrap();
    let server = Start::new(&folder.0)
        .set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())
        .set("TOLLKEEPER_LOG__FORMAT", "json")
        .run();
    let place = server.settle(&server.sign_up("ada"));
    let warnings = |text: &str| -> Vec<Value> {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let details = json!({"cached_tokens": 8, "image_tokens": 5});
    for (usage, text, expected) in [
        (
            json!({"prompt_tokens": 4_900, "completion_tokens": 1}),
            "counted more tokens of a prompt than were reserved",
            json!({"prompt_tokens": 4_900}),
        ),
        (
            json!({"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": details}),
            "reported parts of tokens that exceed their total",
            json!({"prompt_tokens": 10, "cached_prompt_tokens": 8, "completion_tokens": 1}),
        ),
        (
            json!({"prompt_tokens": 0, "completion_tokens": 0}),
            "didn't report the tokens of a complete answer",
            json!({}),
        ),
    ] {
        let choice =
            json!({"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"});
        engine.script([json_answer(200, &json!({"choices": [choice], "usage": usage}))]);
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(server.post("/v1/chat/completions", &body).bearer(&place.key).send().status, 200);
        assert!(until(|| !warnings(text).is_empty()), "{text}: {}", server.log());
        let found = warnings(text);
        let [line] = &found[..] else { panic!("{}", server.log()) };
        assert_eq!((&line["level"], &line["upstream"]), (&json!("WARN"), &json!("engine")), "{line:#}");
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&line[name], value, "{name} of {line:#}");
        }
    }
}

/// Starts a server with one upstream of the kind `vllm`; returns an API key.
fn serve(engine: &Upstream, folder: &Folder, level: &str) -> (Server, String) {
    let file = folder.0.join("catalog.toml");
    let model = MODEL.replace("{ upstream = \"busy\", model = \"m\" }, ", "");
    let table = format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", engine.url());
    std::fs::write(&file, model + &table).unwrap();
    let start = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap());
    let server = start.set("TOLLKEEPER_LOG__FORMAT", "json").set("TOLLKEEPER_LOG__LEVEL", level).run();
    let key = server.settle(&server.sign_up("ada")).key;
    (server, key)
}

/// Sends the request of a stream.
fn stream_of(server: &Server, key: &str) -> Answer {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "chat-1", "messages": messages, "stream": true});
    server.post("/v1/chat/completions", &body).bearer(key).send()
}

/// An operator learns that streams of an upstream may be estimated: once, not for each call.
#[test]
fn field_that_an_upstream_refuses_is_a_warning() {
    let runtime = runtime();
    let (engine, folder) = (runtime.block_on(Upstream::start()), Folder::new());
    engine.choose(|request| match request.body.pointer("/stream_options/continuous_usage_stats") {
        Some(_) => json_answer(400, &json!({"error": {"message": "Unknown field: continuous_usage_stats"}})),
        None => {
            let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}});
            let stop = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]});
            stream(&[stop, usage])
        }
    });
    let (server, key) = serve(&engine, &folder, "info");
    for _ in 0..3 {
        let answer = stream_of(&server, &key);
        assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
    }
    let log = server.stop().log;
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.contains("refuses a field that requests token counts"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [line] = &lines[..] else { panic!("{log}") };
    for (name, value) in
        [("level", "WARN"), ("upstream", "engine"), ("model", "m"), ("field", "continuous_usage_stats")]
    {
        assert_eq!(line[name], value, "{line:#}");
    }
}

/// The text of an error in a stream may have a part of a prompt, like that of another error.
#[test]
fn text_of_an_error_in_a_stream_is_logged_at_debug_only() {
    for (level, is_there) in [("info", false), ("debug", true)] {
        let runtime = runtime();
        let (engine, folder) = (runtime.block_on(Upstream::start()), Folder::new());
        let error =
            json!({"error": {"message": "the prompt was MY-SECRET-PROMPT", "type": "x", "code": 500}});
        engine.script([vec![stream_head(), event(&word("a", 1)), event(&error), end_of_body()]]);
        let (server, key) = serve(&engine, &folder, level);
        let answer = stream_of(&server, &key);
        assert!(answer.text.contains("upstream_cut"), "{}", answer.text);
        server.wait_for_log("a stream was cut: it reports an error");
        assert_eq!(server.log().contains("MY-SECRET-PROMPT"), is_there, "{level}: {}", server.log());
    }
}

/// After ten seconds without an event the answer begins with comments. Later events are passed on as usual, and
/// a failure is an event.
#[on_each_database]
fn long_wait_is_filled_with_comments(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        let wait = || Step::Pause(Duration::from_millis(10_500));
        let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2}});
        let good = vec![
            wait(),
            stream_head(),
            event(&word("a", 1)),
            event(&stop),
            piece("data: [DONE]\n\n"),
            end_of_body(),
        ];
        let mut bad = vec![wait()];
        bad.extend(json_answer(503, &json!({"error": {"message": "no room"}})));
        scene.upstream.choose(move |received| match received.body["messages"][0]["content"].as_str() {
            Some("good") => good.clone(),
            _ => bad.clone(),
        });
        let ask = |content: &str| {
            let messages = json!([{"role": "user", "content": content}]);
            scene.chat(&json!({"model": "chat-1", "messages": messages, "stream": true})).send()
        };
        let (good, bad) = tokio::join!(ask("good"), ask("bad"));
        assert_eq!((good.status, good.header("content-type")), (200, "text/event-stream"), "{}", good.text);
        assert!(
            good.text.starts_with(": waiting\n\ndata: {") && good.text.ends_with("data: [DONE]\n\n"),
            "{}",
            good.text
        );
        assert_eq!(good.text.matches("waiting").count(), 1);
        assert_eq!(bad.status, 200);
        let event = bad.text.strip_prefix(": waiting\n\ndata: ").unwrap_or_else(|| panic!("{}", bad.text));
        let error: Value = serde_json::from_str(event).unwrap();
        assert_eq!(error["error"]["code"], "model_overloaded", "{error}");
        assert_eq!(scene.used().await, [(9, 2)]);
    });
}
