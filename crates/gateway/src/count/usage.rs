//! Readers of token counts, in all forms that servers send.
//!
//! | source or count | members |
//! |---|---|
//! | chats, completions, embeddings | `prompt_tokens`, `completion_tokens`, `total_tokens` |
//! | responses | `input_tokens`, `output_tokens`, `total_tokens` |
//! | messages | `input_tokens`, `cache_read_input_tokens`, `cache_creation_input_tokens`, `output_tokens`, and the same in each of `iterations` |
//! | tokens from a cache | `prompt_tokens_details.cached_tokens`, `input_tokens_details.cached_tokens`, `prompt_cache_hit_tokens` (DeepSeek), `cached_tokens` (Kimi), `num_cached_tokens` and `prompt_token_details` (Mistral) |
//! | tokens written to a cache | `cache_write_tokens` (OpenAI, OpenRouter) and `created_cache_tokens` (vLLM) of the details, `cache_creation` of messages |
//! | reasoning, audio, images | `reasoning_tokens`, `audio_tokens`, `image_tokens` of the details |
//! | searches | `web_search_requests` of `server_tool_use`, `web_search_calls` (xAI), `num_search_queries` (Perplexity) |
//! | seconds of audio | `prompt_audio_seconds` (Mistral) |
//! | llama.cpp's `timings` | `prompt_n`, `cache_n`, `predicted_n` |
//!
//! A count may be an integer, a number with a fraction (rounded up), or a string of either. A negative
//! number, or one above [`MAX_TOKENS`](super::MAX_TOKENS), isn't a count.

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::details::{CacheCreation, Details, Members, Searches, Tier, Tokens};
use super::{Partial, ReportedParts, Usage};
use crate::lenient::{Gather, Lenient, Name};
use catalog::{Component, ServiceTier};

impl Usage {
    /// Reads the `usage` object of a chat, a completion or a response. Returns `None` if the tokens of the
    /// prompt or of the answer can't be determined.
    ///
    /// A total that is larger than the sum of both counts includes additional tokens: xAI and Gemini count
    /// reasoning only in the total. If the difference equals the cached tokens, it belongs to the prompt. If
    /// it equals the cached tokens plus the reasoning, each is added to its count.
    pub fn read(value: &[u8]) -> Option<Self> {
        let Lenient(members) = serde_json::from_slice::<Lenient<Members>>(value).ok()?;
        let Members { prompt, completion, total, cached, reasoning, .. } = members;
        let mut prompt_tokens = prompt.or_else(|| total?.checked_sub(completion?))?;
        let mut completion_tokens = completion.or_else(|| total?.checked_sub(prompt_tokens))?;
        if prompt_tokens < 0 || completion_tokens < 0 {
            return None;
        }
        let rest = total.unwrap_or_default() - prompt_tokens - completion_tokens;
        if rest > 0 {
            let both = cached.zip(reasoning).map(|(cached, reasoning)| cached + reasoning);
            let is_cached = cached == Some(rest) && reasoning != Some(rest);
            let of_prompt = if is_cached || both == Some(rest) { cached.unwrap_or_default() } else { 0 };
            prompt_tokens += of_prompt;
            completion_tokens += rest - of_prompt;
        }
        let cached_prompt_tokens = cached.map(|cached| cached.min(prompt_tokens));
        Some(Self { prompt_tokens, completion_tokens, cached_prompt_tokens, parts: members.parts() })
    }

    /// Reads the counts of a `usage` object that [`read`](Self::read) can't read as a whole.
    pub(crate) fn read_partial(value: &[u8]) -> Partial {
        let Lenient(members) = serde_json::from_slice::<Lenient<Members>>(value).unwrap_or_default();
        Partial::new(members.prompt, members.completion, members.cached, members.parts())
    }

    /// Reads the `usage` object of embeddings, which has no tokens of an answer. Some servers send only the
    /// total.
    pub fn read_embeddings(value: &[u8]) -> Option<Self> {
        let Lenient(members) = serde_json::from_slice::<Lenient<Members>>(value).ok()?;
        let prompt_tokens = known(members.prompt, members.total)?;
        let cached_prompt_tokens = members.cached.map(|cached| cached.min(prompt_tokens));
        Some(Self { prompt_tokens, completion_tokens: 0, cached_prompt_tokens, parts: members.parts() })
    }

