//! What a declined charge means for the next one.

use kernel::clock::DAY_MS;
use stripe::Refusal;

/// How long after a soft decline the card is tried again, in milliseconds.
pub const RETRY_MS: i64 = DAY_MS;
/// The most attempts of one payment.
pub const MAX_ATTEMPTS: i64 = 3;

/// Reasons of banks after which the card can't be charged again, whatever the bank advises: the card is lost, over or
/// wrong, or its holder has taken the permission back.
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

/// What follows from a charge that wasn't made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decline {
    /// The customer has to confirm it.
    Authentication,
    /// It is tried again after [`RETRY_MS`].
    Soft,
    /// The card isn't charged again.
    Hard,
}

/// Returns what follows from a refusal of the attempt with this number, counted from 1.
pub fn decide(refusal: &Refusal, attempt: i64) -> Decline {
    let code = refusal.code.as_deref().unwrap_or_default();
    let reason = refusal.decline_code.as_deref().unwrap_or_default();
    if code == "authentication_required" || reason == "authentication_required" {
        return Decline::Authentication;
    }
    // Anything but a decline of the bank is wrong with the request, so it would be refused again.
    let is_decline = refusal.status == 402;
    let is_final = refusal.advice_code.as_deref() == Some("do_not_try_again");
    if !is_decline || is_final || HARD.contains(&reason) || HARD.contains(&code) || attempt >= MAX_ATTEMPTS {
        Decline::Hard
    } else {
        Decline::Soft
    }
}

/// Returns the word that is stored for a refusal.
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
        use Decline::{Authentication, Hard, Soft};
        let cases = [
            (refusal(402, "card_declined", Some("insufficient_funds"), None), Soft),
            (refusal(402, "card_declined", Some("generic_decline"), Some("try_again_later")), Soft),
            (refusal(402, "card_declined", Some("insufficient_funds"), Some("do_not_try_again")), Hard),
            (refusal(402, "card_declined", Some("lost_card"), Some("try_again_later")), Hard),
            (refusal(402, "expired_card", Some("expired_card"), None), Hard),
            (refusal(402, "incorrect_cvc", None, None), Hard),
            (refusal(402, "authentication_required", Some("authentication_required"), None), Authentication),
            (refusal(402, "card_declined", Some("authentication_required"), None), Authentication),
            (refusal(404, "resource_missing", None, None), Hard),
            (refusal(400, "amount_too_small", None, None), Hard),
        ];
        for (refusal, expected) in cases {
            assert_eq!(decide(&refusal, 1), expected, "{refusal}");
        }
        let soft = refusal(402, "card_declined", Some("insufficient_funds"), None);
        assert_eq!([1, 2, 3, 4].map(|attempt| decide(&soft, attempt)), [Soft, Soft, Hard, Hard]);
        assert!(HARD.is_sorted());
    }

    #[test]
    fn stored_word_is_the_reason_of_the_bank() {
        assert_eq!(word(&refusal(402, "card_declined", Some("lost_card"), None)), "lost_card");
        assert_eq!(word(&refusal(400, "amount_too_small", None, None)), "amount_too_small");
        assert_eq!(word(&Refusal::default()), "refused");
    }
}
