//! The labels of payments.

use payments::payments::{PaymentKind, PaymentStatus};

/// Returns the label of a kind.
pub fn kind(kind: PaymentKind) -> &'static str {
    match kind {
        PaymentKind::Credit => "Credit",
        PaymentKind::Invoice => "Invoice",
        PaymentKind::AutoTopUp => "Automatic top-up",
    }
}

/// Returns the label of a status, and the kind of its badge.
pub fn status(status: PaymentStatus) -> (&'static str, &'static str) {
    match status {
        PaymentStatus::Open => ("Awaiting payment", "warn"),
        PaymentStatus::Processing => ("In progress", ""),
        PaymentStatus::ActionRequired => ("Needs confirmation", "warn"),
        PaymentStatus::Succeeded => ("Paid", "good"),
        PaymentStatus::Failed => ("Failed", "bad"),
        PaymentStatus::Canceled => ("Canceled", ""),
    }
}

/// Returns the reason why a payment failed or was canceled. `code` is ours or Stripe's.
pub fn failure(code: &str) -> String {
    let words = match code {
        "session_expired" => "it wasn’t paid within a day",
        "replaced" => "another payment of the invoice replaced it",
        "not_needed" => "the balance was high enough again",
        "disabled" => "the automatic top-up was turned off or paused",
        "monthly_cap" => "it would have exceeded the monthly maximum",
        "daily_maximum" => "it was postponed because the daily maximum of automatic charges is reached",
        "processor_unavailable" => "it was postponed until the payment processor accepts payments again",
        "invoice_not_open" => "its invoice was paid in another way, voided or written off",
        "no_payment_method" => "no card was saved",
        "tax_location" => "tax couldn’t be computed without the organization’s address",
        "organization_deleted" => "the organization was deleted",
        "authentication_required" => "the bank requires the cardholder to confirm it",
        "insufficient_funds" => "insufficient funds",
        "expired_card" => "the card has expired",
        "card_declined" | "generic_decline" | "do_not_honor" => "the bank declined the card",
        other => return format!("Stripe reported “{other}”"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_word_of_stripe_is_shown() {
        assert_eq!(failure("replaced"), "another payment of the invoice replaced it");
        assert_eq!(failure("lost_card"), "Stripe reported “lost_card”");
    }
}
