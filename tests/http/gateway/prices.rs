//! The price of a call, and the amount reserved for it. Sums are computed by hand, in millionths of the
//! currency.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::clock::Time;
use tollkeeper::web::reply::Body;

use super::golden_counts::last;
use super::progress::{LIFETIME, WRITTEN, events, rest, until};
use super::{Scene, with_settings};
use support::books::wallet;
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, piece, stream, stream_head};
use support::{Database, on_each_database};

/// Prices in millionths. For `m`, a prompt token costs 1, a token from a cache 0.1, an image token 2, a token
/// of the answer 3, and a reasoning token 5; above 200 prompt tokens, twice as much; as flex, half as much;
/// from 13:00 to 14:00, four times as much; and from 16:00 on, a hundred times as much. For `s`, only a
/// search has a price, 1,000. For `e`, a token costs 1, and an image token 2.
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
prices = [
  { effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", cached_prompt_tokens = "0.0000001", completion_tokens = "0.000003", components = { image_prompt = "0.000002", reasoning = "0.000005" } },
  { effective_at = "2020-01-01T00:00:00Z", above_prompt_tokens = 200, prompt_tokens = "0.000002", cached_prompt_tokens = "0.0000002", completion_tokens = "0.000006" },
  { effective_at = "2020-01-01T00:00:00Z", service_tier = "flex", prompt_tokens = "0.0000005", completion_tokens = "0.0000015" },
  { effective_at = "2020-01-01T00:00:00Z", hours = ["13:00-14:00"], prompt_tokens = "0.000004", completion_tokens = "0.000012" },
  { effective_at = "2026-03-10T16:00:00Z", prompt_tokens = "0.0001", completion_tokens = "0.0003" },
]
routes = [{ upstream = "engine" }]

[[models]]
id = "s"
kind = "chat"
description = "A model that searches and hears"
owned_by = "acme"
created = 1704067200
max_tokens = 8000
context_length = 131072
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0", completion_tokens = "0", components = { search = "0.001", second = "0.0002" } }]
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
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", components = { image_prompt = "0.000002" } }]
routes = [{ upstream = "engine" }]
"#;

fn with_models(
    database: Database,
    kind: &'static str,
    settings: &[(&str, &str)],
    test: impl AsyncFn(&Scene),
) {
    let describe = |upstream: &Upstream| {
        let url = upstream.url();
        let engine = format!(
            "[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\nshared_prefix_cache = true\n\
             allow_fields = [\"service_tier\", \"tools.web_search\", \"web_search_options\"]\n"
        );
        ("routes = [{ upstream = \"engine\" }]".to_owned(), engine + MODELS)
    };
    with_settings(database, settings, describe, test);
}

fn body(more: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn answer(usage: &Value, tier: &Value) -> Value {
    let choice =
        json!({"index": 0, "message": {"role": "assistant", "content": "Blue."}, "finish_reason": "stop"});
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage,
        "service_tier": tier})
}

fn usage(prompt: i64, completion: i64, cached: i64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached}})
}

fn chunk(reason: &Value, more: &Value) -> Value {
    let mut chunk = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": reason}]});
    chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chunk
}

/// Makes a chat that isn't streamed, and returns its price.
async fn price_of(scene: &Scene, more: &Value, usage: &Value, tier: &Value) -> String {
    scene.upstream.script([json_answer(200, &answer(usage, tier))]);
    let sent = scene.chat(&body(more)).send().await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    last(scene).await.0
}

/// Moves the clock to this time.
fn go_to(scene: &Scene, text: &str) {
    let ms = Time::parse(text).unwrap().unix_ms() - scene.world.clock.now().unix_ms();
    scene.world.clock.advance_ms(ms);
}

