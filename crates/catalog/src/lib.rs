//! The model catalog: which models there are, their limits and their prices, from a TOML file.
//!
//! `catalog/default.toml` is built in and shows the format. A broken file is refused whole, with the file, the
//! line, the model, the key and what would be right for every mistake in it. What is loaded never changes: a reload puts
//! another catalog in its place, see [`CurrentCatalog`]. [`Catalogs`] is the handle of what puts one in force
//! (`live::catalog`).

pub mod activation;
mod book;
mod catalogs;
mod current;
mod difference;
pub mod discounts;
mod fields;
mod rate;
mod reading;
pub mod store;
mod versions;

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hyper::body::Bytes;

use kernel::clock::{Month, Time};
use kernel::money::{Pico, Ppm};

pub use book::{DiscountVersion, PriceBook, SINCE_EVER};
pub use catalogs::{Catalogs, Shared};
pub use current::{CurrentCatalog, Standing};
pub use difference::Difference;
use fields::Fields;
pub use rate::{MOST_EXPENSIVE, rate};
pub use versions::{FIXED_MS, Facts, NewVersions, in_words};

const BUILT_IN: &str = include_str!("../../../catalog/default.toml");

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
    /// Whether it is no longer offered: unknown to callers. Usage of it still counts, at its prices.
    pub retired: bool,
    /// Oldest first; no two from the same instant. A model without a price is shown but can't be used.
    pub prices: Vec<Price>,
}

impl Model {
    /// The price in force at `time`.
    pub fn price_at(&self, time: Time) -> Option<&Price> {
        book::price_at(&self.prices, time)
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

/// Tokens above the threshold cost this fraction less (docs/contract/billing.md#volume-discounts).
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
    /// Those of the file, the oldest first.
    discounts: Vec<DiscountVersion>,
    /// The currency that the file names.
    currency: Option<String>,
    /// Every version: those of the file, until [`Catalog::with_book`] has put the database's in their place.
    book: PriceBook,
    /// See [`Catalog::listing`].
    listing: OnceLock<Bytes>,
    places: Places,
}

/// Where things stand in the file, for what is noticed only after it was read.
#[derive(Clone, Default, Debug)]
struct Places {
    file: String,
    /// Lines of models, by id.
    models: HashMap<String, usize>,
    /// Lines of prices, by model and instant.
    prices: HashMap<(String, Time), usize>,
    /// The first line of the discounts of each instant.
    discounts: HashMap<Time, usize>,
    currency: Option<usize>,
}

impl Catalog {
    /// The six models that are built in (docs/contract/models.md#built-in-catalog).
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
        let currency =
            if root.has("currency") { root.line("currency").zip(root.currency("currency")) } else { None };
        let model_nodes = root.list("models");
        let discount_nodes = root.list("volume_discounts");
        root.finish();

        let models: Vec<_> =
            model_nodes.iter().filter_map(|node| reading::model(name, node, &mut problems)).collect();
        let discounts = reading::discounts(name, discount_nodes, &mut problems);
        if model_nodes.is_empty() && problems.is_empty() {
            problems.push(format!("{name}:1: expected at least one `[[models]]` table"));
        }
        let mut catalog = Self::empty();
        catalog.places.file = name.to_owned();
        if let Some((line, currency)) = currency {
            (catalog.places.currency, catalog.currency) = (Some(line), Some(currency));
        }
        for (line, version) in discounts {
            catalog.places.discounts.insert(version.effective_at, line);
            catalog.discounts.push(version);
        }
        for found in models {
            if let Err(problem) = catalog.add(found) {
                problems.push(problem);
            }
        }
        let prices = catalog
            .models
            .iter()
            .flat_map(|model| model.prices.iter().map(|price| (model.id.clone(), price.clone())));
        catalog.book = PriceBook::new(prices, catalog.discounts.iter().cloned());
        if problems.is_empty() { Ok(catalog) } else { Err(CatalogError { problems }) }
    }

    /// Neither a model nor a discount.
    pub fn empty() -> Self {
        Self {
            models: Vec::new(),
            by_id: HashMap::new(),
            discounts: Vec::new(),
            currency: None,
            book: PriceBook::default(),
            listing: OnceLock::new(),
            places: Places::default(),
        }
    }

    /// The same models with the prices and the discounts of this book, whatever those of the file are.
    pub fn with_book(&self, book: PriceBook) -> Self {
        let models = self.models.iter().map(|model| {
            let prices = book.prices_of(&model.id);
            let same = model.prices == prices;
            if same {
                Arc::clone(model)
            } else {
                Arc::new(Model { prices: prices.to_vec(), ..(**model).clone() })
            }
        });
        let models: Vec<_> = models.collect();
        Self {
            by_id: models.iter().map(|model| (model.id.clone(), Arc::clone(model))).collect(),
            models,
            discounts: self.discounts.clone(),
            currency: self.currency.clone(),
            book,
            listing: OnceLock::new(),
            places: self.places.clone(),
        }
    }

