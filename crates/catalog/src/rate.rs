//! The price of a number of tokens.

use std::fmt;

use super::Price;
use kernel::money::Pico;

/// Maximum price of one call: 1,000,000 of the currency. A daily row then has room for thousands of the most
/// expensive ones.
pub const MAX_CALL_PRICE: Pico = Pico::from_units(1_000_000_000_000_000_000);

impl Price {
    /// Returns the price of a token of the prompt that came from the upstream's cache.
    pub fn cached_prompt_or_prompt(&self) -> Pico {
        self.cached_prompt.unwrap_or(self.prompt)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt, cached_prompt, completion, .. } = self;
        write!(f, "prompt {prompt}, ")?;
        if let Some(cached_prompt) = cached_prompt {
            write!(f, "cached prompt {cached_prompt}, ")?;
        }
        write!(f, "completion {completion}")
    }
}

/// Numbers of tokens; negative in corrections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    /// Input tokens.
    pub prompt: i64,
    /// The part of the input tokens that came from the upstream's cache.
    pub cached_prompt: i64,
    /// Output tokens.
    pub completion: i64,
}

impl Tokens {
    /// Returns the input tokens that didn't come from the cache; `None` if that exceeds 64 bits.
    pub fn uncached_prompt(self) -> Option<i64> {
        self.prompt.checked_sub(self.cached_prompt)
    }

    /// Returns `true` if no count is negative, and no more tokens came from the cache than the prompt has.
    pub fn is_valid(self) -> bool {
        let Self { prompt, cached_prompt, completion } = self;
        (0..=prompt).contains(&cached_prompt) && completion >= 0
    }

    /// Returns the sums of both; `None` if one exceeds 64 bits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            prompt: self.prompt.checked_add(other.prompt)?,
            cached_prompt: self.cached_prompt.checked_add(other.cached_prompt)?,
            completion: self.completion.checked_add(other.completion)?,
        })
    }

    /// Returns the negative counts; `None` if one exceeds 64 bits.
    pub fn checked_neg(self) -> Option<Self> {
        Some(Self {
            prompt: self.prompt.checked_neg()?,
            cached_prompt: self.cached_prompt.checked_neg()?,
            completion: self.completion.checked_neg()?,
        })
    }
}

/// Returns the list price of these tokens, in pico of the currency.
///
/// `None` if the counts aren't [valid](Tokens::is_valid), or if the sum exceeds 64 bits, in which the
/// databases store an amount: such usage is refused, never truncated.
pub fn rate(price: &Price, tokens: Tokens) -> Option<Pico> {
    let amount = cost(price, tokens).filter(|_| tokens.is_valid())?;
    amount.to_i64().map(|_| amount)
}

/// Returns the list price of any sums of tokens; `None` if it exceeds 128 bits.
pub fn cost(price: &Price, tokens: Tokens) -> Option<Pico> {
    let prompt = price.prompt.checked_mul(tokens.uncached_prompt()?)?;
    let cached_prompt = price.cached_prompt_or_prompt().checked_mul(tokens.cached_prompt)?;
    let completion = price.completion.checked_mul(tokens.completion)?;
    prompt.checked_add(cached_prompt)?.checked_add(completion)
}
