//! `tollkeeper upstream …`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::config::Config;
use catalog::{Catalog, Upstream, UpstreamKind};
use gateway::health::{Listing, UpstreamModel, ignores_model_names, list_models};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask each inference server of a catalog file for its models, and compare them with the routes. No database is
    /// needed
    Check {
        /// The TOML file; without it the configured `catalog_file`
        file: Option<PathBuf>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Returns the catalog file of the configuration.
pub fn configured_file(config: &Config) -> Result<PathBuf, String> {
    config.catalog_file.clone().ok_or_else(|| {
        "no `catalog_file` is configured here (TOLLKEEPER_CATALOG_FILE), so the demo inside the server answers; name a \
         file to check: `tollkeeper upstream check FILE`"
            .to_owned()
    })
}

/// The outcome for one upstream.
struct Finding {
    upstream: Arc<Upstream>,
    /// `None` for the demo, which isn't asked.
    answer: Option<Listing>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

/// Asks every upstream of a file.
///
/// # Errors
/// An upstream can't be asked, or lacks a model of a route.
pub fn check(file: &Path, as_json: bool) -> Result<(), String> {
    let catalog = Catalog::load(file).map_err(|error| error.to_string())?;
    let servers = || catalog.upstreams().iter().filter(|upstream| upstream.kind != UpstreamKind::Demo);
    let mut listings = super::runtime()?.block_on(list_models(servers())).into_iter();
    let findings = catalog.upstreams().iter().map(|upstream| {
        let answer = if upstream.kind == UpstreamKind::Demo { None } else { listings.next() };
        Finding::new(&catalog, upstream, answer)
    });
    let findings: Vec<_> = findings.collect();
    let failed = findings.iter().filter(|finding| !finding.problems.is_empty()).count();
    if as_json {
        let upstreams: Value = findings.iter().map(report).collect();
        super::print(
            &json!({"file": file.display().to_string(), "ok": failed == 0, "upstreams": upstreams})
                .to_string(),
        );
    } else if findings.is_empty() {
        super::print(&format!("{} has no `[[upstreams]]`: no model is served here.", file.display()));
    } else {
        super::print(&findings.iter().map(summary).collect::<Vec<_>>().join("\n"));
    }
    match failed {
        0 => Ok(()),
        count => Err(format!("upstreams with problems: {count} of {}", findings.len())),
    }
}

impl Finding {
    fn new(catalog: &Catalog, upstream: &Arc<Upstream>, answer: Option<Listing>) -> Self {
        let mut finding =
            Self { upstream: Arc::clone(upstream), answer: None, problems: Vec::new(), warnings: Vec::new() };
        match &answer {
            None => {}
            Some(Err(why)) => finding.problems.push(why.clone()),
            Some(Ok((models, _))) => compare(catalog, models, &mut finding),
        }
        Self { answer, ..finding }
    }
}

/// Compares the routes to an upstream with the models that it has.
fn compare(catalog: &Catalog, found: &[UpstreamModel], finding: &mut Finding) {
    let kind = finding.upstream.kind;
    for model in catalog.models() {
        for route in model.routes.iter().filter(|route| route.upstream.id == finding.upstream.id) {
            let name = &route.model;
            let Some(served) = found.iter().find(|served| served.id == *name) else {
                let message = format!("`{}` is routed to its `{name}`, which it doesn't list", model.id);
                if ignores_model_names(kind) {
                    let ignored = format!("{message}; it answers with the model that it has");
                    finding.warnings.push(ignored);
                } else {
                    finding.problems.push(message);
                }
                continue;
            };
            let Some(theirs) = served.context_length else { continue };
            match model.context_length {
                Some(ours) if ours > theirs => finding.warnings.push(format!(
                    "`{}` has a context_length of {ours}, and `{name}` one of {theirs} there",
                    model.id
                )),
                None => finding.warnings.push(format!(
                    "`{}` has no context_length, so calls reserve more money than they can cost: set {theirs}",
                    model.id
                )),
                Some(_) => {}
            }
            let limit =
                model.context_length.map_or(model.max_tokens, |context| model.max_tokens.min(context));
            if limit > theirs && kind != UpstreamKind::Llamacpp {
                finding.warnings.push(format!(
                    "`{}` allows answers of {limit} tokens, and `{name}` has a context of {theirs} there: it may refuse \
                     calls without a limit of their own",
                    model.id
                ));
            }
        }
    }
}

fn report(finding: &Finding) -> Value {
    let Finding { upstream, answer, problems, warnings } = finding;
    let (models, took) = match answer {
        Some(Ok((models, took))) => (Some(models), Some(took.as_millis())),
        _ => (None, None),
    };
    let model = |model: &UpstreamModel| json!({"id": model.id, "context_length": model.context_length});
    json!({"id": upstream.id, "kind": upstream.kind.as_str(), "url": upstream.url.as_ref().map(|url| url.as_str()),
           "models": models.map(|models| models.iter().map(model).collect::<Value>()), "took_ms": took,
           "problems": problems, "warnings": warnings})
}

/// Returns a line for the upstream, and one for each model, problem and warning.
fn summary(finding: &Finding) -> String {
    let Finding { upstream, answer, problems, warnings } = finding;
    let address = upstream.url.as_ref().map_or("inside the server", |url| url.as_str());
    let outcome = match answer {
        None => "isn't asked".to_owned(),
        Some(Err(_)) => "failed".to_owned(),
        Some(Ok((models, took))) => {
            let count = models.len();
            format!("{count} {}, {} ms", if count == 1 { "model" } else { "models" }, took.as_millis())
        }
    };
    let mut lines = vec![format!("{} ({}, {address}): {outcome}", upstream.id, upstream.kind.as_str())];
    for model in answer.iter().flatten().flat_map(|(models, _)| models) {
        let context = model.context_length.map(|tokens| format!(", {tokens} tokens of context"));
        lines.push(format!("  {}{}", model.id, context.unwrap_or_default()));
    }
    lines.extend(problems.iter().map(|problem| format!("  problem: {problem}")));
    lines.extend(warnings.iter().map(|warning| format!("  warning: {warning}")));
    lines.join("\n")
}
