//! The price of the quantities of a call.

use std::fmt;

use super::conditions::Conditions;
use super::{BEGINNING, Component, PartPrices, Parts, Price};
use kernel::clock::Time;
use kernel::money::Pico;
use kernel::secrets::sha256;

/// Maximum price of one call: 1,000,000 of the currency. A daily row can then hold thousands of the most
/// expensive calls.
pub const MAX_CALL_PRICE: Pico = Pico::from_units(1_000_000_000_000_000_000);

/// The prices of the components. A part without a price costs as much as its whole; other components without
/// a price are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ComponentPrices {
    /// The price of a token of the prompt, or of the input of an embedding.
    pub prompt: Pico,
    pub cached_prompt: Option<Pico>,
    pub completion: Pico,
    pub parts: PartPrices,
}

impl ComponentPrices {
    /// Returns the price of these quantities, in pico of the currency. Returns `None` in the same cases as
    /// [`rate`].
    pub fn rate(&self, tokens: Tokens) -> Option<Pico> {
        rate(&Price::new(BEGINNING, *self), tokens)
    }

    /// Returns the components that have separate prices, in the order of [`Component`].
    pub fn list(&self) -> Vec<(Component, Pico)> {
        let price = Price::new(BEGINNING, *self);
        let own = Component::ALL.iter().copied();
        own.filter(|component| price.has(*component))
            .map(|component| (component, price.of(component)))
            .collect()
    }
}

impl Price {
    /// Returns a price without conditions.
    pub fn new(effective_at: Time, prices: ComponentPrices) -> Self {
        Self::conditional(effective_at, Conditions::default(), prices)
    }

    /// Returns a price that applies under these conditions.
    pub fn conditional(effective_at: Time, conditions: Conditions, prices: ComponentPrices) -> Self {
        let ComponentPrices { prompt, cached_prompt, completion, parts } = prices;
        let version = version_of(effective_at, &conditions);
        Self { effective_at, conditions, version, prompt, cached_prompt, completion, parts }
    }

    /// Returns the price of a component.
    pub fn of(&self, component: Component) -> Pico {
        let own = match component {
            Component::Prompt => Some(self.prompt),
            Component::CachedPrompt => self.cached_prompt,
            Component::Completion => Some(self.completion),
            part => self.parts.get(part),
        };
        match (own, component.whole()) {
            (Some(price), _) => price,
            (None, Some(Component::Prompt)) => self.prompt,
            (None, Some(_)) => self.completion,
            (None, None) => Pico::ZERO,
        }
    }

    /// Returns `true` if this component has a separate line on bills.
    pub fn has(&self, component: Component) -> bool {
        match component {
            Component::Prompt | Component::Completion => true,
            Component::CachedPrompt => self.cached_prompt.is_some(),
            part => self.parts.get(part).is_some(),
        }
    }

    /// Returns the highest price that a token of the prompt or of the completion can have, including the
    /// prices of its parts.
    pub fn dearest(&self, whole: Component) -> Pico {
        let parts = Component::ALL.iter().filter(|part| part.whole() == Some(whole));
        parts.map(|part| self.of(*part)).fold(self.of(whole), Pico::max)
    }

    /// Returns these quantities as listed on a bill, in the order of its lines: each component with a
    /// separate price, and the rest of its whole. Returns `None` if a difference exceeds 64 bits.
    pub fn billed(&self, tokens: Tokens) -> Option<Vec<(Component, i64)>> {
        let mut rest = [tokens.prompt, tokens.completion];
        let parts = Component::ALL.iter().copied().filter(|part| self.has(*part));
        let mut billed = Vec::with_capacity(3);
        for part in parts {
            let quantity = tokens.part(part);
            match part.whole() {
                Some(Component::Prompt) => rest[0] = rest[0].checked_sub(quantity)?,
                Some(_) => rest[1] = rest[1].checked_sub(quantity)?,
                None => {}
            }
            billed.push((part, quantity));
        }
        for (component, quantity) in &mut billed {
            match component {
                Component::Prompt => *quantity = rest[0],
                Component::Completion => *quantity = rest[1],
                _ => {}
            }
        }
        billed.retain(|(_, quantity)| *quantity != 0);
        Some(billed)
    }
}

