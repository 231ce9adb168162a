//! Prices and volume discounts by version, as the database has them.

use std::collections::BTreeMap;

use super::{Price, VolumeDiscount};
use kernel::clock::{Month, Time};

/// The instant of discounts that name none.
pub const SINCE_EVER: Time = Time::from_unix_ms(0);

/// A whole list of discounts, which takes the place of the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscountVersion {
    /// The first instant at which it holds.
    pub effective_at: Time,
    /// The lowest threshold first; empty when there is no discount.
    pub tiers: Vec<VolumeDiscount>,
}

/// Every version of every price, and of the discounts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PriceBook {
    prices: BTreeMap<String, Vec<Price>>,
    discounts: Vec<DiscountVersion>,
}

impl PriceBook {
    /// Takes versions in, in any order; the last one of an instant counts.
    pub fn new(
        prices: impl IntoIterator<Item = (String, Price)>,
        discounts: impl IntoIterator<Item = DiscountVersion>,
    ) -> Self {
        let mut by_model: BTreeMap<String, BTreeMap<Time, Price>> = BTreeMap::new();
        for (model, price) in prices {
            by_model.entry(model).or_default().insert(price.effective_at, price);
        }
        let discounts: BTreeMap<Time, DiscountVersion> =
            discounts.into_iter().map(|version| (version.effective_at, version)).collect();
        Self {
            prices: by_model
                .into_iter()
                .map(|(model, prices)| (model, prices.into_values().collect()))
                .collect(),
            discounts: discounts.into_values().collect(),
        }
    }

    /// Returns `true` if there is no version of anything.
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty() && self.discounts.is_empty()
    }

    /// The price of a model that holds from this instant on, in unix milliseconds: a price's version.
    pub fn price(&self, model: &str, version: i64) -> Option<&Price> {
        self.prices_of(model).iter().find(|price| price.effective_at.unix_ms() == version)
    }

    /// The prices of a model, the oldest first.
    pub fn prices_of(&self, model: &str) -> &[Price] {
        self.prices.get(model).map_or(&[], Vec::as_slice)
    }

    /// The models that have prices, with them.
    pub fn prices(&self) -> impl Iterator<Item = (&str, &[Price])> {
        self.prices.iter().map(|(model, prices)| (model.as_str(), prices.as_slice()))
    }

    /// Every version of the discounts, the oldest first.
    pub fn discounts(&self) -> &[DiscountVersion] {
        &self.discounts
    }

    /// The version of the discounts that is in force at `time`.
    pub fn discounts_at(&self, time: Time) -> Option<&DiscountVersion> {
        self.discounts.iter().rev().find(|version| version.effective_at <= time)
    }

    /// The tiers in force at `time`, the lowest threshold first.
    pub fn tiers_at(&self, time: Time) -> &[VolumeDiscount] {
        self.discounts_at(time).map_or(&[], |version| &version.tiers)
    }

    /// The tiers of a month: those in force at its first instant.
    pub fn tiers_of_month(&self, month: Month) -> &[VolumeDiscount] {
        self.tiers_at(month.start())
    }
}

/// The price in force at `time` among these, the oldest first.
pub fn price_at(prices: &[Price], time: Time) -> Option<&Price> {
    prices.iter().rev().find(|price| price.effective_at <= time)
}
