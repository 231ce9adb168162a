//! `tollkeeper providers …`

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::config::Config;
use kernel::clock::{Clock, Time};
use sign_on::reading::{self, ProvidersFile};
use sign_on::settings::Kind;
use trail::{Action, Event, Trail};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a providers file, and request each issuer's documents. Requires no database
    Check {
        /// The TOML file; defaults to the configured `sign_in.providers_file`
        file: Option<PathBuf>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check the configured `sign_in.providers_file`, and make all running servers reload their own providers
    /// files within a second
    Reload {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Returns the configured providers file.
pub fn configured_file(config: &Config) -> Result<PathBuf, String> {
    config.sign_in.providers_file.clone().ok_or_else(|| {
        "no `sign_in.providers_file` is configured here (TOLLKEEPER_SIGN_IN__PROVIDERS_FILE); name a file to check: \
         `tollkeeper providers check FILE`"
            .to_owned()
    })
}

/// Checks a file without activating it, and queries its issuers.
pub fn check(file: &Path, as_json: bool) -> Result<(), String> {
    let name = file.display().to_string();
    let read = match reading::load(file) {
        Ok(read) => read,
        Err(error) => {
            if as_json {
                super::print(&json!({"file": name, "valid": false, "mistakes": error.problems}).to_string());
            }
            return Err(error.to_string());
        }
    };
    let answers = super::runtime()?.block_on(async {
        let mut answers = Vec::new();
        for settings in &read.providers {
            answers.push(sign_on::check(settings).await);
        }
        answers
    });
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    super::print(&if as_json {
        report(&name, &read, Some(&answers)).to_string()
    } else {
        summary(&name, &read, Some(&answers))
    });
    if failed > 0 {
        return Err(format!("{failed} of {} providers can't be used", read.providers.len()));
    }
    Ok(())
}

/// Makes running servers reload their files. The file is read here first, so that errors are reported here.
pub fn reload(config: Config, as_json: bool) -> Result<(), String> {
    let file = configured_file(&config)?;
    let read = reading::load(&file).map_err(|error| error.to_string())?;
    super::runtime()?.block_on(order_reload(config))?;
    let name = file.display().to_string();
    super::print(&if as_json {
        report(&name, &read, None).to_string()
    } else {
        format!(
            "{}\nRunning servers read their providers files again within a second; their logs show the result.",
            summary(&name, &read, None)
        )
    });
    Ok(())
}

async fn order_reload(config: Config) -> Result<(), String> {
    let app = super::app(config).await?;
    let now: Time = Clock::System.now();
    let target = "providers".to_owned();
    let event = Event { action: Action::ProvidersReloadOrdered, target, organization_id: None };
    let ordered = async {
        let mut tx = app.db.write().await?;
        trail::record(&mut tx, &Trail::operator(), &event, now, &app.random).await?;
        // This change makes servers reload both of their files.
        cluster::changes::record(&mut tx, cluster::changes::Change::Catalog, now).await?;
        tx.commit().await
    };
    ordered.await.map_err(|error: db::Error| error.to_string())
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::OpenId => "oidc",
        Kind::GitHub => "github",
    }
}

fn report(name: &str, read: &ProvidersFile, answers: Option<&[Result<(), String>]>) -> Value {
    let provider = |(index, settings): (usize, &sign_on::settings::Settings)| {
        let answer = answers.and_then(|answers| answers.get(index));
        json!({
            "id": settings.id,
            "name": settings.name,
            "kind": kind(settings.kind),
            "issuer": settings.issuer,
            "answers": answer.map(Result::is_ok),
            "problem": answer.and_then(|answer| answer.as_ref().err()),
        })
    };
    let providers: Vec<Value> = read.providers.iter().enumerate().map(provider).collect();
    json!({"file": name, "valid": true, "warnings": read.warnings, "providers": providers})
}

fn summary(name: &str, read: &ProvidersFile, answers: Option<&[Result<(), String>]>) -> String {
    let count = read.providers.len();
    let mut lines = vec![format!("{name}: {count} provider{}", if count == 1 { "" } else { "s" })];
    for (index, settings) in read.providers.iter().enumerate() {
        let answer = match answers.and_then(|answers| answers.get(index)) {
            None => String::new(),
            Some(Ok(())) if settings.kind == Kind::GitHub => {
                ": not checked, because it has no documents".to_owned()
            }
            Some(Ok(())) => ": answers".to_owned(),
            Some(Err(why)) => format!(": {why}"),
        };
        lines.push(format!("  {} ({}, {}){answer}", settings.id, kind(settings.kind), settings.issuer));
    }
    lines.extend(read.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}
