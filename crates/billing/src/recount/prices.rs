//! The price list: the versions of prices and discounts, as they are stored (docs/contract/models.md#price-versions).

use std::collections::BTreeMap;

use db::{Tx, sql};
use kernel::clock::{Month, Time};

/// Fractions are in parts per million.
const PPM: i128 = 1_000_000;

/// A stored version of the price of a model.
struct PriceRow {
    model: String,
    effective_at: i64,
    prompt_pico: Option<i64>,
    cached_prompt_pico: Option<i64>,
    completion_pico: Option<i64>,
    recorded_at: Time,
}

db::row!(PriceRow { model, effective_at, prompt_pico, cached_prompt_pico, completion_pico, recorded_at });

/// The price of a model from an instant on, in picos a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Price {
    pub prompt: i128,
    pub cached: i128,
    pub completion: i128,
    pub recorded_at: Time,
}

/// Counts of tokens; the cached ones are among those of the prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    pub prompt: i128,
    pub cached: i128,
    pub completion: i128,
}

impl Tokens {
    pub fn plus(self, other: Self, times: i128) -> Self {
        Self {
            prompt: self.prompt + times * other.prompt,
            cached: self.cached + times * other.cached,
            completion: self.completion + times * other.completion,
        }
    }
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
    /// When the first catalog came in force: before it, versions weren't kept.
    since: Option<Time>,
}

impl PriceList {
    /// Reads all versions. Of several with the same instant the last one counts, and one without a price is taken back.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn read(tx: &mut Tx) -> Result<Self, db::Error> {
        let mut list = Self::default();
        let rows: Vec<PriceRow> =
            sql("SELECT model, effective_at, prompt_pico, cached_prompt_pico, completion_pico, recorded_at
             FROM price_versions ORDER BY model, effective_at, revision")
            .all(tx)
            .await?;
        for row in rows {
            let versions = list.prices.entry(row.model).or_default();
            let price = row.prompt_pico.zip(row.completion_pico).map(|(prompt, completion)| Price {
                prompt: prompt.into(),
                cached: row.cached_prompt_pico.unwrap_or(prompt).into(),
                completion: completion.into(),
                recorded_at: row.recorded_at,
            });
            match price {
                Some(price) => versions.insert(row.effective_at, price),
                None => versions.remove(&row.effective_at),
            };
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

    /// Returns `true` if everything since a time was recorded by versions that follow today's rules.
    pub fn covers(&self, time: Time) -> bool {
        self.since.is_some_and(|since| since <= time)
    }

    /// Returns the price of a model with this version.
    pub fn price(&self, model: &str, version: i64) -> Option<&Price> {
        self.prices.get(model)?.get(&version)
    }

    /// Returns the version that was in force at a time, of those that were recorded by then.
    pub fn version_at(&self, model: &str, at: Time, known_by: Time) -> Option<i64> {
        let versions = self.prices.get(model)?.range(..=at.unix_ms());
        versions.rev().find(|(_, price)| price.recorded_at <= known_by).map(|(version, _)| *version)
    }

    /// Returns the tiers of a month: those in force at its first instant.
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

impl Price {
    /// Returns the list price of tokens, in picos; `None` past 128 bits.
    pub fn of(&self, tokens: Tokens) -> Option<i128> {
        let parts = [
            self.prompt.checked_mul(tokens.prompt - tokens.cached),
            self.cached.checked_mul(tokens.cached),
            self.completion.checked_mul(tokens.completion),
        ];
        parts.into_iter().try_fold(0_i128, |sum, part| sum.checked_add(part?))
    }
}

/// Returns the discount on tokens in the order in which they were used, with their prices in picos. It is in millionths of a
/// pico, and never less than nothing; `None` past 128 bits.
///
/// Tokens above a threshold cost its fraction less, up to the next one (docs/contract/billing.md#volume-discounts).
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

/// Returns the whole nanos that are credited for a discount in millionths of a pico: rounded up.
pub fn credited_nanos(discount: i128) -> i128 {
    let unit = PPM * 1_000;
    discount.div_euclid(unit) + i128::from(discount.rem_euclid(unit) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_above_a_threshold_cost_less() {
        // From 100 tokens on a tenth less, from 200 on half.
        let tiers = parse_tiers("100:100000 200:500000").unwrap();
        let discount = |used: &[(i128, i128)]| discount(&tiers, used.iter().copied()).unwrap();
        assert_eq!(discount(&[(100, 10)]), 0);
        // One token at 10, a tenth of it.
        assert_eq!(discount(&[(101, 10)]), 1_000_000);
        // 100 at a tenth of 10, one at half of 10.
        assert_eq!(discount(&[(201, 10)]), 105_000_000);
        // 50 at a tenth of 10, 50 at a tenth of 20.
        assert_eq!(discount(&[(150, 10), (50, 20)]), 150_000_000);
        // What is taken back takes its discount with it.
        assert_eq!(discount(&[(200, 10), (-100, 10)]), 0);
        assert!(parse_tiers("100").is_err() && parse_tiers("x:1").is_err());
    }

    #[test]
    fn discounts_are_rounded_up_to_whole_nanos() {
        // 1,666.665 pico are 2 nano.
        assert_eq!(credited_nanos(1_666_665_000), 2);
        assert_eq!(credited_nanos(2_000_000_000), 2);
        assert_eq!(credited_nanos(-1_666_665_000), -1);
    }
}
