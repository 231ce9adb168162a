//! `tollkeeper organization …`

use clap::Subcommand;
use serde::Serialize;

use crate::config::Config;
use billing::Billing;
use billing::wallets::{self, CreditLimitChange, WalletOverview};
use kernel::clock::Time;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use operators::{Operators, organizations};
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all organizations with their balances, oldest first; including deleted ones whose books are kept
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show an organization's balance, credit limit and open invoices
    Show {
        /// The organization's id
        #[arg(value_name = "ID", value_parser = super::credit::organization)]
        id: OrganizationId,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Set how far an organization's balance may go below zero, effective from the next call
    #[command(alias = "set-limit")]
    SetCreditLimit {
        /// The organization's id
        #[arg(value_name = "ID", value_parser = super::credit::organization)]
        id: OrganizationId,
        /// The limit, such as 100; 0 means prepaid
        #[arg(long, value_name = "AMOUNT", value_parser = super::credit::amount, allow_hyphen_values = true)]
        amount: Nano,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = &super::app(config).await?;
        let billing = &app.billing;
        match command {
            Command::List { json } => list(billing, *json).await,
            Command::Show { id, json } => show(billing, *id, *json).await,
            Command::SetCreditLimit { id, amount, json } => {
                set_limit(&app.operators, *id, *amount, *json).await
            }
        }
    })
}

/// The JSON output for an organization.
#[derive(Serialize)]
struct Report<'a> {
    id: OrganizationId,
    name: Option<&'a str>,
    created_at: Option<Time>,
    deleted: bool,
    currency: &'a str,
    balance: Nano,
    reserved: Nano,
    credit_limit: Nano,
    open_month: String,
    open_invoices: i64,
}

/// The JSON output of `set-credit-limit`.
#[derive(Serialize)]
struct Change<'a> {
    id: OrganizationId,
    currency: &'a str,
    credit_limit: Nano,
    before: Nano,
    already: bool,
}

fn json(overview: &WalletOverview) -> Result<String, String> {
    let WalletOverview { wallet, credit_limit, name, created_at, open_invoices } = overview;
    let report = Report {
        id: wallet.organization_id,
        name: name.as_deref(),
        created_at: *created_at,
        deleted: created_at.is_none(),
        currency: &wallet.currency,
        balance: wallet.posted,
        reserved: wallet.reserved,
        credit_limit: *credit_limit,
        open_month: wallet.open_month.to_string(),
        open_invoices: *open_invoices,
    };
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

fn name(overview: &WalletOverview) -> &str {
    overview.name.as_deref().unwrap_or("(no name)")
}

/// Returns an organization's id, name, balance, reserved money, limit, and open invoices as one line.
fn line(overview: &WalletOverview) -> String {
    let WalletOverview { wallet, created_at, open_invoices, .. } = overview;
    let (id, currency) = (wallet.organization_id, &wallet.currency);
    let gone = if created_at.is_none() { ", deleted" } else { "" };
    format!(
        "{id}  {}  balance {} {currency}, {} reserved, limit {}, {open_invoices} open invoices{gone}",
        name(overview),
        wallet.posted,
        wallet.reserved,
        overview.credit_limit
    )
}

/// Returns all fields as text.
fn text(overview: &WalletOverview) -> String {
    let WalletOverview { wallet, created_at, open_invoices, .. } = overview;
    let currency = &wallet.currency;
    let created = created_at.map_or_else(|| "deleted".to_owned(), |at| format!("created {at}"));
    [
        format!("{} ({}), {created}", name(overview), wallet.organization_id),
        format!("Balance       {} {currency}", wallet.posted),
        format!("Reserved      {} {currency}", wallet.reserved),
        format!("Credit limit  {} {currency}", overview.credit_limit),
        format!("Open month    {}", wallet.open_month),
        format!("Open invoices {open_invoices}"),
    ]
    .join("\n")
}

async fn list(billing: &Billing, as_json: bool) -> Result<(), String> {
    let mut after = None;
    loop {
        let overviews = wallets::list(billing, after).await.map_err(|error| error.to_string())?;
        let Some(last) = overviews.last() else { break };
        after = Some(last.wallet.organization_id);
        for overview in &overviews {
            super::print(&if as_json { json(overview)? } else { line(overview) });
        }
    }
    Ok(())
}

async fn show(billing: &Billing, id: OrganizationId, as_json: bool) -> Result<(), String> {
    let overview = wallets::read(billing, id).await.map_err(|error| error.to_string())?;
    let overview = overview.ok_or_else(|| format!("organization {id} doesn't exist"))?;
    super::print(&if as_json { json(&overview)? } else { text(&overview) });
    Ok(())
}

async fn set_limit(
    operators: &Operators,
    id: OrganizationId,
    amount: Nano,
    as_json: bool,
) -> Result<(), String> {
    let set = organizations::set_credit_limit(operators, id, amount, &Trail::operator()).await;
    let CreditLimitChange { organization: overview, before } = set.map_err(|refusal| refusal.to_string())?;
    let (name, currency, already) = (name(&overview), &overview.wallet.currency, before == amount);
    super::print(&if as_json {
        let change = Change { id, currency, credit_limit: amount, before, already };
        serde_json::to_string(&change).map_err(|error| error.to_string())?
    } else if already {
        format!("The credit limit of {name} was already {amount} {currency}.")
    } else {
        format!("The credit limit of {name} is now {amount} {currency}; it was {before}.")
    });
    Ok(())
}
