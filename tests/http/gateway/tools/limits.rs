//! Limits of an answer (docs/contract/gateway.md#limits-of-an-answer).

use serde_json::json;

use super::{answer_all, chat, last_body, message, of_tool_1, with_model};
use crate::gateway::with_upstream;

use support::billed::budgets_path;
use support::upstream::{Received, json_answer, stream};
use support::{Database, on_each_database};

#[on_each_database]
fn limit_above_the_models_is_lowered(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let with = |field: &str, tokens: i64| {
            let mut body = chat();
            body[field] = json!(tokens);
            body
        };
        let response = json!({"model": "chat-1", "input": "hi", "max_output_tokens": 128_000});
        let cases = [
            ("/v1/chat/completions", with("max_tokens", 32_000), "max_tokens", 1_000),
            ("/v1/chat/completions", with("max_completion_tokens", 32_000), "max_completion_tokens", 1_000),
            ("/v1/messages", message(), "max_tokens", 1_000),
            ("/v1/responses", response, "max_output_tokens", 1_000),
        ];
        for (path, body, field, expected) in cases {
            let answer = scene.call(path, &body).send().await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            assert_eq!(answer.header("x-tollkeeper-max-tokens"), expected.to_string(), "{path}");
            assert_eq!(last_body(scene)[field], expected, "{path}");
        }
        // The key's limit is lower still.
        let restricted = json!({"name": "ten", "restrictions": {"max_tokens": 10}});
        let (_, key) = scene.world.key(&scene.ada, &scene.place, &restricted).await;
        let call = scene.world.post("/v1/messages", &message()).header("x-api-key", &key);
        let answer = call.send().await;
        assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, "10"), "{}", answer.text);
        assert_eq!(last_body(scene)["max_tokens"], 10);
        // A limit that fits is sent unchanged, without a header about it.
        let answer = scene.chat(&with("max_tokens", 1_000)).send().await;
        assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, ""));
        let answer = scene.chat(&chat()).send().await;
        assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, ""));
        assert_eq!(scene.used().await, [(1, 1); 7]);
    });
}

#[on_each_database]
fn lowered_limit_is_in_the_header_of_every_answer(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        answer_all(scene);
        let completion = json!({"model": "chat-1", "prompt": "hi", "max_tokens": 32_000, "n": 2});
        let answer = scene.call("/v1/completions", &completion).send().await;
        assert_eq!(
            (answer.status, answer.header("x-tollkeeper-max-tokens")),
            (200, "1000"),
            "{}",
            answer.text
        );
        assert_eq!(last_body(scene)["max_tokens"], 1_000);
        // A chat may name two limits, of which the smaller one counts.
        for (older, newer, header, written) in [(2_000, 32_000, "1000", 1_000), (500, 32_000, "", 500)] {
            let mut body = chat();
            body["max_tokens"] = json!(older);
            body["max_completion_tokens"] = json!(newer);
            let answer = scene.chat(&body).send().await;
            assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, header));
            let sent = last_body(scene);
            let limits = (&sent["max_tokens"], &sent["max_completion_tokens"]);
            assert_eq!(limits, (&json!(written), &json!(written)), "{older} {newer}");
        }
        scene.upstream.choose(|_: &Received| {
            let choice = json!({"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"});
            stream(&[json!({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})])
        });
        let mut body = message();
        body["stream"] = json!(true);
        let answer = scene.chat(&body).send().await;
        assert_eq!(
            (answer.status, answer.header("x-tollkeeper-max-tokens")),
            (200, "1000"),
            "{}",
            answer.text
        );
        assert_eq!(scene.used().await, [(1, 1); 4]);
    });
}

