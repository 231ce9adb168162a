//! The model catalog: which models there are, their limits and their prices, from a TOML file.
//!
//! `catalog/default.toml` is built in and shows the format. A broken file is refused whole, with the file, the
//! line, the model, the key and what would be right for every mistake in it.

mod fields;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hyper::body::Bytes;

use crate::clock::Time;
use crate::config::document::{self, Node, Value};
use crate::money::{Pico, Ppm};

use fields::Fields;

const BUILT_IN: &str = include_str!("../catalog/default.toml");

/// The dearest price of a single token, in units of the currency: a slip of the decimal point is refused, and
/// a price always fits the database.
pub const MAX_PRICE: i64 = 1_000_000;

/// What a model does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Chat completions.
    Chat,
    /// Vectors of texts.
    Embeddings,
}

impl Kind {
    /// The word in JSON, in the catalog and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
        }
    }

    /// Reads that word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Chat, Self::Embeddings].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A model that callers can use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    /// Its name in requests.
    pub id: String,
    /// What it does.
    pub kind: Kind,
    /// A sentence for people.
    pub description: String,
    /// Owner label.
    pub owned_by: String,
    /// When it was made, in unix seconds.
    pub created: i64,
    /// The id of the model that it goes back to; its own when there is none.
    pub root: String,
    /// The id of the model that it was made from.
    pub parent: Option<String>,
    /// The most tokens of one request.
    pub max_tokens: i64,
    /// Numbers in a vector; embedding models only.
    pub dimension: Option<i64>,
    /// Requests a minute, for each organization.
    pub max_requests_per_min: u32,
    /// Requests at the same time, for each organization.
    pub max_concurrent_requests: u32,
    /// Oldest first; no two from the same instant. A model without a price is shown but can't be used.
    pub prices: Vec<Price>,
}

impl Model {
    /// The price in force at `time`.
    pub fn price_at(&self, time: Time) -> Option<&Price> {
        self.prices.iter().rev().find(|price| price.effective_at <= time)
    }
}

/// What a single token costs from an instant on; `effective_at` in unix milliseconds is the price's version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Price {
    /// The first instant at which it holds.
    pub effective_at: Time,
    /// A token of the prompt, or of the input of an embedding.
    pub prompt: Pico,
    /// A token of the answer; 0 for embeddings.
    pub completion: Pico,
}

/// Tokens above the threshold cost this fraction less (decisions, section 5, "volume_discounts").
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeDiscount {
    /// Tokens in a calendar month.
    pub threshold: i64,
    /// A fraction between 0 and 1.
    pub discount: Ppm,
}

/// Every model and the discounts; never changes once loaded, a reload makes a new one.
#[derive(Clone, Debug)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    by_id: HashMap<String, Arc<Model>>,
    volume_discounts: Vec<VolumeDiscount>,
    /// See [`Catalog::listing`].
    listing: OnceLock<Bytes>,
}

impl Catalog {
    /// The six models of the interface description.
    ///
    /// # Errors
    /// None that a release could have: a test reads it.
    pub fn built_in() -> Result<Self, CatalogError> {
        Self::parse(BUILT_IN, "catalog/default.toml")
    }

    /// Reads and checks the text of a catalog; `name` stands in errors.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str, name: &str) -> Result<Self, CatalogError> {
        let entries = document::parse(text).map_err(|problem| CatalogError {
            problems: vec![format!("{name}:{}: {}", problem.line, problem.message)],
        })?;
        let mut problems = Vec::new();
        let mut root = Fields::new(name, None, 1, &entries, &mut problems);
        let model_nodes = root.list("models");
        let discount_nodes = root.list("volume_discounts");
        root.finish();

        let models: Vec<(usize, Option<Model>)> =
            model_nodes.iter().map(|node| (node.line, read_model(name, node, &mut problems))).collect();
        let volume_discounts = read_discounts(name, discount_nodes, &mut problems);
        if models.is_empty() && problems.is_empty() {
            problems.push(format!("{name}:1: expected at least one `[[models]]` table"));
        }
        let mut catalog =
            Self { models: Vec::new(), by_id: HashMap::new(), volume_discounts, listing: OnceLock::new() };
        for (line, model) in models.into_iter().filter_map(|(line, model)| Some((line, model?))) {
            let model = Arc::new(model);
            if catalog.by_id.insert(model.id.clone(), Arc::clone(&model)).is_some() {
                let id = &model.id;
                problems
                    .push(format!("{name}:{line}: model `{id}`: `id`: there are two models with this id"));
            }
            catalog.models.push(model);
        }
        if problems.is_empty() { Ok(catalog) } else { Err(CatalogError { problems }) }
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file can't be read, or every mistake in it.
    pub fn load(path: &Path) -> Result<Self, CatalogError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &name),
            Err(error) => {
                Err(CatalogError { problems: vec![format!("{name}: the file can't be read: {error}")] })
            }
        }
    }

    /// The model of this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id)
    }

    /// Every model, in the order of the file.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// All models as they are sent to callers: `render` is asked once. It is kept here so that it can't outlive them.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn listing<E>(&self, render: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        if let Some(listing) = self.listing.get() {
            return Ok(listing.clone());
        }
        let listing = render()?;
        Ok(self.listing.get_or_init(|| listing).clone())
    }

    /// Every discount, the lowest threshold first.
    pub fn volume_discounts(&self) -> &[VolumeDiscount] {
        &self.volume_discounts
    }
}

