//! Whole streams as upstreams send them, and their results, written by hand.

use super::*;

/// vLLM with `continuous_usage_stats`; the second chunk holds two tokens.
const VLLM: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":12,"total_tokens":12,"completion_tokens":0}}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":0,"delta":{"content":"Hello, you"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":12,"total_tokens":14,"completion_tokens":2}}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":12,"total_tokens":16,"completion_tokens":4}}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[],"usage":{"prompt_tokens":12,"total_tokens":16,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}

data: [DONE]

"#;

#[test]
fn vllm_without_usage() {
    let forwarded = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[{"index":0,"delta":{"content":"Hello, you"},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}

data: [DONE]

"#;
    let expected = Outcome {
        forwarded: forwarded.to_owned(),
        settled: (12, 4, Some(8), false),
        is_complete: true,
        failure: None,
    };
    assert_eq!(run(VLLM, Vllm, PLAIN), expected);
    // A proxy may change the line ends.
    let crlf = run(&VLLM.replace('\n', "\r\n"), Vllm, PLAIN);
    assert_eq!(crlf, Outcome { forwarded: forwarded.replace('\n', "\r\n"), ..expected });
}

#[test]
fn vllm_with_usage() {
    let forwarded = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[{"index":0,"delta":{"content":"Hello, you"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tk-chat","choices":[],"usage":{"prompt_tokens":12,"total_tokens":16,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}

data: [DONE]

"#;
    assert_eq!(run(VLLM, Vllm, USAGE).forwarded, forwarded);
    assert_eq!(run(VLLM, Vllm, CONTINUOUS).forwarded, VLLM.replace("org/Model", "tk-chat"));
}

#[test]
fn vllm_cut() {
    let events: Vec<&str> = VLLM.split_inclusive("\n\n").collect();
    // The charge after each event. The last usage has the cached part of the prompt.
    let charged = [(12, 0, None, false), (12, 2, None, false), (12, 4, None, false), (12, 4, Some(8), false)];
    for (count, charged) in (1..).zip(charged) {
        let outcome = run(&events[..count].concat(), Vllm, PLAIN);
        // A body that ends after the finish reason is complete.
        assert_eq!((outcome.settled, outcome.is_complete), (charged, count >= 3), "{count}");
    }
}

#[test]
fn vllm_fails_in_the_middle() {
    let events: Vec<&str> = VLLM.split_inclusive("\n\n").collect();
    let error = "data: {\"error\": {\"message\": \"EngineCore at http://10.0.0.5:8000 died\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n";
    let outcome = run(&[events[0], events[1], error].concat(), Vllm, PLAIN);
    assert_eq!(error_message(outcome.failure.as_ref()), Some("EngineCore at upstream died"));
    assert_eq!((outcome.settled, outcome.is_complete), ((12, 2, None, false), false));
}

/// SGLang, two choices: the running usage counts the chunk's choice, and the last usage counts both.
const SGLANG: &str = r#"data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":{"prompt_tokens":7,"total_tokens":8,"completion_tokens":1,"prompt_tokens_details":null,"reasoning_tokens":0}}

data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":1,"delta":{"reasoning_content":"So"},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,"prompt_tokens_details":null,"reasoning_tokens":2}}

data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":0,"delta":{"content":"Yes"},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,"prompt_tokens_details":null,"reasoning_tokens":0}}

data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":null}

data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[{"index":1,"delta":{},"logprobs":null,"finish_reason":"length","matched_stop":null}],"usage":null}

data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"org/Model","choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"reasoning_tokens":3}}

data: [DONE]

"#;

#[test]
fn sglang_with_two_choices() {
    let members = r#","stream":true,"n":2"#;
    let outcome = run(SGLANG, Sglang, members);
    assert_eq!((outcome.settled, outcome.is_complete), ((7, 5, Some(4), false), true));
    assert_eq!(outcome.failure, None);
    assert!(!outcome.forwarded.contains("usage") && !outcome.forwarded.contains("org/Model"));
    assert_eq!(outcome.forwarded.matches("data: {").count(), 5);
    let events: Vec<&str> = SGLANG.split_inclusive("\n\n").collect();
    // Two tokens of each choice.
    let outcome = run(&events[..3].concat(), Sglang, members);
    assert_eq!((outcome.settled, outcome.is_complete), ((7, 4, None, false), false));
    // The second choice has no finish reason.
    let outcome = run(&[&events[..4], &events[5..]].concat().concat(), Sglang, members);
    assert!(!outcome.is_complete);
}

/// llama.cpp with `timings_per_token`.
const LLAMACPP: &str = r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-6Y1J","model":"tiny","system_fingerprint":"b0-unknown","object":"chat.completion.chunk","timings":{"cache_n":20,"prompt_n":5,"prompt_ms":1.25,"predicted_n":1,"predicted_ms":0.001}}

: 

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" zo"}}],"created":1,"id":"chatcmpl-6Y1J","model":"tiny","system_fingerprint":"b0-unknown","object":"chat.completion.chunk","timings":{"cache_n":20,"prompt_n":5,"prompt_ms":1.25,"predicted_n":2,"predicted_ms":0.7}}

data: {"choices":[{"finish_reason":"length","index":0,"delta":{}}],"created":1,"id":"chatcmpl-6Y1J","model":"tiny","system_fingerprint":"b0-unknown","object":"chat.completion.chunk"}

data: {"choices":[],"created":1,"id":"chatcmpl-6Y1J","model":"tiny","system_fingerprint":"b0-unknown","object":"chat.completion.chunk","usage":{"completion_tokens":3,"prompt_tokens":25,"total_tokens":28,"prompt_tokens_details":{"cached_tokens":20}},"timings":{"cache_n":20,"prompt_n":5,"prompt_ms":1.25,"predicted_n":3,"predicted_ms":1.4}}