/// The context has 600 tokens, less than the 1,000 of the model's limit.
#[on_each_database]
fn limit_above_the_context_is_lowered_to_it(database: Database) {
    with_model(database, "context_length = 600", async |scene| {
        answer_all(scene);
        for (asked, header) in
            [(json!(900), "600"), (json!(32_000), "600"), (json!(600), ""), (json!(null), "")]
        {
            let mut body = of_tool_1(chat());
            body["max_tokens"] = asked;
            let answer = scene.chat(&body).send().await;
            assert_eq!((answer.status, answer.header("x-tollkeeper-max-tokens")), (200, header), "{body}");
            assert_eq!(last_body(scene)["max_tokens"], 600, "{body}");
        }
        let model = scene.world.get("/v1/models/tool-1").bearer(&scene.key).bare().await;
        assert_eq!((&model["context_length"], &model["max_output_tokens"]), (&json!(600), &json!(600)));
    });
}

#[on_each_database]
fn model_may_refuse_what_is_above_its_limit(database: Database) {
    with_model(database, "max_tokens_policy = \"refuse\"", async |scene| {
        answer_all(scene);
        let response = json!({"model": "tool-1", "input": "hi", "max_output_tokens": 1_001});
        let (mut newer, mut both) = (of_tool_1(chat()), of_tool_1(chat()));
        newer["max_completion_tokens"] = json!(1_001);
        both["max_completion_tokens"] = json!(1_002);
        both["max_tokens"] = json!(1_001);
        for (path, body, param) in [
            ("/v1/chat/completions", newer, "max_completion_tokens"),
            ("/v1/chat/completions", both, "max_tokens"),
            ("/v1/messages", of_tool_1(message()), "max_tokens"),
            ("/v1/responses", response, "max_output_tokens"),
        ] {
            let answer = scene.call(path, &body).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "max_tokens_exceeded"), "{path}");
            assert_eq!(answer.json()["error"]["param"], param, "{path}");
            assert_eq!(answer.header("x-should-retry"), "false");
        }
        // The key's limit too, in its own words.
        let restricted = json!({"name": "ten", "restrictions": {"max_tokens": 10}});
        let (_, key) = scene.world.key(&scene.ada, &scene.place, &restricted).await;
        let limited = |tokens: i64| {
            let mut body = of_tool_1(chat());
            body["max_tokens"] = json!(tokens);
            scene.world.post("/v1/chat/completions", &body).bearer(&key)
        };
        let answer = limited(11).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "max_tokens_exceeded"));
        assert!(answer.text.contains("This API key allows at most 10 tokens"), "{}", answer.text);
        assert_eq!(scene.upstream.received().len(), 0);
        limited(10).bare().await;
        assert_eq!(last_body(scene)["max_tokens"], 10);
    });
}

/// 5,000 tokens of context; the prompt has 4,600, so 400 are left of the 1,000 that may be asked for.
#[on_each_database]
fn limit_is_lowered_to_the_rest_of_the_context(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.choose(|request: &Received| match request.body["max_tokens"].as_i64() {
            Some(1_000) => json_answer(
                400,
                &json!({"error": {"message": "max_tokens is too large: 1000. The context is 5000 and your request has 4600 \
                    input tokens (1000 > 5000 - 4600)", "code": 400}}),
            ),
            _ => json_answer(200, &json!({"content": [], "usage": {"input_tokens": 1, "output_tokens": 1}})),
        });
        let answer = scene.call("/v1/messages", &message()).send().await;
        assert_eq!(
            (answer.status, answer.header("x-tollkeeper-max-tokens")),
            (200, "400"),
            "{}",
            answer.text
        );
        assert_eq!(last_body(scene)["max_tokens"], 400);
    });
    // With `refuse` a limit that the client chose is its own.
    with_model(database, "max_tokens_policy = \"refuse\"", async |scene| {
        let message = "maximum context length is 5000 tokens. However, you requested 5500 tokens (4600 in the messages, 900 in the completion).";
        scene.upstream.choose(move |_: &Received| {
            json_answer(400, &json!({"error": {"message": message, "code": 400}}))
        });
        let mut body = of_tool_1(chat());
        body["max_tokens"] = json!(900);
        let answer = scene.chat(&body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "context_length_exceeded"));
        assert_eq!(scene.upstream.received().len(), 1);
    });
}

