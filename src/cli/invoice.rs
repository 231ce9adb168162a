//! `tollkeeper invoice …`

use clap::Subcommand;
use serde::Serialize;

use crate::config::Config;
use api::invoice_page::PrintableInvoice;
use api::organizations::billing::invoices::Invoice as View;
use billing::Billing;
use billing::bookkeeping::invoice_changes::InvoiceChange;
use billing::invoices::{self, Document, Invoice, Page};
use billing::rules::books::Credit;
use billing::rules::invoicing::{Item, Status};
use kernel::clock::Time;
use kernel::currencies;
use kernel::ids::{InvoiceId, OrganizationId};
use kernel::money::Nano;
use operators::invoices as operated;
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List an organization's invoices, newest first
    List {
        /// The organization's id
        #[arg(long, value_name = "ID", value_parser = super::credit::organization)]
        organization: OrganizationId,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show an invoice
    Show {
        /// The invoice's id, not its number
        #[arg(value_name = "ID", value_parser = invoice)]
        id: InvoiceId,
        /// Print a printable HTML page
        #[arg(long, conflicts_with = "json")]
        html: bool,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Record the payment of an invoice: books the amount requested on its page
    MarkPaid {
        /// The invoice's id, not its number
        #[arg(value_name = "ID", value_parser = invoice)]
        id: InvoiceId,
        /// The amount paid, if it differs from the requested amount. It must be at least the amount due; a
        /// surplus becomes credit
        #[arg(long, value_name = "AMOUNT", value_parser = super::credit::amount)]
        amount: Option<Nano>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give up an open invoice: its amount due won't be paid
    GiveUp {
        /// The invoice's id, not its number
        #[arg(value_name = "ID", value_parser = invoice)]
        id: InvoiceId,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Void an invoice: its amount returns to the wallet, and its number isn't reused
    Void {
        /// The invoice's id, not its number
        #[arg(value_name = "ID", value_parser = invoice)]
        id: InvoiceId,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

fn invoice(text: &str) -> Result<InvoiceId, String> {
    InvoiceId::parse(text).ok_or_else(|| {
        "an invoice's id starts with `invoice_` and has 26 more characters; `invoice list` shows them"
            .to_owned()
    })
}

/// Number of invoices read at a time.
const PAGE_SIZE: i64 = 100;

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let app = &super::app(config).await?;
        let (billing, operators) = (&app.billing, &app.operators);
        match command {
            Command::List { organization, json } => list(billing, *organization, *json).await,
            Command::Show { id, html, json } => show(billing, *id, *html, *json).await,
            Command::MarkPaid { id, amount, json } => {
                let settled = operated::mark_paid(operators, *id, *amount, &Trail::operator()).await;
                print_outcome(settled.map_err(|refusal| refusal.to_string())?, "paid", *json)
            }
            Command::GiveUp { id, json } => {
                let settled = operated::give_up(operators, *id, &Trail::operator()).await;
                print_outcome(settled.map_err(|refusal| refusal.to_string())?, "given up", *json)
            }
            Command::Void { id, json } => {
                let settled = operated::void(operators, *id, &Trail::operator()).await;
                print_outcome(settled.map_err(|refusal| refusal.to_string())?, "void", *json)
            }
        }
    })
}

/// The JSON output: the invoice as in the API, with additional fields for operators.
#[derive(Serialize)]
struct Report {
    organization_id: OrganizationId,
    organization_name: String,
    due: Nano,
    finalized_at: Time,
    voided_at: Option<Time>,
    #[serde(flatten)]
    invoice: View,
}

fn json(document: Document) -> Result<String, String> {
    let invoice = &document.invoice;
    let report = Report {
        organization_id: invoice.organization_id,
        organization_name: invoice.organization_name.clone(),
        due: invoice.due,
        finalized_at: invoice.finalized_at,
        voided_at: invoice.voided_at,
        invoice: View::new(document),
    };
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

async fn list(billing: &Billing, organization_id: OrganizationId, as_json: bool) -> Result<(), String> {
    for number in 1.. {
        let page = Page { page: number, page_size: PAGE_SIZE };
        let documents = invoices::list_latest(billing, organization_id, page).await;
        let documents = documents.map_err(|error| error.to_string())?;
        let documents = documents.ok_or_else(|| format!("organization {organization_id} doesn't exist"))?;
        if documents.is_empty() {
            break;
        }
        for document in documents {
            super::print(&if as_json { json(document)? } else { line(&document.invoice) });
        }
    }
    Ok(())
}

async fn show(billing: &Billing, id: InvoiceId, html: bool, as_json: bool) -> Result<(), String> {
    let document = invoices::read(billing, id).await.map_err(|error| error.to_string())?;
    let document = document.ok_or_else(|| format!("invoice {id} doesn't exist"))?;
    super::print(&match (html, as_json) {
        (true, _) => PrintableInvoice::from(&document).html().map_err(|error| error.to_string())?,
        (_, true) => json(document)?,
        _ => text(&document),
    });
    Ok(())
}

/// Returns an invoice's number, month, id, amount, status, and amount due as one line.
fn line(invoice: &Invoice) -> String {
    let Invoice { number, month, id, amount, currency, due, .. } = invoice;
    format!("{number}  {month}  {id}  {amount} {currency}  {}, {due} due", invoice.status.as_str())
}

/// Returns the full invoice as text.
fn text(document: &Document) -> String {
    let Document { invoice, items, notes } = document;
    let Invoice { number, month, id, organization_id, organization_name, currency, due, .. } = invoice;
    let mut lines = vec![
        format!("Invoice {number} ({id}), {}", invoice.status.as_str()),
        format!("for {organization_name} ({organization_id})"),
        format!("Month {month}, issued {}", invoice.finalized_at),
    ];
    match (invoice.status, invoice.paid_at, invoice.voided_at) {
        (Status::Paid, Some(at), _) => lines.push(format!("Paid {at}")),
        (Status::Void, _, Some(at)) => lines.push(format!("Voided {at}")),
        _ => {}
    }
    lines.push(String::new());
    let words = |item: &Item| {
        let quantity = currencies::grouped(&item.quantity.to_string());
        let (price, amount) = (item.unit_price, item.amount);
        format!("  {}: {quantity} x {price} = {amount}", item.description)
    };
    lines.extend(items.iter().map(words));
    for (note, items) in notes {
        let (number, id, at) = (note.number, note.id, note.created_at);
        lines.push(String::new());
        lines.push(format!(
            "Credit note {number} ({id}) of {at} for {}: {} {currency}",
            note.reference, note.amount
        ));
        lines.extend(items.iter().map(words));
    }
    let figure = |amount: Nano| currencies::format(amount.to_pico().unwrap_or_default(), currency);
    lines.push(String::new());
    let before = match invoice.brought_forward {
        Nano::ZERO => String::new(),
        before => format!(", {} brought forward", figure(before)),
    };
    lines.push(format!("Total {} {currency}{before}, {} due", figure(invoice.amount), figure(*due)));
    lines.join("\n")
}

/// The JSON output of a change.
#[derive(Serialize)]
struct Change {
    id: InvoiceId,
    number: i64,
    status: &'static str,
    due: Nano,
    already: bool,
    /// The booked payment; null for a change that isn't a payment.
    amount: Option<Nano>,
    /// The part of the amount that became credit.
    remaining: Option<Nano>,
}

fn print_outcome(settled: InvoiceChange, word: &str, as_json: bool) -> Result<(), String> {
    let InvoiceChange { invoice, was_unchanged, credit } = settled;
    let text = if as_json {
        let change = Change {
            id: invoice.id,
            number: invoice.number,
            status: invoice.status.as_str(),
            due: invoice.due,
            already: was_unchanged,
            amount: credit.as_ref().map(|credit| credit.amount),
            remaining: credit.as_ref().map(|credit| credit.remaining),
        };
        serde_json::to_string(&change).map_err(|error| error.to_string())?
    } else if was_unchanged {
        format!("Invoice {} was already {word}.", invoice.number)
    } else if let Some(Credit { amount, remaining, .. }) = credit {
        let (number, currency) = (invoice.number, &invoice.currency);
        format!(
            "Invoice {number} is now {word}: {amount} {currency} booked, {remaining} of it left as credit."
        )
    } else {
        format!("Invoice {} is now {word}.", invoice.number)
    };
    super::print(&text);
    Ok(())
}
