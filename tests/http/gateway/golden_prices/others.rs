//! Chats of other providers that use OpenAI's format.

use serde_json::json;

use super::{Golden, check, last_chunk, text_chunk, usage_chunk};
use support::{Database, on_each_database};

#[on_each_database]
fn chats_of_gemini(database: Database) {
    check(database, "openai", gemini);
}

#[on_each_database]
fn chats_of_xai(database: Database) {
    check(database, "openai", xai);
}

#[on_each_database]
fn chats_of_deepseek(database: Database) {
    check(database, "openai", deepseek);
}

#[on_each_database]
fn chats_of_openrouter(database: Database) {
    check(database, "openai", openrouter);
}

/// Thinking is counted only in the total, so it costs as much as the answer.
fn gemini() -> Vec<Golden> {
    vec![
        // 10 x 2 + (211 - 10) x 8 + 50
        Golden::chat(
            "thinking",
            &json!({"completion_tokens": 9, "prompt_tokens": 10, "total_tokens": 211}),
            (10, 201),
            "0.001678",
        ),
        // 10 x 2 + (215 - 10) x 8 + 50
        Golden::chunks(
            "thinking, streamed",
            &[
                text_chunk(&json!({"usage": {"prompt_tokens": 10, "total_tokens": 110}})),
                last_chunk(
                    &json!({"usage": {"completion_tokens": 5, "prompt_tokens": 10, "total_tokens": 215}}),
                ),
            ],
            (10, 205),
            "0.00171",
        ),
        // 200 x 2 + 800 x 0.2 + 20 x 8 + 50
        Golden::chat(
            "from a cache",
            &json!({"prompt_tokens": 1_000, "completion_tokens": 20, "total_tokens": 1_020,
                "prompt_tokens_details": {"cached_tokens": 800}}),
            (1_000, 20),
            "0.00077",
        ),
        // 12 x 2 + 100 x 10 + 30 x 8 + 50:
        // the total shows that reasoning is counted in addition to the answer.
        Golden::chat(
            "reasoning",
            &json!({"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 142,
                "completion_tokens_details": {"reasoning_tokens": 100}}),
            (12, 130),
            "0.001314",
        ),
        // 10 x 2 + 32 x 40 + 258 x 3 + 10 x 8 + 50
        Golden::chat(
            "sound and a picture",
            &json!({"prompt_tokens": 300, "completion_tokens": 10, "total_tokens": 310,
                "prompt_tokens_details": {"audio_tokens": 32, "image_tokens": 258, "text_tokens": 10}}),
            (300, 10),
            "0.002204",
        ),
    ]
}

