//! Tokens that an upstream has used: as it reports them, or estimated where it doesn't.
//!
//! | what came | what counts |
//! |---|---|
//! | a usage without choices, the end of a stream | it |
//! | a running usage with the last text | it, unless it can't be right |
//! | a running usage, and text after it | it, and an estimate of that text |
//! | neither | an estimate: a token for each event with text, or a quarter of the bytes if that is more |
//!
//! A usage of zero is zero. Nothing exceeds the [`Bounds`] of the call.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{IgnoredAny, MapAccess};

use crate::lenient::{Gather, Lenient, Name};
use catalog::UpstreamKind;

/// The most tokens that a request may ask for, and a plausible upstream reports.
pub const MAX_TOKENS: i64 = 1_000_000_000;
/// The bytes of a token of text, where tokens are estimated.
const BYTES_PER_TOKEN: i64 = 4;
/// Tokens without text that a running usage may have in all: special tokens, and text that a parser of tool
/// calls still holds back.
const HIDDEN_TOKENS: i64 = 256;
/// Such tokens for each event.
const HIDDEN_TOKENS_PER_EVENT: i64 = 16;
/// The most answers of a call: 128 to each of 2,048 prompts.
const MAX_CHOICES: usize = 128 * 2_048;

/// Tokens that an upstream reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Tokens of the prompt, with those from a cache.
    pub prompt_tokens: i64,
    /// Tokens of all answers.
    pub completion_tokens: i64,
    /// Tokens of the prompt that came from a cache; `None` if the upstream doesn't say.
    pub cached_prompt_tokens: Option<i64>,
}

/// The tokens that a call is charged for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Tokens of the prompt, with those from a cache.
    pub prompt_tokens: i64,
    /// Tokens of all answers.
    pub completion_tokens: i64,
    /// Tokens of the prompt that came from a cache; `None` if the upstream doesn't say.
    pub cached_prompt_tokens: Option<i64>,
    /// Not all of it was reported by the upstream.
    pub estimated: bool,
}

impl Usage {
    /// Reads a `usage` of OpenAI's form; `None` if one of its two counts is missing or no count of tokens.
    pub fn read(value: &[u8]) -> Option<Self> {
        let Lenient(UsageMembers { prompt, completion, details }) = serde_json::from_slice(value).ok()?;
        let cached_prompt_tokens = details.0.map(|cached| cached.min(prompt.0.unwrap_or_default()));
        Some(Self { prompt_tokens: prompt.0?, completion_tokens: completion.0?, cached_prompt_tokens })
    }

    /// Reads the `usage` of embeddings, which has no tokens of an answer.
    pub fn read_embeddings(value: &[u8]) -> Option<Self> {
        let Lenient(UsageMembers { prompt, details, .. }) = serde_json::from_slice(value).ok()?;
        let prompt_tokens = prompt.0?;
        let cached_prompt_tokens = details.0.map(|cached| cached.min(prompt_tokens));
        Some(Self { prompt_tokens, completion_tokens: 0, cached_prompt_tokens })
    }

    /// Reads the `usage` of a response.
    pub fn read_response(value: &[u8]) -> Option<Self> {
        let Lenient(ResponseUsage { input, output, details }) = serde_json::from_slice(value).ok()?;
        let prompt_tokens = input.0?;
        let cached_prompt_tokens = details.0.map(|cached| cached.min(prompt_tokens));
        Some(Self { prompt_tokens, completion_tokens: output.0?, cached_prompt_tokens })
    }

