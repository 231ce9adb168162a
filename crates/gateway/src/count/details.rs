//! The members of `usage` objects, in the forms that servers send.

use serde::de::{IgnoredAny, MapAccess};

use super::{MAX_TOKENS, ReportedParts};
use crate::lenient::{Gather, Lenient, Name};
use catalog::{Component, ServiceTier};

/// A number of tokens.
#[derive(Default)]
pub(super) struct Tokens(pub(super) Option<i64>);

impl Gather<'_> for Tokens {
    fn integer(&mut self, number: i64) {
        self.0 = (0..=MAX_TOKENS).contains(&number).then_some(number);
    }

    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and is at most MAX_TOKENS")]
    fn float(&mut self, number: f64) {
        const MAX: f64 = 1e9;
        let whole = number.ceil();
        self.0 = (number >= 0.0 && whole <= MAX).then_some(whole as i64);
    }

    fn text(&mut self, text: &str) {
        match (text.trim().parse::<i64>(), text.trim().parse::<f64>()) {
            (Ok(number), _) => self.integer(number),
            (_, Ok(number)) => self.float(number),
            _ => {}
        }
    }
}

/// Reads a quantity; returns `None` if the value isn't a valid number.
pub(crate) fn quantity(value: &[u8]) -> Option<i64> {
    serde_json::from_slice::<Lenient<Tokens>>(value).ok().and_then(|Lenient(Tokens(number))| number)
}

/// The members of a `usage` object of OpenAI's forms.
#[derive(Default)]
pub(super) struct Members {
    pub(super) prompt: Option<i64>,
    pub(super) completion: Option<i64>,
    pub(super) total: Option<i64>,
    pub(super) cached: Option<i64>,
    pub(super) reasoning: Option<i64>,
    details_of_prompt: Details,
    details_of_completion: Details,
    searches: Option<i64>,
    seconds_of_audio: Option<i64>,
}

impl Members {
    /// Returns the parts that the usage reports.
    pub(super) fn parts(&self) -> ReportedParts {
        ReportedParts::default()
            .with(Component::CacheWrite5m, self.details_of_prompt.cache_write)
            .with(Component::AudioPrompt, self.details_of_prompt.audio)
            .with(Component::ImagePrompt, self.details_of_prompt.image)
            .with(Component::Reasoning, self.reasoning)
            .with(Component::AudioCompletion, self.details_of_completion.audio)
            .with(Component::Search, self.searches)
            .with(Component::Second, self.seconds_of_audio)
    }
}

impl<'de> Gather<'de> for Members {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let count = match name.as_ref() {
                "prompt_tokens" | "input_tokens" => &mut self.prompt,
                "completion_tokens" | "output_tokens" => &mut self.completion,
                "total_tokens" => &mut self.total,
                "prompt_cache_hit_tokens" | "cached_tokens" | "num_cached_tokens" => &mut self.cached,
                "reasoning_tokens" => &mut self.reasoning,
                "num_search_queries" => &mut self.searches,
                "prompt_audio_seconds" => &mut self.seconds_of_audio,
                "prompt_tokens_details" | "input_tokens_details" | "prompt_token_details" => {
                    let details = members.next_value::<Lenient<Details>>()?.0;
                    self.cached = details.cached.max(self.cached);
                    self.details_of_prompt.add(&details);
                    continue;
                }
                "completion_tokens_details" | "output_tokens_details" => {
                    let details = members.next_value::<Lenient<Details>>()?.0;
                    self.reasoning = details.reasoning.max(self.reasoning);
                    self.details_of_completion.add(&details);
                    continue;
                }
                "server_tool_use" | "server_side_tool_usage_details" => {
                    let Lenient(Searches(searches)) = members.next_value()?;
                    self.searches = searches.max(self.searches);
                    continue;
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            // Some servers write both pairs of names, one of them with zeros.
            *count = members.next_value::<Lenient<Tokens>>()?.0.0.max(*count);
        }
        Ok(())
    }
}

/// The parts of one count.
#[derive(Default)]
pub(super) struct Details {
    cached: Option<i64>,
    cache_write: Option<i64>,
    audio: Option<i64>,
    image: Option<i64>,
    pub(super) reasoning: Option<i64>,
}

impl Details {
    /// Keeps the larger of the two counts of each kind: some servers write the details twice, once with
    /// zeros.
    fn add(&mut self, other: &Self) {
        self.cache_write = other.cache_write.max(self.cache_write);
        self.audio = other.audio.max(self.audio);
        self.image = other.image.max(self.image);
    }
}

impl<'de> Gather<'de> for Details {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let count = match name.as_ref() {
                "cached_tokens" => &mut self.cached,
                "reasoning_tokens" | "thinking_tokens" => &mut self.reasoning,
                // OpenAI and OpenRouter, vLLM, Alibaba.
                "cache_write_tokens" | "created_cache_tokens" | "cache_creation_input_tokens" => {
                    &mut self.cache_write
                }
                "audio_tokens" => &mut self.audio,
                "image_tokens" => &mut self.image,
                "multimodal_tokens" => {
                    let Lenient(ByMedium { audio, image }) = members.next_value()?;
                    self.audio = audio.max(self.audio);
                    self.image = image.max(self.image);
                    continue;
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *count = members.next_value::<Lenient<Tokens>>()?.0.0.max(*count);
        }
        Ok(())
    }
}

/// vLLM's token counts of media in a prompt.
#[derive(Default)]
struct ByMedium {
    audio: Option<i64>,
    image: Option<i64>,
}

impl<'de> Gather<'de> for ByMedium {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "audio" => self.audio = members.next_value::<Lenient<Tokens>>()?.0.0,
                "image" => self.image = members.next_value::<Lenient<Tokens>>()?.0.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The web searches among the tools that a provider has run: Anthropic's and OpenRouter's
/// `web_search_requests`, xAI's `web_search_calls`.
#[derive(Default)]
pub(super) struct Searches(pub(super) Option<i64>);

impl<'de> Gather<'de> for Searches {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "web_search_requests" | "web_search_calls" => {
                    self.0 = members.next_value::<Lenient<Tokens>>()?.0.0;
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The tokens written to Anthropic's cache, split by the time for which they are kept.
#[derive(Default)]
pub(super) struct CacheCreation {
    minutes_5: Option<i64>,
    pub(super) hour: Option<i64>,
}

impl CacheCreation {
    /// Returns the sum; `None` if no part is reported.
    pub(super) fn sum(&self) -> Option<i64> {
        match (self.minutes_5, self.hour) {
            (Some(minutes_5), Some(hour)) => Some(minutes_5.saturating_add(hour)),
            (minutes_5, hour) => minutes_5.or(hour),
        }
    }
}

impl<'de> Gather<'de> for CacheCreation {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "ephemeral_5m_input_tokens" => {
                    self.minutes_5 = members.next_value::<Lenient<Tokens>>()?.0.0;
                }
                "ephemeral_1h_input_tokens" => self.hour = members.next_value::<Lenient<Tokens>>()?.0.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The service tier of an answer.
#[derive(Default)]
pub(super) struct Tier(pub(super) Option<ServiceTier>);

impl Gather<'_> for Tier {
    fn text(&mut self, text: &str) {
        self.0 = Some(ServiceTier::of_answer(text));
    }
}

/// Reads the `service_tier` of an answer; returns `None` if the value isn't a string.
pub(crate) fn service_tier(value: &[u8]) -> Option<ServiceTier> {
    serde_json::from_slice::<Lenient<Tier>>(value).ok().and_then(|Lenient(Tier(tier))| tier)
}
