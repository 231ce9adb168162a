//! The model catalog: models with their limits, prices and routes to upstreams, from a TOML file.
//!
//! `catalog/default.toml` is built in and shows the format. A file with mistakes is refused as a whole, and
//! each mistake is reported with its line, the model or upstream, the key and the expected value.
//!
//! - [`Catalog`] is the content of a file, with the credentials of its upstreams. It is immutable; a reload
//!   replaces it.
//! - [`Upstream`] is an inference server, and [`Route`] connects a model to an upstream.
//! - [`CurrentCatalog`] holds the catalog in use. [`Catalogs`] is the handle of [`activation`], which puts a
//!   catalog in force in the database and notifies the other replicas.
//! - [`PriceBook`] has the versions of all prices and discounts. [`NewVersions`] has the versions that a
//!   catalog adds, and [`Difference`] lists the changes of a reload.
//! - [`rate()`] and [`discounts`] compute prices.
//! - [`store`] holds the SQL.

pub mod activation;
mod book;
mod catalog_upstreams;
mod catalogs;
mod components;
mod conditions;
mod current;
mod difference;
pub mod discounts;
mod kind;
mod model;
mod price;
mod rate;
mod reading;
mod refusals;
pub mod store;
mod upstreams;
mod versions;

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hyper::body::Bytes;

use kernel::clock::{Month, Time};
use kernel::document::{self, Mistake};
use kernel::money::Pico;

pub use book::{BEGINNING, DiscountVersion, PriceBook};
pub use catalogs::{Catalogs, Shared};
pub use components::{Component, EventParts, PartPrices, Parts, PerPart};
pub use conditions::{CallFacts, Conditions, Hours, ServiceTier};
pub use current::{CurrentCatalog, Status};
pub use difference::Difference;
pub use kind::Kind;
pub use model::{MaxTokensPolicy, Model};
pub use price::{Price, VolumeDiscount};
pub use rate::{ComponentPrices, MAX_CALL_PRICE, Tokens, cost, rate};
pub use reading::Environment;
use reading::{ParsedModel, Rules};
pub use upstreams::{Affinity, MediaUrls, OnDisconnect, Route, Upstream, UpstreamKind};
pub use versions::{FREEZE_MS, NewPrice, NewVersions, StoredState, describe_tiers};

const BUILT_IN: &str = include_str!("../../../catalog/default.toml");

/// Maximum price of a single token: 1,000,000 of the currency. The limit catches misplaced decimal points,
/// and ensures that every price fits in the database.
const MAX_PRICE: Pico = Pico::from_units(1_000_000_000_000_000_000);

/// The models and discounts of a file. A catalog is immutable; a reload creates a new one.
#[derive(Clone, Debug)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    by_id: HashMap<String, Arc<Model>>,
    by_alias: HashMap<String, Arc<Model>>,
    upstreams: Vec<Arc<Upstream>>,
    /// Warnings about credential files that other users of the system can read.
    open_files: Vec<String>,
    /// The discounts of the file, oldest first.
    discounts: Vec<DiscountVersion>,
    /// The currency that the file names.
    currency: Option<String>,
    /// Every version: at first the versions of the file, which [`Catalog::with_book`] replaces with the
    /// database's.
    book: PriceBook,
    /// The cached lists of models; see [`Catalog::listing`].
    listings: [OnceLock<Bytes>; Listing::ALL.len()],
    lines: SourceLines,
}

/// The lines of a file, for mistakes that are found only after parsing.
#[derive(Clone, Default, Debug)]
struct SourceLines {
    file: String,
    /// The lines of models, by id.
    models: HashMap<String, usize>,
    /// The lines of aliases.
    aliases: HashMap<String, usize>,
    /// The lines of upstreams, by id.
    upstreams: HashMap<String, usize>,
    /// The lines of prices, by model and version.
    prices: HashMap<(String, i64), usize>,
    /// The first line of the discounts of each effective time.
    discounts: HashMap<Time, usize>,
    currency: Option<usize>,
}

impl Catalog {
    /// Returns the built-in catalog of six models (docs/contract/models.md#built-in-catalog), which the
    /// built-in upstream `demo` serves.
    ///
    /// # Errors
    /// Never fails in a release, because a test reads the built-in catalog.
    pub fn built_in() -> Result<Self, CatalogError> {
        let text = format!("{BUILT_IN}\n{}", upstreams::DEMO);
        Self::parse(&text, "catalog/default.toml").map(Self::with_all_routes)
    }

