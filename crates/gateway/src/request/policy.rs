//! The fields, tools and references that an upstream gets (docs/contract/gateway.md#fields).
//!
//! A server of the operator gets every field, except for those that cost more than its usage shows, take precedence
//! over other calls, or name hosts, files or other requests. A provider (kind `openai`) gets those that are known
//! to cost nothing extra, because the operator pays its bill. An upstream's `allow_fields` and `deny_fields` change
//! that, and `deny_fields` take precedence.

use std::borrow::Cow;

use kernel::error::Error;

use super::ModelRequest;
use super::survey::{Class, Scheme};
use crate::dialect::Dialect;
use crate::names::{is_like, shown, unsupported};
use crate::operation::Operation;
use catalog::{MediaUrls, Upstream};

/// The fields that the operator's own servers don't get.
const OWN_REFUSED: &[&str] = &[
    // Take precedence over other calls, or choose where a call is served.
    "priority",
    "data_parallel_rank",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
    "id_slot",
    // Name requests, sessions and caches, which may be another client's.
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
    // Name hosts or files.
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "lora_path",
    "lora",
    "mcp_servers",
    "container",
    // Are programs, or become part of one.
    "chat_template",
    "custom_logit_processor",
    "custom_params",
    "logits_processors",
    "vllm_xargs",
    "prompt_embeds",
    // Cost more than the usage shows.
    "use_beam_search",
    "prompt_logprobs",
    "return_hidden_states",
    "return_routed_experts",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "images_config",
    // Are names in the server's metrics.
    "custom_labels",
];

/// The fields of every operation that a provider gets: sampling, and names for the provider's own records.
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

/// Tools that run at a server, which may reach out or cost extra. Their types begin with one of these.
const HOSTED: &[&str] = &[
    "mcp",
    "web_search",
    "web_fetch",
    "code_interpreter",
    "code_execution",
    "file_search",
    "image_generation",
    "computer_use",
    "advisor",
];

/// Tools that the client runs, or that are part of the prompt.
const CLIENT: &[&str] =
    &["function", "custom", "local_shell", "apply_patch", "shell", "namespace", "tool_search"];

/// The beginnings of their types in Anthropic's API, which end with a date.
const CLIENT_DATED: &[&str] = &["bash_", "text_editor_", "computer_2", "memory_", "tool_search_tool_"];

/// Returns every name of a field that is listed here.
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

/// Returns `true` if a provider gets the field.
fn passes_to_provider(operation: Operation, name: &str) -> bool {
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

/// Returns `true` unless the value of a field, as JSON, may cost more than other values. An unusual spelling of a
/// value may.
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

/// Returns the name of a tool in errors and lists, and its class. `is_inner` is `true` for a part of another tool,
/// or of a message.
pub(super) fn tool(kind: &str, is_inner: bool) -> (Cow<'static, str>, Class) {
    let lower = kind.to_ascii_lowercase();
    if let Some(kind) = CLIENT.iter().find(|known| **known == kind) {
        return (Cow::Owned(format!("tools.{kind}")), Class::ClientTool);
    }
    if let Some(family) = HOSTED.iter().find(|family| lower.starts_with(**family)) {
        let is_offered = *family == "web_search" && !is_inner;
        let class = if is_offered { Class::OfferedSearch } else { Class::HostedTool };
        return (Cow::Owned(format!("tools.{family}")), class);
    }
    let is_dated = CLIENT_DATED.iter().any(|beginning| kind.starts_with(beginning));
    let class = if is_dated { Class::ClientTool } else { Class::UnknownTool };
    (Cow::Owned(format!("tools.{}", shown(kind))), class)
}

/// Returns `true` for the type of a tool that searches the web at a server.
pub(super) fn is_web_search(kind: &str) -> bool {
    const FAMILY: &str = "web_search";
    kind.get(..FAMILY.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(FAMILY))
}

/// Returns `true` if a tool of type `shell` runs at the client.
pub(super) fn is_local_environment(value: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Environment<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    value == "null" || serde_json::from_str::<Environment<'_>>(value).is_ok_and(|found| found.kind == "local")
}

/// Returns a list of tools without web searches. `None` if it isn't a list.
pub(super) fn without_searches(tools: &[u8]) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Tool<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Cow<'a, str>,
    }
    let tools: Vec<&serde_json::value::RawValue> = serde_json::from_slice(tools).ok()?;
    let is_search = |text: &str| {
        serde_json::from_str::<Tool<'_>>(text)
            .is_ok_and(|Tool { kind }| tool(&kind, false).1 == Class::OfferedSearch)
    };
    let kept: Vec<_> = tools.into_iter().map(|tool| tool.get()).filter(|text| !is_search(text)).collect();
    Some(format!("[{}]", kept.join(",")).into_bytes())
}

