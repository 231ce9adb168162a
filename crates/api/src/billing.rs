//! `/v1/billing/…`: what is the same for every organization (docs/contract/models.md#price-list).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use billing::{Billing, pricing};
use catalog::{Kind, Price};
use kernel::error::Error;
use kernel::money::{Pico, Ppm};
use tenants::access::CallerScope;
use web::input::NoInput;
use web::reply::{Enveloped, ok};

/// What models cost.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pricing {
    /// By model id.
    models: BTreeMap<String, ModelPricing>,
    volume_discounts: Vec<VolumeDiscount>,
}

/// What one model costs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelPricing {
    /// A chat model.
    Chat {
        /// A token in.
        prompt_tokens: Pico,
        /// A token out.
        completion_tokens: Pico,
        /// ISO 4217 code.
        currency: String,
    },
    /// An embedding model.
    Embeddings {
        /// A token in.
        tokens: Pico,
        /// ISO 4217 code.
        currency: String,
    },
}

/// What tokens above a threshold cost less.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VolumeDiscount {
    /// Tokens a month, of one model and token kind.
    threshold: i64,
    /// A fraction of the price.
    discount: Ppm,
}

/// List the prices in force.
///
/// A model without a price can't be used, and isn't listed.
pub async fn pricing(billing: Billing, _: CallerScope, _: NoInput) -> Result<Enveloped<Pricing>, Error> {
    let pricing = pricing::read(&billing);
    let model = |(id, kind, price): (&str, Kind, &Price)| {
        let currency = pricing.currency.clone();
        let model = match kind {
            Kind::Chat => ModelPricing::Chat {
                prompt_tokens: price.prompt,
                completion_tokens: price.completion,
                currency,
            },
            Kind::Embeddings => ModelPricing::Embeddings { tokens: price.prompt, currency },
        };
        (id.to_owned(), model)
    };
    let discounts = pricing.volume_discounts().iter();
    let discounts =
        discounts.map(|tier| VolumeDiscount { threshold: tier.threshold, discount: tier.discount });
    Ok(ok(Pricing { models: pricing.models().map(model).collect(), volume_discounts: discounts.collect() }))
}
