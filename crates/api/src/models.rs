//! `/v1/models` and `/v1/models/{model_id}`, in the format of the OpenAI SDKs, without the envelope
//! (docs/contract/models.md).

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::{ModelScope, ModelsScope};
use catalog::{Kind, Model as CatalogModel};
use kernel::error::Error;
use kernel::money::Pico;
use web::input::NoInput;
use web::reply::{Bare, RenderedJson, to_json};

/// The models that the caller may use.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelList {
    object: &'static str,
    data: Vec<ListedModel>,
}

/// A model in the list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedModel {
    id: String,
    object: &'static str,
    /// When the model was created, in Unix seconds.
    created: i64,
    owned_by: String,
    permission: Vec<String>,
    root: String,
    parent: Option<String>,
    capabilities: Capabilities,
}

/// The capabilities of a model.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Capabilities {
    Chat(ChatCapabilities),
    Embeddings(EmbeddingsCapabilities),
}

/// The capabilities of a chat model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChatCapabilities {
    /// `true` if it takes chat completions.
    chat: bool,
    /// `true` if it streams its answers.
    stream: bool,
    /// `true` if it calls functions.
    functions: bool,
}

/// The capabilities of an embedding model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EmbeddingsCapabilities {
    /// `true` if it makes vectors of texts.
    embeddings: bool,
}

/// A model with its limits and prices.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Model {
    #[serde(flatten)]
    listed: ListedModel,
    limits: Limits,
    pricing: Option<Pricing>,
}

/// The limits of a model's requests.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RequestLimits")]
pub struct Limits {
    max_tokens: i64,
    max_requests_per_min: u32,
    max_concurrent_requests: u32,
}

/// The current prices of a token; null for a model without a price, which can't be used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TokenPrices")]
pub struct Pricing {
    prompt_tokens: Pico,
    completion_tokens: Pico,
}

/// List models.
///
/// An API key that is restricted to models sees those.
pub async fn list(api: Api, scope: ModelsScope, _: NoInput) -> Result<RenderedJson<ModelList>, Error> {
    let catalog = api.catalog.now();
    let json = match scope.allowed_models() {
        None => catalog.listing(|| to_json(&model_list(catalog.models())))?,
        Some(ids) => {
            let visible = catalog.models().filter(|model| ids.contains(&model.id));
            to_json(&model_list(visible))?
        }
    };
    Ok(RenderedJson::new(json))
}

/// Get a model.
pub async fn read(api: Api, scope: ModelScope, _: NoInput) -> Result<Bare<Model>, Error> {
    let model = scope.model();
    let pricing = model.price_at(api.clock.now());
    Ok(Bare(Model {
        listed: listed(model),
        limits: Limits {
            max_tokens: model.max_tokens,
            max_requests_per_min: model.max_requests_per_min,
            max_concurrent_requests: model.max_concurrent_requests,
        },
        pricing: pricing
            .map(|price| Pricing { prompt_tokens: price.prompt, completion_tokens: price.completion }),
    }))
}

fn model_list<'a>(models: impl Iterator<Item = &'a Arc<CatalogModel>>) -> ModelList {
    ModelList { object: "list", data: models.map(|model| listed(model)).collect() }
}

fn listed(model: &CatalogModel) -> ListedModel {
    ListedModel {
        id: model.id.clone(),
        object: "model",
        created: model.created,
        owned_by: model.owned_by.clone(),
        permission: Vec::new(),
        root: model.root.clone(),
        parent: model.parent.clone(),
        capabilities: match model.kind {
            Kind::Chat => Capabilities::Chat(ChatCapabilities { chat: true, stream: true, functions: true }),
            Kind::Embeddings => Capabilities::Embeddings(EmbeddingsCapabilities { embeddings: true }),
        },
    }
}
