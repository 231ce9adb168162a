//! The names of fields that are forwarded to upstreams or refused, depending on who runs the upstream, and
//! values that cost extra.

use std::borrow::Cow;

use crate::operation::Operation;

/// The fields that aren't forwarded to the operator's own servers.
pub(super) const OWN_REFUSED: &[&str] = &[
    // Give a call precedence over other calls, or choose the server that handles it.
    "priority",
    "data_parallel_rank",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
    "id_slot",
    // Refer to requests, sessions and caches, possibly of another client.
    "request_id",
    "rid",
    "session_id",
    "session_params",
    "extra_key",
    "cache_salt",
    "cache_prompt",
    "n_cache_reuse",
    "previous_response",
    "previous_input_messages",
    "ngram_corpus_id",
    // Refer to hosts or files.
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "lora_path",
    "lora",
    "mcp_servers",
    "container",
    // Contain programs, or parts of programs.
    "chat_template",
    "custom_logit_processor",
    "custom_params",
    "logits_processors",
    "vllm_xargs",
    "prompt_embeds",
    // Cost more than the reported usage.
    "use_beam_search",
    "prompt_logprobs",
    "return_hidden_states",
    "return_routed_experts",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "images_config",
    // Appear as names in the server's metrics.
    "custom_labels",
];

/// The fields that are forwarded to a provider in every operation.
const PROVIDER_COMMON: &[&str] = &["model", "stream", "stream_options", "user"];

/// The fields that control the generated text.
const PROVIDER_SAMPLING: &[&str] = &[
    "temperature",
    "top_p",
    "top_k",
    "top_a",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "repeat_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "max_tokens",
];

const PROVIDER_CHAT: &[&str] = &[
    "messages",
    "n",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "reasoning",
    "reasoning_effort",
    "include_reasoning",
    "thinking",
    "enable_thinking",
    "chat_template_kwargs",
    "verbosity",
    "modalities",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
];

const PROVIDER_COMPLETIONS: &[&str] = &["prompt", "n", "best_of", "echo", "suffix"];

const PROVIDER_EMBEDDINGS: &[&str] = &["input", "encoding_format", "dimensions"];

const PROVIDER_RESPONSES: &[&str] = &[
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "truncation",
    "include",
    "metadata",
    "client_metadata",
    "store",
    "background",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
];

const PROVIDER_MESSAGES: &[&str] = &[
    "messages",
    "system",
    "stop_sequences",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "output_format",
    "context_management",
    "cache_control",
    "metadata",
    "service_tier",
    "speed",
];

/// Returns the names of all fields in these lists.
pub(super) fn listed() -> impl Iterator<Item = &'static str> {
    let lists = [
        OWN_REFUSED,
        PROVIDER_COMMON,
        PROVIDER_SAMPLING,
        PROVIDER_CHAT,
        PROVIDER_COMPLETIONS,
        PROVIDER_EMBEDDINGS,
        PROVIDER_RESPONSES,
        PROVIDER_MESSAGES,
    ];
    lists.into_iter().flatten().copied()
}

/// Returns `true` if the field is forwarded to a provider.
pub(super) fn passes_to_provider(operation: Operation, name: &str) -> bool {
    let (own, has_sampling) = match operation {
        Operation::ChatCompletions => (PROVIDER_CHAT, true),
        Operation::Completions => (PROVIDER_COMPLETIONS, true),
        Operation::Embeddings => (PROVIDER_EMBEDDINGS, false),
        Operation::Responses => (PROVIDER_RESPONSES, true),
        Operation::Messages => (PROVIDER_MESSAGES, true),
    };
    PROVIDER_COMMON.contains(&name)
        || own.contains(&name)
        || (has_sampling && PROVIDER_SAMPLING.contains(&name))
}

/// Returns `true` unless the value of a field, as JSON, may cost extra. A value in an unusual spelling counts
/// as costly.
pub(super) fn is_harmless(name: &str, value: &str) -> bool {
    const INCLUDED: [&str; 2] = ["reasoning.encrypted_content", "message.output_text.logprobs"];
    let texts =
        || serde_json::from_str::<Vec<Cow<'_, str>>>(value).unwrap_or_else(|_| vec![Cow::Borrowed("?")]);
    match name {
        "service_tier" => {
            matches!(value, r#""auto""# | r#""default""# | r#""standard""# | r#""standard_only""#)
        }
        "speed" => value == r#""standard""#,
        "store" => value == "false",
        "include" => texts().iter().all(|text| INCLUDED.contains(&text.as_ref())),
        "modalities" => texts().iter().all(|text| text == "text"),
        _ => true,
    }
}
