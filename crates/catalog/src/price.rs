//! Prices and volume discounts.

use super::{Conditions, PartPrices};
use kernel::clock::Time;
use kernel::money::{Pico, Ppm};

/// The prices of a model's components from an instant on, for all calls or under conditions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Price {
    /// The first instant at which it is in force. All prices of a model from an instant on replace all of its
    /// earlier prices.
    pub effective_at: Time,
    pub conditions: Conditions,
    /// The number by which usage refers to it.
    pub version: i64,
    /// A token of the prompt, or of the input of an embedding.
    pub prompt: Pico,
    /// The price of a prompt token that came from the upstream's cache, at most `prompt`. `None`: the price is
    /// `prompt`, and bills don't list these tokens separately.
    pub cached_prompt: Option<Pico>,
    /// A token of the answer; 0 for embeddings.
    pub completion: Pico,
    /// The other components that have a price of their own.
    pub parts: PartPrices,
}

/// A volume discount: tokens above the threshold cost this fraction less
/// (docs/contract/billing.md#volume-discounts).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeDiscount {
    /// Tokens in a calendar month.
    pub threshold: i64,
    /// From 0 to 1.
    pub discount: Ppm,
}
