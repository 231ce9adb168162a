//! Costs of calls whose counts are large, odd or missing. Sums are computed by hand.

use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::money::Pico;

use super::{Scene, with_catalog};
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, piece, stream_head};
use support::{Database, on_each_database};

/// `m` costs 0.000001 per prompt token, a tenth of that per cached token, and 0.000003 per token of the
/// answer; `e` costs 0.000001 per token.
const MODELS: &str = r#"
[[models]]
id = "m"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 8000
context_length = 131072
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", cached_prompt_tokens = "0.0000001", completion_tokens = "0.000003" }]
routes = [{ upstream = "engine" }]

[[models]]
id = "e"
kind = "embeddings"
description = "A model of vectors"
owned_by = "acme"
created = 1704067200
dimension = 8
max_tokens = 8192
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0" }]
routes = [{ upstream = "engine" }]
"#;

fn with_models(database: Database, kind: &'static str, test: impl AsyncFn(&Scene)) {
    let describe = |upstream: &Upstream| {
        let url = upstream.url();
        let engine = format!(
            "[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\nshared_prefix_cache = true\n"
        );
        ("routes = [{ upstream = \"engine\" }]".to_owned(), engine + MODELS)
    };
    with_catalog(database, describe, test);
}

/// Returns the price of the last call, its tokens of prompt and answer, and whether they are estimated.
pub async fn last(scene: &Scene) -> (String, i64, i64, bool) {
    scene.assert_settled().await;
    let mut tx = scene.world.app.db.read().await.unwrap();
    let text = "SELECT amount_pico, prompt_tokens, completion_tokens, estimated FROM usage_events \
        WHERE source = 'gateway' ORDER BY event_id DESC LIMIT 1";
    let (price, prompt, completion, estimated): (Pico, i64, i64, i64) = sql(text).one(&mut tx).await.unwrap();
    (price.to_string(), prompt, completion, estimated == 1)
}

fn expected(price: &str, prompt: i64, completion: i64, is_estimated: bool) -> (String, i64, i64, bool) {
    (price.to_owned(), prompt, completion, is_estimated)
}

fn message(content: &Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

fn answer(usage: &Value) -> Value {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": "Hello there"}, "finish_reason": "stop"});
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage})
}

/// Returns a message with a picture of 300 kB, whose size in pixels isn't known.
fn picture() -> Value {
    let url = format!("data:image/png;base64,{}", "A".repeat(400_000));
    json!([{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": url}}])
}

#[on_each_database]
fn counts_above_the_reservation_are_charged(database: Database) {
    with_models(database, "vllm", async |scene| {
        let small = json!([{"type": "text", "text": "hi"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]);
        let usage = json!({"prompt_tokens": 20_000, "completion_tokens": 50, "total_tokens": 20_050});
        scene.upstream.script([json_answer(200, &answer(&usage))]);
        assert_eq!(scene.chat(&message(&small)).send().await.status, 200);
        // 20,000 x 0.000001 + 50 x 0.000003
        assert_eq!(last(scene).await, expected("0.02015", 20_000, 50, false));

        let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Found."}]}],
            "usage": {"input_tokens": 9_000, "output_tokens": 300, "total_tokens": 9_300}});
        scene.upstream.script([json_answer(200, &response)]);
        let body =
            json!({"model": "m", "input": "What is new?", "tools": [{"type": "web_search"}], "store": false});
        let found = scene.call("/v1/responses", &body).send().await;
        assert_eq!(found.status, 200, "{}", found.text);
        // 9,000 x 0.000001 + 300 x 0.000003
        assert_eq!(last(scene).await, expected("0.0099", 9_000, 300, false));

        let written = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hi"}], "usage": {"input_tokens": 5_000, "cache_creation_input_tokens": 3_000,
            "cache_read_input_tokens": 1_000, "output_tokens": 5}});
        scene.upstream.script([json_answer(200, &written)]);
        let mut body = message(&json!("hi"));
        body["max_tokens"] = json!(100);
        assert_eq!(scene.call("/v1/messages", &body).send().await.status, 200);
        // (5,000 + 3,000) x 0.000001 + 1,000 x 0.0000001 + 5 x 0.000003
        assert_eq!(last(scene).await, expected("0.008115", 9_000, 5, false));

        let vectors = json!({"object": "list", "model": "e", "data": [{"index": 0, "object": "embedding", "embedding": [0.5]}],
            "usage": {"prompt_tokens": 5_000, "total_tokens": 5_000}});
        scene.upstream.script([json_answer(200, &vectors)]);
        assert_eq!(
            scene.call("/v1/embeddings", &json!({"model": "e", "input": "x"})).send().await.status,
            200
        );
        // 5,000 x 0.000001
        assert_eq!(last(scene).await, expected("0.005", 5_000, 0, false));
    });
}

