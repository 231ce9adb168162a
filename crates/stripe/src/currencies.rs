//! Stripe's minor units.
//!
//! They match ISO 4217 with few exceptions (docs.stripe.com/currencies, "Zero-decimal currencies",
//! "Three-decimal currencies" and "Special cases").

use kernel::currencies;

/// Currencies whose minor unit has different digits at Stripe than in ISO 4217: MGA has no minor unit, and
/// ISK and UGX keep their former two digits.
const DIFFERENT: [(&str, u32); 3] = [("ISK", 2), ("MGA", 0), ("UGX", 2)];

/// Returns the number of decimal digits of a currency's minor unit in Stripe's amounts; `None` for a currency
/// that Stripe doesn't support.
///
/// The code is in upper case.
pub fn minor_digits(code: &str) -> Option<u32> {
    match DIFFERENT.iter().find(|(other, _)| *other == code) {
        Some((_, digits)) => Some(*digits),
        None => currencies::minor_digits(code).filter(|digits| *digits <= 3),
    }
}

/// Returns the step of a currency's amounts, in Stripe's minor unit: amounts must be a multiple of it.
///
/// In currencies with three digits the last one is 0; in ISK and UGX the last two are 00. HUF and TWD have
/// such a rule for payouts only.
pub fn step(code: &str) -> i64 {
    match (code, minor_digits(code)) {
        ("ISK" | "UGX", _) => 100,
        (_, Some(3)) => 10,
        _ => 1,
    }
}

/// Stripe's minimum charges, in minor units (docs.stripe.com/currencies, "Minimum and maximum charge
/// amounts").
const LEAST: [(&str, i64); 23] = [
    ("AED", 200),
    ("AUD", 50),
    ("BRL", 50),
    ("CAD", 50),
    ("CHF", 50),
    ("CZK", 1_500),
    ("DKK", 250),
    ("EUR", 50),
    ("GBP", 30),
    ("HKD", 400),
    ("HUF", 17_500),
    ("INR", 50),
    ("JPY", 50),
    ("MXN", 1_000),
    ("MYR", 200),
    ("NOK", 300),
    ("NZD", 50),
    ("PLN", 200),
    ("RON", 200),
    ("SEK", 300),
    ("SGD", 50),
    ("THB", 1_000),
    ("USD", 50),
];

/// Returns Stripe's minimum charge in a currency, in its minor unit; `None` if Stripe lists none. Then it's
/// the equivalent of the minimum in the account's own currency.
///
/// The code is in upper case.
pub fn least(code: &str) -> Option<i64> {
    LEAST.iter().find(|(other, _)| *other == code).map(|(_, least)| *least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_amounts_are_multiples_of_the_step() {
        assert!(LEAST.is_sorted());
        for (code, least) in LEAST {
            assert!(minor_digits(code).is_some() && least % step(code) == 0, "{code}");
        }
        assert_eq!(["USD", "JPY", "KRW", "usd"].map(least), [Some(50), Some(50), None, None]);
    }

    #[test]
    fn digits_and_steps_as_stripe_documents_them() {
        let zero = "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF";
        let three = "BHD JOD KWD OMR TND";
        let two = "USD EUR GBP CHF CAD AUD INR BRL HUF TWD IDR MRU LAK CRC";
        for (codes, digits, unit) in [(zero, 0, 1), (three, 3, 10), (two, 2, 1), ("ISK UGX", 2, 100)] {
            for code in codes.split(' ') {
                assert_eq!((minor_digits(code), step(code)), (Some(digits), unit), "{code}");
            }
        }
        for unknown in ["CLF", "UYW", "XXX", "usd", ""] {
            assert_eq!(minor_digits(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn exceptions_differ_from_iso_4217() {
        for (code, digits) in DIFFERENT {
            assert!(currencies::minor_digits(code).is_some_and(|iso| iso != digits), "{code}");
        }
    }
}
