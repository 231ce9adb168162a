//! The types of events and the outcomes of attempts, in words.

use events::EventType;
use webhooks::deliveries::{Outcome, State};

use crate::options::Choice;

/// Returns the types that a webhook can ask for, each with its meaning.
pub fn event_choices() -> Vec<Choice> {
    EventType::SUBSCRIBABLE.iter().map(|of| (of.as_str().to_owned(), with_meaning(*of))).collect()
}

/// Returns a type with its meaning.
pub fn with_meaning(of: EventType) -> String {
    format!("{}: {}", of.as_str(), meaning(of))
}

fn meaning(of: EventType) -> &'static str {
    match of {
        EventType::InvoiceCreated => "a month was closed with an invoice",
        EventType::InvoicePaid => "an invoice is paid in full",
        EventType::InvoiceVoided => "an invoice was taken back",
        EventType::CreditAdded => "a credit was added",
        EventType::CreditExpiring => "a credit expires within a week",
        EventType::CreditExpired => "what was left of a credit has expired",
        EventType::PaymentSucceeded => "a payment has succeeded",
        EventType::PaymentFailed => "a charge of the saved card has failed for the last time",
        EventType::PaymentActionRequired => "a bank wants an owner to confirm a charge",
        EventType::PaymentRefunded => "a payment was refunded, or a part of it",
        EventType::PaymentDisputed => "a bank has taken the money of a payment back, or has returned it",
        EventType::AutoTopUpPaused => "the automatic top-up was paused",
        EventType::BalanceLow => "the balance is below its alert",
        EventType::BalanceDepleted => "the balance and the credit limit are used up",
        EventType::BalanceRecovered => "the balance is neither low nor used up any more",
        EventType::BudgetThresholdReached => "a budget has reached a threshold",
        EventType::BudgetExceeded => "the limit of a budget is used up",
        EventType::ApiKeyCreated => "an API key was created",
        EventType::ApiKeyRotated => "an API key has another secret",
        EventType::ApiKeyExpiring => "an API key expires within a week",
        EventType::ApiKeyDeleted => "an API key was deleted",
        EventType::MemberAdded => "somebody has become a member",
        EventType::MemberRemoved => "somebody is no member any more",
        EventType::AuditDrift => "the audit of the books has found something new",
        EventType::UsageRefused => "reported usage was refused",
        EventType::CatalogRefused => "a catalog file was refused",
        EventType::WebhookTest => "a test",
    }
}

/// Returns the outcome of an attempt.
pub fn outcome(of: Outcome) -> &'static str {
    match of {
        Outcome::Succeeded => "taken",
        Outcome::Refused => "refused",
        Outcome::NotReachable => "no public address was found",
        Outcome::NotConnected => "no connection",
        Outcome::TlsFailed => "TLS failed",
        Outcome::NoAnswer => "no answer",
        Outcome::Timeout => "no answer in time",
    }
}

/// Returns the state of a delivery, with the kind of its badge.
pub fn state(of: State) -> (&'static str, &'static str) {
    match of {
        State::Pending => ("waiting", "warn"),
        State::Succeeded => ("delivered", "good"),
        State::Failed => ("failed", "bad"),
    }
}
