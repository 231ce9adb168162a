//! `tollkeeper payment …`

use std::collections::BTreeMap;

use clap::Subcommand;
use serde::Serialize;

use crate::config::Config;
use kernel::clock::Time;
use kernel::error::Code;
use kernel::ids::{InvoiceId, OrganizationId, PaymentId, RefundId};
use kernel::money::Nano;
use kernel::page::Page;
use payments::Payments;
use payments::check::{self, Report};
use payments::payments::{self as operations, Payment};
use payments::refunds::{self, Status};
use stripe::{API_VERSION, WebhookEndpoint};
use trail::Trail;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List an organization's payments, newest first
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
    /// Check at Stripe which events the webhook receives and what the account can do, and list what is
    /// missing
    Check {
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// Refund the remainder of a payment's credit, with its tax: reduces the credit first, then asks Stripe
    Refund {
        /// The payment's id
        #[arg(value_name = "ID", value_parser = payment)]
        id: PaymentId,
        /// The amount of credit to refund; defaults to the remainder. Its tax is refunded as well
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

/// Number of payments read at a time.
const PAGE_SIZE: i64 = 100;

pub fn run(config: Config, command: &Command) -> Result<(), String> {
    super::runtime()?.block_on(async {
        // Listing payments requires no secrets.
        let app = match command {
            Command::Refund { .. } | Command::Check { .. } => super::app_with_payments(config).await?,
            Command::List { .. } | Command::Show { .. } => super::app(config).await?,
        };
        match command {
            Command::List { organization, json } => list(&app.payments, *organization, *json).await,
            Command::Show { id, json } => {
                let found = operations::read(&app.payments, *id).await.map_err(|error| error.to_string())?;
                let found = found.ok_or_else(|| format!("payment {id} doesn't exist"))?;
                super::print(&line(&found, *json)?);
                Ok(())
            }
            Command::Check { json } => check(&app.payments, *json).await,
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

/// The JSON output of `check`.
#[derive(Serialize)]
struct Checked<'a> {
    is_live: bool,
    api_version: &'static str,
    /// Null if the key can't read it.
    account: Option<CheckedAccount<'a>>,
    /// Null if the key can't read them.
    webhooks: Option<Vec<CheckedWebhook<'a>>>,
    missing: &'a [String],
    notes: &'a [String],
}

#[derive(Serialize)]
struct CheckedAccount<'a> {
    id: &'a str,
    country: Option<&'a str>,
    currency: Option<String>,
    charges_enabled: bool,
    payouts_enabled: bool,
    capabilities: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct CheckedWebhook<'a> {
    id: &'a str,
    url: &'a str,
    status: &'a str,
    api_version: Option<&'a str>,
    events: &'a [String],
}

impl<'a> CheckedWebhook<'a> {
    fn of(endpoint: &'a WebhookEndpoint) -> Self {
        Self {
            id: &endpoint.id,
            url: &endpoint.url,
            status: &endpoint.status,
            api_version: endpoint.api_version.as_deref(),
            events: &endpoint.enabled_events,
        }
    }
}

async fn check(payments: &Payments, as_json: bool) -> Result<(), String> {
    let report = check::run(payments).await.map_err(|error| match error.code {
        Code::PaymentsDisabled => "payments are off: set `payments.stripe_secret_key_file`".to_owned(),
        _ => error.to_string(),
    })?;
    super::print(&if as_json { checked_json(&report)? } else { checked_text(&report) });
    match report.missing.len() {
        0 => Ok(()),
        1 => Err("one thing is missing at Stripe".to_owned()),
        count => Err(format!("{count} things are missing at Stripe")),
    }
}

fn checked_json(report: &Report) -> Result<String, String> {
    let account = report.account.as_ref().map(|account| CheckedAccount {
        id: &account.id,
        country: account.country.as_deref(),
        currency: account.default_currency.as_ref().map(|currency| currency.to_ascii_uppercase()),
        charges_enabled: account.charges_enabled,
        payouts_enabled: account.payouts_enabled,
        capabilities: &account.capabilities,
    });
    let webhooks =
        report.endpoints.as_ref().map(|endpoints| endpoints.iter().map(CheckedWebhook::of).collect());
    let (missing, notes) = (report.missing.as_slice(), report.notes.as_slice());
    let is_live = report.is_live;
    let checked = Checked { is_live, api_version: API_VERSION, account, webhooks, missing, notes };
    serde_json::to_string(&checked).map_err(|error| error.to_string())
}

fn checked_text(report: &Report) -> String {
    let mode = if report.is_live { "live" } else { "test" };
    let mut lines = Vec::new();
    if let Some(account) = &report.account {
        let word = |is_on| if is_on { "on" } else { "off" };
        lines.push(format!("Account {}, {mode} mode", account.id));
        lines.push(format!(
            "Charges {}, payouts {}; currency {}",
            word(account.charges_enabled),
            word(account.payouts_enabled),
            account.default_currency.as_deref().unwrap_or("unknown").to_ascii_uppercase()
        ));
        let capabilities = account.capabilities.iter().map(|(name, state)| format!("{name} {state}"));
        lines.push(format!("Capabilities: {}", capabilities.collect::<Vec<_>>().join(", ")));
    } else {
        lines.push(format!("Account not readable with this key, {mode} mode"));
    }
    lines.push(format!("Requests by version {API_VERSION} of the API"));
    for endpoint in report.endpoints.iter().flatten() {
        let version = endpoint.api_version.as_deref().unwrap_or("the account's");
        let WebhookEndpoint { id, url, status, enabled_events, .. } = endpoint;
        lines.push(format!("Webhook {id} {url}, {status}, version {version}: {}", enabled_events.join(", ")));
    }
    lines.extend(report.notes.iter().map(|note| format!("Note: {note}")));
    lines.extend(report.missing.iter().map(|missing| format!("Missing: {missing}")));
    if report.missing.is_empty() {
        lines.push("Nothing is missing.".to_owned());
    }
    lines.join("\n")
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
    let payment = payment.ok_or_else(|| format!("payment {id} doesn't exist"))?;
    let (amount, currency) = (payment.nano(refund.net_minor()), payment.currency.as_str());
    let (tax, total) = (payment.nano(refund.tax_minor), payment.nano(refund.amount_minor));
    super::print(&if as_json {
        let (payment_id, status) = (payment.id, refund.status.as_str());
        let report = Refunded { id: refund.id, payment_id, amount, tax, total, currency, status };
        serde_json::to_string(&report).map_err(|error| error.to_string())?
    } else if refund.status == Status::Pending {
        format!(
            "{amount} {currency} were taken from the credit, but Stripe can't be reached: a server will retry."
        )
    } else {
        let with_tax = if tax == Nano::ZERO { String::new() } else { format!(", {total} with the tax") };
        format!("{amount} {currency} of the payment {id} were refunded{with_tax}.")
    });
    Ok(())
}
