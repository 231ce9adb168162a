//! OpenAI's chats and responses.

use serde_json::{Value, json};

use super::{Golden, check, last_chunk, text_chunk, usage_chunk};
use support::{Database, on_each_database};

#[on_each_database]
fn chats_of_openai(database: Database) {
    check(database, "openai", chats);
}

#[on_each_database]
fn responses_of_openai(database: Database) {
    check(database, "openai", responses);
}

fn chats() -> Vec<Golden> {
    let tier = |tier: &str| json!({"service_tier": tier});
    vec![
        // 14 x 2 + 256 x 10 + (263 - 256) x 8 + 50 = 28 + 2,560 + 56 + 50
        Golden::chat_of_tier(
            "reasoning",
            &json!({"prompt_tokens": 14, "completion_tokens": 263, "total_tokens": 277,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 256, "audio_tokens": 0,
                    "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}}),
            &json!("default"),
            (14, 263),
            "0.002694",
        ),
        // (2,006 - 1,920 - 64) x 2 + 1,920 x 0.2 + 64 x 2.5 + 256 x 10 + 44 x 8 + 50
        // = 44 + 384 + 160 + 2,560 + 352 + 50
        Golden::chat(
            "read from a cache and written to it",
            &json!({"prompt_tokens": 2_006, "completion_tokens": 300, "total_tokens": 2_306,
                "prompt_tokens_details": {"cached_tokens": 1_920, "audio_tokens": 0, "cache_write_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 256}}),
            (2_006, 300),
            "0.00355",
        ),
        // 30 x 2 + 180 x 40 + 25 x 8 + 90 x 80 + 50 = 60 + 7,200 + 200 + 7,200 + 50
        Golden::chat(
            "audio both ways",
            &json!({"prompt_tokens": 210, "completion_tokens": 115, "total_tokens": 325,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 180, "text_tokens": 30, "image_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 90, "text_tokens": 25}}),
            (210, 115),
            "0.01471",
        ),
        // Half: (1,200 - 1,024) x 1 + 1,024 x 0.1 + 64 x 5 + 16 x 4 + 50 = 176 + 102.4 + 320 + 64 + 50
        Golden::chunks(
            "flex, streamed",
            &[
                text_chunk(&tier("flex")),
                last_chunk(&tier("flex")),
                usage_chunk(&json!({"prompt_tokens": 1_200, "completion_tokens": 80, "total_tokens": 1_280,
                    "prompt_tokens_details": {"cached_tokens": 1_024, "audio_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 64}})),
            ],
            (1_200, 80),
            "0.0007124",
        ),
        // Twice: 100 x 4 + 10 x 20 + 10 x 16 + 50 = 400 + 200 + 160 + 50
        Golden::chat_of_tier(
            "priority",
            &json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                "completion_tokens_details": {"reasoning_tokens": 10}}),
            &json!("priority"),
            (100, 20),
            "0.00081",
        ),
    ]
}

fn response(status: &str, tier: &str, output: &Value, usage: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "error": null, "model": "m",
        "output": output, "service_tier": tier, "usage": usage})
}

fn words() -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Blue.", "annotations": []}]})
}

fn done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": 0, "item": item})
}

fn responses() -> Vec<Golden> {
    let path = "/v1/responses";
    let delta = json!({"type": "response.output_text.delta", "delta": "Blue."});
    let created = json!({"type": "response.created", "response": response("in_progress", "auto", &json!([]), &Value::Null)});
    let search = |id: &str, action: &str| json!({"type": "web_search_call", "id": id, "status": "completed", "action": {"type": action}});
    let searches = [search("ws_1", "search"), search("ws_2", "open_page"), search("ws_3", "search")];
    let found = json!([searches[0], searches[1], searches[2], words()]);
    let usage = |input: i64, cached: i64, output: i64, reasoning: i64| {
        json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": reasoning}, "total_tokens": input + output})
    };
    let mut cached = usage(2_006, 1_920, 300, 256);
    cached["input_tokens_details"]["cache_write_tokens"] = json!(64);
    let mut pictures = usage(1_105, 0, 40, 0);
    pictures["input_tokens_details"] = json!({"image_tokens": 1_080, "text_tokens": 25});
    vec![
        // The same as for the chat: 44 + 384 + 160 + 2,560 + 352 + 50
        Golden::plain(
            "read from a cache and written to it",
            path,
            &response("completed", "default", &json!([words()]), &cached),
            (2_006, 300),
            "0.00355",
        ),
        // 9,000 x 2 + 300 x 8 + 2 x 10,000 + 50: opening a page isn't a search.
        Golden::events(
            "two searches, streamed",
            path,
            &[
                created.clone(),
                done(&searches[0]),
                done(&searches[1]),
                done(&searches[2]),
                delta.clone(),
                json!({"type": "response.completed",
                    "response": response("completed", "default", &found, &usage(9_000, 0, 300, 0))}),
            ],
            (9_000, 300),
            "0.04045",
        ),
        // Half: 500 x 1 + 100 x 5 + 20 x 4 + 50
        Golden::plain(
            "flex",
            path,
            &response("completed", "flex", &json!([words()]), &usage(500, 0, 120, 100)),
            (500, 120),
            "0.00113",
        ),
        // 15 x 2 + 64 x 10 + 50
        Golden::events(
            "only reasoning, streamed",
            path,
            &[
                created,
                delta,
                json!({"type": "response.incomplete",
                    "response": response("incomplete", "default", &json!([]), &usage(15, 0, 64, 64))}),
            ],
            (15, 64),
            "0.00072",
        ),
        // 25 x 2 + 1,080 x 3 + 40 x 8 + 50
        Golden::plain(
            "a picture",
            path,
            &response("completed", "default", &json!([words()]), &pictures),
            (1_105, 40),
            "0.00366",
        ),
    ]
}
