//! `tollkeeper upstream …`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::config::Config;
use catalog::{Catalog, Upstream};
use gateway::Dialect;
use gateway::health::{Listing, UpstreamModel, list_models};
use gateway::probe::{Counting, Probe, probe};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask each inference server in a catalog file for its models, and compare them with the routes. Requires
    /// no database
    Check {
        /// The TOML file; defaults to the configured `catalog_file`
        file: Option<PathBuf>,
        /// Make a tiny call of each operation, plain and streamed, and show how each is counted. Providers
        /// charge for these calls
        #[arg(long)]
        probe: bool,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Returns the configured catalog file.
pub fn configured_file(config: &Config) -> Result<PathBuf, String> {
    config.catalog_file.clone().ok_or_else(|| {
        "no `catalog_file` is configured here (TOLLKEEPER_CATALOG_FILE), so the demo inside the server answers; name a \
         file to check: `tollkeeper upstream check FILE`"
            .to_owned()
    })
}

/// The result for one upstream.
struct Finding {
    upstream: Arc<Upstream>,
    /// `None` for the demo, which isn't queried.
    answer: Option<Listing>,
    problems: Vec<String>,
    warnings: Vec<String>,
    /// The calls made, with the model's name in the catalog.
    probes: Vec<(String, Probe)>,
}

/// Queries all upstreams of a file; `with_probes` also makes a tiny call of each operation.
///
/// # Errors
/// An upstream can't be queried, or lacks a model of a route.
pub fn check(file: &Path, with_probes: bool, as_json: bool) -> Result<(), String> {
    let catalog = Catalog::load(file).map_err(|error| error.to_string())?;
    let is_demo = |upstream: &Upstream| Dialect::of(upstream.kind).is_demo;
    let servers = || catalog.upstreams().iter().filter(|upstream| !is_demo(upstream));
    let runtime = super::runtime()?;
    let mut listings = runtime.block_on(list_models(servers())).into_iter();
    let findings = catalog.upstreams().iter().map(|upstream| {
        let answer = if is_demo(upstream) { None } else { listings.next() };
        Finding::new(&catalog, upstream, answer)
    });
    let mut findings: Vec<_> = findings.collect();
    if with_probes {
        for finding in findings.iter_mut().filter(|finding| matches!(finding.answer, Some(Ok(_)))) {
            runtime.block_on(finding.probe(&catalog));
        }
    }
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
        let mut finding = Self {
            upstream: Arc::clone(upstream),
            answer: None,
            problems: Vec::new(),
            warnings: Vec::new(),
            probes: Vec::new(),
        };
        match &answer {
            None => {}
            Some(Err(why)) => finding.problems.push(why.clone()),
            Some(Ok((models, _))) => compare(catalog, models, &mut finding),
        }
        Self { answer, ..finding }
    }

    /// Makes a tiny call of each operation for each model routed to the upstream.
    async fn probe(&mut self, catalog: &Catalog) {
        for model in catalog.models() {
            for route in model.routes.iter().filter(|route| route.upstream.id == self.upstream.id) {
                let probes = match probe(route, model.kind).await {
                    Ok(probes) => probes,
                    Err(why) => return self.problems.push(why),
                };
                for probe in &probes {
                    let path = probe.operation.path();
                    let dialect = Dialect::of(self.upstream.kind);
                    let should_run = probe.is_stream && dialect.counts_while_running(probe.operation);
                    match probe.counting {
                        Counting::Estimated => self.warnings.push(format!(
                            "`{}`: /v1{path}{} reports no usage, so tokens are estimated",
                            model.id,
                            form(probe)
                        )),
                        Counting::AtTheEnd if should_run => self.warnings.push(format!(
                            "`{}`: /v1{path}{} reports usage only at the end, unlike other servers of this \
                             kind: check `kind`",
                            model.id,
                            form(probe)
                        )),
                        _ => {}
                    }
                }
                self.probes.extend(probes.into_iter().map(|probe| (model.id.clone(), probe)));
            }
        }
    }
}

