//! `/v1/models` and `/v1/models/{model_id}`, in the formats of OpenAI's and Anthropic's SDKs, without the
//! envelope (docs/contract/models.md).

use std::sync::Arc;

use http::HeaderName;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::Api;
use crate::gate::{Call, ModelScope, ModelsScope};
use crate::prices::{Price, prices};
use catalog::{Catalog, Kind, Listing, Model as CatalogModel};
use input::record;
use input::types::{Integer, Text};
use kernel::clock::Time;
use kernel::error::{Detail, Error};
use kernel::money::Pico;
use web::input::{Description, Input, NoInput, Query};
use web::reply::{Bare, RenderedJson, to_json};
use web::route::Operation;

/// The header that identifies Anthropic's SDKs.
const ANTHROPIC_VERSION: &str = "anthropic-version";
const ANTHROPIC_VERSION_HEADER: HeaderName = HeaderName::from_static(ANTHROPIC_VERSION);

/// The models that the caller may use.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelList {
    /// The object type in OpenAI's API, always `list`.
    object: &'static str,
    /// The models.
    data: Vec<ListedModel>,
    /// `true` if the list has more models in the direction of the page.
    has_more: bool,
    /// The id of the first model of this page; null if the page is empty.
    first_id: Option<String>,
    /// The id of the last model of this page; null if the page is empty.
    last_id: Option<String>,
}

/// A model in the list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedModel {
    /// The id or alias of the model.
    id: String,
    /// The object type in OpenAI's API, always `model`.
    object: &'static str,
    /// Always `model`.
    r#type: &'static str,
    /// The display name.
    display_name: String,
    /// The Unix time in seconds when the model was created.
    created: i64,
    /// The time of creation, as a timestamp.
    created_at: Time,
    /// The owner of the model.
    owned_by: String,
    /// Always empty.
    permission: Vec<String>,
    /// The id of the model's root model, for OpenAI's SDKs.
    root: String,
    /// The id of the base model; null if the model has none.
    parent: Option<String>,
    /// The maximum number of tokens in a prompt and its answer together; null if the operator doesn't specify
    /// it. For an embedding model, the maximum number of tokens per input.
    context_length: Option<i64>,
    /// The maximum number of output tokens; null for an embedding model.
    max_output_tokens: Option<i64>,
    /// The length of a vector; null for a chat model.
    dimension: Option<i64>,
    /// The capabilities of the model.
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
    /// `true` if the model supports chat completions.
    chat: bool,
    /// `true` if the model can stream its answers.
    stream: bool,
    /// `true` if the model can call functions.
    functions: bool,
}

/// The capabilities of an embedding model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EmbeddingsCapabilities {
    /// `true` if the model returns embeddings.
    embeddings: bool,
}

/// A model with its limits and prices.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Model {
    #[serde(flatten)]
    listed: ListedModel,
    /// The limits of the model's requests.
    limits: Limits,
    /// The current prices; null if the model has none.
    pricing: Option<Pricing>,
    /// All current prices. The price without conditions is first. Empty for a model without a price.
    prices: Vec<Price>,
}

/// The limits of a model's requests.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RequestLimits")]
pub struct Limits {
    /// The maximum number of tokens per request.
    max_tokens: i64,
    /// The maximum number of calls per minute for each organization.
    max_requests_per_min: u32,
    /// The maximum number of concurrent calls for each organization.
    max_concurrent_requests: u32,
}

/// The current prices per token of calls to which no condition applies; null for a model without a price,
/// which can't be used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TokenPrices")]
pub struct Pricing {
    prompt_tokens: Pico,
    completion_tokens: Pico,
}

record! {
    /// The query of a page of the list, as Anthropic's SDKs send it.
    #[derive(Debug)]
    struct PageQuery in Api {
        /// The maximum number of models on the page; by default all, up to 1,000.
        limit: Integer<1, 1_000> = or(Integer(1_000)),
        /// The id of the model after which the page begins.
        after_id: Option<Text<128>> = optional,
        /// The id of the model before which the page ends.
        before_id: Option<Text<128>> = optional,
        /// `true` to list the aliases of each model after it.
        aliases: bool = or(false),
    }
}

record! {
    /// The query of the whole list, because OpenAI's format has no pages.
    #[derive(Debug)]
    struct WholeQuery in Api {
        /// `true` to list the aliases of each model after it.
        aliases: bool = or(false),
    }
}