/// Clients pay for answers up to their limit: if a server ignores the limit, the operator pays for the rest.
#[on_each_database]
fn answer_beyond_its_limit_is_charged_up_to_it(database: Database) {
    with_models(database, "vllm", async |scene| {
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5_000, "total_tokens": 5_010});
        scene.upstream.script([json_answer(200, &answer(&usage))]);
        let mut body = message(&json!("hi"));
        body["max_tokens"] = json!(100);
        assert_eq!(scene.chat(&body).send().await.status, 200);
        // 10 x 0.000001 + 100 x 0.000003
        assert_eq!(last(scene).await, expected("0.00031", 10, 100, false));
    });
}

#[on_each_database]
fn estimates_take_no_bytes_of_pictures_for_tokens(database: Database) {
    for kind in ["openai", "tgi"] {
        with_models_of_chat(database, kind, async |scene| {
            let mut body = message(&picture());
            body["metadata"] = json!({"note": "x".repeat(400)});
            // 3 for the message, 1 for its letters, and 765 for a picture of unknown size:
            // 769 x 0.000001 + 3 x 0.000003
            scene.upstream.script([json_answer(200, &answer(&Value::Null))]);
            let plain = scene.chat(&body).send().await;
            assert_eq!(plain.status, 200, "{}", plain.text);
            assert_eq!(last(scene).await, expected("0.000778", 769, 3, true), "{kind}");
            // Cut after two tokens: 769 x 0.000001 + 2 x 0.000003
            let word = |text: &str| {
                let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": null});
                event(&json!({"choices": [choice]}))
            };
            scene.upstream.script([vec![stream_head(), word("a"), word("b"), Step::Close]]);
            body["stream"] = json!(true);
            scene.chat(&body).send().await;
            assert_eq!(last(scene).await, expected("0.000775", 769, 2, true), "{kind}");
        });
    }
}

/// The same two estimates for pictures in the formats of responses and messages.
#[on_each_database]
fn estimates_of_responses_and_messages_take_no_bytes_of_pictures(database: Database) {
    with_models(database, "openai", async |scene| {
        let data = "A".repeat(400_000);
        let part = json!([{"type": "input_text", "text": "hi"},
            {"type": "input_image", "image_url": format!("data:image/png;base64,{data}")}]);
        let response = json!({"model": "m", "store": false, "input": [{"role": "user", "content": part}]});
        let source = json!({"type": "base64", "media_type": "image/png", "data": data});
        let mut message =
            message(&json!([{"type": "text", "text": "hi"}, {"type": "image", "source": source}]));
        message["max_tokens"] = json!(100);
        let text = "Hello there";
        let answers = [
            json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m", "usage": null,
                "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}),
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "usage": null, "content": [{"type": "text", "text": text}]}),
        ];
        let started = json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "m", "content": []}});
        let block = |word: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}});
        let word = |word: &str| json!({"type": "response.output_text.delta", "delta": word});
        let cuts = [vec![word("a"), word("b")], vec![started, block("a"), block("b")]];
        let calls = [("/v1/responses", response), ("/v1/messages", message)];
        for (((path, mut body), answer), cut) in calls.into_iter().zip(answers).zip(cuts) {
            // 3 for the message, 1 for its letters, and 765 for a picture of unknown size:
            // 769 x 0.000001 + 3 x 0.000003
            scene.upstream.script([json_answer(200, &answer)]);
            let plain = scene.call(path, &body).send().await;
            assert_eq!(plain.status, 200, "{path}: {}", plain.text);
            assert_eq!(last(scene).await, expected("0.000778", 769, 3, true), "{path}");
            // Cut after two tokens: 769 x 0.000001 + 2 x 0.000003
            let mut steps = vec![stream_head()];
            steps.extend(cut.iter().map(event));
            steps.push(Step::Close);
            scene.upstream.script([steps]);
            body["stream"] = json!(true);
            scene.call(path, &body).send().await;
            assert_eq!(last(scene).await, expected("0.000775", 769, 2, true), "{path}, streamed");
        }
    });
}

