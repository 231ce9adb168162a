//! `tollkeeper audit`

mod receipts;

use std::path::PathBuf;

use clap::Args;

use crate::config::Config;
use billing::audit::{self, Report};
use kernel::ids::OrganizationId;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Check only this organization's books; it may be deleted
    #[arg(long, value_name = "ID", value_parser = organization)]
    organization: Option<OrganizationId>,
    /// Compare the books with the usage events in this file instead: the accepted events as saved by the
    /// server that reported them, one JSON object per line
    #[arg(long, value_name = "FILE", conflicts_with = "organization")]
    receipts: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn organization(text: &str) -> Result<OrganizationId, String> {
    OrganizationId::parse(text)
        .ok_or_else(|| "write an organization's id such as org_01kfz3v9xee8tb2m6h0q5w7r4n".to_owned())
}

pub fn run(config: Config, arguments: &Arguments) -> Result<(), String> {
    if let Some(file) = &arguments.receipts {
        return receipts::run(config, file, arguments.json);
    }
    let report = super::runtime()?.block_on(check(config, arguments.organization))?;
    if arguments.json {
        super::print(&serde_json::to_string(&report).map_err(|error| error.to_string())?);
    } else {
        for drift in &report.drifts {
            super::print(&drift.to_string());
        }
        super::print(&summary(&report));
    }
    match report.drifts.len() {
        0 => Ok(()),
        1 => Err("the books don't add up: 1 drift".to_owned()),
        count => Err(format!("the books don't add up: {count} drifts")),
    }
}

async fn check(config: Config, organization: Option<OrganizationId>) -> Result<Report, String> {
    let app = super::app(config).await?;
    let Some(id) = organization else {
        return audit::check(&app.billing, None).await.map_err(|error| error.to_string());
    };
    let report = audit::check_organization(&app.billing, id).await.map_err(|error| error.to_string())?;
    report.ok_or_else(|| format!("organization {id} doesn't exist, and never did"))
}

fn summary(report: &Report) -> String {
    let checked = &report.checked;
    format!(
        "Checked {} organizations: {} movements, {} credits, {} reservations, {} daily rows, {} events, {} invoices; {}.",
        checked.organizations,
        checked.movements,
        checked.credits,
        checked.reservations,
        checked.daily_rows,
        checked.events,
        checked.invoices,
        if report.is_clean() { "everything adds up" } else { "see above" }
    )
}
