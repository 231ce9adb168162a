//! Unexpected answers of real servers: counts, errors, limits and pauses. Their sources are in
//! docs/contract/gateway.md and `tests/servers`.

use std::time::Duration;

use serde_json::{Value, json};

use super::counters::lines;
use super::{Scene, with_catalog, with_upstream};
use support::http::Answer;
use support::upstream::{
    Received, Step, Upstream, end_of_body, event, json_answer, named_event, piece, plain, stream, stream_head,
};
use support::{Database, on_each_database};

fn chat() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]})
}

fn streamed() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true})
}

fn word(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn stop() -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
}

fn usage(prompt: i64, completion: i64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

fn total(prompt: i64, completion: i64) -> Value {
    json!({"choices": [], "usage": usage(prompt, completion)})
}

async fn play(scene: &Scene, steps: Vec<Step>) -> String {
    scene.upstream.script([steps]);
    let answer = scene.chat(&streamed()).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

fn error_of(answer: &Answer) -> (u16, Value, Value, Value) {
    let error = answer.json()["error"].clone();
    (answer.status, error["code"].clone(), error["param"].clone(), error["message"].clone())
}

/// vLLM 0.32 refuses a stream with status 200, and an error as its first event.
#[on_each_database]
fn refusal_as_the_first_event_is_the_status_that_it_names(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let message = "top_logprobs must be at most 20";
        let error = json!({"error": {"message": message, "type": "BadRequestError", "param": "top_logprobs", "code": 400}});
        scene.upstream.script([stream(&[error])]);
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!(
            error_of(&answer),
            (400, json!("invalid_request"), json!("top_logprobs"), json!(message)),
            "{}",
            answer.text
        );
        let died =
            json!({"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}});
        scene.upstream.script([stream(&[died])]);
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_failed"), "{}", answer.text);
        let busy = json!({"error": {"message": "busy", "type": "overloaded_error"}});
        scene.upstream.script([stream(&[busy])]);
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "model_overloaded"), "{}", answer.text);
        assert_eq!(scene.used().await, []);
    });
}

/// Agents shorten their history when they get this code.
#[on_each_database]
fn prompt_that_is_too_long_keeps_its_code(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let message =
            "You passed 6000 input tokens. However, the model's context length is only 5000 tokens.";
        let error = json!({"error": {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}});
        let mut limited = chat();
        limited["max_tokens"] = json!(10);
        for stream in [false, true] {
            limited["stream"] = json!(stream);
            scene.upstream.script([json_answer(400, &error)]);
            let answer = scene.chat(&limited).send().await;
            let expected = (400, json!("context_length_exceeded"), json!("input_tokens"), json!(message));
            assert_eq!(error_of(&answer), expected, "{}", answer.text);
        }
        // The same error in the middle of a stream.
        let text = play(scene, vec![stream_head(), event(&word("a")), event(&error), end_of_body()]).await;
        assert!(text.contains("\"code\":\"context_length_exceeded\"") && text.contains(message), "{text}");
        let body = json!({"model": "chat-1", "input": "hi", "stream": true});
        let failed = json!({"type": "response.failed", "response": {"status": "failed",
            "error": {"code": "context_length_exceeded", "message": "Too long."}}});
        let begun = json!({"type": "response.created", "response": {"model": "m"}});
        scene.upstream.script([vec![
            stream_head(),
            named_event("response.created", &begun),
            named_event("response.failed", &failed),
            end_of_body(),
        ]]);
        let answer = scene.world.post("/v1/responses", &body).bearer(&scene.key).send().await;
        assert!(answer.text.contains("\"code\":\"context_length_exceeded\""), "{}", answer.text);
        assert!(answer.text.contains("Too long."), "{}", answer.text);
    });
}

/// The catalog contains a path or a model that the upstream doesn't have: the operator has to fix that.
#[on_each_database]
fn missing_paths_and_models_are_the_operators_mistake(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let message = "The model `org/secret-name` does not exist. Valid aliases: other-secret.";
        let model = json!({"error": {"message": message, "type": "NotFoundError", "code": 404}});
        for (status, body) in
            [(404, json!({"detail": "Not Found"})), (404, model), (405, json!({})), (501, json!({}))]
        {
            scene.upstream.script([json_answer(status, &body)]);
            let answer = scene.chat(&chat()).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (503, "model_not_served"), "{}", answer.text);
            assert!(!answer.text.contains("secret"), "{}", answer.text);
        }
    });
}

