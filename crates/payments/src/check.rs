//! A look at the account at Stripe: what it lacks for payments here. It changes nothing.

use kernel::error::Error;
use stripe::{API_VERSION, Account, Created, WebhookEndpoint};

use crate::Payments;
use crate::comparison::events::{PATH, read_endpoints};
use crate::inbound::EVENT_TYPES;

/// The capability by which cards are charged.
const CARDS: &str = "card_payments";
/// The state of a capability that can be used.
const ACTIVE: &str = "active";

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The key is one for real money.
    pub is_live: bool,
    /// `None` if the key may not read it.
    pub account: Option<Account>,
    /// The webhook endpoints that lead here, disabled ones as well; `None` if the key may not read them.
    pub endpoints: Option<Vec<WebhookEndpoint>>,
    /// What is missing, a sentence each.
    pub missing: Vec<String>,
    /// What can't be known, or may be wanted so, a sentence each.
    pub notes: Vec<String>,
}

/// Asks Stripe which events the webhook gets, which version of the API they are written by, what the account is capable of,
/// and whether the key may read what is compared each day.
///
/// # Errors
/// Payments are off; Stripe can't be reached, or refuses the key as a whole.
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
    // What is compared each day: nothing of it is to be returned.
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

/// Returns what was read; `None` if the key may not read it, which is added to the sentences.
fn allowed<T>(
    payments: &Payments,
    what: &str,
    read: Result<T, stripe::Error>,
    sentences: &mut Vec<String>,
) -> Result<Option<T>, Error> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_forbidden() => {
            sentences.push(format!("The secret key may not read {what}."));
            Ok(None)
        }
        Err(error) => Err(payments.failed(&format!("reading {what}"), &error)),
    }
}

fn check_account(account: &Account, currency: &str, (missing, notes): (&mut Vec<String>, &mut Vec<String>)) {
    if !account.charges_enabled {
        missing.push("The account may not charge: Stripe's dashboard says what it still needs.".to_owned());
    }
    match account.capabilities.get(CARDS).map(String::as_str) {
        Some(ACTIVE) => {}
        Some(state) => missing.push(format!("The capability {CARDS} is {state}: no card can be charged.")),
        None => missing.push(format!("The account hasn't the capability {CARDS}: no card can be charged.")),
    }
    if !account.payouts_enabled {
        notes.push("Stripe doesn't pay the account's balance out.".to_owned());
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
        missing.push(format!("There is no enabled webhook whose address ends with {PATH}."));
        return;
    }
    for event_type in EVENT_TYPES {
        if !enabled.iter().any(|endpoint| endpoint.gets(event_type)) {
            missing.push(format!("The webhook doesn't get {event_type}."));
        }
    }
    for endpoint in enabled {
        let version = endpoint.api_version.as_deref().filter(|version| *version != API_VERSION);
        if let Some(version) = version {
            notes.push(format!(
                "Events for {} are written by version {version} of the API, requests by {API_VERSION}: only the ids in \
                 events are read.",
                endpoint.id
            ));
        }
    }
}