    /// Reads llama.cpp's `timings`, where the prompt is counted without its cached part.
    pub fn read_timings(value: &[u8]) -> Option<Self> {
        let Lenient(TimingsMembers { prompt, cached, predicted }) = serde_json::from_slice(value).ok()?;
        let prompt_tokens = prompt.0?.saturating_add(cached.0.unwrap_or_default());
        Some(Self { prompt_tokens, completion_tokens: predicted.0?, cached_prompt_tokens: cached.0 })
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

    /// Returns what is charged for a prompt that the upstream has counted.
    pub fn settle(self, bounds: Bounds) -> Settled {
        self.settle_within(bounds.counted_prompt_tokens, bounds)
    }

    /// Returns what is charged for a prompt whose tokens are estimated here.
    pub fn settle_estimate(self, bounds: Bounds) -> Settled {
        Settled { estimated: true, ..self.settle_within(bounds.reserved_prompt_tokens, bounds) }
    }

    fn settle_within(self, max_prompt_tokens: i64, bounds: Bounds) -> Settled {
        let prompt_tokens = self.prompt_tokens.min(max_prompt_tokens);
        Settled {
            prompt_tokens,
            completion_tokens: self.completion_tokens.min(bounds.completion_tokens),
            cached_prompt_tokens: self.cached_prompt_tokens.map(|cached| cached.min(prompt_tokens)),
            estimated: false,
        }
    }
}

/// The most tokens that a call is charged for.
///
/// What an upstream has counted was used, so it is charged above the reservation too: a picture, a document or the
/// results of a search may have more tokens than any guess before the call. Only a count that no prompt of the model can
/// have is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Tokens of all prompts by the upstream's count: the context of the model for each.
    pub counted_prompt_tokens: i64,
    /// Tokens of all prompts that are reserved, which bound an estimate.
    pub reserved_prompt_tokens: i64,
    /// Tokens of all answers: the upstream was asked for no more.
    pub completion_tokens: i64,
}

#[cfg(test)]
impl Bounds {
    pub(crate) const fn new(prompt_tokens: i64, completion_tokens: i64) -> Self {
        Self {
            counted_prompt_tokens: prompt_tokens,
            reserved_prompt_tokens: prompt_tokens,
            completion_tokens,
        }
    }
}

/// The `usage` of a message, whole or in an event. Its counts are totals, not differences.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MessageUsage {
    /// Tokens of the prompt, without those from a cache or written to one.
    input: Option<i64>,
    output: Option<i64>,
    cache_read: Option<i64>,
    cache_creation: Option<i64>,
}

impl MessageUsage {
    /// Reads a `usage`; what it doesn't say is absent.
    pub(crate) fn read(value: &[u8]) -> Self {
        serde_json::from_slice::<Lenient<Self>>(value).unwrap_or_default().0
    }

    /// Adds what a later usage says.
    #[must_use]
    pub(crate) fn then(self, later: Self) -> Self {
        Self {
            input: later.input.or(self.input),
            output: later.output.or(self.output),
            cache_read: later.cache_read.or(self.cache_read),
            cache_creation: later.cache_creation.or(self.cache_creation),
        }
    }

    /// Returns the usage so far; `None` while the prompt isn't counted.
    pub(crate) fn total(self) -> Option<Usage> {
        let beside = |tokens: Option<i64>| tokens.unwrap_or_default();
        let cached = beside(self.cache_read).saturating_add(beside(self.cache_creation));
        Some(Usage {
            prompt_tokens: self.input?.saturating_add(cached),
            completion_tokens: beside(self.output),
            cached_prompt_tokens: self.cache_read,
        })
    }

    /// Returns `true` if the answer is counted.
    pub(crate) fn has_output(self) -> bool {
        self.output.is_some()
    }
}

/// Returns the tokens of a text that no upstream counted.
pub(crate) const fn estimate_tokens(bytes: i64) -> i64 {
    bytes / BYTES_PER_TOKEN
}

/// The counts of one chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkCounts {
    pub(crate) choices: Vec<ChoiceText>,
    pub(crate) usage: Option<Usage>,
}

/// The counts of one choice in a chunk.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ChoiceText {
    pub(crate) index: usize,
    /// The bytes of generated text.
    pub(crate) text_bytes: i64,
    pub(crate) is_finished: bool,
}

/// Text that was seen, from which tokens are estimated.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    /// Choices with text, one or more in an event.
    events: i64,
    text_bytes: i64,
}

impl Seen {
    fn add(&mut self, text_bytes: i64) {
        self.events += 1;
        self.text_bytes += text_bytes;
    }

    /// A token for each event, unless several came in one.
    fn tokens(self) -> i64 {
        self.events.max(estimate_tokens(self.text_bytes))
    }
}