#[on_each_database]
fn wait_that_an_upstream_asks_for_is_told(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let busy = |status: u16, wait: &str| {
            let head = format!("HTTP/1.1 {status} x\r\nretry-after: {wait}\r\ncontent-length: 2\r\n\r\n{{}}");
            vec![Step::Send(head.into_bytes())]
        };
        for (status, wait, told) in
            [(429, "30", "30"), (503, "7.2", "8"), (529, "600", "60"), (503, "soon", "1"), (429, "-3", "1")]
        {
            scene.upstream.script([busy(status, wait)]);
            let answer = scene.chat(&chat()).send().await;
            assert_eq!((answer.status, answer.header("retry-after")), (503, told), "{status} {wait}");
        }
    });
}

/// A limit that the gateway added must not cause the refusal of a prompt that fits: vLLM checks both against
/// its context.
#[on_each_database]
fn written_limit_gives_way_to_the_prompt(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        for message in [
            "This model's maximum context length is 5000 tokens. However, you requested 5600 tokens (4600 in the messages, 1000 in the completion).",
            "max_tokens is too large: 1000. This model's maximum context length is 5000 tokens and your request has 4600 input tokens (1000 > 5000 - 4600).",
        ] {
            scene.upstream.choose(move |request: &Received| match request.body["max_tokens"].as_i64() {
                Some(..=400) => json_answer(200, &json!({"choices": [], "usage": usage(4600, 7)})),
                _ => json_answer(400, &json!({"error": {"message": message, "code": 400}})),
            });
            let answer = scene.chat(&chat()).send().await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let sent: Vec<_> =
                scene.upstream.received().iter().map(|request| request.body["max_tokens"].clone()).collect();
            assert_eq!(sent[sent.len() - 2..], [json!(1000), json!(400)]);
        }
        assert_eq!(scene.used().await, [(4600, 7); 2]);
    });
}

/// `transformers serve` 5.19 supports only `max_tokens`; OpenAI refuses requests with both limits.
#[on_each_database]
fn both_limits_are_sent_unless_they_are_refused(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage(9, 2)}))]);
        scene.chat(&chat()).bare().await;
        let sent = scene.upstream.received().pop().unwrap().body;
        assert_eq!((&sent["max_tokens"], &sent["max_completion_tokens"]), (&json!(1000), &json!(1000)));
        scene.upstream.choose(|request: &Received| match request.body.get("max_tokens") {
            Some(_) => {
                let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
                json_answer(400, &json!({"error": {"message": message, "param": "max_tokens", "code": "unsupported_parameter"}}))
            }
            None if request.body["stream"] == true => stream(&[word("a"), stop(), total(9, 2)]),
            None => json_answer(200, &json!({"choices": [], "usage": usage(9, 2)})),
        });
        for _ in 0..2 {
            scene.chat(&chat()).bare().await;
        }
        let sent = scene.upstream.received().pop().unwrap().body;
        assert_eq!((sent.get("max_tokens"), &sent["max_completion_tokens"]), (None, &json!(1000)));
        assert_eq!(scene.used().await, [(9, 2); 3]);
    });
}

#[on_each_database]
fn answers_above_their_limit_are_noticed(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage(9, 1024)}))]);
        let mut limited = chat();
        limited["max_tokens"] = json!(5);
        scene.chat(&limited).bare().await;
        assert_eq!(scene.used().await, [(9, 5)]);
        let line = "tollkeeper_gateway_answers_above_limit_total{model=\"chat-1\",upstream=\"engine\"} 1";
        assert!(lines(scene).await.iter().any(|found| found == line), "{:?}", lines(scene).await);
        // A stream that continues is ended.
        let mut steps = vec![stream_head()];
        steps.extend((0..400).map(|_| event(&word("a"))));
        steps.push(Step::AwaitClose);
        scene.upstream.script([steps]);
        limited["stream"] = json!(true);
        let answer = scene.chat(&limited).send().await;
        assert!(answer.text.contains("upstream_cut"), "{}", answer.text);
        scene.upstream.left(1).await;
        assert_eq!(scene.used().await[1].1, 5);
    });
}

