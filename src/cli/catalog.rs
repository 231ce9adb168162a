//! `tollkeeper catalog …`

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::access::Trail;
use crate::catalog::{Catalog, Model};
use crate::clock::{Clock, Time};
use crate::config::Config;
use crate::error::Error;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::changes::Change;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a catalog file: every mistake with its line, or what it holds. No server and no configuration is needed
    Check {
        /// The TOML file
        file: PathBuf,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check the configured `catalog_file`, and have every running server read its own anew, within a second
    Reload {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Checks a file without using it.
pub fn check(file: &Path, as_json: bool) -> Result<(), String> {
    let now = Clock::System.now();
    let name = file.display().to_string();
    let outcome = Catalog::load(file);
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

/// Tells running servers. The own reading of the file comes first, so that a mistake is met here and not in their logs.
pub fn reload(config: Config, as_json: bool) -> Result<(), String> {
    let Some(file) = config.catalog_file.clone() else {
        return Err("no `catalog_file` is configured here (TOLLKEEPER_CATALOG_FILE), so the built-in catalog is in use and \
                    there is nothing to reload; set it, and restart the servers once"
            .to_owned());
    };
    let catalog = Catalog::load(&file).map_err(|error| error.to_string())?;
    super::runtime()?.block_on(order(config))?;
    let (name, now) = (file.display().to_string(), Clock::System.now());
    super::print(&if as_json {
        report(&name, &catalog, now).to_string()
    } else {
        let models = summary(&name, &catalog, now);
        format!(
            "{models}\nRunning servers read their catalog files again within a second; their logs say what came of it."
        )
    });
    Ok(())
}

async fn order(config: Config) -> Result<(), String> {
    let app = super::app(config).await?;
    let ordered = async {
        let now = app.clock.now();
        let mut tx = app.db.write().await?;
        let event = Event {
            action: Action::CatalogReloadOrdered,
            target: "catalog".to_owned(),
            organization_id: None,
        };
        store::audit_log::record(&mut tx, &Trail::operator(), &event, now, &app.random).await?;
        store::changes::record(&mut tx, Change::Catalog, now).await?;
        Ok::<_, Error>(tx.commit().await?)
    };
    ordered.await.map_err(|error| error.to_string())
}

/// For programs: prices as decimals in strings, so that they stay exact.
fn report(file: &str, catalog: &Catalog, now: Time) -> Value {
    let prices = |model: &Model| -> Value {
        let in_force = model.price_at(now).map(|price| price.effective_at);
        let prices = model.prices.iter().map(|price| {
            json!({"effective_at": price.effective_at, "prompt_tokens": price.prompt.to_string(),
                   "completion_tokens": price.completion.to_string(), "in_force": in_force == Some(price.effective_at)})
        });
        prices.collect()
    };
    let models = catalog.models_even_retired().map(|model| {
        json!({"id": model.id, "kind": model.kind.as_str(), "retired": model.retired, "max_tokens": model.max_tokens,
               "max_requests_per_min": model.max_requests_per_min,
               "max_concurrent_requests": model.max_concurrent_requests, "prices": prices(model)})
    });
    let discounts = catalog.volume_discounts().iter();
    let discounts =
        discounts.map(|tier| json!({"threshold": tier.threshold, "discount": tier.discount.to_string()}));
    json!({"file": file, "valid": true, "models": models.collect::<Value>(),
           "volume_discounts": discounts.collect::<Value>(), "warnings": catalog.warnings(now)})
}

/// For people: a line a model, a line a price, a line a warning.
fn summary(file: &str, catalog: &Catalog, now: Time) -> String {
    let offered = catalog.models().count();
    let retired = catalog.models_even_retired().count() - offered;
    let discounts = catalog.volume_discounts().len();
    let mut lines = vec![format!(
        "{file} is a good catalog: {offered} models, {retired} retired, {discounts} volume discounts."
    )];
    for model in catalog.models_even_retired() {
        let retired = if model.retired { ", retired" } else { "" };
        lines.push(format!(
            "{} ({}{retired}): at most {} tokens a request, {} requests a minute, {} at once",
            model.id,
            model.kind.as_str(),
            model.max_tokens,
            model.max_requests_per_min,
            model.max_concurrent_requests
        ));
        let in_force = model.price_at(now).map(|price| price.effective_at);
        for price in &model.prices {
            let (from, prompt, completion) = (price.effective_at, price.prompt, price.completion);
            let state = match in_force {
                Some(time) if time == from => " (in force)",
                _ if from > now => " (to come)",
                _ => "",
            };
            lines.push(format!("  from {from}: prompt {prompt}, completion {completion} a token{state}"));
        }
    }
    lines.extend(catalog.warnings(now).iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}
