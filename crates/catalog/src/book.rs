//! The versions of prices and volume discounts.

use std::collections::BTreeMap;

use super::{Price, VolumeDiscount};
use kernel::clock::{Month, Time};

/// The effective time of discounts without `effective_at`.
pub const BEGINNING: Time = Time::from_unix_ms(0);

/// A complete list of discounts, which replaces the previous one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscountVersion {
    /// The time from which the version is in force.
    pub effective_at: Time,
    /// The discounts, lowest threshold first; empty for no discounts.
    pub tiers: Vec<VolumeDiscount>,
}

/// All versions of all prices, and of the discounts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PriceBook {
    prices: BTreeMap<String, Vec<Price>>,
    discounts: Vec<DiscountVersion>,
}

impl PriceBook {
    /// Collects versions, in any order. Of several prices with the same version, or several discounts with
    /// the same effective time, the last one counts.
    pub fn new(
        prices: impl IntoIterator<Item = (String, Price)>,
        discounts: impl IntoIterator<Item = DiscountVersion>,
    ) -> Self {
        let mut by_model: BTreeMap<String, BTreeMap<(Time, i64), Price>> = BTreeMap::new();
        for (model, price) in prices {
            by_model.entry(model).or_default().insert(order(&price), price);
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

    /// Returns `true` if the book has no version of any price or discount.
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty() && self.discounts.is_empty()
    }

    /// Returns the price of a model with this version.
    pub fn price(&self, model: &str, version: i64) -> Option<&Price> {
        self.prices_of(model).iter().find(|price| price.version == version)
    }

    /// Returns the prices of a model, oldest first; among those with the same effective time, the price
    /// without conditions is last.
    pub fn prices_of(&self, model: &str) -> &[Price] {
        self.prices.get(model).map_or(&[], Vec::as_slice)
    }

    /// Returns the models that have prices, with their prices.
    pub fn prices(&self) -> impl Iterator<Item = (&str, &[Price])> {
        self.prices.iter().map(|(model, prices)| (model.as_str(), prices.as_slice()))
    }

    /// Returns all versions of the discounts, the oldest first.
    pub fn discounts(&self) -> &[DiscountVersion] {
        &self.discounts
    }

    /// Returns the version of the discounts in force at `time`.
    pub fn discounts_at(&self, time: Time) -> Option<&DiscountVersion> {
        self.discounts.iter().rev().find(|version| version.effective_at <= time)
    }

    /// Returns the tiers in force at `time`, the lowest threshold first.
    pub fn tiers_at(&self, time: Time) -> &[VolumeDiscount] {
        self.discounts_at(time).map_or(&[], |version| &version.tiers)
    }

    /// Returns the tiers of a month: the tiers in force at its start.
    pub fn tiers_of_month(&self, month: Month) -> &[VolumeDiscount] {
        self.tiers_at(month.start())
    }
}

/// Returns the sort key of a price among the prices of its model: by effective time, and among equal times,
/// the price without conditions last.
pub fn order(price: &Price) -> (Time, i64) {
    (price.effective_at, price.version)
}

/// Returns the price without conditions in force at `time`. The prices are given in their [`order`].
pub fn price_at(prices: &[Price], time: Time) -> Option<&Price> {
    prices_at(prices, time).last()
}

/// Returns all prices in force at `time`, which are the prices with the latest effective time. The prices are
/// given in their [`order`].
pub fn prices_at(prices: &[Price], time: Time) -> &[Price] {
    let end = prices.partition_point(|price| price.effective_at <= time);
    let begun = prices.get(..end).unwrap_or_default();
    let newest = begun.last().map(|price| price.effective_at);
    let start = begun.partition_point(|price| Some(price.effective_at) < newest);
    begun.get(start..).unwrap_or_default()
}
