//! The file of a catalog: its keys, and the rules that span several keys. A mistake is reported with its
//! line, and with its model or upstream.

mod costs;
mod prices;
mod upstreams;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use kernel::clock::Time;
use kernel::document::values::{Table, currency, decimal, text, time, whole, word};
use kernel::document::{self, Mistake, MistakeKind, Spanned, did_you_mean, shown};
use kernel::money::Ppm;

use super::book;
use super::{
    Affinity, BEGINNING, DiscountVersion, Kind, MaxTokensPolicy, Model, Price, Upstream, VolumeDiscount,
    is_model_id,
};
use prices::PriceEntry;
pub use upstreams::{Environment, ParsedUpstream};
use upstreams::{RouteEntry, SECRET_KEYS, UpstreamEntry};

/// The root table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default, deserialize_with = "currency")]
    pub currency: Option<String>,
    #[serde(default)]
    pub upstreams: Vec<Spanned<Table<UpstreamEntry>>>,
    #[serde(default)]
    pub models: Vec<Spanned<Table<ModelEntry>>>,
    #[serde(default)]
    pub volume_discounts: Vec<Spanned<Table<DiscountEntry>>>,
}

/// A table `[[models]]`; see [`Model`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    #[serde(deserialize_with = "id")]
    id: String,
    #[serde(default)]
    aliases: Vec<Spanned<Alias>>,
    #[serde(deserialize_with = "word")]
    kind: Kind,
    #[serde(deserialize_with = "line::<1_000, _>")]
    description: String,
    #[serde(deserialize_with = "line::<100, _>")]
    owned_by: String,
    /// The time is at most the end of the year 9999.
    #[serde(deserialize_with = "whole::<0, 253_402_300_799, _, _>")]
    created: i64,
    #[serde(default, deserialize_with = "id")]
    root: Option<String>,
    #[serde(default, deserialize_with = "id")]
    parent: Option<String>,
    #[serde(deserialize_with = "whole::<1, 1_000_000_000, _, _>")]
    max_tokens: i64,
    default_max_tokens: Option<Spanned<DefaultMaxTokens>>,
    max_tokens_policy: Option<Spanned<Policy>>,
    context_length: Option<ContextLength>,
    dimension: Option<Spanned<Dimension>>,
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    max_requests_per_min: u32,
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    max_concurrent_requests: u32,
    #[serde(default)]
    retired: bool,
    #[serde(default)]
    prices: Vec<Spanned<Table<PriceEntry>>>,
    #[serde(default)]
    routes: Vec<Spanned<Table<RouteEntry>>>,
    #[serde(default, deserialize_with = "word")]
    affinity: Affinity,
}

#[derive(Deserialize)]
struct ContextLength(#[serde(deserialize_with = "whole::<1, 1_000_000_000, _, _>")] i64);

#[derive(Deserialize)]
struct Alias(#[serde(deserialize_with = "id")] String);

#[derive(Deserialize)]
struct DefaultMaxTokens(#[serde(deserialize_with = "whole::<1, 1_000_000_000, _, _>")] i64);

#[derive(Deserialize)]
struct Policy(#[serde(deserialize_with = "word")] MaxTokensPolicy);

#[derive(Deserialize)]
struct Dimension(#[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")] i64);

/// A table `[[volume_discounts]]`; see [`VolumeDiscount`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscountEntry {
    #[serde(default, deserialize_with = "time")]
    effective_at: Option<Time>,
    #[serde(deserialize_with = "whole::<0, { i64::MAX }, _, _>")]
    threshold: i64,
    #[serde(deserialize_with = "fraction")]
    discount: Ppm,
}

fn id<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    let id = |text: &str| is_model_id(text).then(|| text.to_owned().into());
    text(deserializer, "1 to 128 letters, digits and `. _ - / :`", id)
}

fn line<'de, const MAX: usize, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer, &format!("a string of 1 to {MAX} characters on one line"), |text| {
        let fits = (1..=MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned())
    })
}

fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ppm, D::Error> {
    decimal(deserializer, "a fraction", Ppm::from_units(1_000_000), "\"0.05\"")
}