/// Begins a stream.
async fn begin(scene: &Scene) -> Body {
    let body = body(&json!({"stream": true}));
    let request = http::Request::post("/v1/chat/completions")
        .header("authorization", format!("Bearer {}", scene.key))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = scene.world.public.answer(request, IpAddr::from([127, 0, 0, 1])).await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

#[on_each_database]
fn long_prompt_has_the_dearer_price_as_a_whole(database: Database) {
    with_models(database, "openai", &[], async |scene| {
        let (none, null) = (json!({}), Value::Null);
        // 50 x 1 + 150 x 0.1 + 10 x 3: 200 tokens aren't above 200.
        assert_eq!(price_of(scene, &none, &usage(200, 10, 150), &null).await, "0.000095");
        // 51 x 2 + 150 x 0.2 + 10 x 6
        assert_eq!(price_of(scene, &none, &usage(201, 10, 150), &null).await, "0.000192");
        // Tokens from a cache are counted in addition to the others in a message:
        // 100 x 1 + 100 x 0.1 + 10 x 3, and 100 x 2 + 101 x 0.2 + 10 x 6.
        for (cached, price) in [(100, "0.00014"), (101, "0.0002802")] {
            let message = json!({"type": "message", "stop_reason": "end_turn", "content": [{"type": "text", "text": "a"}],
                "usage": {"input_tokens": 100, "cache_read_input_tokens": cached, "output_tokens": 10}});
            scene.upstream.script([json_answer(200, &message)]);
            assert_eq!(scene.call("/v1/messages", &body(&none)).send().await.status, 200);
            assert_eq!(last(scene).await.0, price);
        }
    });
}

#[on_each_database]
fn tier_of_the_answer_decides(database: Database) {
    with_models(database, "openai", &[], async |scene| {
        let (none, flex) = (json!({}), json!({"service_tier": "flex"}));
        let used = usage(100, 10, 0);
        // 100 x 1 + 10 x 3, and half of it.
        assert_eq!(price_of(scene, &flex, &used, &json!("default")).await, "0.00013");
        assert_eq!(price_of(scene, &flex, &used, &Value::Null).await, "0.00013");
        assert_eq!(price_of(scene, &none, &used, &json!("flex")).await, "0.000065");
        // A tier takes precedence over a long prompt: 300 x 0.5 + 10 x 1.5.
        assert_eq!(price_of(scene, &flex, &usage(300, 10, 0), &json!("flex")).await, "0.000165");
        // For a tier without prices, the other prices apply: 300 x 2 + 10 x 6.
        assert_eq!(price_of(scene, &none, &usage(300, 10, 0), &json!("priority")).await, "0.00066");
        for (tiers, price) in [(["flex", "default"], "0.00013"), (["auto", "flex"], "0.000065")] {
            let chunks = [
                chunk(&Value::Null, &json!({"service_tier": tiers[0]})),
                chunk(&json!("stop"), &json!({"service_tier": tiers[1]})),
                json!({"choices": [], "usage": used}),
            ];
            scene.upstream.script([stream(&chunks)]);
            assert_eq!(scene.chat(&body(&json!({"stream": true}))).send().await.status, 200);
            assert_eq!(last(scene).await.0, price, "{tiers:?}");
        }
    });
}

/// The hour and the version of a price are those at the admission, regardless of how long the call takes.
#[on_each_database]
fn admission_decides_about_hours_and_versions(database: Database) {
    with_models(database, "openai", &[], async |scene| {
        let (none, null, used) = (json!({}), Value::Null, usage(100, 10, 0));
        let slow = || {
            vec![
                stream_head(),
                event(&chunk(&null, &none)),
                Step::Pause(Duration::from_millis(500)),
                event(&chunk(&json!("stop"), &none)),
                event(&json!({"choices": [], "usage": used})),
                piece("data: [DONE]\n\n"),
                end_of_body(),
            ]
        };
        // 100 x 1 + 10 x 3; within the hour 100 x 4 + 10 x 12; from 16:00 on 100 x 100 + 10 x 300.
        for (admitted, later, price) in [
            ("2026-03-10T12:59:59.999Z", "2026-03-10T13:00:00.000Z", "0.00013"),
            ("2026-03-10T13:00:00.000Z", "2026-03-10T13:00:00.001Z", "0.00052"),
            ("2026-03-10T13:59:59.999Z", "2026-03-10T14:00:00.000Z", "0.00052"),
            ("2026-03-10T14:00:00.000Z", "2026-03-10T14:00:00.001Z", "0.00013"),
            ("2026-03-10T15:59:59.999Z", "2026-03-10T16:00:30.000Z", "0.00013"),
        ] {
            go_to(scene, admitted);
            scene.upstream.script([slow()]);
            let stream = begin(scene).await;
            go_to(scene, later);
            assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
            assert_eq!(last(scene).await.0, price, "{admitted}");
        }
        assert_eq!(price_of(scene, &none, &used, &null).await, "0.013");
    });
}

#[on_each_database]
fn parts_that_do_not_fit_cost_what_they_are_a_part_of(database: Database) {
    with_models(database, "openai", &[], async |scene| {
        let (none, null) = (json!({}), Value::Null);
        let pictures = |cached: i64, image: i64| {
            let mut used = usage(100, 10, cached);
            used["prompt_tokens_details"]["image_tokens"] = json!(image);
            used
        };
        // 60 x 1 + 30 x 0.1 + 10 x 2 + 10 x 3
        assert_eq!(price_of(scene, &none, &pictures(30, 10), &null).await, "0.000113");
        // Only 10 prompt tokens aren't from the cache, so the 50 image tokens aren't priced separately:
        // 10 x 1 + 90 x 0.1 + 10 x 3.
        assert_eq!(price_of(scene, &none, &pictures(90, 50), &null).await, "0.000049");
        // An answer is charged up to its limit. Reasoning above the limit isn't priced separately:
        // 10 x 1 + 100 x 3.
        let mut long = usage(10, 5_000, 0);
        long["completion_tokens_details"] = json!({"reasoning_tokens": 4_000});
        assert_eq!(price_of(scene, &json!({"max_tokens": 100}), &long, &null).await, "0.00031");
        // 10 x 1 + 100 x 5
        long["completion_tokens_details"] = json!({"reasoning_tokens": 100});
        assert_eq!(price_of(scene, &json!({"max_tokens": 100}), &long, &null).await, "0.00051");
    });
}

/// Embeddings have no answer, and no price for cached tokens.
#[on_each_database]
fn embeddings_have_the_parts_that_they_can_have(database: Database) {
    with_models(database, "vllm", &[], async |scene| {
        let vectors = json!({"object": "list", "model": "e", "data": [{"index": 0, "object": "embedding", "embedding": [0.5]}],
            "usage": {"prompt_tokens": 100, "total_tokens": 100, "completion_tokens": 0, "prompt_tokens_details":
                {"cached_tokens": 64, "created_cache_tokens": 16, "image_tokens": 30}}});
        scene.upstream.script([json_answer(200, &vectors)]);
        let call = scene.call("/v1/embeddings", &json!({"model": "e", "input": "x"})).send().await;
        assert_eq!(call.status, 200);
        // 70 x 1 + 30 x 2
        assert_eq!(last(scene).await, ("0.00013".to_owned(), 100, 0, false));
    });
}

/// A gateway stalls, so its call is charged by its progress, which contains neither parts nor a tier.
#[on_each_database]
fn rest_of_a_call_is_charged_by_its_parts_and_its_tier(database: Database) {
    with_models(database, "vllm", &[LIFETIME], async |scene| {
        let running = |completion: i64| {
            event(&chunk(
                &Value::Null,
                &json!({"usage": {"prompt_tokens": 9, "completion_tokens": completion}}),
            ))
        };
        let mut split = usage(9, 9, 4);
        split["completion_tokens_details"] = json!({"reasoning_tokens": 5});
        let stop = json!("stop");
        let ends = [
            // 5 x 1 + 4 x 0.1 + 5 x 5 + 4 x 3 = 42.4:
            // 4 tokens turn out to be from the cache, and 5 to be reasoning.
            (chunk(&stop, &json!({"usage": split})), 42_400, vec![(0, 9, 2), (2, 4, 7), (2, -4, 0)]),
            // 9 x 0.5 + 9 x 1.5 = 18; the earlier charge is taken back.
            (
                chunk(&stop, &json!({"usage": usage(9, 9, 0), "service_tier": "flex"})),
                18_000,
                vec![(0, 9, 2), (2, 9, 9), (2, -9, -2)],
            ),
        ];
        let (mut charged, mut recorded) = (0, Vec::new());
        for (end, nano, due) in ends {
            scene.world.clock.advance_ms(1_000);
            let mut steps =
                vec![stream_head(), running(1), running(2), Step::Pause(Duration::from_millis(3_500))];
            steps.extend([event(&end), piece("data: [DONE]\n\n"), end_of_body()]);
            scene.upstream.script([steps]);
            let stream = begin(scene).await;
            until(scene, WRITTEN, 2).await;
            scene.world.clock.advance_ms(4_000);
            assert_eq!(expire_due(&scene.world.app.billing).await.unwrap(), 1);
            // 9 x 1 + 2 x 3
            assert_eq!(wallet(&scene.world, &scene.place.organization).await, (-charged - 15_000, 0));
            assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
            scene.assert_settled().await;
            charged += nano;
            recorded.extend(due);
            assert_eq!(events(scene).await, recorded);
            assert_eq!(wallet(&scene.world, &scene.place.organization).await, (-charged, 0));
        }
    });
}

#[on_each_database]
fn searches_are_reserved_and_charged(database: Database) {
    with_models(database, "openai", &[], async |scene| {
        let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": {"type": "search", "query": "a"}});
        let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "s",
            "output": [search, {"type": "message", "content": [{"type": "output_text", "text": "Blue."}]}],
            "usage": {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14}});
        let message = json!({"type": "message", "stop_reason": "end_turn", "content": [{"type": "text", "text": "a"}],
            "usage": {"input_tokens": 9, "output_tokens": 5, "server_tool_use": {"web_search_requests": 2}}});
        let chat = answer(&usage(9, 5, 0), &Value::Null);
        let anthropic = |more: Value| {
            let mut tool = json!({"type": "web_search_20250305", "name": "web_search"});
            tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"tools": [tool], "max_tokens": 100})
        };
        let tools = json!([{"type": "web_search"}]);
        for (path, more, answer, reserved, price) in [
            ("/v1/responses", json!({"tools": tools, "max_tool_calls": 3}), &response, 3, "0.001"),
            ("/v1/responses", json!({"tools": tools}), &response, 10, "0.001"),
            ("/v1/responses", json!({"max_tool_calls": 3}), &response, 0, "0.001"),
            ("/v1/messages", anthropic(json!({"max_uses": 5})), &message, 5, "0.002"),
            ("/v1/messages", anthropic(json!({})), &message, 10, "0.002"),
            ("/v1/chat/completions", json!({"web_search_options": {}}), &chat, 10, "0"),
            ("/v1/chat/completions", json!({}), &chat, 0, "0"),
        ] {
            let mut steps = vec![Step::Pause(Duration::from_millis(600))];
            steps.extend(json_answer(200, answer));
            scene.upstream.script([steps]);
            let mut body = body(&more);
            body["model"] = json!("s");
            if path == "/v1/responses" {
                body["input"] = json!("hi");
                body["store"] = json!(false);
                body.as_object_mut().unwrap().remove("messages");
            }
            let (before, _) = wallet(&scene.world, &scene.place.organization).await;
            let held = async {
                until(scene, "SELECT COUNT(*) FROM reservations", 1).await;
                wallet(&scene.world, &scene.place.organization).await
            };
            let (sent, held) = tokio::join!(scene.call(path, &body).send(), held);
            assert_eq!(sent.status, 200, "{more}: {}", sent.text);
            // A search costs a million nano.
            assert_eq!(held, (before, reserved * 1_000_000), "{path} {more}");
            assert_eq!(last(scene).await.0, price, "{path} {more}");
        }
    });
}

