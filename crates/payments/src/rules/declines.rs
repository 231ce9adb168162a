//! Classification of declined charges.

use kernel::clock::{DAY_MS, HOUR_MS};
use stripe::Refusal;

/// Delay before a retry after a soft decline, in milliseconds.
pub const RETRY_MS: i64 = DAY_MS;
/// Maximum number of declined attempts per payment.
pub const MAX_ATTEMPTS: i64 = 3;
/// Delay before a retry after a refusal unrelated to the card, in milliseconds.
pub const ACCOUNT_RETRY_MS: i64 = HOUR_MS;

/// Decline reasons after which the card can't be charged again, even if the bank advises a retry: the card is
/// lost, expired, or invalid, or its holder has withdrawn consent.
const HARD: [&str; 24] = [
    "authentication_not_handled",
    "card_not_supported",
    "currency_not_supported",
    "expired_card",
    "fraudulent",
    "incorrect_address",
    "incorrect_cvc",
    "incorrect_number",
    "incorrect_zip",
    "invalid_account",
    "invalid_cvc",
    "invalid_expiry_month",
    "invalid_expiry_year",
    "invalid_number",
    "lost_card",
    "merchant_blacklist",
    "new_account_information_available",
    "not_permitted",
    "pickup_card",
    "restricted_card",
    "revocation_of_all_authorizations",
    "revocation_of_authorization",
    "stolen_card",
    "stop_payment_order",
];

/// Codes for an amount that Stripe doesn't accept.
const AMOUNTS: [&str; 2] = ["amount_too_large", "amount_too_small"];
/// Code for a card that was detached from its customer.
const DETACHED: &str = "payment_method_unexpected_state";

/// The consequence of a failed charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decline {
    /// The customer must confirm the charge.
    Authentication,
    /// Retry after [`RETRY_MS`].
    Soft,
    /// Don't charge the card again.
    Hard,
    /// Stripe doesn't have the card or its customer. Don't charge it again.
    NoCard,
    /// Not a decline of the card: the operator must fix a problem with the Stripe account. Retry after
    /// [`ACCOUNT_RETRY_MS`], without a limit.
    Account,
}

/// Returns the consequence of a refused charge after `declined` earlier declines.
pub fn decide(refusal: &Refusal, declined: i64) -> Decline {
    let code = refusal.code.as_deref().unwrap_or_default();
    let reason = refusal.decline_code.as_deref().unwrap_or_default();
    if code == "authentication_required" || reason == "authentication_required" {
        return Decline::Authentication;
    }
    if refusal.lacks("customer") || refusal.lacks("payment_method") || code == DETACHED {
        return Decline::NoCard;
    }
    let is_decline = refusal.status == 402 || refusal.kind == "card_error";
    let is_final = refusal.advice_code.as_deref() == Some("do_not_try_again");
    // An amount that Stripe rejects would be rejected again.
    if is_final || [reason, code].iter().any(|word| HARD.contains(word) || AMOUNTS.contains(word)) {
        Decline::Hard
    } else if !is_decline {
        Decline::Account
    } else if declined + 1 >= MAX_ATTEMPTS {
        Decline::Hard
    } else {
        Decline::Soft
    }
}

/// Returns the failure code stored for a refusal.
pub fn word(refusal: &Refusal) -> String {
    let words = [refusal.decline_code.as_ref(), refusal.code.as_ref()];
    words.into_iter().flatten().next().cloned().unwrap_or_else(|| "refused".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, code: &str, decline: Option<&str>, advice: Option<&str>) -> Refusal {
        Refusal {
            status,
            code: Some(code.to_owned()),
            decline_code: decline.map(str::to_owned),
            advice_code: advice.map(str::to_owned),
            ..Refusal::default()
        }
    }

    #[test]
    fn only_soft_declines_are_tried_again() {
        use Decline::{Account, Authentication, Hard, NoCard, Soft};
        let cases = [
            (refusal(402, "card_declined", Some("insufficient_funds"), None), Soft),
            (refusal(402, "card_declined", Some("generic_decline"), Some("try_again_later")), Soft),
            (refusal(402, "card_declined", Some("insufficient_funds"), Some("do_not_try_again")), Hard),
            (refusal(402, "card_declined", Some("lost_card"), Some("try_again_later")), Hard),
            (refusal(402, "expired_card", Some("expired_card"), None), Hard),
            (refusal(402, "incorrect_cvc", None, None), Hard),
            (refusal(402, "authentication_required", Some("authentication_required"), None), Authentication),
            (refusal(402, "card_declined", Some("authentication_required"), None), Authentication),
            (refusal(400, "amount_too_small", None, None), Hard),
            // Refusals that aren't caused by the card.
            (refusal(400, "account_invalid", None, None), Account),
            (refusal(400, "", None, None), Account),
            (refusal(404, "resource_missing", None, None), Account),
            (refusal(400, "payment_method_unexpected_state", None, None), NoCard),
        ];
        for (refusal, expected) in cases {
            assert_eq!(decide(&refusal, 0), expected, "{refusal}");
        }
        for (param, expected) in [("customer", NoCard), ("payment_method", NoCard), ("amount", Account)] {
            let missing = refusal(400, "resource_missing", None, None);
            let missing = Refusal { param: Some(param.to_owned()), ..missing };
            assert_eq!(decide(&missing, 0), expected, "{param}");
        }
        let soft = refusal(402, "card_declined", Some("insufficient_funds"), None);
        assert_eq!([0, 1, 2, 3].map(|declined| decide(&soft, declined)), [Soft, Soft, Hard, Hard]);
        let account = refusal(400, "account_invalid", None, None);
        assert_eq!(decide(&account, 1_000), Account);
        assert!(HARD.is_sorted());
    }

    #[test]
    fn stored_word_is_the_reason_of_the_bank() {
        assert_eq!(word(&refusal(402, "card_declined", Some("lost_card"), None)), "lost_card");
        assert_eq!(word(&refusal(400, "amount_too_small", None, None)), "amount_too_small");
        assert_eq!(word(&Refusal::default()), "refused");
    }
}
