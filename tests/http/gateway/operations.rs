//! Completions, embeddings, responses and messages: their requests to the upstream, their answers, and their
//! cost (docs/contract/gateway.md).

use serde_json::{Value, json};
use tollkeeper::db::sql;

use super::{Scene, with_catalog, with_upstream};
use support::upstream::{Step, end_of_body, event, json_answer, named_event, piece, stream_head};
use support::{Database, on_each_database};

/// Returns the tokens of prompt and answer of the only event, its cached tokens, 1 for an estimate, and the
/// price in pico.
async fn recorded(scene: &Scene) -> (i64, i64, Option<i64>, i64, i64) {
    let mut tx = scene.world.app.db.read().await.unwrap();
    let columns = "SELECT prompt_tokens, completion_tokens, cached_prompt_tokens, estimated FROM usage_events \
        WHERE source = 'gateway'";
    let (prompt, completion, cached, estimated) = sql(columns).one(&mut tx).await.unwrap();
    let (price,) =
        sql("SELECT amount_pico FROM usage_events WHERE source = 'gateway'").one(&mut tx).await.unwrap();
    (prompt, completion, cached, estimated, price)
}

/// Returns the JSON of each event of a stream.
fn events(text: &str) -> Vec<Value> {
    let data = |event: &str| event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
    text.split_terminator("\n\n").map(|event| serde_json::from_str(&data(event).unwrap()).unwrap()).collect()
}

#[on_each_database]
fn completions_are_counted_and_limited(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let chunk = |text: &str, reason: Option<&str>, generated: i64| {
            json!({"id": "cmpl-1", "object": "text_completion", "model": "org/engine-model",
                "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}],
                "usage": {"prompt_tokens": 4, "completion_tokens": generated, "total_tokens": 4 + generated}})
        };
        let steps = vec![
            stream_head(),
            event(&chunk("a b", None, 2)),
            event(&chunk(" c", Some("stop"), 3)),
            piece("data: [DONE]\n\n"),
            end_of_body(),
        ];
        scene.upstream.script([steps]);
        let body = json!({"model": "chat-1", "prompt": "Once upon", "stream": true, "future": [1]});
        let answer = scene.call("/v1/completions", &body).send().await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "text/event-stream"),
            "{}",
            answer.text
        );
        let mut text = answer.text.clone();
        assert_eq!(text.split_off(text.len() - 14), "data: [DONE]\n\n");
        let events = events(&text);
        assert_eq!(
            events[0],
            json!({"id": "cmpl-1", "object": "text_completion", "model": "chat-1",
            "choices": [{"index": 0, "text": "a b", "logprobs": null, "finish_reason": null}]})
        );
        let received = &scene.upstream.received()[0];
        assert!(received.head.contains(&"post /v1/completions http/1.1".to_owned()), "{:?}", received.head);
        let expected = json!({"model": "org/engine-model", "prompt": "Once upon", "stream": true, "future": [1],
            "max_tokens": 1000, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
        assert_eq!(received.body, expected);
        // 4 × 0.000001 + 3 × 0.00001 = 0.000034
        assert_eq!(recorded(scene).await, (4, 3, None, 0, 34_000_000));
    });
}

#[on_each_database]
fn several_prompts_are_reserved_and_charged_each(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let choice =
            |index: i64| json!({"index": index, "text": "x", "logprobs": null, "finish_reason": "length"});
        let answer = json!({"object": "text_completion", "model": "m", "choices": [choice(0), choice(1), choice(2), choice(3)],
            "usage": {"prompt_tokens": 8, "completion_tokens": 40, "total_tokens": 48}});
        scene.upstream.script([json_answer(200, &answer)]);
        let body = json!({"model": "chat-1", "prompt": ["a", [1, 2]], "n": 2, "max_tokens": 10});
        let response = scene.call("/v1/completions", &body).send().await;
        assert_eq!(response.status, 200, "{}", response.text);
        // Four answers of at most 10 tokens: all 40 are within the reservation.
        assert_eq!(recorded(scene).await, (8, 40, None, 0, 408_000_000));
    });
}

#[on_each_database]
fn embeddings_are_charged_for_their_inputs(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let answer = json!({"object": "list", "model": "org/engine-model", "usage": {"prompt_tokens": 7, "total_tokens": 7},
            "data": [{"object": "embedding", "index": 0, "embedding": "AAAAAA=="}]});
        scene.upstream.script([json_answer(200, &answer)]);
        let body =
            json!({"model": "embed-1", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 1});
        let response = scene.call("/v1/embeddings", &body).send().await;
        assert_eq!(response.status, 200, "{}", response.text);
        let mut expected = answer.clone();
        expected["model"] = json!("embed-1");
        assert_eq!(response.json(), expected);
        let mut sent = body.clone();
        sent["model"] = json!("org/engine-model");
        assert_eq!(scene.upstream.received()[0].body, sent);
        // 7 × 0.0000001
        assert_eq!(recorded(scene).await, (7, 0, None, 0, 700_000));

        // Each operation has its own kind of model and its own permission.
        for (path, model) in [("/v1/embeddings", "chat-1"), ("/v1/responses", "embed-1")] {
            let refused = scene.call(path, &json!({"model": model, "input": "a"})).send().await;
            assert_eq!((refused.status, refused.code().as_str()), (404, "model_not_found"), "{path}");
        }
        let only = json!({"name": "e", "permissions": ["embeddings"]});
        let (_, key) = scene.world.key(&scene.ada, &scene.place, &only).await;
        let call = |path: &str, model: &str| {
            scene.world.post(path, &json!({"model": model, "input": "a", "prompt": "a"})).bearer(&key).send()
        };
        assert_eq!(call("/v1/embeddings", "embed-1").await.status, 200);
        let refused = call("/v1/completions", "chat-1").await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "missing_permission"));
        let streamed =
            scene.call("/v1/embeddings", &json!({"model": "embed-1", "input": "a", "stream": true}));
        assert_eq!(streamed.send().await.status, 200, "not a field for embeddings");
    });
}

