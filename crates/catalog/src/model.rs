//! Models, their prices, and volume discounts.

use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::book;
use super::{Affinity, CallFacts, Conditions, PartPrices, Route};
use kernel::clock::Time;
use kernel::money::{Pico, Ppm};

/// The kind of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// Chat completions.
    Chat,
    Embeddings,
}

db::words!(Kind);

/// The handling of a call that asks for more tokens than its key or its model allows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaxTokensPolicy {
    /// Its limit is lowered.
    #[default]
    Lower,
    /// The call is refused.
    Refuse,
}

/// A model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    /// The name in requests.
    pub id: String,
    /// Other names in requests, in the order of the file.
    pub aliases: Vec<String>,
    pub kind: Kind,
    pub description: String,
    pub owned_by: String,
    /// The time of the model's creation, in unix seconds.
    pub created: i64,
    /// The id of the first ancestor of the model; its own id if it isn't derived from another model.
    pub root: String,
    /// The id of the model that it was made from.
    pub parent: Option<String>,
    /// Maximum number of tokens of one request.
    pub max_tokens: i64,
    /// The number of tokens of a request that doesn't name one; `None`: `max_tokens`.
    pub default_max_tokens: Option<i64>,
    pub max_tokens_policy: MaxTokensPolicy,
    /// Maximum number of tokens of a prompt.
    pub context_length: Option<i64>,
    /// The length of a vector; embedding models only.
    pub dimension: Option<i64>,
    /// Maximum number of requests per minute, for each organization.
    pub max_requests_per_min: u32,
    /// Maximum number of concurrent requests, for each organization.
    pub max_concurrent_requests: u32,
    /// No longer offered, and unknown to callers. Late usage of it still counts, at its prices.
    pub retired: bool,
    /// The oldest first; of an instant, the one without conditions last. A model without a price is listed but can't be
    /// used.
    pub prices: Vec<Price>,
    /// In the order of the file. A model without routes is served by other servers, which ask the service
    /// listener.
    pub routes: Vec<Route>,
    pub affinity: Affinity,
}

impl Model {
    /// Returns the price in force at `time` of a call that meets no condition.
    pub fn price_at(&self, time: Time) -> Option<&Price> {
        book::price_at(&self.prices, time)
    }

    /// Returns all prices in force at `time`, the one without conditions last.
    pub fn prices_at(&self, time: Time) -> &[Price] {
        book::prices_at(&self.prices, time)
    }

    /// Returns the price of a call.
    pub fn price_of(&self, call: &CallFacts) -> Option<&Price> {
        let holding = self.prices_at(call.time).iter().filter(|price| price.conditions.hold(call));
        holding.max_by_key(|price| price.conditions.rank())
    }
}

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
