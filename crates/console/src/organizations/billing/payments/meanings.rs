//! Words of payments as people read them.

use payments::payments::{PaymentKind, PaymentStatus};

/// Returns the words of a kind.
pub fn kind(kind: PaymentKind) -> &'static str {
    match kind {
        PaymentKind::Credit => "Credit",
        PaymentKind::Invoice => "Invoice",
        PaymentKind::AutoTopUp => "Automatic top-up",
    }
}

/// Returns the words of a status, and the kind of its badge.
pub fn status(status: PaymentStatus) -> (&'static str, &'static str) {
    match status {
        PaymentStatus::Open => ("To be paid", "warn"),
        PaymentStatus::Processing => ("In progress", ""),
        PaymentStatus::ActionRequired => ("To be confirmed", "warn"),
        PaymentStatus::Succeeded => ("Paid", "good"),
        PaymentStatus::Failed => ("Failed", "bad"),
        PaymentStatus::Canceled => ("Given up", ""),
    }
}

/// Returns why a payment failed or was given up; `code` is ours, or Stripe's word.
pub fn failure(code: &str) -> String {
    let words = match code {
        "session_expired" => "nobody paid it on its page within a day",
        "replaced" => "another payment of the invoice has taken its place",
        "not_needed" => "the balance was high enough again",
        "disabled" => "the automatic top-up was turned off or paused",
        "monthly_cap" => "it would have passed the most that is charged in a month",
        "daily_maximum" => "it waits for the next day: no more is charged by itself in one",
        "processor_unavailable" => "it waits until the payment processor takes payments again",
        "invoice_not_open" => "its invoice was paid otherwise, taken back or given up",
        "no_payment_method" => "there was no saved card",
        "tax_location" => "its tax couldn’t be computed without an address of the organization",
        "organization_deleted" => "the organization was deleted",
        "authentication_required" => "the bank wants a person to confirm it",
        "insufficient_funds" => "the card hasn’t enough money",
        "expired_card" => "the card has expired",
        "card_declined" | "generic_decline" | "do_not_honor" => "the bank has declined the card",
        other => return format!("Stripe’s word for it is “{other}”"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_word_of_stripe_is_shown() {
        assert_eq!(failure("replaced"), "another payment of the invoice has taken its place");
        assert_eq!(failure("lost_card"), "Stripe’s word for it is “lost_card”");
    }
}
