//! Cards of customers, and the decisions of their banks.

use serde_json::{Value, json};

/// The outcome of a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Succeeds,
    /// The bank declines, with this reason and advice.
    Declined {
        decline_code: &'static str,
        advice_code: Option<&'static str>,
    },
    /// The bank requires authentication, but the customer is away.
    AuthenticationRequired,
    /// The charge is pending until the test settles it.
    Processing,
}

/// The outcome for a card that the bank has blocked permanently.
pub const STOLEN: Outcome =
    Outcome::Declined { decline_code: "stolen_card", advice_code: Some("do_not_try_again") };
/// The outcome for a card with insufficient funds.
pub const NO_FUNDS: Outcome =
    Outcome::Declined { decline_code: "insufficient_funds", advice_code: Some("try_again_later") };

/// A card.
#[derive(Clone, Debug)]
pub struct Card {
    pub brand: &'static str,
    pub last4: String,
    pub exp_month: u8,
    pub exp_year: u16,
    /// The outcome of a charge while the customer is present.
    pub now: Outcome,
    /// The outcome of later charges, when the customer is away.
    pub later: Outcome,
}

impl Card {
    /// Returns a card that never declines.
    pub fn visa() -> Self {
        Self::numbered("4242424242424242")
    }

    /// Returns the card with this number. Declines if the number is one of Stripe's test cards that decline.
    pub fn numbered(number: &str) -> Self {
        let generic =
            Outcome::Declined { decline_code: "generic_decline", advice_code: Some("try_again_later") };
        let (now, later) = match number {
            "4000000000000002" => (generic, generic),
            "4000000000009995" => (NO_FUNDS, NO_FUNDS),
            "4000000000009979" => (STOLEN, STOLEN),
            "4000000000000341" => (Outcome::Succeeds, generic),
            "4000002760003184" => (Outcome::Succeeds, Outcome::AuthenticationRequired),
            _ => (Outcome::Succeeds, Outcome::Succeeds),
        };
        let last4 = number.get(number.len().saturating_sub(4)..).unwrap_or_default().to_owned();
        let brand = if number.starts_with('5') { "mastercard" } else { "visa" };
        Self { brand, last4, exp_month: 8, exp_year: 2031, now, later }
    }

    /// Fills in the card details of a payment method or of a charge.
    pub fn describe(&self, card: &mut Value) {
        card["brand"] = self.brand.into();
        card["country"] = "US".into();
        card["exp_month"] = self.exp_month.into();
        card["exp_year"] = self.exp_year.into();
        card["funding"] = "credit".into();
        card["last4"] = self.last4.clone().into();
        card["checks"] =
            json!({"address_line1_check": null, "address_postal_code_check": null, "cvc_check": "pass"});
    }
}

impl Outcome {
    /// Returns the code, the reason, the advice and the message of the error, or `None` if the outcome isn't
    /// an error.
    pub fn refusal(self) -> Option<(&'static str, &'static str, Option<&'static str>, &'static str)> {
        match self {
            Self::Succeeds | Self::Processing => None,
            Self::Declined { decline_code, advice_code } => {
                Some(("card_declined", decline_code, advice_code, "Your card was declined."))
            }
            Self::AuthenticationRequired => Some((
                "authentication_required",
                "authentication_required",
                None,
                "Your card was declined. This transaction requires authentication.",
            )),
        }
    }
}