    /// Reads llama.cpp's `timings`, whose count of the prompt excludes its cached part.
    pub fn read_timings(value: &[u8]) -> Option<Self> {
        let Lenient(Timings { prompt, cached, predicted }) = serde_json::from_slice(value).ok()?;
        let prompt_tokens = prompt?.saturating_add(cached.unwrap_or_default());
        let parts = ReportedParts::default();
        Some(Self { prompt_tokens, completion_tokens: predicted?, cached_prompt_tokens: cached, parts })
    }

    /// Returns the usage of an answer that may also have timings.
    pub(crate) fn merge(usage: Option<Self>, timings: Option<Self>) -> Option<Self> {
        let cached = timings.and_then(|timings| timings.cached_prompt_tokens);
        let with_cached = |usage: Self| Self {
            cached_prompt_tokens: usage.cached_prompt_tokens.or(cached.map(|n| n.min(usage.prompt_tokens))),
            ..usage
        };
        usage.map(with_cached).or(timings)
    }
}

/// The `usage` object of a message, or of one of its events. The counts are totals, not differences.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MessageUsage {
    /// Tokens of the prompt, excluding tokens read from or written to a cache.
    input: Option<i64>,
    output: Option<i64>,
    cache_read: Option<i64>,
    cache_creation: Option<i64>,
    /// The tokens of `cache_creation` that are kept for an hour.
    cached_for_an_hour: Option<i64>,
    /// The tokens of `output` that are reasoning.
    reasoning: Option<i64>,
    searches: Option<i64>,
    service_tier: Option<ServiceTier>,
}

impl MessageUsage {
    /// Reads a `usage` object. Missing counts are `None`.
    pub(crate) fn read(value: &[u8]) -> Self {
        serde_json::from_slice::<Lenient<Self>>(value).unwrap_or_default().0
    }

    /// Adds the counts of an iteration.
    fn add(&mut self, more: Self) {
        let sum = |one: Option<i64>, other: Option<i64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        self.input = sum(self.input, more.input);
        self.output = sum(self.output, more.output);
        self.cache_read = sum(self.cache_read, more.cache_read);
        self.cache_creation = sum(self.cache_creation, more.cache_creation);
        self.cached_for_an_hour = sum(self.cached_for_an_hour, more.cached_for_an_hour);
        self.reasoning = sum(self.reasoning, more.reasoning);
        self.searches = sum(self.searches, more.searches);
        self.service_tier = more.service_tier.or(self.service_tier);
    }

