//! `tollkeeper credit …`

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::config::Config;
use billing::bookkeeping::credits::{self, AddedCredit, CreditPage, CreditTakeBack, NewCredit};
use billing::rules::books::Credit;
use kernel::clock::Time;
use kernel::ids::{CreditId, OrganizationId};
use kernel::money::Nano;
use operators::organizations;
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add credit to an organization, once per reference: repeating the command adds nothing
    Add(AddCredit),
    /// List an organization's credits, oldest first
    List {
        /// The organization
        #[arg(long, value_name = "ID", value_parser = organization)]
        organization: OrganizationId,
        /// Include used-up credits
        #[arg(long)]
        all: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Take back the remainder of a credit, after a refunded purchase or a mistaken grant
    TakeBack {
        /// The credit's id
        #[arg(value_name = "ID", value_parser = credit)]
        id: CreditId,
        /// The amount to take back; defaults to the remainder
        #[arg(long, value_name = "AMOUNT", value_parser = amount)]
        amount: Option<Nano>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

fn credit(text: &str) -> Result<CreditId, String> {
    CreditId::parse(text).ok_or_else(|| {
        "a credit's id starts with `credit_` and has 26 more characters; `credit list` shows them".to_owned()
    })
}

#[derive(Debug, Args)]
pub struct AddCredit {
    /// The organization
    #[arg(long, value_name = "ID", value_parser = organization)]
    organization: OrganizationId,
    /// The amount, such as 25.00
    #[arg(long, value_name = "AMOUNT", value_parser = amount, allow_hyphen_values = true)]
    amount: Nano,
    /// A reference, such as a payment's number; unique within the organization
    #[arg(long, value_name = "TEXT")]
    reference: String,
    /// Mark the credit as a gift: it's used first and doesn't count as income
    #[arg(long)]
    grant: bool,
    /// Expiry of the credit: a date or a timestamp
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    expires_at: Option<Time>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Parses an organization's id.
pub fn organization(text: &str) -> Result<OrganizationId, String> {
    OrganizationId::parse(text)
        .ok_or_else(|| "an organization's id starts with `org_` and has 26 more characters".to_owned())
}

/// Parses an amount.
pub fn amount(text: &str) -> Result<Nano, String> {
    Nano::parse(text).ok_or_else(|| "write a decimal such as 25 or 25.00, without a currency".to_owned())
}

/// The JSON output of `add`.
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
    match command {
        Command::Add(arguments) => {
            let (as_json, organization_id) = (arguments.json, arguments.organization);
            let added = super::runtime()?.block_on(add(config, arguments))?;
            super::print(&if as_json {
                json(organization_id, &added)?
            } else {
                words(organization_id, &added)
            });
            Ok(())
        }
        Command::List { organization, all, json } => {
            super::runtime()?.block_on(list(config, organization, all, json))
        }
        Command::TakeBack { id, amount, json } => {
            let taken = super::runtime()?.block_on(async {
                let app = super::app(config).await?;
                let taken = credits::take_back(&app.billing, id, amount, &Trail::operator()).await;
                taken.map_err(|refusal| refusal.to_string())
            })?;
            super::print(&taken_back(&taken, json)?);
            Ok(())
        }
    }
}

/// The JSON output for a listed credit.
#[derive(Serialize)]
struct Line<'a> {
    id: CreditId,
    kind: &'static str,
    reference: &'a str,
    amount: Nano,
    remaining: Nano,
    currency: &'a str,
    created_at: Time,
    expires_at: Option<Time>,
}

async fn list(
    config: Config,
    organization_id: OrganizationId,
    all: bool,
    as_json: bool,
) -> Result<(), String> {
    let app = super::app(config).await?;
    let mut after = None;
    loop {
        let listed = credits::list(&app.billing, organization_id, all, after).await;
        let CreditPage { credits, currency } = listed.map_err(|refusal| refusal.to_string())?;
        let Some(last) = credits.last() else { return Ok(()) };
        after = Some(last.id);
        for credit in &credits {
            super::print(&listed_line(credit, &currency, as_json)?);
        }
    }
}

fn listed_line(credit: &Credit, currency: &str, as_json: bool) -> Result<String, String> {
    let Credit { id, reference, amount, remaining, created_at, expires_at, .. } = credit;
    let kind = credit.source.as_str();
    if as_json {
        let line = Line {
            id: *id,
            kind,
            reference,
            amount: *amount,
            remaining: *remaining,
            currency,
            created_at: *created_at,
            expires_at: *expires_at,
        };
        return serde_json::to_string(&line).map_err(|error| error.to_string());
    }
    let until = expires_at.map(|until| format!(", expires {until}")).unwrap_or_default();
    Ok(format!(
        "{id}  {kind} `{reference}`, added {created_at}: {remaining} of {amount} {currency} left{until}"
    ))
}

/// The JSON output of `take-back`.
#[derive(Serialize)]
struct TakenReport<'a> {
    id: CreditId,
    organization_id: OrganizationId,
    reference: &'a str,
    amount: Nano,
    remaining: Nano,
    currency: &'a str,
    balance: Nano,
}

fn taken_back(taken: &CreditTakeBack, as_json: bool) -> Result<String, String> {
    let CreditTakeBack { credit, amount, wallet } = taken;
    let (currency, balance) = (wallet.currency.as_str(), wallet.posted);
    let (reference, remaining) = (credit.reference.as_str(), credit.remaining);
    if as_json {
        let (id, organization_id) = (credit.id, wallet.organization_id);
        let report =
            TakenReport { id, organization_id, reference, amount: *amount, remaining, currency, balance };
        return serde_json::to_string(&report).map_err(|error| error.to_string());
    }
    Ok(format!(
        "Took back {amount} {currency} of the credit `{reference}`. {remaining} {currency} of it remain. The \
         balance is {balance} {currency}."
    ))
}

async fn add(config: Config, arguments: AddCredit) -> Result<AddedCredit, String> {
    let app = super::app(config).await?;
    let new = NewCredit {
        organization_id: arguments.organization,
        amount: arguments.amount,
        reference: arguments.reference,
        is_grant: arguments.grant,
        expires_at: arguments.expires_at,
    };
    organizations::add_credit(&app.operators, &new, &Trail::operator())
        .await
        .map_err(|refusal| refusal.to_string())
}

fn json(organization_id: OrganizationId, added: &AddedCredit) -> Result<String, String> {
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
        already_there: added.existed,
        balance: added.wallet.posted,
    };
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

fn words(organization_id: OrganizationId, added: &AddedCredit) -> String {
    let (credit, currency) = (&added.credit, &added.wallet.currency);
    let (amount, left, balance) = (credit.amount, credit.remaining, added.wallet.posted);
    let state = format!("{left} {currency} of it remain. The balance is {balance} {currency}.");
    if added.existed {
        let when = credit.created_at;
        return format!(
            "The credit `{}` of {amount} {currency} was already added at {when}. {state}",
            credit.reference
        );
    }
    let until = credit.expires_at.map(|until| format!(" until {until}")).unwrap_or_default();
    format!("Added a credit of {amount} {currency} to {organization_id}{until}. {state}")
}
