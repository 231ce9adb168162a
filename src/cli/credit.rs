//! `tollkeeper credit …`

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::access::Trail;
use crate::clock::Time;
use crate::config::Config;
use crate::ids::{CreditId, OrganizationId};
use crate::jobs::billing::credits::{self, Added, NewCredit};
use crate::money::Nano;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add credit to an organization, once a reference: running it again adds nothing
    Add(AddCredit),
}

#[derive(Debug, Args)]
pub struct AddCredit {
    /// To whose wallet
    #[arg(long, value_name = "ID", value_parser = organization)]
    organization: OrganizationId,
    /// How much, for instance 25.00
    #[arg(long, value_name = "AMOUNT", value_parser = amount, allow_hyphen_values = true)]
    amount: Nano,
    /// What the credit is known by, for instance the number of a payment; unique within the organization
    #[arg(long, value_name = "TEXT")]
    reference: String,
    /// It is given, not bought: it is used up first, and isn't income
    #[arg(long)]
    grant: bool,
    /// What is left of it then is gone: a date or a timestamp
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    expires_at: Option<Time>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Reads an id of the command line.
pub fn organization(text: &str) -> Result<OrganizationId, String> {
    OrganizationId::parse(text)
        .ok_or_else(|| "an organization's id starts with `org_` and has 26 more characters".to_owned())
}

/// Reads an amount of the command line.
pub fn amount(text: &str) -> Result<Nano, String> {
    Nano::parse(text).ok_or_else(|| "write a decimal such as 25 or 25.00, without a currency".to_owned())
}

/// For programs.
#[derive(Serialize)]
struct Report<'a> {
    id: CreditId,
    organization_id: OrganizationId,
    kind: &'static str,
    reference: &'a str,
    amount: Nano,
    remaining: Nano,
    currency: &'a str,
    created_at: Time,
    expires_at: Option<Time>,
    already_there: bool,
    balance: Nano,
}

pub fn run(config: Config, command: Command) -> Result<(), String> {
    let Command::Add(arguments) = command;
    let (as_json, organization_id) = (arguments.json, arguments.organization);
    let added = super::runtime()?.block_on(add(config, arguments))?;
    super::print(&if as_json { json(organization_id, &added)? } else { words(organization_id, &added) });
    Ok(())
}

async fn add(config: Config, arguments: AddCredit) -> Result<Added, String> {
    let app = super::app(config).await?;
    let new = NewCredit {
        organization_id: arguments.organization,
        amount: arguments.amount,
        reference: arguments.reference,
        is_grant: arguments.grant,
        expires_at: arguments.expires_at,
    };
    credits::add(&app, &new, &Trail::operator()).await.map_err(|refusal| refusal.to_string())
}

fn json(organization_id: OrganizationId, added: &Added) -> Result<String, String> {
    let credit = &added.credit;
    let report = Report {
        id: credit.id,
        organization_id,
        kind: credit.source.as_str(),
        reference: &credit.reference,
        amount: credit.amount,
        remaining: credit.remaining,
        currency: &added.wallet.currency,
        created_at: credit.created_at,
        expires_at: credit.expires_at,
        already_there: added.was_there,
        balance: added.wallet.posted,
    };
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

fn words(organization_id: OrganizationId, added: &Added) -> String {
    let (credit, currency) = (&added.credit, &added.wallet.currency);
    let (amount, left, balance) = (credit.amount, credit.remaining, added.wallet.posted);
    let state = format!("{left} {currency} of it are left; the balance is {balance} {currency}.");
    if added.was_there {
        let when = credit.created_at;
        return format!(
            "The credit `{}` of {amount} {currency} was there already, since {when}. {state}",
            credit.reference
        );
    }
    let until = credit.expires_at.map(|until| format!(" until {until}")).unwrap_or_default();
    format!("{organization_id} has a credit of {amount} {currency} more{until}. {state}")
}
