//! `tollkeeper audit`

use clap::Args;

use crate::audit::{self, Report};
use crate::config::Config;
use crate::error::Error;
use crate::ids::OrganizationId;
use crate::store;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Only the books of this organization; of a deleted one, too
    #[arg(long, value_name = "ID", value_parser = organization)]
    organization: Option<OrganizationId>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn organization(text: &str) -> Result<OrganizationId, String> {
    OrganizationId::parse(text)
        .ok_or_else(|| "write an organization's id such as org_01kfz3v9xee8tb2m6h0q5w7r4n".to_owned())
}

pub fn run(config: Config, arguments: &Arguments) -> Result<(), String> {
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
    if let Some(id) = organization {
        let wallet = async { Ok::<_, Error>(store::wallets::get(&mut app.db.read().await?, id).await?) };
        let known = wallet.await.map_err(|error| error.to_string())?;
        let report = audit::check(&app.billing, Some(id)).await.map_err(|error| error.to_string())?;
        // Without a wallet and without anything else it isn't there; a lost wallet is a drift.
        let checked = audit::Checked { organizations: 0, ..report.checked };
        if known.is_none() && checked == audit::Checked::default() && !exists(&app, id).await? {
            return Err(format!("there is no organization {id}, and there was none"));
        }
        return Ok(report);
    }
    audit::check(&app.billing, None).await.map_err(|error| error.to_string())
}

async fn exists(app: &crate::app::App, id: OrganizationId) -> Result<bool, String> {
    let read = async { Ok::<_, Error>(store::organizations::detail(&mut app.db.read().await?, id).await?) };
    Ok(read.await.map_err(|error| error.to_string())?.is_some())
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
