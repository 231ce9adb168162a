//! Prices and volume discounts.

use super::{Conditions, PartPrices};
use kernel::clock::Time;
use kernel::money::{Pico, Ppm};

/// The prices of a model's components from a point in time, for all calls or under conditions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Price {
    /// The time from which the price is in force. The prices of a model with the same effective time together
    /// replace all of its earlier prices.
    pub effective_at: Time,
    pub conditions: Conditions,
    /// The number by which usage refers to the price.
    pub version: i64,
    /// The price of a token of the prompt, or of the input of an embedding.
    pub prompt: Pico,
    /// The price of a prompt token that came from the upstream's cache, at most `prompt`. If `None`, the
    /// price is `prompt`, and bills don't list these tokens separately.
    pub cached_prompt: Option<Pico>,
    /// The price of a token of the answer; 0 for embeddings.
    pub completion: Pico,
    /// The prices of the other components that have separate prices.
    pub parts: PartPrices,
}

/// A volume discount: tokens above the threshold cost this fraction less
/// (docs/contract/billing.md#volume-discounts).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeDiscount {
    /// The number of tokens in a calendar month above which the discount applies.
    pub threshold: i64,
    /// The fraction of the price, from 0 to 1.
    pub discount: Ppm,
}
