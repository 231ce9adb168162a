//! The price list: the stored versions of prices and discounts (docs/contract/models.md#price-versions).

use std::collections::BTreeMap;

use db::{Tx, sql};
use kernel::clock::{Month, Time};

use super::conditions::Conditions;
use super::quantities::{self, ByPart, Quantities, Whole};

/// The whole, in parts per million.
const PPM: i128 = 1_000_000;

/// A stored version of the price of a model.
struct PriceRow {
    model: String,
    version: i64,
    effective_at: Time,
    conditions: String,
    prompt_pico: Option<i64>,
    cached_prompt_pico: Option<i64>,
    completion_pico: Option<i64>,
    components: Option<String>,
    recorded_at: Time,
}

db::row!(PriceRow {
    model,
    version,
    effective_at,
    conditions,
    prompt_pico,
    cached_prompt_pico,
    completion_pico,
    components,
    recorded_at
});

/// Selects the prices without conditions, then those with conditions. Earlier revisions come first.
const ROWS: [&str; 2] = [
    "SELECT model, effective_at AS version, effective_at, '' AS conditions, prompt_pico, cached_prompt_pico, completion_pico,
         components, recorded_at
     FROM price_versions ORDER BY model, effective_at, revision",
    "SELECT model, version, effective_at, conditions, prompt_pico, cached_prompt_pico, completion_pico, components, recorded_at
     FROM conditional_prices ORDER BY model, version, revision",
];

/// The price of a model from a point in time on, in picos per token or piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Price {
    pub effective_at: Time,
    pub conditions: Conditions,
    pub prompt: i128,
    pub cached: i128,
    pub completion: i128,
    /// The prices of parts that have their own.
    pub parts: ByPart,
    pub recorded_at: Time,
}

/// A tier of the volume discounts: tokens above `threshold` cost `ppm` millionths less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tier {
    threshold: i128,
    ppm: i128,
}

/// All versions of prices and discounts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PriceList {
    prices: BTreeMap<String, BTreeMap<i64, Price>>,
    tiers: BTreeMap<i64, Vec<Tier>>,
    /// The time at which the first catalog came into force. Before that, versions weren't kept.
    since: Option<Time>,
}

impl PriceList {
    /// Reads all versions. Of several versions with the same time, the last one counts; a version without a
    /// price withdraws the previous ones.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn read(tx: &mut Tx) -> Result<Self, db::Error> {
        let mut list = Self::default();
        for statement in ROWS {
            let rows: Vec<PriceRow> = sql(statement).all(tx).await?;
            for row in rows {
                list.add(row)?;
            }
        }
        let rows: Vec<(i64, Option<String>)> =
            sql("SELECT effective_at, tiers FROM discount_versions ORDER BY effective_at, revision")
                .all(tx)
                .await?;
        for (at, tiers) in rows {
            match tiers {
                Some(tiers) => list.tiers.insert(at, parse_tiers(&tiers)?),
                None => list.tiers.remove(&at),
            };
        }
        (list.since,) = sql("SELECT MIN(in_force_at) FROM catalogs").one(tx).await?;
        Ok(list)
    }

    /// Adds a version, or withdraws it.
    fn add(&mut self, row: PriceRow) -> Result<(), db::Error> {
        let versions = self.prices.entry(row.model).or_default();
        let Some((prompt, completion)) = row.prompt_pico.zip(row.completion_pico) else {
            versions.remove(&row.version);
            return Ok(());
        };
        let price = Price {
            effective_at: row.effective_at,
            conditions: Conditions::parse(&row.conditions)?,
            prompt: prompt.into(),
            cached: row.cached_prompt_pico.unwrap_or(prompt).into(),
            completion: completion.into(),
            parts: quantities::parse(row.components.as_deref().unwrap_or_default())?,
            recorded_at: row.recorded_at,
        };
        versions.insert(row.version, price);
        Ok(())
    }

    /// Returns `true` if everything since this time was recorded by server versions that follow the current
    /// rules.
    pub fn covers(&self, time: Time) -> bool {
        self.since.is_some_and(|since| since <= time)
    }

    /// Returns the price of a model with this version.
    pub fn price(&self, model: &str, version: i64) -> Option<&Price> {
        self.prices.get(model)?.get(&version)
    }

    /// Returns the versions of a model that came into force together and were in force at a time, of those
    /// that were recorded by then.
    pub fn in_force(&self, model: &str, at: Time, known_by: Time) -> Vec<(i64, &Price)> {
        let versions = self.prices.get(model).into_iter().flatten();
        let known = versions.filter(|(_, price)| price.effective_at <= at && price.recorded_at <= known_by);
        let known: Vec<_> = known.map(|(version, price)| (*version, price)).collect();
        let newest = known.iter().map(|(_, price)| price.effective_at).max();
        known.into_iter().filter(|(_, price)| Some(price.effective_at) == newest).collect()
    }

    /// Returns `true` if a price has conditions.
    pub fn has_conditions(&self) -> bool {
        self.prices.keys().any(|model| self.is_conditional(model))
    }

    /// Returns `true` if a price of this model has conditions.
    pub fn is_conditional(&self, model: &str) -> bool {
        let prices = self.prices.get(model).into_iter().flatten();
        prices.into_iter().any(|(_, price)| price.conditions != Conditions::default())
    }

    /// Returns the tiers of a month: those in force when it began.
    pub fn tiers(&self, month: Month) -> &[Tier] {
        self.tiers.range(..=month.start().unix_ms()).next_back().map_or(&[], |(_, tiers)| tiers)
    }
}