/// The part of the list that a client requests.
#[derive(Debug)]
pub struct ListModels {
    /// The page; `None` for all models.
    page: Option<PageQuery>,
    has_aliases: bool,
}

impl Input<Api> for ListModels {
    const READS_BODY: bool = false;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        if !call.headers.contains_key(ANTHROPIC_VERSION_HEADER) {
            // Nearly all requests have no query.
            if call.uri.query().is_none() {
                return Ok(Self { page: None, has_aliases: false });
            }
            let Query(query) = Box::pin(Query::<WholeQuery>::read(api, call)).await?;
            return Ok(Self { page: None, has_aliases: query.aliases });
        }
        let Query(query) = Box::pin(Query::<PageQuery>::read(api, call)).await?;
        let has_aliases = query.aliases;
        Ok(Self { page: Some(query).filter(|query| !query.is_whole()), has_aliases })
    }

    fn describe() -> Description {
        let version = json!({
            "type": "string",
            "description": "Requests a page of the list with `limit`, `after_id` and `before_id`, like Anthropic's \
                            SDKs.",
            "examples": ["2023-06-01"],
        });
        let described = <Query<PageQuery> as Input<Api>>::describe();
        Description { headers: vec![(ANTHROPIC_VERSION, version)], ..described }
    }
}

impl PageQuery {
    fn is_whole(&self) -> bool {
        self.limit.0 == 1_000 && self.after_id.is_none() && self.before_id.is_none()
    }
}

pub const LIST: Operation = Operation::new("list_models");

/// List models.
///
/// An API key that is restricted to certain models sees only those. Aliases are listed with `aliases=true`.
pub async fn list(api: Api, scope: ModelsScope, query: ListModels) -> Result<RenderedJson<ModelList>, Error> {
    let catalog = api.catalog.now();
    let allowed = scope.allowed_models();
    let render = || to_json(&model_list(&catalog, allowed, &query)?);
    let listing = if query.has_aliases { Listing::ModelsAndAliases } else { Listing::Models };
    let is_whole = query.page.is_none() && allowed.is_none();
    let json = if is_whole { catalog.listing(listing, render)? } else { render()? };
    Ok(RenderedJson::new(json))
}

pub const READ: Operation = Operation::new("get_model");

/// Get a model.
///
/// For an alias, the response contains the model with the alias as its id.
pub async fn read(api: Api, scope: ModelScope, _: NoInput) -> Result<Bare<Model>, Error> {
    let model = scope.model();
    let now = api.clock.now();
    let pricing = model.price_at(now);
    Ok(Bare(Model {
        listed: listed(model, scope.name()),
        limits: Limits {
            max_tokens: model.max_tokens,
            max_requests_per_min: model.max_requests_per_min,
            max_concurrent_requests: model.max_concurrent_requests,
        },
        pricing: pricing
            .map(|price| Pricing { prompt_tokens: price.prompt, completion_tokens: price.completion }),
        prices: prices(model.prices_at(now)),
    }))
}

/// Returns the list of models that the caller may use.
fn model_list(catalog: &Catalog, allowed: Option<&[String]>, query: &ListModels) -> Result<ModelList, Error> {
    let visible = catalog.models().filter(|model| allowed.is_none_or(|ids| ids.contains(&model.id)));
    let names = visible.flat_map(|model| {
        let aliases = model.aliases.iter().filter(|_| query.has_aliases);
        std::iter::once(&model.id).chain(aliases).map(move |name| (model, name.as_str()))
    });
    let names: Vec<_> = names.collect();
    let (part, has_more) = match &query.page {
        Some(page) => page_of(&names, page)?,
        None => (names.as_slice(), false),
    };
    let data: Vec<_> = part.iter().map(|(model, name)| listed(model, name)).collect();
    let id = |model: Option<&ListedModel>| model.map(|model| model.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Ok(ModelList { object: "list", data, has_more, first_id, last_id })
}

/// A model, and its id or one of its aliases.
type Named<'a> = (&'a Arc<CatalogModel>, &'a str);

/// Returns a page of the names, and `true` if the list has more names in the direction of the page.
fn page_of<'a, 'm>(names: &'a [Named<'m>], query: &PageQuery) -> Result<(&'a [Named<'m>], bool), Error> {
    let place = |field: &'static str, id: &Text<128>| {
        let message = format!("The list has no model `{}`.", id.0);
        let unknown =
            || Error::invalid(vec![Detail { param: field.to_owned(), code: "unknown_model", message }]);
        names.iter().position(|(_, name)| *name == id.0).ok_or_else(unknown)
    };
    let limit = usize::try_from(query.limit.0).unwrap_or(usize::MAX);
    let from = query.after_id.as_ref().map(|id| place("after_id", id)).transpose()?.map_or(0, |at| at + 1);
    let to = query.before_id.as_ref().map(|id| place("before_id", id)).transpose()?.unwrap_or(names.len());
    let range = names.get(from..to).unwrap_or_default();
    let excess = range.len().saturating_sub(limit);
    // With only `before_id`, the page contains the last names before that id.
    let page = if query.before_id.is_some() && query.after_id.is_none() {
        range.get(excess..)
    } else {
        range.get(..range.len() - excess)
    };
    Ok((page.unwrap_or_default(), excess > 0))
}