/// Why a catalog can't be used: one line a mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatalogError {
    /// Each with its place and what would be right.
    pub problems: Vec<String>,
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl std::error::Error for CatalogError {}

/// Whether this can be the id of a model: 1 to 128 letters, digits and `. _ - / :`.
pub fn is_model_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

fn read_model(file: &str, node: &Node, problems: &mut Vec<String>) -> Option<Model> {
    let Value::Table(entries) = &node.value else {
        problems.push(format!("{file}:{}: `models`: expected tables: write `[[models]]`", node.line));
        return None;
    };
    let label = entries.iter().find(|entry| entry.key == "id").map(|entry| match &entry.node.value {
        Value::Text(id) => format!("model `{id}`"),
        _ => "model".to_owned(),
    });
    let label = label.unwrap_or_else(|| "model without `id`".to_owned());
    let mut fields = Fields::new(file, Some(&label), node.line, entries, problems);
    let id = fields.id("id");
    let kind =
        fields.required("kind", "\"chat\" or \"embeddings\"", |v| fields::text(v).and_then(Kind::parse));
    let description = fields.text("description", 1_000);
    let owned_by = fields.text("owned_by", 100);
    let created = fields.whole("created", 0..=253_402_300_799);
    let root = if fields.has("root") { fields.id("root") } else { id.clone() };
    let parent = if fields.has("parent") { fields.id("parent").map(Some) } else { Some(None) };
    let max_tokens = fields.whole("max_tokens", 1..=1_000_000_000);
    let max_requests_per_min = fields.whole("max_requests_per_min", 1..=1_000_000);
    let max_concurrent_requests = fields.whole("max_concurrent_requests", 1..=1_000_000);
    let dimension = match kind {
        Some(Kind::Embeddings) => fields.whole("dimension", 1..=1_000_000).map(Some),
        Some(Kind::Chat) if fields.has("dimension") => {
            fields.refuse("dimension", "only embedding models have one")
        }
        _ => Some(None),
    };
    let price_nodes = fields.list("prices");
    fields.finish();
    let prices = read_prices(file, &label, kind?, price_nodes, problems)?;
    Some(Model {
        id: id?,
        kind: kind?,
        description: description?,
        owned_by: owned_by?,
        created: created?,
        root: root?,
        parent: parent?,
        max_tokens: max_tokens?,
        dimension: dimension?,
        max_requests_per_min: max_requests_per_min?,
        max_concurrent_requests: max_concurrent_requests?,
        prices,
    })
}

fn read_prices(
    file: &str,
    label: &str,
    kind: Kind,
    nodes: &[Node],
    problems: &mut Vec<String>,
) -> Option<Vec<Price>> {
    let mut prices: Vec<Price> = Vec::new();
    let before = problems.len();
    for node in nodes {
        let Value::Table(entries) = &node.value else {
            let shape = "{ effective_at = …, prompt_tokens = … }";
            problems
                .push(format!("{file}:{}: {label}: `prices`: expected tables such as {shape}", node.line));
            continue;
        };
        let mut fields = Fields::new(file, Some(label), node.line, entries, problems);
        let effective_at = fields.time("effective_at");
        let prompt = fields.price("prompt_tokens");
        let completion = match kind {
            Kind::Chat => fields.price("completion_tokens"),
            Kind::Embeddings if fields.has("completion_tokens") => match fields.price("completion_tokens") {
                Some(Pico::ZERO) => Some(Pico::ZERO),
                _ => fields.refuse("completion_tokens", "an embedding model has none, leave it out"),
            },
            Kind::Embeddings => Some(Pico::ZERO),
        };
        fields.finish();
        let (Some(effective_at), Some(prompt), Some(completion)) = (effective_at, prompt, completion) else {
            continue;
        };
        if prices.iter().any(|price| price.effective_at == effective_at) {
            problems.push(format!(
                "{file}:{}: {label}: `effective_at`: there are two prices from {effective_at} on",
                node.line
            ));
        }
        prices.push(Price { effective_at, prompt, completion });
    }
    prices.sort_by_key(|price| price.effective_at);
    (problems.len() == before).then_some(prices)
}

fn read_discounts(file: &str, nodes: &[Node], problems: &mut Vec<String>) -> Vec<VolumeDiscount> {
    let mut discounts: Vec<VolumeDiscount> = Vec::new();
    for node in nodes {
        let Value::Table(entries) = &node.value else {
            problems.push(format!(
                "{file}:{}: `volume_discounts`: expected tables: write `[[volume_discounts]]`",
                node.line
            ));
            continue;
        };
        let mut fields = Fields::new(file, Some("volume discount"), node.line, entries, problems);
        let threshold = fields.whole("threshold", 0..=i64::MAX);
        let discount = fields.fraction("discount");
        fields.finish();
        let (Some(threshold), Some(discount)) = (threshold, discount) else { continue };
        if discounts.iter().any(|other| other.threshold == threshold) {
            problems.push(format!(
                "{file}:{}: volume discount: `threshold`: there are two with {threshold}",
                node.line
            ));
        }
        discounts.push(VolumeDiscount { threshold, discount });
    }
    discounts.sort_by_key(|discount| discount.threshold);
    discounts
}

#[cfg(test)]
mod tests;