    /// Reads and checks the text of a catalog. `name` is the file name in errors, and relative paths are
    /// relative to its folder.
    ///
    /// # Errors
    /// The first invalid key or value; if all are valid, every violation of the rules that span several
    /// values.
    pub fn parse(text: &str, name: &str) -> Result<Self, CatalogError> {
        Self::parse_with(text, Path::new(name), |name| std::env::var(name))
    }

    /// Reads and checks the text of a catalog. Credentials come from files and from this environment.
    ///
    /// # Errors
    /// The first invalid key or value; if all are valid, every violation of the rules that span several
    /// values.
    pub fn parse_with(text: &str, file: &Path, environment: Environment) -> Result<Self, CatalogError> {
        let name = &file.display().to_string();
        let refused = |mistake: Mistake<'_>| CatalogError {
            problems: vec![format!("{name}:{}: {}", mistake.line, reading::describe(&mistake, text))],
        };
        let table = document::parse(text).map_err(refused)?;
        let reading::File { currency, upstreams, models, volume_discounts } =
            document::read(&table, text).map_err(refused)?;
        let mut catalog = Self::empty();
        catalog.lines.file = name.to_owned();
        let line_of_currency = document::find(&table, "currency").map(|found| found.span().start);
        catalog.lines.currency = line_of_currency.map(|at| document::line(text, at));
        catalog.currency = currency;
        let mut rules = Rules::new(name, text);
        if models.is_empty() {
            rules.refuse(1, "expected at least one `[[models]]` table");
        }
        for (line, version) in rules.discounts(volume_discounts) {
            catalog.lines.discounts.insert(version.effective_at, line);
            catalog.discounts.push(version);
        }
        let folder = file.parent().unwrap_or(file);
        for entry in upstreams {
            let found = rules.upstream(entry, folder, environment);
            catalog.add_upstream(found, &mut rules);
        }
        for entry in models {
            let found = rules.model(entry, &catalog.upstreams);
            catalog.add(found, &mut rules);
        }
        catalog.check_aliases(&mut rules);
        let prices = catalog
            .models
            .iter()
            .flat_map(|model| model.prices.iter().map(|price| (model.id.clone(), price.clone())));
        catalog.book = PriceBook::new(prices, catalog.discounts.iter().cloned());
        let problems = rules.problems();
        if problems.is_empty() { Ok(catalog) } else { Err(CatalogError { problems }) }
    }

    /// Returns a catalog without models and discounts.
    pub fn empty() -> Self {
        Self {
            models: Vec::new(),
            by_id: HashMap::new(),
            by_alias: HashMap::new(),
            upstreams: Vec::new(),
            open_files: Vec::new(),
            discounts: Vec::new(),
            currency: None,
            book: PriceBook::default(),
            listings: Default::default(),
            lines: SourceLines::default(),
        }
    }

    /// Returns a catalog with the same models, but with the prices and discounts of this book.
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
            by_alias: models.iter().flat_map(aliases_of).collect(),
            models,
            upstreams: self.upstreams.clone(),
            open_files: self.open_files.clone(),
            discounts: self.discounts.clone(),
            currency: self.currency.clone(),
            book,
            listings: Default::default(),
            lines: self.lines.clone(),
        }
    }

    /// Checks that the catalog doesn't name another currency.
    ///
    /// # Errors
    /// The catalog names another currency. The error has the line and a solution.
    pub fn check_currency(&self, currency: &str) -> Result<(), CatalogError> {
        let Some(own) = self.currency.as_deref().filter(|own| *own != currency) else { return Ok(()) };
        let place = self.lines.place(self.lines.currency.as_ref());
        let problem = format!(
            "{place}: `currency`: the prices are in {own}, and `billing.currency` is {currency}: use a \
             catalog in {currency}, or set `billing.currency` to {own} if no organization uses a different \
             currency yet"
        );
        Err(CatalogError { problems: vec![problem] })
    }

    /// Returns the currency that the file names, if any.
    pub fn currency(&self) -> Option<&str> {
        self.currency.as_deref()
    }

    /// Returns a string that is the same for all files with the same models, limits, prices and discounts. It
    /// doesn't include upstreams and routes, because each replica has its own.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        for model in &self.models {
            let Model {
                id, kind, description, owned_by, created, root, parent, max_tokens, dimension, ..
            } = &**model;
            let limits = (model.max_requests_per_min, model.max_concurrent_requests, model.retired);
            // Writing to a `String` can't fail.
            let kind = kind.as_str();
            writeln!(
                text,
                "{:?}",
                (id, kind, description, owned_by, created, root, parent, max_tokens, dimension, limits)
            )
            .ok();
            // Absent keys add no text, so that the text of a model without them is the same as in earlier
            // versions.
            if let Some(tokens) = model.context_length {
                writeln!(text, "context_length {tokens}").ok();
            }
            if let Some(tokens) = model.default_max_tokens {
                writeln!(text, "default_max_tokens {tokens}").ok();
            }
            if model.max_tokens_policy != MaxTokensPolicy::default() {
                writeln!(text, "max_tokens_policy {:?}", model.max_tokens_policy).ok();
            }
            for alias in &model.aliases {
                writeln!(text, "alias {alias}").ok();
            }
            for Price { effective_at, conditions, prompt, cached_prompt, completion, parts, .. } in
                &model.prices
            {
                let price = (effective_at.unix_ms(), prompt.units(), completion.units());
                writeln!(text, "{price:?}").ok();
                if let Some(cached_prompt) = cached_prompt {
                    writeln!(text, "cached_prompt {}", cached_prompt.units()).ok();
                }
                if let Some(parts) = parts.to_text() {
                    writeln!(text, "components {parts}").ok();
                }
                if !conditions.is_empty() {
                    writeln!(text, "conditions {}", conditions.to_text()).ok();
                }
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
    /// The file can't be read, or it has mistakes, all of which are reported.
    pub fn load(path: &Path) -> Result<Self, CatalogError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse_with(&text, path, |name| std::env::var(name)),
            Err(error) => {
                Err(CatalogError { problems: vec![format!("{name}: the file can't be read: {error}")] })
            }
        }
    }

    fn add(&mut self, found: ParsedModel, rules: &mut Rules<'_>) {
        let ParsedModel { line, model, price_lines, alias_lines } = found;
        let (id, model) = (model.id.clone(), Arc::new(model));
        if self.by_id.insert(id.clone(), Arc::clone(&model)).is_some() {
            rules.refuse(line, &format!("model `{id}`: `id`: two models have this id"));
        }
        self.models.push(Arc::clone(&model));
        self.by_alias.extend(aliases_of(&model));
        let prices = price_lines.into_iter().map(|(version, line)| ((id.clone(), version), line));
        self.lines.prices.extend(prices);
        self.lines.models.insert(id.clone(), line);
        for (alias, line) in model.aliases.iter().zip(alias_lines) {
            if let Some(other) = self.lines.aliases.get(alias) {
                let why = format!("model `{id}`: `aliases`: `{alias}` is an alias on line {other} already");
                rules.refuse(line, &why);
                continue;
            }
            self.lines.aliases.insert(alias.clone(), line);
        }
    }

    /// Refuses aliases that are ids of models, once all models are known.
    fn check_aliases(&self, rules: &mut Rules<'_>) {
        for (alias, line) in &self.lines.aliases {
            let owner = self.by_alias.get(alias).map_or("", |model| &model.id);
            if let Some(other) = self.lines.models.get(alias) {
                rules.refuse(
                    *line,
                    &format!("model `{owner}`: `aliases`: `{alias}` is the id of the model on line {other}"),
                );
            }
        }
    }

    /// Returns the model with this id, unless it is retired.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).filter(|model| !model.retired)
    }

    /// Returns the model with this id, even if it is retired, because its usage may be reported late.
    pub fn get_any(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id)
    }

    /// Returns the model with this id or alias, unless it is retired.
    pub fn find(&self, name: &str) -> Option<&Arc<Model>> {
        self.find_any(name).filter(|model| !model.retired)
    }

    /// Returns the model with this id or alias, even if it is retired, because its usage may be reported
    /// late.
    pub fn find_any(&self, name: &str) -> Option<&Arc<Model>> {
        self.by_id.get(name).or_else(|| self.by_alias.get(name))
    }

    /// Returns all offered models, in the order of the file.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter().filter(|model| !model.retired)
    }

    /// Returns all models, in the order of the file.
    pub fn all_models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// Returns warnings about allowed settings that may be mistakes, with their lines: models without a price
    /// at `now`, which can't be used, and questionable settings of upstreams.
    pub fn warnings(&self, now: Time) -> Vec<String> {
        let unpriced = self.models().filter(|model| model.price_at(now).is_none());
        let warning = |model: &Arc<Model>| {
            let why = match model.prices.first() {
                None => "it has no price".to_owned(),
                Some(first) => format!("its first price applies from {} on", first.effective_at),
            };
            let id = &model.id;
            format!("{}: model `{id}`: {why}: it is listed, and can't be used now", self.place_of(id))
        };
        let limited = self.models().filter_map(|model| self.limit_warning(model));
        unpriced.map(warning).chain(limited).chain(self.upstream_warnings()).collect()
    }

    /// Returns a warning for a model whose answers could be longer than its context.
    fn limit_warning(&self, model: &Model) -> Option<String> {
        let Model { id, max_tokens, .. } = model;
        let context =
            model.context_length.filter(|context| context < max_tokens && model.kind == Kind::Chat)?;
        Some(format!(
            "{}: model `{id}`: its `max_tokens` of {max_tokens} is more than its `context_length` of \
             {context}: no answer can be that long, so calls reserve too much money",
            self.place_of(id)
        ))
    }

    /// Returns the file and line of a model.
    fn place_of(&self, id: &str) -> String {
        self.lines.place(self.lines.models.get(id))
    }

    /// Returns the file and line of a price.
    fn place_of_price(&self, id: &str, price: &Price) -> String {
        self.lines.place(self.lines.prices.get(&(id.to_owned(), price.version)))
    }

    /// Returns the file and line of the discounts from this time on.
    fn place_of_discounts(&self, effective_at: Time) -> String {
        self.lines.place(self.lines.discounts.get(&effective_at))
    }

    /// Returns the list of all models in this form, as JSON. `render` is called once for each form. The lists
    /// are cached in the catalog, so they are replaced together with the models.
    ///
    /// # Errors
    /// The errors of `render`.
    pub fn listing<E>(
        &self,
        listing: Listing,
        render: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let Some(kept) = self.listings.get(listing as usize) else { return render() };
        if let Some(text) = kept.get() {
            return Ok(text.clone());
        }
        let text = render()?;
        Ok(kept.get_or_init(|| text).clone())
    }

    /// Returns every version of prices and discounts.
    pub fn book(&self) -> &PriceBook {
        &self.book
    }

    /// Returns the price of a model with this version, even if the model is no longer in the file.
    pub fn price(&self, model: &str, version: i64) -> Option<&Price> {
        self.book.price(model, version)
    }

    /// Returns the discounts in force at `time`, the lowest threshold first.
    pub fn tiers_at(&self, time: Time) -> &[VolumeDiscount] {
        self.book.tiers_at(time)
    }

    /// Returns the discounts of a month: the discounts in force at its start.
    pub fn tiers_of_month(&self, month: Month) -> &[VolumeDiscount] {
        self.book.tiers_of_month(month)
    }
}

/// Returns the aliases of a model, each paired with the model.
fn aliases_of(model: &Arc<Model>) -> impl Iterator<Item = (String, Arc<Model>)> {
    model.aliases.iter().map(|alias| (alias.clone(), Arc::clone(model)))
}

/// A form of the list of all models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    Models,
    /// The same models, each followed by its aliases.
    ModelsAndAliases,
}

impl Listing {
    /// All forms, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Models, Self::ModelsAndAliases];
}

impl SourceLines {
    fn place(&self, line: Option<&usize>) -> String {
        let file = &self.file;
        line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
    }
}

/// The mistakes that make a catalog unusable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatalogError {
    /// A sentence for each mistake, with its position and the expected value.
    pub problems: Vec<String>,
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl std::error::Error for CatalogError {}

/// Returns `true` if this can be the id of a model: 1 to 128 letters, digits and `. _ - / :`.
pub fn is_model_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests;