/// Returns the number by which usage refers to a price of a model. Without conditions, it is the effective
/// time in unix milliseconds; otherwise, it is a negative number derived from the effective time and the
/// conditions.
fn version_of(effective_at: Time, conditions: &Conditions) -> i64 {
    if conditions.is_empty() {
        return effective_at.unix_ms();
    }
    let text = format!("{} {}", effective_at.unix_ms(), conditions.to_text());
    let hash = sha256(text.as_bytes());
    let first = hash.first_chunk::<8>().copied().unwrap_or_default();
    -1 - (i64::from_be_bytes(first) >> 2 & (i64::MAX >> 2))
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt, cached_prompt, completion, parts, .. } = self;
        write!(f, "prompt {prompt}, ")?;
        if let Some(cached_prompt) = cached_prompt {
            write!(f, "cached prompt {cached_prompt}, ")?;
        }
        write!(f, "completion {completion}")?;
        for (part, price) in parts.iter() {
            write!(f, ", {} {}", part.as_str(), price.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The quantities of a call: tokens, their parts, and other components; negative in corrections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    /// Input tokens.
    pub prompt: i64,
    /// The part of the input tokens that came from the upstream's cache.
    pub cached_prompt: i64,
    /// Output tokens.
    pub completion: i64,
    pub parts: Parts,
}

impl Tokens {
    /// Returns quantities without other parts.
    pub fn new(prompt: i64, cached_prompt: i64, completion: i64) -> Self {
        Self { prompt, cached_prompt, completion, parts: Parts::default() }
    }

    /// Returns the quantity of a component. The prompt and the completion include their parts.
    pub fn part(&self, component: Component) -> i64 {
        match component {
            Component::Prompt => self.prompt,
            Component::CachedPrompt => self.cached_prompt,
            Component::Completion => self.completion,
            part => self.parts.get(part),
        }
    }

    /// Returns the input tokens that don't belong to any part; `None` if the result exceeds 64 bits.
    pub fn rest_of_prompt(self) -> Option<i64> {
        self.prompt.checked_sub(self.cached_prompt)?.checked_sub(self.parts.sum_of(Component::Prompt)?)
    }

    /// Returns the output tokens that don't belong to any part; `None` if the result exceeds 64 bits.
    pub fn rest_of_completion(self) -> Option<i64> {
        self.completion.checked_sub(self.parts.sum_of(Component::Completion)?)
    }

    /// Returns `true` if no quantity is negative and parts don't exceed their whole.
    pub fn is_valid(self) -> bool {
        let Self { prompt, cached_prompt, completion, parts } = self;
        let fits = |rest: Option<i64>| rest.is_some_and(|rest| rest >= 0);
        if parts.is_empty() {
            return completion >= 0 && (0..=prompt).contains(&cached_prompt);
        }
        prompt >= 0
            && completion >= 0
            && cached_prompt >= 0
            && parts.iter().all(|(_, quantity)| quantity >= 0)
            && fits(self.rest_of_prompt())
            && fits(self.rest_of_completion())
    }

    /// Returns these quantities without the parts that exceed their total, and the removed parts. The
    /// tokens of removed parts are charged at the price of their whole. Cached tokens are fitted first, then
    /// the other parts in the order of [`Component::PARTS`].
    #[must_use]
    pub fn fitted(self) -> (Self, Parts) {
        let cached_prompt = self.cached_prompt.min(self.prompt);
        let (mut prompt, mut completion) = (self.prompt.saturating_sub(cached_prompt), self.completion);
        let (mut fitting, mut left_out) = (Parts::default(), Parts::default());
        for (part, quantity) in self.parts.iter() {
            let room = match part.whole() {
                Some(Component::Prompt) => &mut prompt,
                Some(_) => &mut completion,
                None => {
                    fitting.set(part, quantity);
                    continue;
                }
            };
            let parts = if quantity <= *room { &mut fitting } else { &mut left_out };
            parts.set(part, quantity);
            *room -= fitting.get(part);
        }
        (Self { cached_prompt, parts: fitting, ..self }, left_out)
    }

    /// Returns the sum of each quantity; `None` if a sum exceeds 64 bits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            prompt: self.prompt.checked_add(other.prompt)?,
            cached_prompt: self.cached_prompt.checked_add(other.cached_prompt)?,
            completion: self.completion.checked_add(other.completion)?,
            parts: self.parts.checked_add(other.parts)?,
        })
    }

    /// Returns the negated quantities; `None` if one of them exceeds 64 bits.
    pub fn checked_neg(self) -> Option<Self> {
        Some(Self {
            prompt: self.prompt.checked_neg()?,
            cached_prompt: self.cached_prompt.checked_neg()?,
            completion: self.completion.checked_neg()?,
            parts: self.parts.checked_neg()?,
        })
    }
}

