//! The prices of a model's components, with their conditions (docs/contract/models.md#prices).

use schemars::JsonSchema;
use serde::Serialize;

use catalog::{Component, Price as CatalogPrice};
use kernel::clock::Time;
use kernel::money::Pico;

/// The current prices of a model's components, for calls that meet the conditions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Price {
    /// The time from which the price applies.
    effective_at: Time,
    /// The conditions of the price; null for none.
    conditions: Conditions,
    /// The components that have a separate price.
    components: Vec<ComponentPrice>,
}

/// The conditions of a price. A null condition always applies.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PriceConditions")]
pub struct Conditions {
    /// The service tier of the answer.
    service_tier: Option<&'static str>,
    /// The number of tokens that the prompt must exceed.
    above_prompt_tokens: Option<i64>,
    /// The hours of the week in which the call must start.
    hours: Option<String>,
}

/// The price of a component.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComponentPrice {
    /// The name of the component, such as `prompt`, `cached_prompt` or `search`.
    component: &'static str,
    /// The price of one token or piece.
    price: Pico,
}

/// Converts the prices in force. The price without conditions is first.
pub fn prices(prices: &[CatalogPrice]) -> Vec<Price> {
    prices.iter().rev().map(price).collect()
}

fn price(price: &CatalogPrice) -> Price {
    let catalog::Conditions { service_tier, above_prompt_tokens, hours } = &price.conditions;
    let components = Component::ALL.iter().copied().filter(|component| price.has(*component));
    Price {
        effective_at: price.effective_at,
        conditions: Conditions {
            service_tier: service_tier.map(catalog::ServiceTier::as_str),
            above_prompt_tokens: *above_prompt_tokens,
            hours: hours.as_ref().map(ToString::to_string),
        },
        components: components
            .map(|component| ComponentPrice { component: component.as_str(), price: price.of(component) })
            .collect(),
    }
}
