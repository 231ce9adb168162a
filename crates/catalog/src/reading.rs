//! Reads models and discounts from the tables of a file, with a line for every mistake.

use std::collections::BTreeMap;

use document::{Node, Value};
use kernel::clock::Time;
use kernel::money::{Pico, Ppm};

use super::fields::{self, Fields};
use super::{BEGINNING, DiscountVersion, Kind, MAX_CALL_PRICE, Model, Price, VolumeDiscount, rate};

/// A model of the file with its lines.
pub struct ParsedModel {
    /// The line of the model's table.
    pub line: usize,
    pub model: Model,
    /// The line of each price, by its instant.
    pub price_lines: Vec<(Time, usize)>,
}

/// Reads a model. Mistakes are added to `problems`.
pub fn model(file: &str, node: &Node, problems: &mut Vec<String>) -> Option<ParsedModel> {
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
    let retired = if fields.has("retired") { fields.flag("retired") } else { Some(false) };
    let price_nodes = fields.list("prices");
    fields.finish();
    let prices = prices(file, &label, kind?, price_nodes, problems)?;
    if let Some(max_tokens) = max_tokens {
        problems.extend(prices.iter().filter_map(|(line, price)| {
            let why = price_problem(price, max_tokens)?;
            Some(format!("{file}:{line}: {label}: `prices`: {why}"))
        }));
    }
    let price_lines = prices.iter().map(|(line, price)| (price.effective_at, *line)).collect();
    let model = Model {
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
        retired: retired?,
        prices: prices.into_iter().map(|(_, price)| price).collect(),
    };
    Some(ParsedModel { line: node.line, model, price_lines })
}

/// Returns why this can't be a price of a model that takes this many tokens, or `None` if it can.
fn price_problem(price: &Price, max_tokens: i64) -> Option<String> {
    let amount = rate(price, max_tokens, max_tokens);
    if amount.is_some_and(|amount| amount <= MAX_CALL_PRICE) {
        return None;
    }
    Some(format!(
        "one call may cost at most {MAX_CALL_PRICE}, and one with {max_tokens} tokens in and out would cost \
         more: lower the price, or `max_tokens`"
    ))
}

/// Reads the prices of a model with their lines, the oldest first.
fn prices(
    file: &str,
    label: &str,
    kind: Kind,
    nodes: &[Node],
    problems: &mut Vec<String>,
) -> Option<Vec<(usize, Price)>> {
    let mut prices: Vec<(usize, Price)> = Vec::new();
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
        if prices.iter().any(|(_, price)| price.effective_at == effective_at) {
            problems.push(format!(
                "{file}:{}: {label}: `effective_at`: there are two prices from {effective_at} on",
                node.line
            ));
        }
        prices.push((node.line, Price { effective_at, prompt, completion }));
    }
    prices.sort_by_key(|(_, price)| price.effective_at);
    (problems.len() == before).then_some(prices)
}

/// Reads the discounts, the oldest version first, each with its first line. Mistakes are added to `problems`.
pub fn discounts(file: &str, nodes: &[Node], problems: &mut Vec<String>) -> Vec<(usize, DiscountVersion)> {
    let mut versions: BTreeMap<Time, (usize, DiscountVersion)> = BTreeMap::new();
    for node in nodes {
        let Value::Table(entries) = &node.value else {
            problems.push(format!(
                "{file}:{}: `volume_discounts`: expected tables: write `[[volume_discounts]]`",
                node.line
            ));
            continue;
        };
        let mut fields = Fields::new(file, Some("volume discount"), node.line, entries, problems);
        let effective_at =
            if fields.has("effective_at") { fields.time("effective_at") } else { Some(BEGINNING) };
        let threshold = fields.whole("threshold", 0..=i64::MAX);
        let discount = fields.fraction("discount");
        fields.finish();
        let (Some(effective_at), Some(threshold), Some(discount)) = (effective_at, threshold, discount)
        else {
            continue;
        };
        let effective_at = effective_at.max(BEGINNING);
        let empty = || (node.line, DiscountVersion { effective_at, tiers: Vec::new() });
        let (_, version) = versions.entry(effective_at).or_insert_with(empty);
        if version.tiers.iter().any(|other| other.threshold == threshold) {
            let of =
                if effective_at == BEGINNING { String::new() } else { format!(" from {effective_at} on") };
            problems.push(format!(
                "{file}:{}: volume discount: `threshold`: there are two with {threshold}{of}",
                node.line
            ));
        }
        version.tiers.push(VolumeDiscount { threshold, discount });
    }
    let mut versions: Vec<_> = versions.into_values().collect();
    for (_, version) in &mut versions {
        version.tiers.sort_by_key(|discount| discount.threshold);
        // This is how a file ends all discounts from an instant on.
        if version.tiers.iter().all(|tier| tier.discount == Ppm::ZERO) {
            version.tiers.clear();
        }
    }
    versions
}