/// The entry for a name in an upstream's lists.
enum Listed {
    Allowed,
    Denied,
    Unlisted,
}

fn look_up(upstream: &Upstream, name: &str) -> Listed {
    // A denied field is refused in any spelling; an allowed field must be spelled as in the list.
    if upstream.deny_fields.iter().any(|denied| is_like(name, denied)) {
        return Listed::Denied;
    }
    if upstream.allow_fields.iter().any(|allowed| allowed == name) {
        return Listed::Allowed;
    }
    Listed::Unlisted
}

/// Returns `true` if an upstream gets the names of betas in Anthropic's API. At a provider they may cost more than
/// the usage shows, so its operator has to allow them as the field `anthropic_beta`.
pub(crate) fn gets_betas(upstream: &Upstream) -> bool {
    match look_up(upstream, "anthropic_beta") {
        Listed::Denied => false,
        Listed::Allowed => true,
        Listed::Unlisted => !Dialect::of(upstream.kind).is_provider,
    }
}

impl ModelRequest {
    /// Fails if the upstream doesn't get a field of this request, one of its tools, or something that it refers to.
    ///
    /// # Errors
    /// 400 `unsupported_parameter`, with the name.
    pub fn check_fields(&self, upstream: &Upstream) -> Result<(), Error> {
        let is_provider = Dialect::of(upstream.kind).is_provider;
        for name in &self.survey.fields {
            let is_refused = match look_up(upstream, name) {
                Listed::Denied => true,
                Listed::Allowed => false,
                Listed::Unlisted if is_provider => !passes_to_provider(self.operation, name),
                Listed::Unlisted => OWN_REFUSED.contains(&name.as_ref()),
            };
            if is_refused {
                return Err(refused(name));
            }
        }
        for found in &self.survey.uses {
            let is_refused = match look_up(upstream, &found.name) {
                Listed::Denied => true,
                Listed::Allowed => false,
                Listed::Unlisted => match found.class {
                    Class::ClientTool => false,
                    Class::HostedTool | Class::Reference => true,
                    Class::OfferedSearch | Class::UnknownTool | Class::Costly => is_provider,
                },
            };
            if is_refused {
                return Err(refused(&found.name));
            }
        }
        self.check_media(upstream)
    }

    /// Fails for an address that the upstream doesn't get and that isn't loaded here.
    fn check_media(&self, upstream: &Upstream) -> Result<(), Error> {
        for media in &self.survey.media {
            let message = match (media.scheme, upstream.media_urls) {
                (Scheme::Web, MediaUrls::Fetch | MediaUrls::Pass) | (Scheme::Other, MediaUrls::Pass) => {
                    continue;
                }
                (Scheme::Web, MediaUrls::Refuse) => {
                    "This model takes images and other media inline only: send a data URL."
                }
                (Scheme::Other | Scheme::Local, _) => {
                    "The address of an image or other media must be a URL with `https` or `http`, or a data URL."
                }
            };
            return Err(unsupported(media.within, message));
        }
        Ok(())
    }

    /// Returns `true` if the upstream may add to the prompt: results of a tool that it runs itself, or something
    /// that it has stored. This requires that its operator allows that by name.
    pub(crate) fn is_added_to(&self, upstream: &Upstream) -> bool {
        let adds = |class| matches!(class, Class::HostedTool | Class::OfferedSearch | Class::Reference);
        let mut added = self.survey.uses.iter().filter(|found| adds(found.class));
        added.any(|found| matches!(look_up(upstream, &found.name), Listed::Allowed))
    }

    /// Returns `true` if the upstream gets the request without the web searches that it offers. The operator's own
    /// servers have none, and programs such as Codex offer one in every call.
    pub(crate) fn drops_searches(&self, upstream: &Upstream) -> bool {
        let mut searches = self.survey.uses.iter().filter(|found| found.class == Class::OfferedSearch);
        !Dialect::of(upstream.kind).is_provider
            && searches.any(|found| matches!(look_up(upstream, &found.name), Listed::Unlisted))
    }
}

fn refused(name: &str) -> Error {
    let message = match name {
        "cache_salt" => {
            "`cache_salt` isn't supported: caches are kept apart by organization already.".to_owned()
        }
        name => format!("`{name}` isn't supported by this model."),
    };
    unsupported(name.to_owned(), message)
}

#[cfg(test)]
mod tests;