fn response_event(name: &str, more: Value) -> Step {
    let mut data = json!({"type": name});
    data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    named_event(name, &data)
}

#[on_each_database]
fn response_ends_after_its_settlement(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let created = json!({"response": {"id": "resp_1", "model": "org/engine-model", "status": "in_progress", "usage": null}});
        let usage = json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 11});
        let done = json!({"response": {"id": "resp_1", "model": "org/engine-model", "status": "completed", "output": [], "usage": usage}});
        let steps = vec![
            stream_head(),
            response_event("response.created", created),
            response_event("response.output_text.delta", json!({"delta": "a b"})),
            response_event("response.completed", done),
            end_of_body(),
        ];
        scene.upstream.script([steps]);
        let body = json!({"model": "chat-1", "input": "hi", "stream": true, "store": false});
        let answer = scene.call("/v1/responses", &body).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let events = events(&answer.text);
        let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(names, ["response.created", "response.output_text.delta", "response.completed"]);
        assert_eq!(events[0]["response"]["model"], "chat-1");
        assert_eq!(
            (&events[2]["response"]["model"], &events[2]["response"]["usage"]),
            (&json!("chat-1"), &usage)
        );
        assert!(answer.text.starts_with("event: response.created\ndata: "), "{}", answer.text);
        let sent = json!({"model": "org/engine-model", "input": "hi", "stream": true, "store": false, "max_output_tokens": 1000});
        assert_eq!(scene.upstream.received()[0].body, sent);
        // 5 × 0.000001 + 4 × 0.0000005 + 2 × 0.00001 = 0.000027
        assert_eq!(recorded(scene).await, (9, 2, Some(4), 0, 27_000_000));
    });
}

#[on_each_database]
fn response_that_is_cut_ends_with_an_error_event(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let delta = || response_event("response.output_text.delta", json!({"delta": "a b"}));
        scene.upstream.script([vec![stream_head(), delta(), delta(), Step::Close]]);
        let body = json!({"model": "chat-1", "input": "hi", "stream": true});
        let answer = scene.call("/v1/responses", &body).send().await;
        let last = events(&answer.text).pop().unwrap();
        assert!(answer.text.contains("\n\nevent: error\ndata: {"), "{}", answer.text);
        assert_eq!(
            (&last["type"], &last["code"], &last["error"]["code"]),
            (&json!("error"), &json!("upstream_cut"), &json!("upstream_cut"))
        );
        let (_, completion, _, estimated, _) = recorded(scene).await;
        assert_eq!((completion, estimated), (2, 1), "each event is a token");
    });
}

#[on_each_database]
fn responses_need_no_stored_conversation(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let body =
            json!({"model": "chat-1", "input": "hi", "previous_response_id": "resp_of_another_tenant"});
        let answer = scene.call("/v1/responses", &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "unsupported_parameter"));
        assert_eq!(answer.json()["error"]["param"], "previous_response_id");
        assert_eq!(scene.upstream.received().len(), 0);
    });
}

fn message_events() -> Vec<Step> {
    let data = [
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "org/engine-model", "content": [],
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ];
    data.iter().map(|data| named_event(data["type"].as_str().unwrap(), data)).collect()
}

#[on_each_database]
fn messages_are_counted_with_the_cache_beside_the_prompt(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let mut steps = vec![stream_head()];
        steps.extend(message_events());
        steps.push(end_of_body());
        scene.upstream.script([steps]);
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true, "system": "x"});
        // Anthropic's SDKs send the key in their own header.
        let call = scene.world.post("/v1/messages", &body).header("x-api-key", &scene.key);
        let answer = call.header("anthropic-version", "2023-06-01").send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let events = events(&answer.text);
        assert_eq!((events.len(), &events[0]["message"]["model"]), (6, &json!("chat-1")));
        assert_eq!(events[5], json!({"type": "message_stop"}));
        let received = &scene.upstream.received()[0];
        assert_eq!(received.body["max_tokens"], 1000);
        assert!(
            !received
                .head
                .iter()
                .any(|line| line.starts_with("x-api-key") || line.starts_with("authorization"))
        );
        // 5 × 0.000001 + 4 × 0.0000005 + 2 × 0.00001 = 0.000027
        assert_eq!(recorded(scene).await, (9, 2, Some(4), 0, 27_000_000));
    });
}

