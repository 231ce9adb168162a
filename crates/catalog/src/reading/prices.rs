//! The prices of models.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use kernel::clock::Time;
use kernel::document::Spanned;
use kernel::document::values::{Table, decimal, list, time, whole, word};
use kernel::money::Pico;

use super::Rules;
use crate::conditions::{Conditions, HOURS_FORM, Hours, ServiceTier};
use crate::{Component, ComponentPrices, Kind, MAX_CALL_PRICE, MAX_PRICE, PartPrices, Price};

/// An entry of `prices`; see [`Price`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    #[serde(deserialize_with = "time")]
    effective_at: Time,
    prompt_tokens: TokenPrice,
    cached_prompt_tokens: Option<Spanned<TokenPrice>>,
    completion_tokens: Option<Spanned<TokenPrice>>,
    components: Option<Table<ComponentEntries>>,
    service_tier: Option<Tier>,
    above_prompt_tokens: Option<PromptTokens>,
    hours: Option<HoursEntry>,
}

/// The components without a key in the table of the price.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ComponentEntries {
    cache_write_5m: Option<Spanned<TokenPrice>>,
    cache_write_1h: Option<Spanned<TokenPrice>>,
    audio_prompt: Option<Spanned<TokenPrice>>,
    image_prompt: Option<Spanned<TokenPrice>>,
    reasoning: Option<Spanned<TokenPrice>>,
    audio_completion: Option<Spanned<TokenPrice>>,
    request: Option<Spanned<TokenPrice>>,
    image: Option<Spanned<TokenPrice>>,
    second: Option<Spanned<TokenPrice>>,
    character: Option<Spanned<TokenPrice>>,
    search: Option<Spanned<TokenPrice>>,
}

impl ComponentEntries {
    fn all(self) -> [Option<Spanned<TokenPrice>>; Component::PARTS.len()] {
        [
            self.cache_write_5m,
            self.cache_write_1h,
            self.audio_prompt,
            self.image_prompt,
            self.reasoning,
            self.audio_completion,
            self.request,
            self.image,
            self.second,
            self.character,
            self.search,
        ]
    }
}

/// The price or the cost of a component.
pub struct TokenPrice(pub Pico);

#[derive(Deserialize)]
struct Tier(#[serde(deserialize_with = "word")] ServiceTier);

#[derive(Deserialize)]
struct HoursEntry(#[serde(deserialize_with = "hours")] Vec<String>);

#[derive(Deserialize)]
struct PromptTokens(#[serde(deserialize_with = "whole::<0, 1_000_000_000, _, _>")] i64);

fn hours<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let patterns =
        list(deserializer, HOURS_FORM, |pattern| Hours::parse([pattern]).map(|_| pattern.to_owned()))?;
    if patterns.is_empty() { Err(D::Error::custom(format!("expected {HOURS_FORM}"))) } else { Ok(patterns) }
}

impl<'de> Deserialize<'de> for TokenPrice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        decimal(deserializer, "a price of a single token", MAX_PRICE, "\"0.000002\"").map(Self)
    }
}