fn parse_tiers(text: &str) -> Result<Vec<Tier>, db::Error> {
    let wrong = || db::Error::Internal(format!("the tiers of a discount are {text:?}"));
    let number = |text: &str| text.parse::<i64>().map(i128::from).map_err(|_| wrong());
    let tier = |word: &str| {
        let (threshold, ppm) = word.split_once(':').ok_or_else(wrong)?;
        Ok(Tier { threshold: number(threshold)?, ppm: number(ppm)? })
    };
    text.split_whitespace().map(tier).collect()
}

/// Quantities and their unit prices in picos.
pub type Uses = Vec<(i128, i128)>;

impl Price {
    /// Returns the tokens of the prompt. Parts without their own price have the price of the prompt.
    pub fn prompts(&self, used: &Quantities) -> Uses {
        let mut uses = self.parts(used, Whole::Prompt, self.prompt);
        uses.push((used.cached, self.cached));
        rest(uses, used.prompt, self.prompt)
    }

    /// Returns the tokens of the completion. Parts without their own price have the price of the completion.
    pub fn completions(&self, used: &Quantities) -> Uses {
        rest(self.parts(used, Whole::Completion, self.completion), used.completion, self.completion)
    }

    /// Returns the parts of a whole; parts without their own price have the price of the whole.
    fn parts(&self, used: &Quantities, whole: Whole, otherwise: i128) -> Uses {
        let parts = used.parts.iter().filter(|(name, _)| quantities::whole_of(name) == Some(whole));
        parts.map(|(name, count)| (*count, self.parts.get(name).copied().unwrap_or(otherwise))).collect()
    }

    /// Returns the list price of quantities, in picos; `None` if it exceeds 128 bits.
    pub fn of(&self, used: &Quantities) -> Option<i128> {
        let pieces = self.parts(used, Whole::None, 0);
        let uses = self.prompts(used).into_iter().chain(self.completions(used)).chain(pieces);
        let mut costs = uses.map(|(count, price)| price.checked_mul(count));
        costs.try_fold(0_i128, |sum, cost| sum.checked_add(cost?))
    }
}

/// Adds the tokens that are in no part to the parts of a whole.
fn rest(mut parts: Uses, whole: i128, price: i128) -> Uses {
    let counted: i128 = parts.iter().map(|(count, _)| count).sum();
    parts.push((whole - counted, price));
    parts
}