/// Like `with_models`, but without embeddings, which TGI doesn't have.
fn with_models_of_chat(database: Database, kind: &'static str, test: impl AsyncFn(&Scene)) {
    let describe = |upstream: &Upstream| {
        let url = upstream.url();
        let engine = format!(
            "[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\nshared_prefix_cache = true\n"
        );
        let (chat, _) = MODELS.split_at(MODELS.rfind("[[models]]").unwrap());
        ("routes = [{ upstream = \"engine\" }]".to_owned(), engine + chat)
    };
    with_catalog(database, describe, test);
}

/// Returns each `usage` object with the charged tokens, and whether they are estimated. The estimate is 1
/// token for `hi`, 3 for its message, and 3 for `Hello there`.
fn odd_usages() -> Vec<(Value, (i64, i64, bool))> {
    let of =
        |prompt: Value, completion: Value| json!({"prompt_tokens": prompt, "completion_tokens": completion});
    vec![
        // xAI counts reasoning in addition to the answer: 5 + 40.
        (
            json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 55,
                "completion_tokens_details": {"reasoning_tokens": 40}}),
            (10, 45, false),
        ),
        (of(json!(10.0), json!(5.0)), (10, 5, false)),
        (of(json!("10"), json!("5")), (10, 5, false)),
        // An unreadable count doesn't invalidate the other.
        (of(json!(10), Value::Null), (10, 3, true)),
        (of(json!(10), json!(-5)), (10, 3, true)),
        (of(json!(10), json!("many")), (10, 3, true)),
        (json!({"prompt_tokens": 10}), (10, 3, true)),
        (of(Value::Null, json!(5)), (4, 5, true)),
        (of(json!(-10), json!(5)), (4, 5, true)),
        // Zero isn't a valid count for an answer with text.
        (of(json!(0), json!(0)), (4, 3, true)),
        (of(Value::Null, Value::Null), (4, 3, true)),
    ]
}

#[on_each_database]
fn odd_counts_are_read_each_by_itself(database: Database) {
    with_models(database, "openai", async |scene| {
        for (usage, (prompt, completion, is_estimated)) in odd_usages() {
            let price = i128::from(prompt) * 1_000_000 + i128::from(completion) * 3_000_000;
            let expected = expected(&Pico::from_units(price).to_string(), prompt, completion, is_estimated);
            scene.upstream.script([json_answer(200, &answer(&usage))]);
            assert_eq!(scene.chat(&message(&json!("hi"))).send().await.status, 200);
            assert_eq!(last(scene).await, expected, "plain: {usage}");
            let choice = |delta: Value, reason: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
            scene.upstream.script([vec![
                stream_head(),
                event(&choice(json!({"content": "Hello there"}), Value::Null)),
                event(&choice(json!({}), json!("stop"))),
                event(&json!({"choices": [], "usage": usage})),
                piece("data: [DONE]\n\n"),
                end_of_body(),
            ]]);
            let mut body = message(&json!("hi"));
            body["stream"] = json!(true);
            assert_eq!(scene.chat(&body).send().await.status, 200);
            assert_eq!(last(scene).await, expected, "streamed: {usage}");
        }
    });
}

#[on_each_database]
fn odd_counts_of_responses_and_messages_are_read(database: Database) {
    with_models(database, "vllm", async |scene| {
        let response = |usage: Value| {
            json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello there"}]}], "usage": usage})
        };
        scene
            .upstream
            .script([json_answer(200, &response(json!({"input_tokens": 10, "output_tokens": null})))]);
        let body = json!({"model": "m", "input": "hi", "store": false});
        assert_eq!(scene.call("/v1/responses", &body).send().await.status, 200);
        assert_eq!(last(scene).await, expected("0.000019", 10, 3, true));

        let written = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hello there"}], "usage": {"input_tokens": 10, "output_tokens": null}});
        scene.upstream.script([json_answer(200, &written)]);
        let mut body = message(&json!("hi"));
        body["max_tokens"] = json!(100);
        assert_eq!(scene.call("/v1/messages", &body).send().await.status, 200);
        assert_eq!(last(scene).await, expected("0.000019", 10, 3, true));
    });
}