/// An upstream may refuse an added field with any status, and vLLM in a stream with 200.
#[on_each_database]
fn field_may_be_refused_with_any_status(database: Database) {
    // These statuses aren't about the request's fields.
    let has_other_meaning = |status: u16| matches!(status, 401 | 403 | 408 | 429 | 502..);
    let statuses: Vec<u16> =
        (400..=451).chain(500..=512).filter(|status| !has_other_meaning(*status)).collect();
    let all = statuses.clone();
    // Each case has its own upstream, because refusals of an upstream are remembered.
    let describe = move |upstream: &Upstream| {
        let url = upstream.url();
        let routes = "routes = [{ upstream = \"u400\", model = \"400\" }]".to_owned();
        let of_status = |status: &u16| {
            format!(
                r#"
[[models]]
id = "refused-{status}"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0", completion_tokens = "0" }}]
routes = [{{ upstream = "u{status}", model = "{status}" }}]

[[upstreams]]
id = "u{status}"
kind = "openai"
url = "{url}"
"#
            )
        };
        (routes, all.iter().map(of_status).collect())
    };
    with_catalog(database, describe, async |scene| {
        scene.upstream.choose(|request: &Received| match request.body.get("stream_options") {
            Some(_) => {
                let status = request.body["model"].as_str().unwrap().parse().unwrap();
                json_answer(status, &json!({"error": {"message": "Unknown parameter: 'stream_options'."}}))
            }
            None => stream(&[word("a"), stop()]),
        });
        for status in &statuses {
            let mut body = streamed();
            body["model"] = json!(format!("refused-{status}"));
            let answer = scene.chat(&body).send().await;
            assert_eq!(answer.status, 200, "{status}: {}", answer.text);
            assert!(answer.text.ends_with("data: [DONE]\n\n"), "{status}: {}", answer.text);
        }
    });
}

#[on_each_database]
fn field_may_be_refused_in_the_first_event(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.choose(|request: &Received| match request.body.get("stream_options") {
            Some(_) => stream(&[json!({"error": {"message": "stream_options: not permitted", "code": 400}})]),
            None => stream(&[word("a"), stop()]),
        });
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
    });
}

/// An upstream may refuse one field at a time: each refusal but the last is the first event of a new stream.
#[on_each_database]
fn fields_may_be_refused_one_after_the_other_in_first_events(database: Database) {
    let refusal = |message: &str| stream(&[json!({"error": {"message": message, "code": 400}})]);
    with_upstream(database, "openai", "", async |scene| {
        scene.upstream.choose(move |request: &Received| {
            match (request.body.get("stream_options"), request.body.get("max_tokens")) {
                (Some(_), _) => refusal("stream_options: not permitted"),
                (None, Some(_)) => refusal("max_tokens is not supported: use max_completion_tokens"),
                (None, None) => stream(&[word("a"), stop()]),
            }
        });
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
        // If the upstream also refuses the other fields, the client gets the upstream's error.
        scene.upstream.choose(move |request: &Received| match request.body.get("max_tokens") {
            Some(_) => refusal("max_tokens is not supported: use max_completion_tokens"),
            None => refusal("messages: too many"),
        });
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("messages: too many"), "{}", answer.text);
    });
}

/// Anything that a client could read directly is passed on: large events, events that aren't objects,
/// unpaired surrogates, `NaN`.
#[on_each_database]
fn bytes_that_are_only_measured_pass(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let large = word(&"x".repeat(1_100 << 10));
        let odd = [
            "data: null\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ud83d\"}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":{\"x\":NaN}}]}\n\n",
        ];
        let mut steps = vec![stream_head(), event(&large)];
        steps.extend(odd.map(piece));
        steps.extend([event(&stop()), event(&total(30, 900)), piece("data: [DONE]\n\n"), end_of_body()]);
        let text = play(scene, steps).await;
        assert!(text.contains(&large.to_string()), "the large event");
        for event in odd {
            assert!(text.contains(event), "{event}");
        }
        assert!(text.ends_with("data: [DONE]\n\n"));
        // A plain answer with a byte order mark.
        let body = format!("\u{feff}{}", json!({"choices": [], "usage": usage(4, 5)}));
        scene.upstream.script([plain(200, "application/json", &body)]);
        let answer = scene.chat(&chat()).send().await;
        assert_eq!((answer.status, answer.text.as_str()), (200, body.as_str()));
        // A request with an unpaired surrogate.
        scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage(4, 5)}))]);
        let half = r#"{"model":"chat-1","messages":[{"role":"user","content":"\ud83d"}]}"#;
        let answer = scene.chat(&json!({})).raw(half).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(scene.used().await, [(30, 900), (4, 5), (4, 5)]);
    });
}

