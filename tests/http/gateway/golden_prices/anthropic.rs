//! Anthropic's messages.

use serde_json::{Value, json};

use super::{Golden, check};
use support::{Database, on_each_database};

#[on_each_database]
fn messages_of_anthropic(database: Database) {
    check(database, "openai", messages);
}

fn message(usage: &Value) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "stop_sequence": null, "content": [{"type": "text", "text": "Blue."}], "usage": usage})
}

/// Returns the events of a message with the `usage` objects of its beginning and its end.
fn events(start: &Value, end: &Value) -> Vec<Value> {
    let mut begun = message(start);
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    vec![
        json!({"type": "message_start", "message": begun}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Blue."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": end}),
        json!({"type": "message_stop"}),
    ]
}

fn messages() -> Vec<Golden> {
    let path = "/v1/messages";
    let split = |minutes_5: i64, hour: i64| json!({"ephemeral_5m_input_tokens": minutes_5, "ephemeral_1h_input_tokens": hour});
    vec![
        // 3 x 2 + 40 x 0.2 + 123 x 2.5 + 19 x 8 + 50 = 6 + 8 + 307.5 + 152 + 50
        Golden::plain(
            "written to a cache",
            path,
            &message(
                &json!({"input_tokens": 3, "cache_creation_input_tokens": 123, "cache_read_input_tokens": 40,
                "cache_creation": split(123, 0), "output_tokens": 19, "service_tier": "standard"}),
            ),
            (166, 19),
            "0.0005235",
        ),
        // 2,048 x 2 + 1,800 x 0.2 + 148 x 2.5 + 100 x 4 + 503 x 8 + 50 = 4,096 + 360 + 370 + 400 + 4,024 + 50
        Golden::plain(
            "written for both durations",
            path,
            &message(&json!({"input_tokens": 2_048, "cache_creation_input_tokens": 248,
                "cache_read_input_tokens": 1_800, "cache_creation": split(148, 100), "output_tokens": 503})),
            (4_096, 503),
            "0.0093",
        ),
        // 25 x 2 + 400 x 0.2 + 20 x 2.5 + 30 x 4 + 15 x 8 + 50 = 50 + 80 + 50 + 120 + 120 + 50
        Golden::events(
            "only the first event has the cache duration, streamed",
            path,
            &events(
                &json!({"input_tokens": 25, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 400,
                    "cache_creation": split(20, 30), "output_tokens": 2, "service_tier": "standard"}),
                &json!({"input_tokens": 25, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 400,
                    "output_tokens": 15}),
            ),
            (475, 15),
            "0.00047",
        ),
        // 10,682 x 2 + 510 x 8 + 1 x 10,000 + 50 = 21,364 + 4,080 + 10,000 + 50
        Golden::events(
            "a search, streamed",
            path,
            &events(
                &json!({"input_tokens": 2_679, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                    "output_tokens": 3}),
                &json!({"input_tokens": 10_682, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                    "output_tokens": 510, "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}),
            ),
            (10_682, 510),
            "0.035494",
        ),
        // Twice: 100 x 4 + 20 x 16 + 50
        Golden::plain(
            "priority",
            path,
            &message(
                &json!({"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                "cache_creation": split(0, 0), "output_tokens": 20, "service_tier": "priority"}),
            ),
            (100, 20),
            "0.00077",
        ),
    ]
}