    /// Refuses a catalog that names another currency than this one; one that names none is in it.
    ///
    /// # Errors
    /// The line, and what to do.
    pub fn check_currency(&self, currency: &str) -> Result<(), CatalogError> {
        let Some(own) = self.currency.as_deref().filter(|own| *own != currency) else { return Ok(()) };
        let place = self.places.place(self.places.currency.as_ref());
        let problem = format!(
            "{place}: `currency`: the prices are in {own}, and `billing.currency` is {currency}: use a catalog in {currency}, or set \
             `billing.currency` to {own} where no organization has another currency yet"
        );
        Err(CatalogError { problems: vec![problem] })
    }

    /// The currency that the file names, if it does.
    pub fn currency(&self) -> Option<&str> {
        self.currency.as_deref()
    }

    /// Everything that makes this catalog another than another, as a text: the same for any file that says the same.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        for model in &self.models {
            let Model {
                id, kind, description, owned_by, created, root, parent, max_tokens, dimension, ..
            } = &**model;
            let limits = (model.max_requests_per_min, model.max_concurrent_requests, model.retired);
            // Writing to a string can't fail.
            let kind = kind.as_str();
            writeln!(
                text,
                "{:?}",
                (id, kind, description, owned_by, created, root, parent, max_tokens, dimension, limits)
            )
            .ok();
            for price in &model.prices {
                let price = (price.effective_at.unix_ms(), price.prompt.units(), price.completion.units());
                writeln!(text, "{price:?}").ok();
            }
        }
        for version in &self.discounts {
            let tiers = version.tiers.iter().map(|tier| (tier.threshold, tier.discount.units()));
            writeln!(text, "{} {:?}", version.effective_at.unix_ms(), tiers.collect::<Vec<_>>()).ok();
        }
        text
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

    fn add(&mut self, found: reading::Found) -> Result<(), String> {
        let reading::Found { line, model, price_lines } = found;
        let (id, model) = (model.id.clone(), Arc::new(model));
        if self.by_id.insert(id.clone(), Arc::clone(&model)).is_some() {
            let file = &self.places.file;
            return Err(format!("{file}:{line}: model `{id}`: `id`: there are two models with this id"));
        }
        self.models.push(model);
        let prices = price_lines.into_iter().map(|(effective_at, line)| ((id.clone(), effective_at), line));
        self.places.prices.extend(prices);
        self.places.models.insert(id, line);
        Ok(())
    }

    /// The model of this id; none when it is retired.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).filter(|model| !model.retired)
    }

    /// The model of this id, a retired one too: what was used of it while it was offered is reported later.
    pub fn get_even_retired(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id)
    }

    /// Every model that is offered, in the order of the file.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter().filter(|model| !model.retired)
    }

    /// Every model in the file, in its order.
    pub fn models_even_retired(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// What is allowed and may still be a mistake, each with its place: models that can't be used at `now` for want of a
    /// price.
    pub fn warnings(&self, now: Time) -> Vec<String> {
        let unpriced = self.models().filter(|model| model.price_at(now).is_none());
        let warning = |model: &Arc<Model>| {
            let why = match model.prices.first() {
                None => "it has no price".to_owned(),
                Some(first) => format!("its first price holds from {} on", first.effective_at),
            };
            let id = &model.id;
            format!("{}: model `{id}`: {why}: it is listed, and can't be used now", self.place_of(id))
        };
        unpriced.map(warning).collect()
    }

    /// File and line of a model.
    fn place_of(&self, id: &str) -> String {
        self.places.place(self.places.models.get(id))
    }

    /// File and line of a price.
    fn place_of_price(&self, id: &str, price: &Price) -> String {
        self.places.place(self.places.prices.get(&(id.to_owned(), price.effective_at)))
    }

    /// File and line of the discounts of an instant.
    fn place_of_discounts(&self, effective_at: Time) -> String {
        self.places.place(self.places.discounts.get(&effective_at))
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

    /// Every version of prices and discounts.
    pub fn book(&self) -> &PriceBook {
        &self.book
    }

    /// The price of a model that holds from this instant on, in unix milliseconds; of models too that are in no file any more.
    pub fn price(&self, model: &str, version: i64) -> Option<&Price> {
        self.book.price(model, version)
    }

    /// The discounts in force at `time`, the lowest threshold first.
    pub fn tiers_at(&self, time: Time) -> &[VolumeDiscount] {
        self.book.tiers_at(time)
    }

    /// The discounts of a month: those in force at its first instant.
    pub fn tiers_of_month(&self, month: Month) -> &[VolumeDiscount] {
        self.book.tiers_of_month(month)
    }
}

impl Places {
    fn place(&self, line: Option<&usize>) -> String {
        let file = &self.file;
        line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
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

#[cfg(test)]
mod tests;