/// `transformers serve` ends its streams without `[DONE]`.
#[on_each_database]
fn stream_without_done_is_whole(database: Database) {
    for kind in ["openai", "vllm"] {
        with_upstream(database, kind, "", async |scene| {
            let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage(9, 21)});
            let text = play(scene, vec![stream_head(), event(&word("a")), event(&last), end_of_body()]).await;
            assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("error"), "{text}");
            assert_eq!(scene.used().await, [(9, 21)]);
        });
    }
}

/// Comments show that a server is working, even before its first event: reading a long prompt takes time.
#[on_each_database]
fn comments_are_signs_of_life(database: Database) {
    with_upstream(database, "llamacpp", "first_event_ms = 400\nbetween_events_ms = 400", async |scene| {
        let mut steps = vec![stream_head()];
        for _ in 0..10 {
            steps.extend([Step::Pause(Duration::from_millis(100)), piece(": keep-alive\n\n")]);
        }
        let mut good = steps.clone();
        good.extend([
            event(&word("a")),
            event(&stop()),
            event(&total(9, 2)),
            piece("data: [DONE]\n\n"),
            end_of_body(),
        ]);
        let text = play(scene, good).await;
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        steps.push(Step::AwaitClose);
        scene.upstream.script([steps]);
        let answer = scene.chat(&streamed()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (504, "upstream_timeout"), "{}", answer.text);
        assert_eq!(scene.used().await, [(9, 2)]);
    });
}

/// vLLM with `include_reasoning: false` sends nothing while it reasons, and then the number of reasoning
/// tokens.
#[on_each_database]
fn hidden_reasoning_is_charged_also_to_who_leaves(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let counted = |text: &str, completion: i64| json!({"choices": [{"index": 0, "delta": {"content": text}}], "usage": usage(9, completion)});
        let steps = vec![stream_head(), event(&counted("", 0)), event(&counted("Yes", 373)), Step::Close];
        play(scene, steps).await;
        assert_eq!(scene.used().await, [(9, 373)]);
    });
}

/// Each count is charged once, at the prices of the scene.
#[on_each_database]
fn counts_in_every_form_are_read(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        for (usage, charged) in [
            (json!({"prompt_tokens": 512.0, "completion_tokens": 55.0}), (512, 55)),
            (json!({"prompt_tokens": 1234.2, "completion_tokens": "55"}), (1235, 55)),
            (json!({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}), (32, 103)),
        ] {
            let before = scene.used().await.len();
            scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage}))]);
            scene.chat(&chat()).bare().await;
            let text =
                play(scene, stream(&[word("a"), stop(), json!({"choices": [], "usage": usage})])).await;
            assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
            assert_eq!(scene.used().await[before..], [charged, charged], "{usage}");
        }
    });
}

/// Operators can see which upstreams don't count tokens.
#[on_each_database]
fn estimated_tokens_have_a_share(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let text = play(scene, stream(&[word("four"), stop()])).await;
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        play(scene, stream(&[word("four"), stop(), total(9, 2)])).await;
        let found = lines(scene).await;
        // 1 for two letters, 3 for the message, 1 for the event; 9 + 2.
        for (source, tokens) in [("estimated", 5), ("counted", 11)] {
            let line = format!(
                "tollkeeper_gateway_upstream_tokens_total{{source=\"{source}\",upstream=\"engine\"}} {tokens}"
            );
            assert!(found.contains(&line), "{line} {found:?}");
        }
    });
}

fn two(upstream: &Upstream) -> (String, String) {
    let routes = "routes = [{ upstream = \"a\" }, { upstream = \"b\", tier = 1 }]";
    let table =
        |id: &str| format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
    (routes.to_owned(), table("a") + &table("b"))
}

#[on_each_database]
fn statuses_that_mean_not_now_move_on(database: Database) {
    with_catalog(database, two, async |scene: &Scene| {
        let good = json_answer(200, &json!({"choices": [], "usage": usage(1, 1)}));
        for status in [404, 408, 520, 522, 524, 529] {
            scene.upstream.script([json_answer(status, &json!({})), good.clone()]);
            scene.chat(&chat()).bare().await;
        }
        assert_eq!(scene.used().await, [(1, 1); 6]);
    });
}
