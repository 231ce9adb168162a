//! Models.

use serde::Deserialize;

use super::book;
use super::{Affinity, CallFacts, Kind, Price, Route};
use kernel::clock::Time;

/// The handling of a call that requests more tokens than its API key or its model allows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaxTokensPolicy {
    /// The call's limit is lowered.
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
    /// The id of the model's first ancestor; its own id if it isn't derived from another model.
    pub root: String,
    /// The id of the model from which this model was derived.
    pub parent: Option<String>,
    /// Maximum number of tokens of one request.
    pub max_tokens: i64,
    /// The token limit of a request without a limit; if `None`, `max_tokens` applies.
    pub default_max_tokens: Option<i64>,
    pub max_tokens_policy: MaxTokensPolicy,
    /// Maximum number of tokens of a prompt.
    pub context_length: Option<i64>,
    /// The length of a vector, for embedding models only.
    pub dimension: Option<i64>,
    /// Maximum number of requests per minute for each organization.
    pub max_requests_per_min: u32,
    /// Maximum number of concurrent requests for each organization.
    pub max_concurrent_requests: u32,
    /// `true` if the model is no longer offered: calls get the error of an unknown model. Late usage is still
    /// charged at the model's prices.
    pub retired: bool,
    /// The prices, oldest first; among those with the same effective time, the price without conditions is
    /// last. A model without a price is listed but can't be used.
    pub prices: Vec<Price>,
    /// The routes, in the order of the file. A model without routes is served by other servers, which
    /// authorize calls at the service listener.
    pub routes: Vec<Route>,
    pub affinity: Affinity,
}

impl Model {
    /// Returns the price in force at `time` for a call that meets no condition.
    pub fn price_at(&self, time: Time) -> Option<&Price> {
        book::price_at(&self.prices, time)
    }

    /// Returns all prices in force at `time`, the price without conditions last.
    pub fn prices_at(&self, time: Time) -> &[Price] {
        book::prices_at(&self.prices, time)
    }

    /// Returns the price of a call.
    pub fn price_of(&self, call: &CallFacts) -> Option<&Price> {
        let holding = self.prices_at(call.time).iter().filter(|price| price.conditions.hold(call));
        holding.max_by_key(|price| price.conditions.rank())
    }
}
