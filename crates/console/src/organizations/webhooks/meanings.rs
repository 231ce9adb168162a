//! The types of events and the outcomes of attempts, in words.

use events::EventType;
use webhooks::deliveries::{Outcome, State};

use crate::options::Choice;

/// Returns the types to which a webhook can subscribe, each with its meaning.
pub fn event_choices() -> Vec<Choice> {
    EventType::SUBSCRIBABLE.iter().map(|of| (of.as_str().to_owned(), with_meaning(*of))).collect()
}

/// Returns a type with its meaning.
pub fn with_meaning(of: EventType) -> String {
    format!("{}: {}", of.as_str(), meaning(of))
}

fn meaning(of: EventType) -> &'static str {
    match of {
        EventType::InvoiceCreated => "an invoice was created for a month",
        EventType::InvoicePaid => "an invoice was paid in full",
        EventType::InvoiceVoided => "an invoice was voided",
        EventType::CreditAdded => "a credit was added",
        EventType::CreditExpiring => "a credit expires within a week",
        EventType::CreditExpired => "the remainder of a credit expired",
        EventType::PaymentSucceeded => "a payment succeeded",
        EventType::PaymentFailed => "the last attempt to charge the saved card failed",
        EventType::PaymentActionRequired => "a bank requires an owner to confirm a charge",
        EventType::PaymentRefunded => "a payment was fully or partly refunded",
        EventType::PaymentDisputed => "a bank reversed a payment or returned its money",
        EventType::AutoTopUpPaused => "automatic top-up was paused",
        EventType::BalanceLow => "the balance dropped below its alert",
        EventType::BalanceDepleted => "the balance and the credit limit are used up",
        EventType::BalanceRecovered => "the balance is no longer low or used up",
        EventType::BudgetThresholdReached => "a budget reached a threshold",
        EventType::BudgetExceeded => "the limit of a budget is used up",
        EventType::ApiKeyCreated => "an API key was created",
        EventType::ApiKeyRotated => "an API key was rotated",
        EventType::ApiKeyExpiring => "an API key expires within a week",
        EventType::ApiKeyDeleted => "an API key was deleted",
        EventType::MemberAdded => "a member joined or was added",
        EventType::MemberRemoved => "a member left or was removed",
        EventType::AuditDrift => "the ledger audit found a new problem",
        EventType::UsageRefused => "reported usage was rejected",
        EventType::CatalogRefused => "a catalog file was rejected",
        EventType::WebhookTest => "a test event",
    }
}

/// Returns the outcome of an attempt.
pub fn outcome(of: Outcome) -> &'static str {
    match of {
        Outcome::Succeeded => "accepted",
        Outcome::Refused => "rejected",
        Outcome::NotReachable => "DNS lookup found no public address",
        Outcome::NotConnected => "connection failed",
        Outcome::TlsFailed => "TLS failed",
        Outcome::NoAnswer => "no response",
        Outcome::Timeout => "timed out",
    }
}

/// Returns the state of a delivery, with the kind of its badge.
pub fn state(of: State) -> (&'static str, &'static str) {
    match of {
        State::Pending => ("pending", "warn"),
        State::Succeeded => ("delivered", "good"),
        State::Failed => ("failed", "bad"),
    }
}
