//! `/v1/billing/…`: the price list, the same for every organization (docs/contract/models.md#price-list).

pub mod stripe;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::prices::{Price, prices};
use billing::{Billing, pricing};
use catalog::Kind;
use kernel::error::Error;
use kernel::money::{Pico, Ppm};
use tenants::access::CallerScope;
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

/// The price list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PriceList")]
pub struct Pricing {
    /// Prices by model id.
    models: BTreeMap<String, ModelPricing>,
    /// The volume discounts.
    volume_discounts: Vec<VolumeDiscount>,
}

/// The prices of a model, in a field that is named after its kind.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ModelPricing {
    Chat(ChatModelPricing),
    Embeddings(EmbeddingsModelPricing),
}

/// The prices of a chat model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChatModelPricing {
    /// The token prices for calls to which no condition applies.
    chat: ChatPrices,
    /// All current prices. The price without conditions is first.
    prices: Vec<Price>,
}

/// The prices of tokens of a chat model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChatPrices {
    /// The price of a prompt token.
    prompt_tokens: Pico,
    /// The price of a completion token.
    completion_tokens: Pico,
    /// The currency's ISO 4217 code.
    currency: String,
}

/// The prices of an embedding model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EmbeddingsModelPricing {
    /// The token prices for calls to which no condition applies.
    embeddings: EmbeddingsPrices,
    /// All current prices. The price without conditions is first.
    prices: Vec<Price>,
}

/// The prices of tokens of an embedding model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EmbeddingsPrices {
    /// The price of an input token.
    tokens: Pico,
    /// The currency's ISO 4217 code.
    currency: String,
}

/// A discount on tokens above a threshold.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VolumeDiscount {
    /// The threshold in tokens per month, for each model and kind of token.
    threshold: i64,
    /// The discount as a fraction of the price.
    discount: Ppm,
}

pub const PRICING: Operation = Operation::new("get_pricing");

/// List the current prices.
///
/// A model without a price can't be used and isn't listed.
pub async fn pricing(billing: Billing, _: CallerScope, _: NoInput) -> Result<Enveloped<Pricing>, Error> {
    let pricing = pricing::read(&billing);
    let model = |(id, kind, in_force): (&str, Kind, &[catalog::Price])| {
        let (currency, prices) = (pricing.currency.clone(), prices(in_force));
        let price = in_force.last()?;
        let model = match kind {
            Kind::Chat => ModelPricing::Chat(ChatModelPricing {
                chat: ChatPrices {
                    prompt_tokens: price.prompt,
                    completion_tokens: price.completion,
                    currency,
                },
                prices,
            }),
            Kind::Embeddings => ModelPricing::Embeddings(EmbeddingsModelPricing {
                embeddings: EmbeddingsPrices { tokens: price.prompt, currency },
                prices,
            }),
        };
        Some((id.to_owned(), model))
    };
    let discounts = pricing.volume_discounts().iter();
    let discounts =
        discounts.map(|tier| VolumeDiscount { threshold: tier.threshold, discount: tier.discount });
    Ok(ok(Pricing {
        models: pricing.models().filter_map(model).collect(),
        volume_discounts: discounts.collect(),
    }))
}