/// Reasoning is counted in addition to the answer, and included in the total.
fn xai() -> Vec<Golden> {
    let running = |completion: i64, reasoning: i64| {
        json!({"usage": {"prompt_tokens": 20, "completion_tokens": completion, "total_tokens": 20 + completion + reasoning,
            "prompt_tokens_details": {"text_tokens": 20, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0}}})
    };
    vec![
        // 26 x 2 + 6 x 0.2 + 94 x 10 + 9 x 8 + 50 = 52 + 1.2 + 940 + 72 + 50
        Golden::chat(
            "reasoning",
            &json!({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135,
                "prompt_tokens_details": {"text_tokens": 32, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 6},
                "completion_tokens_details": {"reasoning_tokens": 94, "audio_tokens": 0,
                    "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}, "num_sources_used": 0}),
            (32, 103),
            "0.0011152",
        ),
        // The cache is also counted in addition to the prompt:
        // 4,142 x 2 + 4,328 x 0.2 + 100 x 10 + 254 x 8 + 50
        // = 8,284 + 865.6 + 1,000 + 2,032 + 50
        Golden::chat(
            "cached tokens in addition to the prompt",
            &json!({"prompt_tokens": 4_142, "completion_tokens": 254, "total_tokens": 8_824,
                "prompt_tokens_details": {"cached_tokens": 4_328},
                "completion_tokens_details": {"reasoning_tokens": 100}}),
            (8_470, 354),
            "0.0122316",
        ),
        // 20 x 2 + 40 x 10 + 12 x 8 + 50
        Golden::chunks(
            "a usage on each chunk, streamed",
            &[text_chunk(&running(0, 12)), text_chunk(&running(5, 40)), last_chunk(&running(12, 40))],
            (20, 52),
            "0.000586",
        ),
        // 4,511 x 2 + 3,072 x 0.2 + 3,192 x 8 + 2 x 10,000 + 50 = 9,022 + 614.4 + 25,536 + 20,000 + 50
        Golden::plain(
            "searches of a response",
            "/v1/responses",
            &json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "Blue."}]}],
                "usage": {"input_tokens": 7_583, "input_tokens_details": {"cached_tokens": 3_072}, "output_tokens": 3_192,
                    "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 10_775, "num_sources_used": 0,
                    "num_server_side_tools_used": 3, "server_side_tool_usage_details": {"web_search_calls": 2,
                        "x_search_calls": 1, "code_interpreter_calls": 0}}}),
            (7_583, 3_192),
            "0.0552224",
        ),
        // 44 x 2 + 256 x 3 + 10 x 8 + 50: sources aren't searches.
        Golden::chat(
            "a picture",
            &json!({"prompt_tokens": 300, "completion_tokens": 10, "total_tokens": 310,
                "prompt_tokens_details": {"text_tokens": 44, "audio_tokens": 0, "image_tokens": 256, "cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0}, "num_sources_used": 7}),
            (300, 10),
            "0.000986",
        ),
    ]
}

fn deepseek() -> Vec<Golden> {
    vec![
        // 104 x 2 + 896 x 0.2 + 5 x 10 + 7 x 8 + 50 = 208 + 179.2 + 50 + 56 + 50
        Golden::chat(
            "hits in both places",
            &json!({"prompt_tokens": 1_000, "completion_tokens": 12, "total_tokens": 1_012,
                "prompt_tokens_details": {"cached_tokens": 896}, "completion_tokens_details": {"reasoning_tokens": 5},
                "prompt_cache_hit_tokens": 896, "prompt_cache_miss_tokens": 104}),
            (1_000, 12),
            "0.0005432",
        ),
        // 6 x 2 + 64 x 0.2 + 5 x 8 + 50
        Golden::chat(
            "hits alone",
            &json!({"prompt_tokens": 70, "completion_tokens": 5, "total_tokens": 75,
                "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 6}),
            (70, 5),
            "0.0001148",
        ),
        // 20 x 2 + 25 x 10 + 5 x 8 + 50
        Golden::chunks(
            "reasoning, streamed",
            &[
                text_chunk(&json!({"usage": null})),
                last_chunk(
                    &json!({"usage": {"prompt_tokens": 20, "completion_tokens": 30, "total_tokens": 50,
                    "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 25},
                    "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 20}}),
                ),
            ],
            (20, 30),
            "0.00038",
        ),
        // 128 x 0.2 + 4 x 8 + 50
        Golden::chunks(
            "all from the cache, streamed",
            &[
                text_chunk(&json!({})),
                last_chunk(
                    &json!({"usage": {"prompt_tokens": 128, "completion_tokens": 4, "total_tokens": 132,
                    "prompt_cache_hit_tokens": 128, "prompt_cache_miss_tokens": 0}}),
                ),
            ],
            (128, 4),
            "0.0001076",
        ),
        // 14 x 2 + 500 x 10 + 50
        Golden::chat(
            "nothing but reasoning",
            &json!({"prompt_tokens": 14, "completion_tokens": 500, "total_tokens": 514,
                "completion_tokens_details": {"reasoning_tokens": 500},
                "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 14}),
            (14, 500),
            "0.005078",
        ),
    ]
}

fn openrouter() -> Vec<Golden> {
    let written = json!({"prompt_tokens": 1_200, "completion_tokens": 9, "total_tokens": 1_209, "cost": 0.0002,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 1_000},
        "completion_tokens_details": {"reasoning_tokens": 2}});
    vec![
        // 194 x 2 + 2 x 8 + 50
        Golden::chat(
            "the example of its documentation",
            &json!({"completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 0}, "cost": 0.95,
                "cost_details": {"upstream_inference_cost": 19}, "prompt_tokens": 194,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}, "total_tokens": 196}),
            (194, 2),
            "0.000454",
        ),
        // 21 x 2 + 10,318 x 0.2 + 60 x 8 + 50 = 42 + 2,063.6 + 480 + 50
        Golden::chat(
            "from a cache",
            &json!({"prompt_tokens": 10_339, "completion_tokens": 60, "total_tokens": 10_399,
                "prompt_tokens_details": {"cached_tokens": 10_318, "cache_write_tokens": 0, "audio_tokens": 0}}),
            (10_339, 60),
            "0.0026356",
        ),
        // 200 x 2 + 1,000 x 2.5 + 2 x 10 + 7 x 8 + 50 = 400 + 2,500 + 20 + 56 + 50
        Golden::chunks(
            "written to a cache, and a usage with an empty choice",
            &[
                text_chunk(&json!({"provider": "Example"})),
                last_chunk(&json!({})),
                json!({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""},
                    "finish_reason": null, "native_finish_reason": null}], "usage": written}),
            ],
            (1_200, 9),
            "0.003026",
        ),
        // 500 x 2 + 50 x 8 + 2 x 10,000 + 50
        Golden::chunks(
            "searches, streamed",
            &[
                text_chunk(&json!({})),
                last_chunk(&json!({})),
                usage_chunk(&json!({"prompt_tokens": 500, "completion_tokens": 50, "total_tokens": 550,
                    "server_tool_use": {"web_search_requests": 2}})),
            ],
            (500, 50),
            "0.02145",
        ),
        // 20 x 2 + 80 x 40 + 20 x 8 + 50
        Golden::chat(
            "audio",
            &json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 80, "video_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "image_tokens": 0}}),
            (100, 20),
            "0.00345",
        ),
    ]
}