/// Returns the list price of these quantities, in pico of the currency.
///
/// Returns `None` if they aren't [valid](Tokens::is_valid), or if the sum exceeds the 64 bits of an amount in
/// the databases. Such usage is refused, never truncated.
pub fn rate(price: &Price, tokens: Tokens) -> Option<Pico> {
    let amount = cost(price, tokens).filter(|_| tokens.is_valid())?;
    amount.to_i64().map(|_| amount)
}

/// Returns the list price of any sums of quantities; `None` if the price exceeds 128 bits.
pub fn cost(price: &Price, tokens: Tokens) -> Option<Pico> {
    if tokens.parts.is_empty() {
        let uncached = tokens.prompt.checked_sub(tokens.cached_prompt)?;
        let prompt = price.prompt.checked_mul(uncached)?;
        let cached_prompt = price.of(Component::CachedPrompt).checked_mul(tokens.cached_prompt)?;
        return prompt
            .checked_add(cached_prompt)?
            .checked_add(price.completion.checked_mul(tokens.completion)?);
    }
    let add = |sum: Pico, (component, quantity): (Component, i64)| {
        sum.checked_add(price.of(component).checked_mul(quantity)?)
    };
    price.billed(tokens)?.into_iter().try_fold(Pico::ZERO, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_do_not_fit_are_left_out_in_order() {
        use Component::{AudioPrompt, CacheWrite1h, CacheWrite5m, ImagePrompt, Reasoning, Request, Search};
        type Listed = &'static [(Component, i64)];
        // Prompt, cached and completion tokens; the parts; the parts that are left out.
        let cases: [([i64; 3], Listed, Listed); 8] = [
            ([100, 40, 50], &[(CacheWrite5m, 60), (Reasoning, 50), (Search, 9)], &[]),
            ([100, 41, 50], &[(CacheWrite5m, 60), (Reasoning, 51)], &[(CacheWrite5m, 60), (Reasoning, 51)]),
            // Parts that are left out don't reduce the room for others.
            (
                [100, 40, 0],
                &[(CacheWrite5m, 61), (CacheWrite1h, 20), (AudioPrompt, 40), (ImagePrompt, 1)],
                &[(CacheWrite5m, 61), (ImagePrompt, 1)],
            ),
            ([100, 0, 0], &[(CacheWrite1h, 100), (AudioPrompt, 1)], &[(AudioPrompt, 1)]),
            ([0, 0, 0], &[(Request, 1), (Search, 3)], &[]),
            ([100, 0, 0], &[(AudioPrompt, i64::MAX), (ImagePrompt, 100)], &[(AudioPrompt, i64::MAX)]),
            ([100, 100, 0], &[(ImagePrompt, 1)], &[(ImagePrompt, 1)]),
            ([100, 0, 7], &[(AudioPrompt, 100), (Reasoning, 7)], &[]),
        ];
        let parts = |listed: &[(Component, i64)]| {
            listed.iter().fold(Parts::default(), |all, (part, quantity)| all.with(*part, *quantity))
        };
        for ([prompt, cached, completion], all, left_out) in cases {
            let tokens = Tokens { parts: parts(all), ..Tokens::new(prompt, cached, completion) };
            let kept: Vec<_> = all.iter().copied().filter(|one| !left_out.contains(one)).collect();
            let fitted = Tokens { parts: parts(&kept), ..tokens };
            assert_eq!(tokens.fitted(), (fitted, parts(left_out)), "{all:?}");
            assert!(fitted.is_valid(), "{all:?}");
            assert_eq!(fitted.fitted(), (fitted, Parts::default()));
        }
        assert_eq!(Tokens::new(100, 101, 0).fitted().0, Tokens::new(100, 100, 0));
    }
}