/// Returns the discount on tokens in the order in which they were used, with their prices in picos. The
/// discount is in millionths of a pico, and never negative; `None` if it exceeds 128 bits.
///
/// The tokens between a threshold and the next one cost less by the threshold's fraction
/// (docs/contract/billing.md#volume-discounts).
pub fn discount(tiers: &[Tier], used: impl IntoIterator<Item = (i128, i128)>) -> Option<i128> {
    let (mut count, mut sum) = (0_i128, 0_i128);
    for (tokens, price) in used {
        for (place, tier) in tiers.iter().enumerate() {
            let end = tiers.get(place + 1).map_or(i128::MAX, |next| next.threshold);
            let within = |count: i128| count.clamp(tier.threshold, end) - tier.threshold;
            let more = within(count + tokens) - within(count);
            sum = sum.checked_add(more.checked_mul(tier.ppm)?.checked_mul(price)?)?;
        }
        count += tokens;
    }
    Some(sum.max(0))
}

/// Converts a discount from millionths of a pico to whole nanos, rounded up.
pub fn credited_nanos(discount: i128) -> i128 {
    let unit = PPM * 1_000;
    discount.div_euclid(unit) + i128::from(discount.rem_euclid(unit) != 0)
}

#[cfg(test)]
impl PriceList {
    /// Returns a list with the prices of one model, by their versions.
    pub fn of(model: &str, prices: impl IntoIterator<Item = (i64, Price)>) -> Self {
        Self { prices: [(model.to_owned(), prices.into_iter().collect())].into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cost_their_own_price_or_that_of_their_whole() {
        let price = Price {
            effective_at: Time::from_unix_ms(0),
            conditions: Conditions::default(),
            prompt: 100,
            cached: 10,
            completion: 1_000,
            parts: quantities::parse("cache_write_5m:150 reasoning:2000 request:7").unwrap(),
            recorded_at: Time::from_unix_ms(0),
        };
        let used = |prompt, cached, completion, parts: &str| Quantities {
            prompt,
            cached,
            completion,
            parts: quantities::parse(parts).unwrap(),
        };
        assert_eq!(price.of(&used(10, 4, 2, "")), Some(600 + 40 + 2_000));
        // 10 - 4 - 3 - 1 tokens of the prompt and 2 images at the price of the prompt, 3 tokens written to
        // the cache; searches cost nothing.
        let all = used(10, 4, 5, "cache_write_5m:3 image_prompt:1 reasoning:2 request:1 search:9");
        assert_eq!(price.of(&all), Some(200 + 40 + 450 + 100 + 3_000 + 4_000 + 7));
        assert_eq!(price.of(&used(i128::MAX, 0, 0, "")), None);
    }

    #[test]
    fn tokens_above_a_threshold_cost_less() {
        // From 100 tokens on a tenth less, from 200 on half.
        let tiers = parse_tiers("100:100000 200:500000").unwrap();
        let discount = |used: &[(i128, i128)]| discount(&tiers, used.iter().copied()).unwrap();
        assert_eq!(discount(&[(100, 10)]), 0);
        // 1 token at 10, a tenth of it.
        assert_eq!(discount(&[(101, 10)]), 1_000_000);
        // 100 at a tenth of 10, one at half of 10.
        assert_eq!(discount(&[(201, 10)]), 105_000_000);
        // 50 at a tenth of 10, 50 at a tenth of 20.
        assert_eq!(discount(&[(150, 10), (50, 20)]), 150_000_000);
        // Tokens that are taken back lose their discount.
        assert_eq!(discount(&[(200, 10), (-100, 10)]), 0);
        assert!(parse_tiers("100").is_err() && parse_tiers("x:1").is_err());
    }

    #[test]
    fn discounts_are_rounded_up_to_whole_nanos() {
        // 1,666.665 picos are rounded up to 2 nanos.
        assert_eq!(credited_nanos(1_666_665_000), 2);
        assert_eq!(credited_nanos(2_000_000_000), 2);
        assert_eq!(credited_nanos(-1_666_665_000), -1);
    }
}