/// Mistral reports the seconds of the audio in a prompt.
#[on_each_database]
fn seconds_of_audio_are_reserved_and_charged(database: Database) {
    with_models(database, "openai", &[], async |scene| {
        let counted = |seconds: Value| {
            let mut usage = usage(90, 5, 0);
            usage["prompt_audio_seconds"] = seconds;
            answer(&usage, &Value::Null)
        };
        let audio = |length: usize| {
            let part =
                json!({"type": "input_audio", "input_audio": {"data": "A".repeat(length), "format": "mp3"}});
            json!({"messages": [{"role": "user", "content": [part]}]})
        };
        // A second costs 200,000 nano. A body of 40,100 to 42,600 characters contains 30,000 to 32,000 bytes
        // of audio: at 4,000 bytes per second 7 seconds, and one more for a second that has begun.
        for (more, answer, reserved, price) in [
            (audio(40_000), counted(json!(7.2)), 1_600_000, "0.0016"),
            (audio(40), counted(json!(1)), 200_000, "0.0002"),
            // The answer reports more than was reserved.
            (audio(40), counted(json!(3)), 200_000, "0.0006"),
            (json!({}), counted(json!({})), 0, "0"),
        ] {
            let mut steps = vec![Step::Pause(Duration::from_millis(600))];
            steps.extend(json_answer(200, &answer));
            scene.upstream.script([steps]);
            let mut body = body(&more);
            body["model"] = json!("s");
            let (before, _) = wallet(&scene.world, &scene.place.organization).await;
            let held = async {
                until(scene, "SELECT COUNT(*) FROM reservations", 1).await;
                wallet(&scene.world, &scene.place.organization).await
            };
            let (sent, held) = tokio::join!(scene.call("/v1/chat/completions", &body).send(), held);
            assert_eq!(sent.status, 200, "{}", sent.text);
            assert_eq!((held, last(scene).await.0.as_str()), ((before, reserved), price));
        }
    });
}