/// Counts the tokens of a stream as it goes.
#[derive(Clone, Debug)]
pub struct StreamCounter {
    /// The number of choices that were asked for.
    choices: usize,
    /// The number of prompts.
    prompt_count: usize,
    /// The number of choices for each prompt.
    choices_per_prompt: usize,
    /// The choices with a finish reason.
    finished: BTreeSet<usize>,
    is_done: bool,
    /// The prompt counts: a chunk with choices came, or the client has left.
    has_prompt: bool,
    seen: Seen,
    /// The text since the last running usage.
    seen_since: Seen,
    /// The tokens of the prompt, should the upstream not count them.
    estimated_prompt_tokens: i64,
    /// The tokens of each prompt, by its place among the prompts.
    prompts: BTreeMap<usize, i64>,
    cached_prompt_tokens: Option<i64>,
    /// The running completions: vLLM and SGLang count each choice for itself.
    running: Vec<i64>,
    is_running_wrong: bool,
    /// The usage at the end of the stream.
    total: Option<Usage>,
}

impl StreamCounter {
    /// Returns a counter for a stream with this number of choices, which are divided evenly among the prompts. All
    /// prompts have `estimated_prompt_tokens`, should the upstream not count them.
    pub fn new(choices: i64, prompts: i64, estimated_prompt_tokens: i64) -> Self {
        let choices = usize::try_from(choices).unwrap_or_default().clamp(1, MAX_CHOICES);
        let prompts = usize::try_from(prompts).unwrap_or_default().clamp(1, choices);
        Self {
            choices,
            prompt_count: prompts,
            choices_per_prompt: choices / prompts,
            finished: BTreeSet::new(),
            is_done: false,
            has_prompt: false,
            seen: Seen::default(),
            seen_since: Seen::default(),
            estimated_prompt_tokens,
            prompts: BTreeMap::new(),
            cached_prompt_tokens: None,
            running: Vec::new(),
            is_running_wrong: false,
            total: None,
        }
    }

    /// Counts a chunk.
    pub(crate) fn add(&mut self, chunk: &ChunkCounts) {
        self.has_prompt |= !chunk.choices.is_empty();
        for choice in &chunk.choices {
            if choice.text_bytes > 0 {
                self.seen.add(choice.text_bytes);
                self.seen_since.add(choice.text_bytes);
            }
            if choice.is_finished && choice.index < self.choices {
                self.finished.insert(choice.index);
            }
        }
        let Some(usage) = chunk.usage else { return };
        self.cached_prompt_tokens = usage.cached_prompt_tokens.or(self.cached_prompt_tokens);
        match chunk.choices.as_slice() {
            [] => self.add_total(usage),
            [only] if self.choices > 1 => self.add_running(only.index.min(self.choices - 1), usage),
            _ => self.add_running(0, usage),
        }
    }

    /// Notes a usage without choices. llama.cpp sends one for each choice: none takes back another.
    fn add_total(&mut self, usage: Usage) {
        let before = self.total.map_or(0, |total| total.completion_tokens);
        self.total = Some(Usage {
            prompt_tokens: usage.prompt_tokens.max(self.prompt_tokens().unwrap_or_default()),
            completion_tokens: usage.completion_tokens.max(before),
            cached_prompt_tokens: self.cached_prompt_tokens,
        });
    }

    /// Returns the tokens of the prompts, as far as they were counted.
    fn prompt_tokens(&self) -> Option<i64> {
        let sum = || self.prompts.values().fold(0, |sum: i64, tokens| sum.saturating_add(*tokens));
        let before = self.total.map(|total| total.prompt_tokens);
        (!self.prompts.is_empty()).then(sum).max(before)
    }

    /// Notes a running usage, which never goes down. One that exceeds what the text allows is an upstream's
    /// mistake, known of older vLLM, which added up sums; on the last chunk of all it is believed.
    fn add_running(&mut self, index: usize, usage: Usage) {
        let of_prompt = self.prompts.entry(index / self.choices_per_prompt).or_default();
        *of_prompt = usage.prompt_tokens.max(*of_prompt);
        if self.running.len() <= index {
            self.running.resize(index + 1, 0);
        }
        if let Some(completion) = self.running.get_mut(index) {
            *completion = usage.completion_tokens.max(*completion);
        }
        self.seen_since = Seen::default();
        let Seen { events, text_bytes } = self.seen;
        let plausible = text_bytes + events * HIDDEN_TOKENS_PER_EVENT + HIDDEN_TOKENS;
        if self.running_tokens() > plausible && !(self.choices == 1 && self.is_finished()) {
            self.is_running_wrong = true;
        }
    }

    fn running_tokens(&self) -> i64 {
        self.running.iter().fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }

    /// Returns `true` if the upstream has counted every prompt, and all text that has come.
    pub fn is_counted(&self) -> bool {
        let is_running = self.prompts.len() >= self.prompt_count && self.seen_since.events == 0;
        self.total.is_some() || (is_running && !self.is_running_wrong)
    }

