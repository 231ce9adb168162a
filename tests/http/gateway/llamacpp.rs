//! A real llama.cpp behind the gateway: its counts are compared with those of the gateway.

use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollkeeper::web::reply::Body;

use super::{Scene, with_catalog};
use support::chance::{Chance, first_seed};
use support::llamacpp::LlamaCpp;
use support::{Database, on_each_database};

/// Runs a test on a database with one llama.cpp server, whose model `tiny` has this many layers.
fn with_llamacpp(database: Database, layers: u32, test: impl AsyncFn(&Scene, &LlamaCpp)) {
    let Some(engine) = LlamaCpp::start(layers, "llama.cpp behind the gateway") else { return };
    let routes = "routes = [{ upstream = \"engine\", model = \"tiny\" }]".to_owned();
    let upstream = format!(
        "[[upstreams]]\nid = \"engine\"\nkind = \"llamacpp\"\nurl = \"{}\"\n\
         allow_fields = [\"cache_prompt\"]\nshared_prefix_cache = true\n",
        engine.url()
    );
    with_catalog(database, |_| (routes.clone(), upstream.clone()), async |scene| test(scene, &engine).await);
}

/// Returns a chat of 23 tokens whose answer is always the same, with fields that the gateway doesn't know.
/// Without its cache, llama.cpp returns the same counts each time.
fn body(more: &Value) -> Value {
    let mut body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi there"}],
        "max_tokens": 16, "temperature": 0, "cache_prompt": false});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Returns the events of a complete stream.
fn events(text: &str) -> Vec<Value> {
    let mut events: Vec<_> = text.split_terminator("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
    events.iter().map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

/// Returns the text of these events.
fn text_of(events: &[Value]) -> String {
    events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect()
}

/// Returns the billing summary, which contains the price of all calls.
async fn price(scene: &Scene) -> String {
    let path = format!("{}/billing/summary", scene.place.organization_path());
    scene.world.get(&path).bearer(&scene.ada.access_token).data().await.to_string()
}

#[on_each_database]
fn plain_answer_of_llamacpp_is_its_own_and_counted_as_it_counts(database: Database) {
    with_llamacpp(database, 1, async |scene, engine| {
        let direct = engine.chat(&body(&json!({}))).json();
        let before = engine.generated();
        let answer = scene.chat(&body(&json!({}))).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        assert_eq!((&answer["model"], &direct["model"]), (&json!("chat-1"), &json!("tiny")));
        for part in ["choices", "usage", "object", "system_fingerprint"] {
            assert_eq!(answer[part], direct[part], "{part}");
        }
        let usage = json!({"prompt_tokens": 23, "completion_tokens": 16, "total_tokens": 39,
            "prompt_tokens_details": {"cached_tokens": 0}});
        assert_eq!(answer["usage"], usage);
        assert_eq!(engine.generated() - before, 16);
        assert_eq!(scene.used().await, [(23, 16)]);
        // 23 × 0.000001 + 16 × 0.00001 = 0.000183
        let price = price(scene).await;
        assert!(price.contains("0.000183"), "{price}");
    });
}

#[on_each_database]
fn streams_of_llamacpp_are_counted_exactly(database: Database) {
    with_llamacpp(database, 1, async |scene, engine| {
        let direct = engine.chat(&body(&json!({}))).json();
        let content = direct["choices"][0]["message"]["content"].as_str().unwrap();
        for (more, has_usage) in [
            (json!({"stream": true}), false),
            (json!({"stream": true, "stream_options": {"include_usage": true}}), true),
            (json!({"stream": true, "stream_options": {"include_usage": false}}), false),
        ] {
            let answer = scene.chat(&body(&more)).send().await;
            assert!(!answer.text.contains("timings"), "{}", answer.text);
            let mut events = events(&answer.text);
            assert!(events.iter().all(|event| event["model"] == "chat-1"), "{}", answer.text);
            if has_usage {
                let last = events.pop().unwrap();
                assert_eq!((&last["usage"], &last["choices"]), (&direct["usage"], &json!([])));
            }
            assert!(events.iter().all(|event| event["usage"].is_null()), "{}", answer.text);
            assert_eq!(text_of(&events), content, "{}", answer.text);
            assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
        }
        assert_eq!(scene.used().await, [(23, 16); 3]);
        // 3 × 0.000183
        let price = price(scene).await;
        assert!(price.contains("0.000549"), "{price}");
    });
}

#[on_each_database]
fn every_operation_of_llamacpp_is_counted_as_it_counts(database: Database) {
    with_llamacpp(database, 1, async |scene, engine| {
        let messages = json!([{"role": "user", "content": "hi there"}]);
        let calls = [
            ("/v1/completions", json!({"prompt": "hi there", "max_tokens": 16}), "/usage/prompt_tokens"),
            ("/v1/responses", json!({"input": "hi there", "max_output_tokens": 16}), "/usage/input_tokens"),
            ("/v1/messages", json!({"messages": messages, "max_tokens": 16}), "/usage/input_tokens"),
        ];
        for (path, mut body, prompt) in calls {
            body.as_object_mut().unwrap().extend([
                ("model".to_owned(), json!("chat-1")),
                ("temperature".to_owned(), json!(0)),
                ("cache_prompt".to_owned(), json!(false)),
            ]);
            let direct = engine.ask(path, &body).json();
            // In messages the tokens from the cache are counted in addition to the prompt.
            let beside = direct["usage"]["cache_read_input_tokens"].as_i64().unwrap_or_default();
            let prompt_tokens = direct.pointer(prompt).unwrap().as_i64().unwrap() + beside;
            let (known, before) = (scene.used().await.len(), engine.generated());
            let answer = scene.call(path, &body).send().await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let answer = answer.json();
            assert_eq!((&answer["usage"], &answer["model"]), (&direct["usage"], &json!("chat-1")), "{path}");
            body["stream"] = json!(true);
            let stream = scene.call(path, &body).send().await;
            assert!(
                !stream.text.contains("timings") && !stream.text.contains("upstream_cut"),
                "{}",
                stream.text
            );
            assert!(!stream.text.contains("tiny"), "{}", stream.text);
            assert_eq!(engine.generated() - before, 32);
            assert_eq!(scene.used().await[known..], [(prompt_tokens, 16); 2], "{path}");
            // A client that disconnects is charged for the tokens that arrived.
            let open = scene.call(path, &body).open().await;
            read_events(open.into_body(), 8).await;
            scene.assert_settled().await;
            let used = scene.used().await;
            assert_eq!((used.len(), used[known + 2].0), (known + 3, prompt_tokens), "{path}");
            assert!((1..=16).contains(&used[known + 2].1), "{path}: {used:?}");
        }
        let several = json!({"model": "chat-1", "prompt": ["hi", "there"], "max_tokens": 2});
        let refused = scene.call("/v1/completions", &several).send().await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "unsupported_parameter"));
    });
}