/// Describes a mistake, with its model or upstream.
pub fn describe(mistake: &Mistake<'_>, text: &str) -> String {
    let (table, key) = mistake.key.rsplit_once('.').unwrap_or(("", &mistake.key));
    let label = match table.split('.').next() {
        Some("models") => label_at(text, mistake.at, "model"),
        Some("upstreams") => label_at(text, mistake.at, "upstream"),
        Some("volume_discounts") => "volume discount: ".to_owned(),
        _ => String::new(),
    };
    match &mistake.kind {
        MistakeKind::Syntax(why) => why.clone(),
        MistakeKind::UnknownKey(known) => {
            let mut hint = did_you_mean(key, known.iter().map(String::as_str));
            if hint.is_empty() && table.ends_with(".components") {
                hint = format!(": the components are {}", known.join(", "));
            }
            format!("{label}unknown key `{key}`{hint}")
        }
        MistakeKind::MissingKey => format!("{label}the key `{key}` is missing"),
        // These tables aren't arrays.
        MistakeKind::Wrong { found, .. } if matches!(key, "cost" | "components") => {
            format!(
                "{label}`{key}`: expected a table such as `{{ request = \"0.001\" }}`, found {}",
                shown(found)
            )
        }
        MistakeKind::Wrong { expected, .. } if expected == "expected a table" => {
            format!("{label}`{key}`: expected tables: write `[[{}]]` and their keys below", mistake.key)
        }
        MistakeKind::Wrong { expected, .. } if table == "upstreams" && SECRET_KEYS.contains(&key) => {
            format!("{label}`{key}`: {expected}")
        }
        MistakeKind::Wrong { expected, found } => {
            format!("{label}`{key}`: {expected}, found {}", shown(found))
        }
    }
}

/// Returns the label of the last `model` or `upstream` that begins at or before this position.
fn label_at(text: &str, at: usize, noun: &str) -> String {
    let table = document::parse(text).unwrap_or_default();
    let entries = table.get(format!("{noun}s").as_str()).and_then(|entries| entries.get_ref().as_array());
    let entry = entries.and_then(|entries| entries.iter().rfind(|entry| entry.span().start <= at));
    match entry.and_then(|entry| entry.get_ref().get("id")).map(|id| id.get_ref().as_str()) {
        Some(Some(id)) => format!("{noun} `{id}`: "),
        Some(None) => format!("{noun}: "),
        None => format!("{noun} without `id`: "),
    }
}

/// A checker of the rules that span several keys of a file.
pub struct Rules<'a> {
    file: &'a str,
    text: &'a str,
    /// The violations, with their lines.
    problems: Vec<(usize, String)>,
}

/// A model of the file, with its line numbers.
pub struct ParsedModel {
    /// The line of the model's table.
    pub line: usize,
    pub model: Model,
    /// The line of each price, by its version.
    pub price_lines: Vec<(i64, usize)>,
    /// The lines of the aliases, in the order of the aliases.
    pub alias_lines: Vec<usize>,
}