#[on_each_database]
fn message_that_is_cut_ends_with_an_error_event(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let mut steps = vec![stream_head()];
        steps.extend(message_events().into_iter().take(3));
        steps.push(Step::Close);
        scene.upstream.script([steps]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let answer = scene.call("/v1/messages", &body).send().await;
        let last = events(&answer.text).pop().unwrap();
        assert_eq!(
            (&last["type"], &last["error"]["type"]),
            (&json!("error"), &json!("api_error")),
            "{}",
            answer.text
        );
        assert!(!answer.text.contains("message_stop"));
        // 5 uncached and 4 cached tokens of the prompt, and one event: 0.000005 + 0.000002 + 0.00001
        assert_eq!(recorded(scene).await, (9, 1, Some(4), 1, 17_000_000));
    });
}

#[on_each_database]
fn errors_of_messages_have_anthropics_form(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]});
        let call = |body: &Value| scene.call("/v1/messages", body);
        let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Too long, says the engine."}});
        scene.upstream.script([
            json_answer(400, &refusal),
            json_answer(529, &json!({})),
            json_answer(503, &json!({})),
        ]);
        for (answer, status, kind, code) in [
            (call(&body).send().await, 400, "invalid_request_error", "invalid_request"),
            (call(&body).send().await, 503, "overloaded_error", "model_overloaded"),
            (call(&body).send().await, 503, "overloaded_error", "model_overloaded"),
            (call(&json!({"model": "chat-1"})).send().await, 400, "invalid_request_error", "invalid_request"),
            (
                call(&json!({"model": "nothing", "messages": [{}]})).send().await,
                404,
                "not_found_error",
                "model_not_found",
            ),
            (
                scene.world.post("/v1/messages", &body).bearer("tk_wrong").send().await,
                401,
                "authentication_error",
                "invalid_api_key",
            ),
            (
                scene.world.post("/v1/messages", &body).send().await,
                401,
                "authentication_error",
                "missing_credentials",
            ),
            (
                scene.world.get("/v1/messages").send().await,
                405,
                "invalid_request_error",
                "method_not_allowed",
            ),
        ] {
            let error = answer.json();
            assert_eq!((answer.status, &error["type"]), (status, &json!("error")), "{}", answer.text);
            assert_eq!(
                (&error["error"]["type"], &error["error"]["code"]),
                (&json!(kind), &json!(code)),
                "{}",
                answer.text
            );
            assert!(error["error"]["message"].as_str().is_some_and(|message| message.len() > 5));
        }
        // With two credentials the gateway doesn't guess which one counts.
        let two = scene.world.post("/v1/messages", &body).header("x-api-key", &scene.key);
        assert_eq!(two.header("x-api-key", &scene.key).send().await.status, 401);
    });
}

#[on_each_database]
fn kinds_without_the_operation_are_not_asked(database: Database) {
    with_upstream(database, "tgi", "", async |scene| {
        let answer = scene.call("/v1/responses", &json!({"model": "chat-1", "input": "hi"})).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "model_not_served"), "{}", answer.text);
        assert_eq!(scene.upstream.received().len(), 0);
    });
}

#[on_each_database]
fn demo_answers_every_operation(database: Database) {
    let routes = "routes = [{ upstream = \"demo\", model = \"m\" }]".to_owned();
    let demo = "[[upstreams]]\nid = \"demo\"\nkind = \"demo\"\n".to_owned();
    with_catalog(
        database,
        |_| (routes.clone(), demo.clone()),
        async |scene| {
            let messages = json!([{"role": "user", "content": "one two"}]);
            let calls = [
                ("/v1/completions", json!({"model": "chat-1", "prompt": "one two", "max_tokens": 3})),
                ("/v1/responses", json!({"model": "chat-1", "input": "one two", "max_output_tokens": 3})),
                ("/v1/messages", json!({"model": "chat-1", "messages": messages, "max_tokens": 3})),
            ];
            for (path, mut body) in calls {
                for is_stream in [false, true] {
                    body["stream"] = json!(is_stream);
                    let answer = scene.call(path, &body).send().await;
                    assert_eq!(
                        (answer.status, answer.header("x-tollkeeper-demo")),
                        (200, "true"),
                        "{}",
                        answer.text
                    );
                    assert!(
                        answer.text.contains("chat-1") && !answer.text.contains("upstream_cut"),
                        "{}",
                        answer.text
                    );
                }
            }
            let answer = scene
                .call("/v1/embeddings", &json!({"model": "embed-1", "input": ["one two", "three"]}))
                .send()
                .await;
            assert_eq!(answer.json()["data"].as_array().unwrap().len(), 2, "{}", answer.text);
            assert_eq!(scene.used().await, [(2, 3), (2, 3), (2, 3), (2, 3), (2, 3), (2, 3), (3, 0)]);
        },
    );
}