#[on_each_database]
fn embeddings_of_llamacpp_are_its_own(database: Database) {
    let Some(engine) = LlamaCpp::start_embeddings("embeddings of llama.cpp") else { return };
    let routes = "routes = [{ upstream = \"engine\", model = \"tiny\" }]".to_owned();
    let upstream =
        format!("[[upstreams]]\nid = \"engine\"\nkind = \"llamacpp\"\nurl = \"{}\"\n", engine.url());
    with_catalog(
        database,
        |_| (routes.clone(), upstream.clone()),
        async |scene| {
            for format in ["float", "base64"] {
                let body =
                    json!({"model": "embed-1", "input": ["hi there", "you"], "encoding_format": format});
                let direct = engine.ask("/v1/embeddings", &body).json();
                let answer = scene.call("/v1/embeddings", &body).send().await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                let answer = answer.json();
                assert_eq!((&answer["data"], &answer["usage"]), (&direct["data"], &direct["usage"]));
                assert_eq!(
                    (&answer["model"], answer["data"].as_array().unwrap().len()),
                    (&json!("embed-1"), 2)
                );
                let tokens = direct["usage"]["prompt_tokens"].as_i64().unwrap();
                assert_eq!(scene.used().await.pop(), Some((tokens, 0)));
            }
        },
    );
}

#[on_each_database]
fn fields_that_only_llamacpp_knows_reach_it(database: Database) {
    with_llamacpp(database, 1, async |scene, _| {
        let ask = async |more: Value| {
            let answer = scene.chat(&body(&more)).send().await;
            assert_eq!(answer.status, 200, "{more}: {}", answer.text);
            answer.json()["choices"][0].clone()
        };
        let spelled = ask(json!({"grammar": "root ::= \"ba\" \"be\""})).await;
        assert_eq!(
            (&spelled["message"]["content"], &spelled["finish_reason"]),
            (&json!("babe"), &json!("stop"))
        );
        let seeded =
            async |seed| ask(json!({"temperature": 1, "seed": seed})).await["message"]["content"].clone();
        assert_eq!(seeded(1).await, seeded(1).await);
        assert_ne!(seeded(1).await, seeded(2).await);
        let stopped = ask(json!({"grammar": "root ::= \"babe\" \"babo\"", "stop": ["bo"]})).await;
        assert_eq!(stopped["message"]["content"], "babeba");
        let logprobs = ask(json!({"logprobs": true, "max_tokens": 2})).await;
        assert_eq!(logprobs["logprobs"]["content"].as_array().unwrap().len(), 2, "{logprobs}");
        let schema =
            json!({"type": "object", "properties": {"city": {"enum": ["Ada", "Bob"]}}, "required": ["city"]});
        let format = json!({"type": "json_schema", "json_schema": {"name": "place", "schema": schema}});
        let written = ask(json!({"response_format": format, "max_tokens": 500})).await;
        let written: Value = serde_json::from_str(written["message"]["content"].as_str().unwrap()).unwrap();
        assert!(["Ada", "Bob"].contains(&written["city"].as_str().unwrap()), "{written}");
        // The model reads tools as a part of the prompt.
        let tools = json!([{"type": "function", "function": {"name": "look_up", "parameters": schema}}]);
        ask(json!({"tools": tools})).await;
        let used = scene.used().await;
        let (tools, others) = used.split_last().unwrap();
        assert!(tools.0 > 100 && others.iter().all(|(prompt, _)| *prompt == 23), "{used:?}");
    });
}