const fn form(probe: &Probe) -> &'static str {
    if probe.is_stream { ", streamed," } else { "" }
}

/// Describes how an operation is counted.
fn counting(probe: &Probe) -> String {
    match &probe.counting {
        Counting::Running => "counts with each event".to_owned(),
        Counting::AtTheEnd => "counts at the end".to_owned(),
        Counting::Estimated => "doesn't count: tokens are estimated".to_owned(),
        Counting::Refused(status, message) => format!("refused with {status}: {message}"),
        Counting::Failed(why) => format!("failed: {why}"),
    }
}

/// Compares the routes to an upstream with its models.
fn compare(catalog: &Catalog, found: &[UpstreamModel], finding: &mut Finding) {
    let dialect = Dialect::of(finding.upstream.kind);
    for model in catalog.models() {
        for route in model.routes.iter().filter(|route| route.upstream.id == finding.upstream.id) {
            let name = &route.model;
            let Some(served) = found.iter().find(|served| served.id == *name) else {
                let message =
                    format!("`{}` is routed to `{name}`, which the upstream doesn't list", model.id);
                if dialect.ignores_model_names {
                    let ignored =
                        format!("{message}; the server ignores the name and answers with its own model");
                    finding.warnings.push(ignored);
                } else {
                    finding.problems.push(message);
                }
                continue;
            };
            let Some(theirs) = served.context_length else { continue };
            match model.context_length {
                Some(ours) if ours > theirs => finding.warnings.push(format!(
                    "`{}` has a `context_length` of {ours}, but the upstream's `{name}` has a context of \
                     {theirs}",
                    model.id
                )),
                None => finding.warnings.push(format!(
                    "`{}` has no `context_length`, so calls reserve more money than they can cost: set \
                     {theirs}",
                    model.id
                )),
                Some(_) => {}
            }
            let limit =
                model.context_length.map_or(model.max_tokens, |context| model.max_tokens.min(context));
            if limit > theirs && !dialect.shortens_answers {
                finding.warnings.push(format!(
                    "`{}` allows answers of {limit} tokens, but the upstream's `{name}` has a context of \
                     {theirs}: it may refuse calls that set no limit",
                    model.id
                ));
            }
        }
    }
}

fn report(finding: &Finding) -> Value {
    let Finding { upstream, answer, problems, warnings, probes } = finding;
    let (models, took) = match answer {
        Some(Ok((models, took))) => (Some(models), Some(took.as_millis())),
        _ => (None, None),
    };
    let model = |model: &UpstreamModel| json!({"id": model.id, "context_length": model.context_length});
    json!({"id": upstream.id, "kind": upstream.kind.as_str(), "url": upstream.url.as_ref().map(|url| url.as_str()),
           "models": models.map(|models| models.iter().map(model).collect::<Value>()), "took_ms": took,
           "problems": problems, "warnings": warnings, "probes": probes.iter().map(probe_report).collect::<Value>()})
}

fn probe_report((model, probe): &(String, Probe)) -> Value {
    json!({"model": model, "operation": format!("/v1{}", probe.operation.path()), "stream": probe.is_stream, "outcome": counting(probe)})
}

/// Returns one line for the upstream, and one per model, call, problem, and warning.
fn summary(finding: &Finding) -> String {
    let Finding { upstream, answer, problems, warnings, probes } = finding;
    let address = upstream.url.as_ref().map_or("inside the server", |url| url.as_str());
    let outcome = match answer {
        None => "not checked".to_owned(),
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
    lines.extend(probes.iter().map(|(model, probe)| {
        let streamed = if probe.is_stream { " streamed" } else { "" };
        format!("  {model} /v1{}{streamed}: {}", probe.operation.path(), counting(probe))
    }));
    lines.extend(problems.iter().map(|problem| format!("  problem: {problem}")));
    lines.extend(warnings.iter().map(|warning| format!("  warning: {warning}")));
    lines.join("\n")
}