data: [DONE]

"#;

#[test]
fn llamacpp_without_usage() {
    let forwarded = r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-6Y1J","model":"tk-chat","system_fingerprint":"b0-unknown","object":"chat.completion.chunk"}

: 

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" zo"}}],"created":1,"id":"chatcmpl-6Y1J","model":"tk-chat","system_fingerprint":"b0-unknown","object":"chat.completion.chunk"}

data: {"choices":[{"finish_reason":"length","index":0,"delta":{}}],"created":1,"id":"chatcmpl-6Y1J","model":"tk-chat","system_fingerprint":"b0-unknown","object":"chat.completion.chunk"}

data: [DONE]

"#;
    let expected = Outcome {
        forwarded: forwarded.to_owned(),
        settled: (25, 3, Some(20), false),
        is_complete: true,
        failure: None,
    };
    assert_eq!(run(LLAMACPP, Llamacpp, PLAIN), expected);
    let all = r#","stream":true,"timings_per_token":true,"stream_options":{"include_usage":true}"#;
    assert_eq!(run(LLAMACPP, Llamacpp, all).forwarded, LLAMACPP.replace("\"tiny\"", "\"tk-chat\""));
}

#[test]
fn llamacpp_cut() {
    let events: Vec<&str> = LLAMACPP.split_inclusive("\n\n").collect();
    let outcome = run(&events[..3].concat(), Llamacpp, PLAIN);
    assert_eq!((outcome.settled, outcome.is_complete), ((25, 2, Some(20), false), false));
    // llama.cpp doesn't send `[DONE]` after an error.
    let error = "data: {\"error\":{\"code\":500,\"message\":\"context shift is disabled\",\"type\":\"server_error\"}}\n\n";
    let outcome = run(&[&events[..3].concat(), error].concat(), Llamacpp, PLAIN);
    assert_eq!(error_message(outcome.failure.as_ref()), Some("context shift is disabled"));
    assert_eq!((outcome.settled, outcome.is_complete), ((25, 2, Some(20), false), false));
}

/// TGI: an older version without a `usage` object, with a final event that has text, and without a space
/// after the colon.
const TGI: &str = r#"data:{"object":"chat.completion.chunk","id":"","created":1,"model":"org/Model","system_fingerprint":"2.0.1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"logprobs":null,"finish_reason":null}]}

data:{"object":"chat.completion.chunk","id":"","created":1,"model":"org/Model","system_fingerprint":"2.0.1","choices":[{"index":0,"delta":{"role":"assistant","content":" you"},"logprobs":null,"finish_reason":"length"}]}

"#;

#[test]
fn tgi_without_usage() {
    let outcome = run(TGI, Tgi, PLAIN);
    assert_eq!(outcome.forwarded, TGI.replace("org/Model", "tk-chat"));
    // "Hello" and " you" are 0.24 + 4 × 0.23 and 3 × 0.23 tokens. The prompt has three for the message, and
    // one for its text.
    assert_eq!((outcome.settled, outcome.is_complete), ((4, 2, None, true), true));
    let first = TGI.split_inclusive("\n\n").next().unwrap();
    let outcome = run(first, Tgi, PLAIN);
    assert_eq!((outcome.settled, outcome.is_complete), ((4, 2, None, true), false));
    let error = "data: {\"error\":\"Request failed during generation: out of memory\",\"error_type\":\"generation\"}\n\n";
    let outcome = run(&[first, error].concat(), Tgi, PLAIN);
    assert_eq!(
        error_message(outcome.failure.as_ref()),
        Some("Request failed during generation: out of memory")
    );
    assert!(!outcome.is_complete);
}

/// OpenAI with `include_usage` and obfuscation, and a tool call.
const OPENAI: &str = r#"data: {"id":"chatcmpl-B","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_abc","type":"function","function":{"name":"get_weather","arguments":""}}],"refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x8Q"}

data: {"id":"chatcmpl-B","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Rome\"}"}}]},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":""}

data: {"id":"chatcmpl-B","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null,"obfuscation":"kL"}

data: {"id":"chatcmpl-B","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[],"usage":{"prompt_tokens":46,"completion_tokens":15,"total_tokens":61,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"obfuscation":"y"}

data: [DONE]

"#;

#[test]
fn openai() {
    let model = |text: &str| text.replace("gpt-4o-mini-2024-07-18", "tk-chat");
    let outcome = run(OPENAI, Openai, USAGE);
    assert_eq!(outcome.forwarded, model(OPENAI));
    assert_eq!((outcome.settled, outcome.is_complete), ((46, 15, Some(0), false), true));
    let events: Vec<&str> = OPENAI.split_inclusive("\n\n").collect();
    let forwarded = [&events[..3], &events[4..]].concat().concat().replace(",\"usage\":null", "");
    assert_eq!(run(OPENAI, Openai, PLAIN).forwarded, model(&forwarded));
    // The stream is cut before the `usage` object, so the tokens of the name and the arguments are estimated
    // from their characters. Three tokens of the prompt are for the message.
    let outcome = run(&events[..2].concat(), Openai, PLAIN);
    assert_eq!((outcome.settled, outcome.is_complete), ((4, 8, None, true), false));
    // A body that ends cleanly without `[DONE]` is complete; a body without the finish reason isn't.
    assert!(run(&events[..4].concat(), Openai, PLAIN).is_complete);
    assert!(!run(&events[..2].concat(), Openai, PLAIN).is_complete);
}