/// Without a limit "hi" costs at most 100 tokens of the answer, 0.001, and a few of the prompt, and not 1,000 tokens, 0.01.
#[on_each_database]
fn call_without_a_limit_gets_the_models_default(database: Database) {
    with_model(database, "default_max_tokens = 100", async |scene| {
        answer_all(scene);
        scene.chat(&of_tool_1(chat())).bare().await;
        assert_eq!(last_body(scene)["max_tokens"], 100);
        let mut body = of_tool_1(chat());
        body["max_tokens"] = json!(900);
        scene.chat(&body).bare().await;
        assert_eq!(last_body(scene)["max_tokens"], 900, "a call may ask for more");
        let response = json!({"model": "tool-1", "input": "hi"});
        for (path, body, field) in [
            ("/v1/completions", json!({"model": "tool-1", "prompt": "hi"}), "max_tokens"),
            ("/v1/responses", response, "max_output_tokens"),
            ("/v1/messages", of_tool_1(chat()), "max_tokens"),
        ] {
            let answer = scene.call(path, &body).send().await;
            assert_eq!(
                (answer.status, answer.header("x-tollkeeper-max-tokens")),
                (200, ""),
                "{}",
                answer.text
            );
            assert_eq!(last_body(scene)[field], 100, "{path}");
        }
        let restricted = json!({"name": "ten", "restrictions": {"max_tokens": 10}});
        let (_, key) = scene.world.key(&scene.ada, &scene.place, &restricted).await;
        scene.world.post("/v1/chat/completions", &of_tool_1(chat())).bearer(&key).bare().await;
        assert_eq!(last_body(scene)["max_tokens"], 10, "the key's limit is lower");
        let path = budgets_path(&scene.place.organization);
        let budget = json!({"name": "Small", "scope": "organization", "period": "total", "limit": "0.009", "hard": true});
        scene.world.post(&path, &budget).bearer(&scene.ada.access_token).data().await;
        scene.chat(&of_tool_1(chat())).bare().await;
        assert_eq!(scene.chat(&body).refused().await, (402, "budget_exceeded".to_owned()));
        let question =
            json!({"credential": scene.key, "operation": "chat", "model": "tool-1", "reserve": false});
        let decision = scene.world.ask("/service/v1/authorize", &question).bare().await;
        assert_eq!((&decision["allowed"], &decision["max_tokens"]), (&json!(true), &json!(100)));
    });
}

/// No tokens of an answer: Anthropic's way to have a prompt cached, and the prompt alone with `echo`.
#[on_each_database]
fn call_may_ask_for_no_answer(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let cached = json!({"input_tokens": 3, "cache_creation_input_tokens": 6, "cache_read_input_tokens": 0,
            "output_tokens": 0});
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": "max_tokens", "usage": cached});
        let choice = json!({"index": 0, "text": "hi", "logprobs": null, "finish_reason": "length"});
        let echoed = json!({"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [choice],
            "usage": {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}});
        scene.upstream.choose(move |request: &Received| {
            let is_message = request.head[0].contains("/messages");
            json_answer(200, if is_message { &message } else { &echoed })
        });
        let mut body = chat();
        body["max_tokens"] = json!(0);
        let completion =
            json!({"model": "chat-1", "prompt": "hi", "max_tokens": 0, "echo": true, "logprobs": 1});
        for (path, mut body) in [("/v1/messages", body), ("/v1/completions", completion)] {
            let answer = scene.call(path, &body).send().await;
            assert_eq!(
                (answer.status, answer.header("x-tollkeeper-max-tokens")),
                (200, ""),
                "{}",
                answer.text
            );
            body["model"] = json!("org/engine-model");
            assert_eq!(last_body(scene), body);
        }
        // Tokens that are written to a cache are part of the prompt.
        assert_eq!(scene.used().await, [(9, 0), (2, 0)]);
    });
}