    /// Returns the larger of the two counts of each kind.
    fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_creation: self.cache_creation.max(other.cache_creation),
            cached_for_an_hour: self.cached_for_an_hour.max(other.cached_for_an_hour),
            reasoning: self.reasoning.max(other.reasoning),
            searches: self.searches.max(other.searches),
            service_tier: self.service_tier.or(other.service_tier),
        }
    }

    /// Returns the counts, updated by a later `usage` object. Zeros don't reset counts. If the later object
    /// counts at least as many tokens of the prompt, its parts of the prompt replace the earlier parts,
    /// because vLLM reports cached tokens only at the end.
    #[must_use]
    pub(crate) fn then(self, later: Self) -> Self {
        let later = Self {
            output: known(later.output, self.output),
            // Only the beginning of a message shows how long the written tokens are kept.
            cached_for_an_hour: known(later.cached_for_an_hour, self.cached_for_an_hour),
            reasoning: known(later.reasoning, self.reasoning),
            searches: known(later.searches, self.searches),
            service_tier: later.service_tier.or(self.service_tier),
            ..later
        };
        if later.input.is_some() && later.prompt_tokens() >= self.prompt_tokens() {
            return later;
        }
        Self {
            input: known(later.input, self.input),
            cache_read: known(later.cache_read, self.cache_read),
            cache_creation: known(later.cache_creation, self.cache_creation),
            ..later
        }
    }

    /// Returns the usage so far; `None` until the prompt is counted.
    pub(crate) fn total(self) -> Option<Usage> {
        self.input.or(self.cache_read)?;
        Some(Usage {
            prompt_tokens: self.prompt_tokens(),
            completion_tokens: self.output.unwrap_or_default(),
            cached_prompt_tokens: self.cache_read,
            parts: self.parts(),
        })
    }

    /// Returns the parts that the `usage` object reports. Tokens written to a cache for an unknown time count
    /// as kept for five minutes, the default.
    fn parts(self) -> ReportedParts {
        let hour = self.cache_creation.map(|all| self.cached_for_an_hour.unwrap_or_default().min(all));
        let minutes_5 = self.cache_creation.zip(hour).map(|(all, hour)| all - hour);
        ReportedParts::default()
            .with(Component::CacheWrite5m, minutes_5)
            .with(Component::CacheWrite1h, hour)
            .with(Component::Reasoning, self.reasoning)
            .with(Component::Search, self.searches)
    }

    /// Returns the service tier of the answer.
    pub(crate) const fn service_tier(&self) -> Option<ServiceTier> {
        self.service_tier
    }

    /// Returns the counts of an incomplete `usage` object.
    pub(crate) fn partial(self) -> Partial {
        let prompt = self.total().map(|total| total.prompt_tokens);
        Partial::new(prompt, self.output, self.cache_read, self.parts())
    }

    fn prompt_tokens(self) -> i64 {
        [self.input, self.cache_read, self.cache_creation].into_iter().flatten().fold(0, i64::saturating_add)
    }

    /// Returns `true` if the tokens of the answer are counted.
    pub(crate) fn has_output(self) -> bool {
        self.output.is_some()
    }
}

/// Returns the later count, unless it is absent or resets the earlier one to zero.
fn known(later: Option<i64>, earlier: Option<i64>) -> Option<i64> {
    later.filter(|tokens| *tokens > 0).or(earlier).or(later)
}

impl<'de> Gather<'de> for MessageUsage {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        let (mut iterations, mut creation) = (Self::default(), CacheCreation::default());
        while let Some(Name(name)) = members.next_key()? {
            let count = match name.as_ref() {
                "input_tokens" => &mut self.input,
                "output_tokens" => &mut self.output,
                "cache_read_input_tokens" => &mut self.cache_read,
                "cache_creation_input_tokens" => &mut self.cache_creation,
                "cache_creation" => {
                    creation = members.next_value::<Lenient<CacheCreation>>()?.0;
                    continue;
                }
                "output_tokens_details" => {
                    self.reasoning = members.next_value::<Lenient<Details>>()?.0.reasoning;
                    continue;
                }
                "server_tool_use" => {
                    self.searches = members.next_value::<Lenient<Searches>>()?.0.0;
                    continue;
                }
                "service_tier" => {
                    self.service_tier = members.next_value::<Lenient<Tier>>()?.0.0;
                    continue;
                }
                "iterations" => {
                    iterations = members.next_value::<Lenient<Iterations>>()?.0.0;
                    continue;
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *count = members.next_value::<Lenient<Tokens>>()?.0.0;
        }
        // The count next to the split is its sum, which some servers omit.
        self.cache_creation = self.cache_creation.or(creation.sum());
        self.cached_for_an_hour = creation.hour;
        // The counts next to the iterations don't include iterations that compact the conversation, which are
        // billed, too.
        *self = self.max(iterations);
        Ok(())
    }
}

/// The sum of a model's iterations for one of Anthropic's messages.
#[derive(Default)]
struct Iterations(MessageUsage);

impl<'de> Gather<'de> for Iterations {
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(iteration)) = items.next_element::<Lenient<MessageUsage>>()? {
            self.0.add(iteration);
        }
        Ok(())
    }
}

#[derive(Default)]
struct Timings {
    prompt: Option<i64>,
    cached: Option<i64>,
    predicted: Option<i64>,
}

impl<'de> Gather<'de> for Timings {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let count = match name.as_ref() {
                "prompt_n" => &mut self.prompt,
                "cache_n" => &mut self.cached,
                "predicted_n" => &mut self.predicted,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *count = members.next_value::<Lenient<Tokens>>()?.0.0;
        }
        Ok(())
    }
}