    /// Notes that the client has left. The upstream has the prompt, so it counts, whatever has come of the answer.
    pub fn mark_left(&mut self) {
        self.has_prompt = true;
    }

    /// Notes `[DONE]`.
    pub fn mark_done(&mut self) {
        self.is_done = true;
    }

    /// Notes that the body ended cleanly. Older versions of TGI send no `[DONE]`, so that this is their end;
    /// of the other kinds an end without it is a cut.
    pub fn mark_end_of_body(&mut self, kind: UpstreamKind) {
        self.is_done |= kind == UpstreamKind::Tgi;
    }

    /// Returns whether every choice has a finish reason.
    pub fn is_finished(&self) -> bool {
        self.finished.len() >= self.choices
    }

    /// Returns whether the answer is complete: every choice has a finish reason, and the stream its end.
    pub fn is_complete(&self) -> bool {
        self.is_finished() && self.is_done
    }

    /// Returns what is charged if the stream ends here. Before the first chunk that is nothing, unless the client has
    /// left.
    pub fn settle(&self, bounds: Bounds) -> Settled {
        if let Some(total) = self.total {
            return total.settle(bounds);
        }
        let has_running = !self.running.is_empty() && !self.is_running_wrong;
        let completion_tokens = if has_running {
            self.running_tokens().saturating_add(self.seen_since.tokens())
        } else {
            self.seen.tokens()
        };
        let usage = |prompt_tokens| Usage {
            prompt_tokens,
            completion_tokens,
            cached_prompt_tokens: self.cached_prompt_tokens,
        };
        match self.prompt_tokens() {
            Some(prompt) => Settled {
                estimated: !has_running || self.seen_since.events > 0,
                ..usage(prompt).settle(bounds)
            },
            None if self.has_prompt => usage(self.estimated_prompt_tokens).settle_estimate(bounds),
            None => usage(0).settle_estimate(bounds),
        }
    }
}

/// A number of tokens.
#[derive(Default)]
struct Tokens(Option<i64>);

impl Gather<'_> for Tokens {
    fn integer(&mut self, number: i64) {
        self.0 = (0..=MAX_TOKENS).contains(&number).then_some(number);
    }
}

#[derive(Default)]
struct UsageMembers {
    prompt: Tokens,
    completion: Tokens,
    details: CachedTokens,
}

impl<'de> Gather<'de> for UsageMembers {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "prompt_tokens" => self.prompt = members.next_value::<Lenient<Tokens>>()?.0,
                "completion_tokens" => self.completion = members.next_value::<Lenient<Tokens>>()?.0,
                "prompt_tokens_details" => self.details = members.next_value::<Lenient<CachedTokens>>()?.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The member `cached_tokens` of `prompt_tokens_details` or `input_tokens_details`.
#[derive(Default)]
struct CachedTokens(Option<i64>);

impl<'de> Gather<'de> for CachedTokens {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            if name == "cached_tokens" {
                self.0 = members.next_value::<Lenient<Tokens>>()?.0.0;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct ResponseUsage {
    input: Tokens,
    output: Tokens,
    details: CachedTokens,
}

impl<'de> Gather<'de> for ResponseUsage {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "input_tokens" => self.input = members.next_value::<Lenient<Tokens>>()?.0,
                "output_tokens" => self.output = members.next_value::<Lenient<Tokens>>()?.0,
                "input_tokens_details" => self.details = members.next_value::<Lenient<CachedTokens>>()?.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> Gather<'de> for MessageUsage {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let count = match name.as_ref() {
                "input_tokens" => &mut self.input,
                "output_tokens" => &mut self.output,
                "cache_read_input_tokens" => &mut self.cache_read,
                "cache_creation_input_tokens" => &mut self.cache_creation,
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

#[derive(Default)]
struct TimingsMembers {
    prompt: Tokens,
    cached: Tokens,
    predicted: Tokens,
}

impl<'de> Gather<'de> for TimingsMembers {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "prompt_n" => self.prompt = members.next_value::<Lenient<Tokens>>()?.0,
                "cache_n" => self.cached = members.next_value::<Lenient<Tokens>>()?.0,
                "predicted_n" => self.predicted = members.next_value::<Lenient<Tokens>>()?.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
