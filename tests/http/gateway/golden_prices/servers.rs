//! vLLM, SGLang, Mistral and Kimi.

use serde_json::json;

use super::{Golden, check, text_chunk, usage_chunk};
use support::{Database, on_each_database};

#[on_each_database]
fn calls_of_servers_and_of_their_makers(database: Database) {
    check(database, "vllm", calls);
}

fn calls() -> Vec<Golden> {
    let kimi = json!({"prompt_tokens": 19, "completion_tokens": 21, "total_tokens": 40, "cached_tokens": 8});
    vec![
        // 64 x 2 + 896 x 0.2 + 7 x 8 + 50 = 128 + 179.2 + 56 + 50
        Golden::chat(
            "Mistral: from a cache",
            &json!({"prompt_tokens": 960, "total_tokens": 967, "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 896}}),
            (960, 7),
            "0.0004132",
        ),
        // 11 x 2 + 8 x 0.2 + 21 x 8 + 50 = 22 + 1.6 + 168 + 50
        Golden::chunks(
            "Kimi: a usage in the choice and after it",
            &[
                text_chunk(&json!({})),
                json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": kimi}]}),
                usage_chunk(&kimi),
            ],
            (19, 21),
            "0.0002416",
        ),
        // 127 x 2 + 128 x 2.5 + 2 x 8 + 50 = 254 + 320 + 16 + 50
        Golden::chat(
            "vLLM: written to its cache",
            &json!({"prompt_tokens": 255, "total_tokens": 257, "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 128, "multimodal_tokens": null},
                "completion_tokens_details": {"reasoning_tokens": 0}}),
            (255, 2),
            "0.00064",
        ),
        // 127 x 2 + 128 x 0.2 + 10 x 8 + 50 = 254 + 25.6 + 80 + 50
        Golden::plain(
            "vLLM: a message from its cache",
            "/v1/messages",
            &json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "Blue."}], "usage": {"input_tokens": 127, "output_tokens": 10,
                    "cache_creation_input_tokens": 0, "cache_read_input_tokens": 128}}),
            (255, 10),
            "0.0004096",
        ),
        // 20 x 2 + 40 x 10 + 10 x 8 + 50
        Golden::chat(
            "SGLang: reasoning next to the details",
            &json!({"prompt_tokens": 20, "total_tokens": 70, "completion_tokens": 50, "prompt_tokens_details": null,
                "reasoning_tokens": 40}),
            (20, 50),
            "0.00057",
        ),
    ]
}
