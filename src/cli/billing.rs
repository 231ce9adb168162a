//! `tollkeeper billing …`

use clap::Subcommand;
use serde::Serialize;

use crate::config::Config;
use billing::bookkeeping::closing::{self, ClosedMonth, ClosingReport};
use kernel::clock::Time;
use kernel::ids::{InvoiceId, OrganizationId};
use kernel::money::Nano;
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Close ended months and create their invoices, as running servers do automatically
    Close {
        /// Close as of this date or timestamp; defaults to now
        #[arg(long, value_name = "TIME", value_parser = super::time)]
        as_of: Option<Time>,
        /// Skip the wait until the service has been up for two hours; use this only if all usage has been
        /// reported
        #[arg(long)]
        skip_wait: bool,
        /// Print one JSON object per month and organization, and one per failure
        #[arg(long)]
        json: bool,
    },
}

/// The JSON output for one month of one organization.
#[derive(Serialize)]
struct Line<'a> {
    organization_id: OrganizationId,
    month: String,
    invoice_id: Option<InvoiceId>,
    number: Option<i64>,
    amount: Option<Nano>,
    due: Option<Nano>,
    currency: Option<&'a str>,
    status: Option<&'static str>,
    error: Option<&'a str>,
}

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    let Command::Close { as_of, skip_wait, json } = command;
    let outcome = super::runtime()?.block_on(close(config, *as_of, *skip_wait))?;
    for closed in &outcome.closed {
        super::print(&if *json { closed_json(closed)? } else { closed_words(closed) });
    }
    if *json {
        for failed in &outcome.failed {
            let line = Line {
                error: Some(&failed.reason),
                ..line(failed.organization_id, failed.month.to_string())
            };
            super::print(&to_json(&line)?);
        }
    }
    if outcome.closed.is_empty() && outcome.failed.is_empty() && !json {
        super::print("No month was due.");
    }
    if outcome.failed.is_empty() {
        return Ok(());
    }
    let failed = outcome.failed.iter().map(|failed| {
        format!("{} of {} can't be closed: {}", failed.month, failed.organization_id, failed.reason)
    });
    Err(failed.collect::<Vec<_>>().join("\n"))
}

async fn close(config: Config, as_of: Option<Time>, skip_wait: bool) -> Result<ClosingReport, String> {
    let app = super::app(config).await?;
    let closed = closing::close_for_operator(&app.billing, as_of, skip_wait, &Trail::operator()).await;
    closed.map_err(|refusal| refusal.to_string())
}

fn line<'a>(organization_id: OrganizationId, month: String) -> Line<'a> {
    Line {
        organization_id,
        month,
        invoice_id: None,
        number: None,
        amount: None,
        due: None,
        currency: None,
        status: None,
        error: None,
    }
}

fn closed_json(closed: &ClosedMonth) -> Result<String, String> {
    let line = line(closed.organization_id, closed.month.to_string());
    let line = match &closed.invoice {
        None => line,
        Some(invoice) => Line {
            invoice_id: Some(invoice.id),
            number: Some(invoice.number),
            amount: Some(invoice.amount),
            due: Some(invoice.due),
            currency: Some(&invoice.currency),
            status: Some(invoice.status.as_str()),
            ..line
        },
    };
    to_json(&line)
}

fn to_json(line: &Line<'_>) -> Result<String, String> {
    serde_json::to_string(line).map_err(|error| error.to_string())
}

fn closed_words(closed: &ClosedMonth) -> String {
    let (month, organization_id) = (closed.month, closed.organization_id);
    match &closed.invoice {
        None => format!("{month}  {organization_id}  nothing was billed"),
        Some(invoice) => {
            let (id, number, amount, due) = (invoice.id, invoice.number, invoice.amount, invoice.due);
            let (currency, status) = (&invoice.currency, invoice.status.as_str());
            format!(
                "{month}  {organization_id}  invoice {number} ({id})  {amount} {currency}  {status}, {due} due"
            )
        }
    }
}
