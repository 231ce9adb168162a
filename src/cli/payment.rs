//! `tollkeeper payment …`

use clap::Subcommand;
use serde::Serialize;

use crate::config::Config;
use kernel::clock::Time;
use kernel::ids::{InvoiceId, OrganizationId, PaymentId, RefundId};
use kernel::money::Nano;
use kernel::page::Page;
use payments::Payments;
use payments::payments::{self as operations, Payment};
use payments::refunds::{self, Status};
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the payments of an organization, newest first
    List {
        /// The organization
        #[arg(long, value_name = "ID", value_parser = super::credit::organization)]
        organization: OrganizationId,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a payment
    Show {
        /// The payment's id
        #[arg(value_name = "ID", value_parser = payment)]
        id: PaymentId,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Refund what is left of a payment's credit, with its tax: the credit is lowered first, then Stripe is asked
    Refund {
        /// The payment's id
        #[arg(value_name = "ID", value_parser = payment)]
        id: PaymentId,
        /// The amount of credit to refund; without it, all that is left. The tax on it goes back, too
        #[arg(long, value_name = "AMOUNT", value_parser = super::credit::amount)]
        amount: Option<Nano>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
}

fn payment(text: &str) -> Result<PaymentId, String> {
    PaymentId::parse(text).ok_or_else(|| {
        "a payment's id starts with `payment_` and has 26 more characters; `payment list` shows them"
            .to_owned()
    })
}

/// The number of payments that are read at a time.
const PAGE_SIZE: i64 = 100;

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        // A list needs no secrets.
        let app = match command {
            Command::Refund { .. } => super::app_with_payments(config).await?,
            Command::List { .. } | Command::Show { .. } => super::app(config).await?,
        };
        match command {
            Command::List { organization, json } => list(&app.payments, *organization, *json).await,
            Command::Show { id, json } => {
                let found = operations::read(&app.payments, *id).await.map_err(|error| error.to_string())?;
                let found = found.ok_or_else(|| format!("there is no payment {id}"))?;
                super::print(&line(&found, *json)?);
                Ok(())
            }
            Command::Refund { id, amount, json } => refund(&app.payments, *id, *amount, *json).await,
        }
    })
}

async fn list(payments: &Payments, organization_id: OrganizationId, as_json: bool) -> Result<(), String> {
    for page in 1.. {
        let page = Page { page, page_size: PAGE_SIZE };
        let rows = operations::list_for_operator(payments, organization_id, page).await;
        let rows = rows.map_err(|error| error.to_string())?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            super::print(&line(row, as_json)?);
        }
    }
    Ok(())
}

/// The JSON output for a payment.
#[derive(Serialize)]
struct Line<'a> {
    id: PaymentId,
    organization_id: OrganizationId,
    kind: &'static str,
    status: &'static str,
    amount: Nano,
    tax: Option<Nano>,
    total: Option<Nano>,
    currency: &'a str,
    invoice_id: Option<InvoiceId>,
    refunded: Nano,
    disputed: Nano,
    failure_code: Option<&'a str>,
    stripe_session_id: Option<&'a str>,
    stripe_payment_intent_id: Option<&'a str>,
    created_at: Time,
    paid_at: Option<Time>,
}

fn line(payment: &Payment, as_json: bool) -> Result<String, String> {
    if as_json {
        let line = Line {
            id: payment.id,
            organization_id: payment.organization_id,
            kind: payment.kind.as_str(),
            status: payment.status.as_str(),
            amount: payment.amount(),
            tax: payment.tax(),
            total: payment.total(),
            currency: &payment.currency,
            invoice_id: payment.invoice_id,
            refunded: payment.refunded(),
            disputed: payment.disputed(),
            failure_code: payment.failure_code.as_deref(),
            stripe_session_id: payment.session_id.as_deref(),
            stripe_payment_intent_id: payment.intent_id.as_deref(),
            created_at: payment.created_at,
            paid_at: payment.paid_at,
        };
        return serde_json::to_string(&line).map_err(|error| error.to_string());
    }
    let (id, created_at, amount, currency) =
        (payment.id, payment.created_at, payment.amount(), &payment.currency);
    let (kind, status) = (payment.kind.as_str(), payment.status.as_str());
    let mut text = format!("{id}  {created_at}  {kind} of {amount} {currency}");
    if let Some(tax) = payment.tax().filter(|tax| *tax > Nano::ZERO) {
        text += &format!(" and {tax} of tax");
    }
    text += &format!(", {status}");
    for (amount, what) in [(payment.refunded(), "refunded"), (payment.disputed(), "disputed")] {
        if amount > Nano::ZERO {
            text += &format!(", {amount} {what}");
        }
    }
    if let Some(code) = &payment.failure_code {
        text += &format!(" ({code})");
    }
    Ok(text)
}

/// The JSON output of `refund`.
#[derive(Serialize)]
struct Refunded<'a> {
    id: RefundId,
    payment_id: PaymentId,
    amount: Nano,
    tax: Nano,
    total: Nano,
    currency: &'a str,
    status: &'static str,
}

async fn refund(
    payments: &Payments,
    id: PaymentId,
    amount: Option<Nano>,
    as_json: bool,
) -> Result<(), String> {
    let refund = refunds::refund(payments, id, amount, &Trail::operator()).await;
    let refund = refund.map_err(|refusal| refusal.to_string())?;
    let payment = operations::read(payments, id).await.map_err(|error| error.to_string())?;
    let payment = payment.ok_or_else(|| format!("there is no payment {id}"))?;
    let (amount, currency) = (payment.nano(refund.net_minor()), payment.currency.as_str());
    let (tax, total) = (payment.nano(refund.tax_minor), payment.nano(refund.amount_minor));
    super::print(&if as_json {
        let (payment_id, status) = (payment.id, refund.status.as_str());
        let report = Refunded { id: refund.id, payment_id, amount, tax, total, currency, status };
        serde_json::to_string(&report).map_err(|error| error.to_string())?
    } else if refund.status == Status::Pending {
        format!(
            "{amount} {currency} were taken from the credit, but Stripe can't be reached: a server asks it again."
        )
    } else {
        let with_tax = if tax == Nano::ZERO { String::new() } else { format!(", {total} with the tax") };
        format!("{amount} {currency} of the payment {id} were refunded{with_tax}.")
    });
    Ok(())
}
