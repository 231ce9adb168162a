//! The tokens used by an upstream: the counts that it reports, or estimates for counts that it doesn't
//! report.
//!
//! | received | charged |
//! |---|---|
//! | `usage` objects, and the stream ended cleanly | the last one that isn't zero |
//! | `usage` objects, and the stream was cut or left | the largest one, because counts only grow |
//! | text after the last `usage` object | an estimate of the text, in addition |
//! | a `usage` object with one readable count | that count, and an estimate of the other |
//! | no `usage` object | an estimate: a token for each event with text, or the tokens of the text if they are more |
//!
//! A `usage` object may arrive without choices, next to a choice, or inside one; the module `usage` reads
//! every form. Counts that are larger than the visible text are accepted, because hidden reasoning is normal.
//! Nothing exceeds the [`Bounds`] of the call.
//!
//! The parts of both counts, and searches, are the components that have prices
//! (docs/contract/gateway.md#components). The settlement checks whether the parts exceed their total.

mod details;
mod media;
pub(crate) mod reading;
mod searches;
mod stream;
mod text;
mod usage;

pub(crate) use details::{quantity, service_tier};
pub(crate) use media::MediaKind;
pub(crate) use searches::Searches;
pub use stream::StreamCounter;
pub(crate) use stream::{ChoiceText, ChunkCounts};
pub use text::TextTokens;
pub(crate) use usage::MessageUsage;

use catalog::{Component, Parts, PerPart, Price, ServiceTier};

/// Maximum number of tokens that a request may ask for. Larger counts of an upstream are ignored.
pub const MAX_TOKENS: i64 = 1_000_000_000;

/// The parts that an upstream reports; `None` for each part that it doesn't report.
pub type ReportedParts = PerPart<Option<i64>>;

/// Tokens that an upstream reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Tokens of the prompt, including cached tokens.
    pub prompt_tokens: i64,
    /// Tokens of all answers.
    pub completion_tokens: i64,
    /// Tokens of the prompt that came from a cache; `None` if the upstream doesn't report them.
    pub cached_prompt_tokens: Option<i64>,
    /// The parts of both counts, and units counted separately.
    pub parts: ReportedParts,
}

/// The readable counts of a `usage` object in which a count is missing or invalid.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Partial {
    /// Tokens of the prompt, including cached tokens.
    pub(crate) prompt: Option<i64>,
    /// Tokens of all answers.
    pub(crate) completion: Option<i64>,
    /// Tokens of the prompt that came from a cache.
    pub(crate) cached: Option<i64>,
    /// The parts of both counts, and units counted separately.
    pub(crate) parts: ReportedParts,
}

impl Partial {
    /// Returns these counts. Zeros are treated as missing.
    pub(crate) fn new(
        prompt: Option<i64>,
        completion: Option<i64>,
        cached: Option<i64>,
        parts: ReportedParts,
    ) -> Self {
        let prompt = prompt.filter(|tokens| *tokens > 0);
        let cached = prompt.zip(cached).map(|(prompt, cached)| cached.min(prompt));
        Self { prompt, completion: completion.filter(|tokens| *tokens > 0), cached, parts }
    }

    /// Returns the charge: the upstream's counts, and an estimate of the rest.
    pub(crate) fn settle(self, estimate: Usage, bounds: Bounds) -> Settled {
        let usage = Usage {
            prompt_tokens: self.prompt.unwrap_or(estimate.prompt_tokens),
            completion_tokens: self.completion.unwrap_or(estimate.completion_tokens),
            cached_prompt_tokens: self.cached,
            parts: self.parts,
        };
        let max_prompt_tokens = match self.prompt {
            Some(_) => bounds.counted_prompt_tokens,
            None => bounds.reserved_prompt_tokens,
        };
        Settled { estimated: true, ..usage.settle_within(max_prompt_tokens, bounds) }
    }
}

/// The tokens that a call is charged for, without their parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    /// Tokens of the prompt, including cached tokens.
    pub(crate) prompt_tokens: i64,
    /// Tokens of all answers.
    pub(crate) completion_tokens: i64,
    /// Tokens of the prompt that came from a cache; `None` if the upstream doesn't report them.
    pub(crate) cached_prompt_tokens: Option<i64>,
    /// `true` if the upstream didn't report all of the counts, including those of priced parts.
    pub(crate) estimated: bool,
}

impl Totals {
    /// Returns these totals, cut to the maximum of each.
    fn within(self, max_prompt_tokens: i64, bounds: Bounds) -> Self {
        let prompt_tokens = self.prompt_tokens.min(max_prompt_tokens);
        Self {
            prompt_tokens,
            completion_tokens: self.completion_tokens.min(bounds.completion_tokens),
            cached_prompt_tokens: self.cached_prompt_tokens.map(|cached| cached.min(prompt_tokens)),
            ..self
        }
    }