impl Rules<'_> {
    /// Checks the prices of a model, given in the order of the file, against each other and against the
    /// model's token limit.
    pub(super) fn check_prices(&mut self, prices: &[(usize, Price)], max_tokens: i64, label: &str) {
        for (place, (line, price)) in prices.iter().enumerate() {
            let at = price.effective_at;
            let same = || prices.iter().filter(|(_, other)| other.effective_at == at);
            let mut before = prices.iter().take(place).filter(|(_, other)| other.effective_at == at);
            if let Some((other, _)) = before.find(|(_, other)| other.conditions.overlap(&price.conditions)) {
                let why = match price.conditions.is_empty() {
                    true => format!("`effective_at`: two prices begin at {at}"),
                    false => format!(
                        "`prices`: its conditions ({}) can apply to the same call as those of the price on \
                         line {other}: make them exclusive",
                        price.conditions
                    ),
                };
                self.refuse(*line, &format!("{label}: {why}"));
            }
            if same().all(|(_, other)| !other.conditions.is_empty())
                && same().next().map(|(first, _)| first) == Some(line)
            {
                let why = format!(
                    "`prices`: from {at} on, every price has conditions: add a price without conditions for \
                     all other calls"
                );
                self.refuse(*line, &format!("{label}: {why}"));
            }
            if let Some(why) = price_problem(price, max_tokens) {
                self.refuse(*line, &format!("{label}: `prices`: {why}"));
            }
        }
    }

    pub(super) fn price(
        &mut self,
        entry: Spanned<Table<PriceEntry>>,
        kind: Kind,
        label: &str,
    ) -> (usize, Price) {
        let line = self.line(&entry);
        let Table(entry) = entry.into_inner();
        match (kind, &entry.completion_tokens) {
            (Kind::Chat, None) => {
                self.refuse(line, &format!("{label}: the key `completion_tokens` is missing"));
            }
            (Kind::Embeddings, Some(price)) if price.get_ref().0 != Pico::ZERO => {
                let why = "embedding models don't have it: remove the key";
                self.refuse(self.line(price), &format!("{label}: `completion_tokens`: {why}"));
            }
            _ => {}
        }
        if let Some(price) = &entry.cached_prompt_tokens {
            let why = match kind {
                Kind::Embeddings => Some("embedding models don't have it: remove the key"),
                Kind::Chat if price.get_ref().0 > entry.prompt_tokens.0 => {
                    Some("it is more than `prompt_tokens`")
                }
                Kind::Chat => None,
            };
            if let Some(why) = why {
                self.refuse(self.line(price), &format!("{label}: `cached_prompt_tokens`: {why}"));
            }
        }
        let parts = self.components(entry.components, kind, label);
        let conditions = Conditions {
            service_tier: entry.service_tier.map(|Tier(tier)| tier),
            above_prompt_tokens: entry.above_prompt_tokens.map(|PromptTokens(tokens)| tokens),
            hours: entry.hours.and_then(|HoursEntry(hours)| Hours::parse(hours.iter().map(String::as_str))),
        };
        let rates = ComponentPrices {
            prompt: entry.prompt_tokens.0,
            cached_prompt: entry.cached_prompt_tokens.map(|price| price.into_inner().0),
            completion: entry.completion_tokens.map_or(Pico::ZERO, |price| price.into_inner().0),
            parts,
        };
        (line, Price::conditional(entry.effective_at, conditions, rates))
    }

    fn components(
        &mut self,
        entries: Option<Table<ComponentEntries>>,
        kind: Kind,
        label: &str,
    ) -> PartPrices {
        let entries = entries.map(|Table(entries)| entries).unwrap_or_default();
        let mut parts = PartPrices::default();
        for (component, entry) in Component::PARTS.into_iter().zip(entries.all()) {
            let Some(entry) = entry else { continue };
            if !component.is_possible(kind) {
                let why = "embedding models don't have it: remove the key";
                self.refuse(
                    self.line(&entry),
                    &format!("{label}: `components.{}`: {why}", component.as_str()),
                );
            }
            parts.set(component, Some(entry.into_inner().0));
        }
        parts
    }
}

/// Returns the reason why the price is invalid for a model with this many tokens; `None` if it is valid.
fn price_problem(price: &Price, max_tokens: i64) -> Option<String> {
    is_too_dear(price, max_tokens).then(|| {
        format!(
            "a call may cost at most {MAX_CALL_PRICE}, but a call with {max_tokens} input and output tokens \
             would cost more: lower the price, or `max_tokens`"
        )
    })
}

/// Returns `true` if the price of a call with this many input tokens and as many output tokens would be too
/// large to record.
pub fn is_too_dear(price: &Price, max_tokens: i64) -> bool {
    let of = |whole: Component| price.dearest(whole).checked_mul(max_tokens);
    let amount = of(Component::Prompt).zip(of(Component::Completion));
    let amount = amount.and_then(|(prompt, completion)| prompt.checked_add(completion));
    amount.is_none_or(|amount| amount > MAX_CALL_PRICE)
}