fn listed(model: &CatalogModel, name: &str) -> ListedModel {
    let (context_length, max_output_tokens) = match model.kind {
        Kind::Chat => {
            let output =
                model.context_length.map_or(model.max_tokens, |context| model.max_tokens.min(context));
            (model.context_length, Some(output))
        }
        Kind::Embeddings => (Some(model.context_length.unwrap_or(model.max_tokens)), None),
    };
    ListedModel {
        id: name.to_owned(),
        object: "model",
        r#type: "model",
        display_name: name.to_owned(),
        created: model.created,
        created_at: Time::from_unix_ms(model.created.saturating_mul(1_000)),
        owned_by: model.owned_by.clone(),
        permission: Vec::new(),
        root: model.root.clone(),
        parent: model.parent.clone(),
        context_length,
        max_output_tokens,
        dimension: model.dimension,
        capabilities: match model.kind {
            Kind::Chat => Capabilities::Chat(ChatCapabilities { chat: true, stream: true, functions: true }),
            Kind::Embeddings => Capabilities::Embeddings(EmbeddingsCapabilities { embeddings: true }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let model = |id: &str, aliases: &str| {
            format!(
                r#"
[[models]]
id = "{id}"
aliases = [{aliases}]
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 100
max_requests_per_min = 60
max_concurrent_requests = 5
"#
            )
        };
        let text = [model("a", ""), model("b", r#""b1", "b2""#), model("c", "")].concat();
        Catalog::parse(&text, "models.toml").unwrap()
    }

    fn ids(list: &ModelList) -> Vec<&str> {
        list.data.iter().map(|model| model.id.as_str()).collect()
    }

    #[test]
    fn pages_go_in_both_directions() {
        let id = |id: &str| (!id.is_empty()).then(|| Text(id.to_owned()));
        for (limit, after, before, aliases, expected, more) in [
            (1_000, "", "", false, "a b c", false),
            (1_000, "", "", true, "a b b1 b2 c", false),
            (2, "", "", true, "a b", true),
            (2, "b", "", true, "b1 b2", true),
            (2, "b2", "", true, "c", false),
            (2, "", "b2", true, "b b1", true),
            (2, "", "b", true, "a", false),
            (2, "c", "", true, "", false),
            (9, "a", "c", false, "b", false),
            (9, "c", "a", false, "", false),
        ] {
            let page =
                PageQuery { limit: Integer(limit), after_id: id(after), before_id: id(before), aliases };
            let query = ListModels { page: Some(page), has_aliases: aliases };
            let list = model_list(&catalog(), None, &query).unwrap();
            let found = ids(&list);
            assert_eq!((found.join(" "), list.has_more), (expected.to_owned(), more), "{after} {before}");
            let ends = (list.first_id.as_deref(), list.last_id.as_deref());
            assert_eq!(ends, (found.first().copied(), found.last().copied()));
        }
        let unknown = PageQuery { limit: Integer(1), after_id: id("x"), before_id: None, aliases: false };
        let query = ListModels { page: Some(unknown), has_aliases: false };
        let error = model_list(&catalog(), None, &query).unwrap_err();
        assert_eq!((error.details[0].param.as_str(), error.details[0].code), ("after_id", "unknown_model"));
    }

    #[test]
    fn aliases_belong_to_models_that_a_key_may_use() {
        let query = ListModels { page: None, has_aliases: true };
        let list = model_list(&catalog(), Some(&["b".to_owned()]), &query).unwrap();
        assert_eq!(ids(&list), ["b", "b1", "b2"]);
    }
}