    /// Returns the charge for these totals with these parts.
    fn with_parts(self, parts: &ReportedParts) -> Settled {
        Settled {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_prompt_tokens: self.cached_prompt_tokens,
            parts: known_parts(parts),
            service_tier: ServiceTier::default(),
            estimated: self.estimated,
        }
    }
}

/// The tokens that a call is charged for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Tokens of the prompt, including cached tokens.
    pub prompt_tokens: i64,
    /// Tokens of all answers.
    pub completion_tokens: i64,
    /// Tokens of the prompt that came from a cache; `None` if the upstream doesn't report them.
    pub cached_prompt_tokens: Option<i64>,
    /// The parts of both counts, and units counted separately, as reported by the upstream. Their sum may
    /// exceed the whole.
    pub parts: Parts,
    /// The service tier of the answer.
    pub service_tier: ServiceTier,
    /// `true` if the upstream didn't report all of these counts.
    pub estimated: bool,
}

impl Usage {
    /// Returns `true` if all counts are zero. Such an object is ignored, because every prompt has tokens.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.prompt_tokens == 0 && self.completion_tokens == 0
    }

    /// Returns the charge for a prompt counted by the upstream.
    pub fn settle(self, bounds: Bounds) -> Settled {
        self.settle_within(bounds.counted_prompt_tokens, bounds)
    }

    /// Returns the charge for a prompt whose tokens the gateway has estimated.
    pub fn settle_estimate(self, bounds: Bounds) -> Settled {
        Settled { estimated: true, ..self.settle_within(bounds.reserved_prompt_tokens, bounds) }
    }

    fn settle_within(self, max_prompt_tokens: i64, bounds: Bounds) -> Settled {
        let totals = Totals {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_prompt_tokens: self.cached_prompt_tokens,
            estimated: false,
        };
        totals.within(max_prompt_tokens, bounds).with_parts(&self.parts)
    }
}

/// Returns the parts that an upstream reports.
fn known_parts(said: &ReportedParts) -> Parts {
    let said = said.iter().filter_map(|(part, quantity)| Some((part, quantity?)));
    said.fold(Parts::default(), |parts, (part, quantity)| parts.with(part, quantity))
}

/// Returns parts with the searches found in an answer, if these are more than the usage reports.
pub(crate) fn with_searches(parts: ReportedParts, searches: i64) -> ReportedParts {
    let searches = Some(searches).filter(|searches| *searches > 0);
    parts.with(Component::Search, parts.get(Component::Search).max(searches))
}

/// Returns the larger quantity of each part.
fn larger_parts(one: ReportedParts, other: &ReportedParts) -> ReportedParts {
    other.iter().fold(one, |parts, (part, quantity)| parts.with(part, quantity.max(parts.get(part))))
}

/// The maximum number of tokens that a call is charged for.
///
/// The tokens that an upstream counted were used, so they are charged even above the reservation: an image, a
/// document or the results of a search may have more tokens than any guess before the call. Only counts above
/// the model's context are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Maximum tokens of all prompts as counted by the upstream: the model's context for each prompt.
    pub counted_prompt_tokens: i64,
    /// Tokens of all prompts that are reserved, which is the maximum of an estimate.
    pub reserved_prompt_tokens: i64,
    /// Maximum tokens of all answers, as requested from the upstream.
    pub completion_tokens: i64,
    /// The parts whose price differs from that of the whole.
    pub priced: PricedParts,
}

/// The parts of tokens that have separate prices.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PricedParts {
    /// Tokens of the prompt that came from a cache.
    pub cached_prompt: bool,
    pub parts: PerPart<bool>,
}

impl PricedParts {
    /// Returns the parts whose price differs from that of the whole in at least one of these prices.
    pub fn of(prices: &[Price]) -> Self {
        let is_priced = |part: Component| {
            let whole = part.whole();
            whole.is_some_and(|whole| prices.iter().any(|price| price.of(part) != price.of(whole)))
        };
        let parts = Component::PARTS.into_iter().filter(|part| is_priced(*part));
        Self {
            cached_prompt: is_priced(Component::CachedPrompt),
            parts: parts.fold(PerPart::default(), |parts, part| parts.with(part, true)),
        }
    }

    /// Returns `true` if the upstream doesn't report one of these parts.
    fn lack(&self, cached_prompt_tokens: Option<i64>, is_reported: impl Fn(Component) -> bool) -> bool {
        (self.cached_prompt && cached_prompt_tokens.is_none())
            || self.parts.iter().any(|(part, _)| !is_reported(part))
    }
}

#[cfg(test)]
impl Bounds {
    pub(crate) fn new(prompt_tokens: i64, completion_tokens: i64) -> Self {
        Self {
            counted_prompt_tokens: prompt_tokens,
            reserved_prompt_tokens: prompt_tokens,
            completion_tokens,
            priced: PricedParts::default(),
        }
    }

    /// Returns the bounds for a model with a separate price for cached tokens.
    pub(crate) fn with_cached_price(self) -> Self {
        Self { priced: PricedParts { cached_prompt: true, ..self.priced }, ..self }
    }
}

#[cfg(test)]
mod tests;
