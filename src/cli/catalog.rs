//! `tollkeeper catalog …`

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::config::Config;
use catalog::{
    BEGINNING, Catalog, CatalogError, ComponentPrices, Conditions, Model, Price, PriceBook, Route,
    ServiceTier, VolumeDiscount,
};
use kernel::clock::{Clock, Time};

use catalog::activation::ActivationError;
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a catalog file, and list its errors or its contents. Requires neither a server nor a
    /// configuration
    Check {
        /// The TOML file
        file: PathBuf,
        /// Reject a file whose `currency` is missing or different
        #[arg(long, value_name = "CODE")]
        currency: Option<String>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check the configured `catalog_file`, activate it, and make all running servers reload their own
    /// catalog files within a second
    Reload {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show all prices and discounts in the database with their effective times. Requires no catalog file
    Show {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Checks a file without activating it.
pub fn check(file: &Path, currency: Option<&str>, as_json: bool) -> Result<(), String> {
    let now = Clock::System.now();
    let name = file.display().to_string();
    let outcome = Catalog::load(file).and_then(|catalog| {
        require_currency(&name, &catalog, currency)?;
        Ok(catalog)
    });
    if as_json {
        let report = match &outcome {
            Ok(catalog) => report(&name, catalog, now),
            Err(error) => json!({"file": name, "valid": false, "mistakes": error.problems}),
        };
        super::print(&report.to_string());
    }
    let catalog = outcome.map_err(|error| error.to_string())?;
    if !as_json {
        super::print(&summary(&name, &catalog, now));
    }
    Ok(())
}

fn require_currency(name: &str, catalog: &Catalog, currency: Option<&str>) -> Result<(), CatalogError> {
    let problem = match (currency, catalog.currency()) {
        (Some(asked), Some(named)) if asked != named => {
            format!("{name}: `currency`: the prices are in {named}, not in {asked}")
        }
        (Some(asked), None) => {
            format!("{name}: the key `currency` is missing: add `currency = \"{asked}\"` at the top")
        }
        _ => return Ok(()),
    };
    Err(CatalogError { problems: vec![problem] })
}

/// Activates the file and notifies running servers. It's loaded here first, so that errors are reported here
/// and not in the servers' logs.
pub fn reload(config: Config, as_json: bool) -> Result<(), String> {
    let Some(file) = config.catalog_file.clone() else {
        return Err("no `catalog_file` is configured here (TOLLKEEPER_CATALOG_FILE), so the built-in catalog is in use and \
                    can't be reloaded; set it, and restart the servers once"
            .to_owned());
    };
    let catalog = Catalog::load(&file).map_err(|error| error.to_string())?;
    let warnings = super::runtime()?.block_on(activate(config, &catalog))?;
    let (name, now) = (file.display().to_string(), Clock::System.now());
    super::print(&if as_json {
        report(&name, &catalog, now).to_string()
    } else {
        let models = summary(&name, &catalog, now);
        let warnings: String = warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect();
        format!(
            "{models}{warnings}\nIt is in force. Running servers read their catalog files again within a second; their logs show the \
             result."
        )
    });
    Ok(())
}

async fn activate(config: Config, catalog: &Catalog) -> Result<Vec<String>, String> {
    let app = super::app(config).await?;
    let ordered =
        catalog::activation::put_in_force_everywhere(&app.catalogs, catalog, &Trail::operator()).await;
    ordered.map_err(|problem| match problem {
        ActivationError::Refused(error) => error.to_string(),
        ActivationError::Failed(error) => error.to_string(),
    })
}

/// Prints the prices in the database.
pub fn show(config: Config, as_json: bool) -> Result<(), String> {
    let now = Clock::System.now();
    let app = super::runtime()?.block_on(super::app(config))?;
    let catalog = app.catalog.now();
    let book = catalog.book();
    super::print(&if as_json { price_list_json(book, now).to_string() } else { price_list(book, now) });
    Ok(())
}

/// Returns `past`, `in force` or `to come`.
fn state(effective_at: Time, in_force: Option<Time>, now: Time) -> &'static str {
    match in_force {
        Some(time) if time == effective_at => "in force",
        _ if effective_at > now => "to come",
        _ => "past",
    }
}

fn price_list(book: &PriceBook, now: Time) -> String {
    let mut lines = Vec::new();
    for (model, prices) in book.prices() {
        lines.push(model.to_owned());
        let in_force = prices.iter().rev().find(|price| price.effective_at <= now);
        for price in prices {
            let from = price.effective_at;
            let state = state(from, in_force.map(|price| price.effective_at), now);
            lines.push(format!("  from {from}{}: {price} per token ({state})", conditions(price)));
        }
    }
    lines.push("volume discounts".to_owned());
    let in_force = book.discounts_at(now).map(|version| version.effective_at);
    for version in book.discounts() {
        let at = version.effective_at;
        let from = if at == BEGINNING { "since ever".to_owned() } else { format!("from {at}") };
        let (tiers, state) = (catalog::describe_tiers(&version.tiers), state(at, in_force, now));
        lines.push(format!("  {from}: {tiers} ({state})"));
    }
    lines.join("\n")
}

fn price_list_json(book: &PriceBook, now: Time) -> Value {
    let models = book.prices().map(|(model, prices)| {
        let in_force = prices.iter().rev().find(|price| price.effective_at <= now);
        let prices = prices.iter().map(|price| {
            let state = state(price.effective_at, in_force.map(|price| price.effective_at), now);
            price_json(price, "state", state)
        });
        json!({"id": model, "prices": prices.collect::<Value>()})
    });
    let in_force = book.discounts_at(now).map(|version| version.effective_at);
    let discounts = book.discounts().iter().map(|version| {
        json!({"effective_at": version.effective_at, "tiers": tiers(&version.tiers),
               "state": state(version.effective_at, in_force, now)})
    });
    json!({"models": models.collect::<Value>(), "volume_discounts": discounts.collect::<Value>()})
}

/// Returns the conditions of a price, shown after its effective time; empty without any.
fn conditions(price: &Price) -> String {
    let conditions = price.conditions.to_string();
    if conditions.is_empty() { conditions } else { format!(" ({conditions})") }
}

/// Returns a price with an additional member.
fn price_json(price: &Price, name: &str, value: impl Into<Value>) -> Value {
    let parts = price
        .parts
        .iter()
        .map(|(part, price)| (part.as_str().to_owned(), Value::from(price.map(|price| price.to_string()))));
    let Conditions { service_tier, above_prompt_tokens, hours } = &price.conditions;
    json!({"effective_at": price.effective_at, "prompt_tokens": price.prompt.to_string(),
           "cached_prompt_tokens": price.cached_prompt.map(|price| price.to_string()),
           "completion_tokens": price.completion.to_string(), "components": parts.collect::<Value>(),
           "conditions": {"service_tier": service_tier.map(ServiceTier::as_str),
                          "above_prompt_tokens": above_prompt_tokens,
                          "hours": hours.as_ref().map(ToString::to_string)},
           name: value.into()})
}

fn tiers(tiers: &[VolumeDiscount]) -> Value {
    tiers
        .iter()
        .map(|tier| json!({"threshold": tier.threshold, "discount": tier.discount.to_string()}))
        .collect()
}

/// Returns the JSON output. Prices are decimal strings, so that they stay exact.
fn report(file: &str, catalog: &Catalog, now: Time) -> Value {
    let prices = |model: &Model| -> Value {
        let in_force = model.price_at(now).map(|price| price.effective_at);
        let prices = model
            .prices
            .iter()
            .map(|price| price_json(price, "in_force", in_force == Some(price.effective_at)));
        prices.collect()
    };
    let route = |route: &Route| {
        let Route { upstream, model, weight, tier, cost } = route;
        json!({"upstream": upstream.id, "model": model, "weight": weight, "tier": tier,
               "cost": cost.as_ref().map(|cost| costs(cost))})
    };
    let models = catalog.all_models().map(|model| {
        json!({"id": model.id, "kind": model.kind.as_str(), "retired": model.retired, "max_tokens": model.max_tokens,
               "max_requests_per_min": model.max_requests_per_min,
               "max_concurrent_requests": model.max_concurrent_requests, "prices": prices(model),
               "routes": model.routes.iter().map(route).collect::<Value>()})
    });
    let upstreams = catalog.upstreams().iter().map(|upstream| {
        json!({"id": upstream.id, "kind": upstream.kind.as_str(), "url": upstream.url.as_ref().map(ToString::to_string),
               "has_credential": upstream.credential.is_some()})
    });
    json!({"file": file, "valid": true, "currency": catalog.currency(), "models": models.collect::<Value>(),
           "upstreams": upstreams.collect::<Value>(),
           "volume_discounts": tiers(catalog.tiers_at(now)), "warnings": catalog.warnings(now)})
}

/// Returns the costs of a route by component, as decimal strings.
fn costs(cost: &ComponentPrices) -> Value {
    let costs = cost.list().into_iter();
    costs.map(|(component, cost)| (component.as_str().to_owned(), Value::from(cost.to_string()))).collect()
}

/// Returns the routes of a model, such as `llama-70b at vllm-a (weight 2), svc-1 at vllm-b (tier 1)`.
fn routes(model: &Model) -> String {
    let route = |route: &Route| {
        let Route { upstream, model, weight, tier, cost: _ } = route;
        let id = &upstream.id;
        match (weight, tier) {
            (1, 0) => format!("{model} at {id}"),
            (_, 0) => format!("{model} at {id} (weight {weight})"),
            (1, _) => format!("{model} at {id} (tier {tier})"),
            _ => format!("{model} at {id} (weight {weight}, tier {tier})"),
        }
    };
    model.routes.iter().map(route).collect::<Vec<_>>().join(", ")
}

/// Returns the text output: one line per model, price, list of routes, and warning.
fn summary(file: &str, catalog: &Catalog, now: Time) -> String {
    let offered = catalog.models().count();
    let retired = catalog.all_models().count() - offered;
    let (discounts, upstreams) = (catalog.tiers_at(now).len(), catalog.upstreams().len());
    let mut lines = vec![format!(
        "{file} is a valid catalog: {offered} models, {retired} retired, {discounts} volume discounts, \
         {upstreams} upstreams."
    )];
    for model in catalog.all_models() {
        let retired = if model.retired { ", retired" } else { "" };
        lines.push(format!(
            "{} ({}{retired}): at most {} tokens per request, {} requests per minute, {} concurrent requests",
            model.id,
            model.kind.as_str(),
            model.max_tokens,
            model.max_requests_per_min,
            model.max_concurrent_requests
        ));
        let in_force = model.price_at(now).map(|price| price.effective_at);
        for price in &model.prices {
            let from = price.effective_at;
            let state = match in_force {
                Some(time) if time == from => " (in force)",
                _ if from > now => " (to come)",
                _ => "",
            };
            lines.push(format!("  from {from}{}: {price} per token{state}", conditions(price)));
        }
        if !model.routes.is_empty() {
            lines.push(format!("  routes: {}", routes(model)));
        }
        let costs = model.routes.iter().filter_map(|route| Some((route, route.cost.as_ref()?)));
        lines.extend(costs.map(|(route, cost)| {
            let costs: Vec<_> =
                cost.list().iter().map(|(part, cost)| format!("{} {cost}", part.as_str())).collect();
            format!("  cost of {} at {}: {}", route.model, route.upstream.id, costs.join(", "))
        }));
    }
    lines.extend(catalog.warnings(now).iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}