impl<'a> Rules<'a> {
    pub fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, problems: Vec::new() }
    }

    /// Returns the violations, ordered by line.
    pub fn problems(mut self) -> Vec<String> {
        self.problems.sort();
        self.problems.iter().map(|(line, why)| format!("{}:{line}: {why}", self.file)).collect()
    }

    /// Checks a model. Its routes may refer to these upstreams.
    pub fn model(&mut self, entry: Spanned<Table<ModelEntry>>, upstreams: &[Arc<Upstream>]) -> ParsedModel {
        let line = self.line(&entry);
        let Table(entry) = entry.into_inner();
        let label = format!("model `{}`", entry.id);
        match (entry.kind, &entry.dimension) {
            (Kind::Chat, Some(dimension)) => {
                let place = self.line(dimension);
                self.refuse(place, &format!("{label}: `dimension`: only embedding models have one"));
            }
            (Kind::Embeddings, None) => {
                self.refuse(line, &format!("{label}: the key `dimension` is missing"));
            }
            _ => {}
        }
        self.limits(&entry, line, &label);
        let alias_lines = entry.aliases.iter().map(|alias| self.line(alias)).collect();
        let (max_tokens, kind) = (entry.max_tokens, entry.kind);
        let prices = entry.prices.into_iter().map(|price| self.price(price, kind, &label));
        let mut prices: Vec<(usize, Price)> = prices.collect();
        self.check_prices(&prices, max_tokens, &label);
        prices.sort_by_key(|(_, price)| book::order(price));
        let price_lines = prices.iter().map(|(line, price)| (price.version, *line)).collect();
        let routes = self.routes(entry.routes, (&entry.id, entry.kind, entry.max_tokens), upstreams);
        let model = Model {
            root: entry.root.unwrap_or_else(|| entry.id.clone()),
            id: entry.id,
            aliases: entry.aliases.into_iter().map(|alias| alias.into_inner().0).collect(),
            kind: entry.kind,
            description: entry.description,
            owned_by: entry.owned_by,
            created: entry.created,
            parent: entry.parent,
            max_tokens: entry.max_tokens,
            default_max_tokens: entry.default_max_tokens.map(|tokens| tokens.into_inner().0),
            max_tokens_policy: entry
                .max_tokens_policy
                .map_or_else(Default::default, |one| one.into_inner().0),
            context_length: entry.context_length.map(|ContextLength(tokens)| tokens),
            dimension: entry.dimension.map(|dimension| dimension.into_inner().0),
            max_requests_per_min: entry.max_requests_per_min,
            max_concurrent_requests: entry.max_concurrent_requests,
            retired: entry.retired,
            prices: prices.into_iter().map(|(_, price)| price).collect(),
            routes,
            affinity: entry.affinity,
        };
        ParsedModel { line, model, price_lines, alias_lines }
    }

    /// Checks the token limits of a model.
    fn limits(&mut self, entry: &ModelEntry, line: usize, label: &str) {
        let ModelEntry { kind, max_tokens, default_max_tokens, max_tokens_policy, .. } = entry;
        if *kind == Kind::Embeddings {
            let only_chat = "only chat models have it: an embedding model generates no tokens";
            if let Some(tokens) = default_max_tokens {
                self.refuse(self.line(tokens), &format!("{label}: `default_max_tokens`: {only_chat}"));
            }
            if let Some(policy) = max_tokens_policy {
                self.refuse(self.line(policy), &format!("{label}: `max_tokens_policy`: {only_chat}"));
            }
        } else if let Some(tokens) = default_max_tokens
            && tokens.get_ref().0 > *max_tokens
        {
            let default = tokens.get_ref().0;
            let why = format!(
                "{label}: `default_max_tokens`: {default} is more than `max_tokens`, {max_tokens}, of the model on line {line}"
            );
            self.refuse(self.line(tokens), &why);
        }
    }

    /// Collects the versions of the discounts, oldest first, each with its first line.
    pub fn discounts(
        &mut self,
        entries: Vec<Spanned<Table<DiscountEntry>>>,
    ) -> Vec<(usize, DiscountVersion)> {
        let mut versions: BTreeMap<Time, (usize, DiscountVersion)> = BTreeMap::new();
        for entry in entries {
            let line = self.line(&entry);
            let Table(DiscountEntry { effective_at, threshold, discount }) = entry.into_inner();
            let effective_at = effective_at.unwrap_or(BEGINNING).max(BEGINNING);
            let empty = || (line, DiscountVersion { effective_at, tiers: Vec::new() });
            let (_, version) = versions.entry(effective_at).or_insert_with(empty);
            if version.tiers.iter().any(|other| other.threshold == threshold) {
                let of = if effective_at == BEGINNING {
                    String::new()
                } else {
                    format!(" from {effective_at} on")
                };
                self.refuse(
                    line,
                    &format!(
                        "volume discount: `threshold`: two discounts have the threshold {threshold}{of}"
                    ),
                );
            }
            version.tiers.push(VolumeDiscount { threshold, discount });
        }
        let mut versions: Vec<_> = versions.into_values().collect();
        for (_, version) in &mut versions {
            version.tiers.sort_by_key(|discount| discount.threshold);
            // A file with only zero discounts from a point in time ends all discounts.
            if version.tiers.iter().all(|tier| tier.discount == Ppm::ZERO) {
                version.tiers.clear();
            }
        }
        versions
    }

    /// Adds a violation.
    pub fn refuse(&mut self, line: usize, why: &str) {
        self.problems.push((line, why.to_owned()));
    }

    fn line<T>(&self, value: &Spanned<T>) -> usize {
        document::line(self.text, value.span().start)
    }
}
