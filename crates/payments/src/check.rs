//! A read-only check of the Stripe account: lists the requirements of payments that it doesn't meet.

use kernel::error::Error;
use stripe::{API_VERSION, Account, Created, WebhookEndpoint};

use crate::Payments;
use crate::comparison::events::{PATH, read_endpoints};
use crate::inbound::EVENT_TYPES;

/// The capability required to charge cards.
const CARDS: &str = "card_payments";
/// The status of a usable capability.
const ACTIVE: &str = "active";

/// The results of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether the key is a live-mode key.
    pub is_live: bool,
    /// The account; `None` if the key may not read it.
    pub account: Option<Account>,
    /// The webhook endpoints with our URL, including disabled ones; `None` if the key may not read them.
    pub endpoints: Option<Vec<WebhookEndpoint>>,
    /// Problems to fix, one sentence each.
    pub missing: Vec<String>,
    /// Things that are unknown or possibly intended, one sentence each.
    pub notes: Vec<String>,
}

/// Reads from Stripe which events the webhook receives, their API version, the account's capabilities, and
/// whether the key can read the lists that are compared every day.
///
/// # Errors
/// Payments are off; Stripe can't be reached, or rejects the key entirely.
pub async fn run(payments: &Payments) -> Result<Report, Error> {
    let client = &payments.processor()?.client;
    let (mut missing, mut notes) = (Vec::new(), Vec::new());
    let account = allowed(payments, "Account", client.account().await, &mut notes)?;
    if let Some(account) = &account {
        check_account(account, &payments.billing.settings.currency, (&mut missing, &mut notes));
    }
    let endpoints = match read_endpoints(client).await {
        Err(error) => allowed(payments, "Webhook Endpoints", Err(error), &mut notes)?,
        Ok(endpoints) => Some(endpoints),
    };
    if let Some(endpoints) = &endpoints {
        check_endpoints(endpoints, (&mut missing, &mut notes));
    }
    // Probe the lists of the daily comparison with a range that matches nothing.
    let now = payments.clock.now().unix_seconds();
    let none = Created { from: Some(now), until: Some(now), after: None };
    let lists = [
        ("PaymentIntents", client.payment_intents(&none).await.map(|_| ())),
        ("Refunds", client.refunds(None, &none).await.map(|_| ())),
        ("Disputes", client.disputes(None, &none).await.map(|_| ())),
        ("Events", client.events(&EVENT_TYPES, &none).await.map(|_| ())),
    ];
    for (list, read) in lists {
        allowed(payments, list, read, &mut missing)?;
    }
    Ok(Report { is_live: client.is_live(), account, endpoints, missing, notes })
}

/// Returns the value; `None` if the key may not read it, which adds a sentence.
fn allowed<T>(
    payments: &Payments,
    what: &str,
    read: Result<T, stripe::Error>,
    sentences: &mut Vec<String>,
) -> Result<Option<T>, Error> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_forbidden() => {
            sentences.push(format!("The secret key lacks the permission to read {what}."));
            Ok(None)
        }
        Err(error) => Err(payments.failed(&format!("reading {what}"), &error)),
    }
}

fn check_account(account: &Account, currency: &str, (missing, notes): (&mut Vec<String>, &mut Vec<String>)) {
    if !account.charges_enabled {
        missing.push(
            "The account can't make charges: see Stripe's dashboard for the missing information.".to_owned(),
        );
    }
    match account.capabilities.get(CARDS).map(String::as_str) {
        Some(ACTIVE) => {}
        Some(state) => missing.push(format!("The capability {CARDS} is {state}: no card can be charged.")),
        None => missing.push(format!("The account lacks the capability {CARDS}: no card can be charged.")),
    }
    if !account.payouts_enabled {
        notes.push("Stripe doesn't pay out the account's balance.".to_owned());
    }
    if let Some(default) = account.default_currency.as_ref().filter(|it| !it.eq_ignore_ascii_case(currency)) {
        let default = default.to_ascii_uppercase();
        notes.push(format!(
            "The account's currency is {default}, and {currency} is charged: Stripe converts it."
        ));
    }
}

fn check_endpoints(endpoints: &[WebhookEndpoint], (missing, notes): (&mut Vec<String>, &mut Vec<String>)) {
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.is_enabled()) {
        notes.push(format!("The webhook {} is {}.", endpoint.id, endpoint.status));
    }
    let enabled: Vec<_> = endpoints.iter().filter(|endpoint| endpoint.is_enabled()).collect();
    if enabled.is_empty() {
        missing.push(format!("No enabled webhook has a URL that ends with {PATH}."));
        return;
    }
    for event_type in EVENT_TYPES {
        if !enabled.iter().any(|endpoint| endpoint.gets(event_type)) {
            missing.push(format!("The webhook doesn't receive {event_type}."));
        }
    }
    for endpoint in enabled {
        let version = endpoint.api_version.as_deref().filter(|version| *version != API_VERSION);
        if let Some(version) = version {
            notes.push(format!(
                "The webhook {} receives events in version {version} of Stripe's API, and requests use \
                 {API_VERSION}. That is fine, because only the ids in events are read.",
                endpoint.id
            ));
        }
    }
}