#[on_each_database]
fn refusals_of_llamacpp_keep_its_words_and_cost_nothing(database: Database) {
    with_llamacpp(database, 1, async |scene, engine| {
        let before = engine.generated();
        let long = json!([{"role": "user", "content": "ba ".repeat(4_500)}]);
        let too_long = "exceeds the available context size (4096 tokens)";
        for (more, code, message) in [
            (json!({"n": 2}), "unsupported_parameter", ""),
            (json!({"messages": long}), "context_length_exceeded", too_long),
            (json!({"messages": long, "stream": true}), "context_length_exceeded", too_long),
            (json!({"temperature": "hot"}), "invalid_request", "temperature"),
            (json!({"grammar": "root ::= ("}), "invalid_request", "grammar"),
        ] {
            let answer = scene.chat(&body(&more)).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (400, code), "{}", answer.text);
            let error = &answer.json()["error"];
            assert_eq!(error["type"], "invalid_request_error", "{}", answer.text);
            assert!(error["message"].as_str().unwrap().contains(message), "{}", answer.text);
        }
        assert_eq!((scene.used().await, engine.generated() - before), (vec![], 0));
    });
}

/// Reads this many events of a stream, or all if it has fewer; then disconnects.
async fn read_events(mut stream: Body, count: usize) -> String {
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let Some(frame) = stream.frame().await else { break };
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
    }
    text
}

#[on_each_database]
fn client_that_leaves_stops_llamacpp(database: Database) {
    with_llamacpp(database, 4, async |scene, engine| {
        let before = engine.generated();
        let answer = scene.chat(&body(&json!({"stream": true, "max_tokens": 1000}))).open().await;
        assert_eq!(answer.status(), 200);
        read_events(answer.into_body(), 3).await;
        scene.assert_settled().await;
        let generated = engine.generated() - before;
        let used = scene.used().await;
        assert!(used.len() == 1 && used[0].0 == 23, "{used:?}");
        assert!((2..=generated).contains(&used[0].1) && generated < 500, "{used:?} of {generated}");
    });
}

/// Clients disconnect after a random number of events. They never pay for more tokens than were generated,
/// and all tokens that arrived before they disconnected are charged.
#[on_each_database]
fn random_disconnects_are_charged_by_what_llamacpp_generated(database: Database) {
    const STREAMS: usize = 60;
    with_llamacpp(database, 8, async |scene, engine| {
        let before = engine.generated();
        let mut chance = Chance::new(first_seed());
        // Clients that would read more than the 203 events of a whole answer stay until its end.
        let counts: Vec<_> = (0..STREAMS).map(|_| 1 + chance.below(220)).collect();
        let streams = futures_util::stream::iter(counts).map(async |count| {
            // With the cache, most of the prompt isn't read again, but it is still charged.
            let more = json!({"stream": true, "max_tokens": 200, "temperature": 1, "seed": count,
                "cache_prompt": true});
            let answer = scene.chat(&body(&more)).open().await;
            assert_eq!(answer.status(), 200);
            read_events(answer.into_body(), count).await
        });
        // llama.cpp has four slots.
        let ends: Vec<_> = streams.buffer_unordered(4).collect().await;
        scene.assert_settled().await;
        let complete = ends.iter().filter(|text| text.ends_with("data: [DONE]\n\n")).count();
        let generated = engine.generated() - before;
        let used = scene.used().await;
        let charged: i64 = used.iter().map(|(_, completion)| completion).sum();
        eprintln!("{complete} of {STREAMS} streams ended, {charged} of {generated} tokens are charged");
        assert!(complete > 0 && complete < STREAMS / 2, "{complete}");
        assert!(used.len() == STREAMS && used.iter().all(|(prompt, _)| *prompt == 23), "{used:?}");
        assert!(charged <= generated && charged * 100 >= generated * 95, "{charged} of {generated}");
    });
}
