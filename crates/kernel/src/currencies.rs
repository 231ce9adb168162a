//! Currencies and their minor units (ISO 4217), and the formatting of amounts.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::money::{Nano, Pico};

/// The codes in use, by the number of decimals of their minor unit.
const CODES: [(u32, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY \
         COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS \
         INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR \
         MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP \
         STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// The most common codes, preferred in suggestions.
const COMMON: [&str; 10] = ["USD", "EUR", "GBP", "JPY", "CNY", "CHF", "CAD", "AUD", "INR", "BRL"];

/// The number of decimals of an unknown currency, such as a withdrawn one.
pub const DEFAULT_DIGITS: u32 = 2;

fn codes() -> impl Iterator<Item = (&'static str, u32)> {
    CODES
        .into_iter()
        .flat_map(|(digits, codes)| codes.split_ascii_whitespace().map(move |code| (code, digits)))
}

/// Returns the number of decimals of the smallest payment in this currency; `None` for an unknown currency.
pub fn minor_digits(code: &str) -> Option<u32> {
    // The map is built once, because pages and reports format hundreds of amounts.
    static DIGITS: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| codes().collect());
    DIGITS.get(code).copied()
}

/// Currencies by the order of magnitude of one dollar in them. A dollar is worth from half to five times the
/// power of ten, at the rates of 2026.
const MAGNITUDES: [(i64, &str); 5] = [
    (
        10,
        "BOB BRL BWP CNY CUP CZK DKK EGP ERN GHS GTQ HKD HNL LSL MAD MDL MOP MRU MUR MVR MXN NAD NIO NOK SCR SEK SLE SRD \
         STN SVC SZL THB TJS TRY TTD TWD UAH UYU ZAR ZMW ZWG",
    ),
    (
        100,
        "AFN ALL AMD BDT BTN CVE DJF DOP DZD ETB GMD GYD HTG HUF INR ISK JMD JPY KES KGS KMF LKR LRD MKD MZN NPR PHP PKR RSD \
         RUB VES VUV XPF YER",
    ),
    (
        1_000,
        "AOA ARS BIF CDF CLP COP CRC IQD KHR KPW KRW KZT MGA MMK MNT MWK NGN RWF SDG SSP TZS UGX XAF XOF",
    ),
    (10_000, "GNF IDR LAK PYG SYP UZS VND"),
    (100_000, "IRR LBP"),
];

/// Returns the power of ten of a currency that is worth about one dollar; 1 if the currency is unknown.
///
/// Use it for amounts of similar size in all currencies, such as bounds of payments. It isn't an exchange
/// rate.
pub fn magnitude(code: &str) -> i64 {
    let is_it = |codes: &str| codes.split_ascii_whitespace().any(|other| other == code);
    MAGNITUDES.iter().find(|(_, codes)| is_it(codes)).map_or(1, |(magnitude, _)| *magnitude)
}

/// Returns the code that an invalid code was probably meant to be.
pub fn closest(wrong: &str) -> Option<&'static str> {
    let wrong = wrong.trim().to_ascii_uppercase();
    let letters = |code: &str| {
        let mut bytes = code.as_bytes().to_vec();
        bytes.sort_unstable();
        bytes
    };
    let alike = |code: &str| code.bytes().zip(wrong.bytes()).filter(|(a, b)| a == b).count();
    let all = || COMMON.into_iter().chain(codes().map(|(code, _)| code));
    all()
        .find(|code| *code == wrong)
        .or_else(|| all().find(|code| letters(code) == letters(&wrong)))
        .or_else(|| all().find(|code| wrong.len() == 3 && alike(code) == 2))
}

/// Returns `true` if an amount can be paid in this currency: it isn't finer than the minor unit.
pub fn is_payable(amount: Nano, code: &str) -> bool {
    let digits = minor_digits(code).unwrap_or(DEFAULT_DIGITS);
    let step = 10_i128.pow(9_u32.saturating_sub(digits));
    amount.units() % step == 0
}

/// Returns the smallest amount that can be paid in this currency.
pub fn smallest_payment(code: &str) -> Nano {
    let digits = minor_digits(code).unwrap_or(DEFAULT_DIGITS);
    Nano::from_units(10_i128.pow(9_u32.saturating_sub(digits)))
}

/// Returns the smallest payable amount in this currency that covers `amount`.
pub fn payable(amount: Nano, code: &str) -> Nano {
    let step = smallest_payment(code).units();
    let short = amount.units().rem_euclid(step);
    Nano::from_units(if short == 0 { amount.units() } else { amount.units() - short + step })
}

/// Currencies for which the card processor uses another number of decimals.
const CHARGED_DIFFERENTLY: [(&str, u32); 3] = [("ISK", 2), ("MGA", 0), ("UGX", 2)];
/// Maximum number of decimals of an amount that can be charged to a card.
const MAX_CHARGE_DIGITS: u32 = 2;

/// The unit of amounts of a card processor such as Stripe: the minor unit of the currency, with three
/// exceptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChargeUnit {
    /// The number of decimals of the unit.
    digits: u32,
    /// The number of decimals of the smallest amount that can be charged: at most two, and at most the
    /// currency's.
    charged_digits: u32,
}

impl ChargeUnit {
    /// Returns the unit of a currency.
    pub fn of(code: &str) -> Self {
        let own = minor_digits(code).unwrap_or(DEFAULT_DIGITS);
        let different = CHARGED_DIFFERENTLY.iter().find(|(other, _)| *other == code);
        let digits = different.map_or(own, |(_, digits)| *digits);
        Self { digits, charged_digits: own.min(digits).min(MAX_CHARGE_DIGITS) }
    }

    /// Returns the amount of a number of units.
    pub fn amount(self, units: i64) -> Nano {
        Nano::from_units(i128::from(units) * nanos(self.digits))
    }

    /// Returns the smallest amount that can be charged, in units. Charges are multiples of it.
    pub fn step(self) -> i64 {
        10_i64.pow(self.digits - self.charged_digits)
    }

    /// Returns the smallest chargeable amount that covers `amount`, in units; `None` if it exceeds 64 bits.
    pub fn covering(self, amount: Nano) -> Option<i64> {
        let step = nanos(self.charged_digits);
        let steps = amount.units().div_euclid(step) + i128::from(amount.units().rem_euclid(step) != 0);
        i64::try_from(steps.checked_mul(step)? / nanos(self.digits)).ok()
    }

    /// Returns an amount in units; `None` if it isn't a multiple of the smallest charge, or if it exceeds 64
    /// bits.
    pub fn exactly(self, amount: Nano) -> Option<i64> {
        self.covering(amount).filter(|units| self.amount(*units) == amount)
    }
}

/// Returns the nanos of one unit with this number of digits.
fn nanos(digits: u32) -> i128 {
    10_i128.pow(9_u32.saturating_sub(digits))
}

/// Formats an amount with separated thousands and at least the decimals of the minor unit. Further decimals
/// are kept.
pub fn format(amount: Pico, code: &str) -> String {
    let digits = usize::try_from(minor_digits(code).unwrap_or(DEFAULT_DIGITS)).unwrap_or(2);
    let text = amount.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let whole = grouped(whole);
    match fraction.len().max(digits) {
        0 => whole,
        width => format!("{whole}.{fraction:0<width$}"),
    }
}

/// Formats a whole number with separated thousands.
pub fn grouped(number: &str) -> String {
    let (sign, figures) = number.strip_prefix('-').map_or(("", number), |figures| ("-", figures));
    let mut out = String::from(sign);
    for (index, figure) in figures.chars().enumerate() {
        if index > 0 && (figures.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(figure);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let mut all: Vec<_> = codes().map(|(code, _)| code).collect();
        assert!(all.iter().all(|code| code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase())));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(COMMON.iter().all(|code| minor_digits(code).is_some()));
        let digits = |code| minor_digits(code);
        assert_eq!(
            [digits("USD"), digits("JPY"), digits("KWD"), digits("CLF")],
            [Some(2), Some(0), Some(3), Some(4)]
        );
        assert_eq!([digits("usd"), digits("XXX"), digits("DEM"), digits("")], [None; 4]);
    }

    #[test]
    fn magnitudes_are_of_known_currencies() {
        let mut all: Vec<_> =
            MAGNITUDES.iter().flat_map(|(_, codes)| codes.split_ascii_whitespace()).collect();
        assert!(all.iter().all(|code| minor_digits(code).is_some()));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        let of = ["USD", "EUR", "KWD", "SEK", "JPY", "KRW", "VND", "IDR", "LBP", "XXX"].map(magnitude);
        assert_eq!(of, [1, 1, 1, 10, 100, 1_000, 10_000, 10_000, 100_000, 1]);
    }

    #[test]
    fn closest_code_is_suggested() {
        let cases = [
            ("usd", Some("USD")),
            ("mad", Some("MAD")), // not AMD, which has the same letters
            ("EUX", Some("EUR")),
            ("UDS", Some("USD")),
            ("GPB", Some("GBP")),
            ("CHR", Some("CHF")),
            ("DOLLAR", None),
            ("QQQ", None),
            ("", None),
        ];
        for (wrong, meant) in cases {
            assert_eq!(closest(wrong), meant, "{wrong}");
        }
    }

    #[test]
    fn payments_are_whole_minor_units() {
        let payable = |text, code| is_payable(Nano::parse(text).unwrap(), code);
        assert!(payable("25", "USD") && payable("25.01", "USD") && !payable("25.001", "USD"));
        assert!(payable("25", "JPY") && !payable("25.5", "JPY"));
        assert!(payable("0.001", "KWD") && !payable("0.0001", "KWD"));
        assert_eq!(smallest_payment("USD").to_string(), "0.01");
        assert_eq!(smallest_payment("JPY").to_string(), "1");
        let covered = |text, code| super::payable(Nano::parse(text).unwrap(), code).to_string();
        assert_eq!(
            (covered("25.01", "USD"), covered("25.010000001", "USD")),
            ("25.01".into(), "25.02".into())
        );
        assert_eq!((covered("0.000000001", "JPY"), covered("0.0009", "KWD")), ("1".into(), "0.001".into()));
        assert_eq!((covered("0", "USD"), covered("-0.001", "USD")), ("0".into(), "0".into()));
    }

    #[test]
    fn charges_are_counted_as_the_processor_does() {
        let units = |text: &str, code| ChargeUnit::of(code).exactly(Nano::parse(text).unwrap());
        let cases = [
            ("25", "USD", Some(2_500)),
            ("25.01", "USD", Some(2_501)),
            ("25.001", "USD", None),
            ("25", "JPY", Some(25)),
            ("25.5", "JPY", None),
            // The unit is a thousandth, but only whole hundredths can be charged.
            ("1.23", "KWD", Some(1_230)),
            ("1.234", "KWD", None),
            // ISK and UGX have no minor unit, but are counted in hundredths. MGA is counted in whole units.
            ("5", "ISK", Some(500)),
            ("5.5", "ISK", None),
            ("7", "UGX", Some(700)),
            ("7", "MGA", Some(7)),
            ("7.5", "MGA", None),
        ];
        for (amount, code, expected) in cases {
            assert_eq!(units(amount, code), expected, "{amount} {code}");
        }
        let covering = |text: &str, code| {
            let unit = ChargeUnit::of(code);
            unit.amount(unit.covering(Nano::parse(text).unwrap()).unwrap()).to_string()
        };
        assert_eq!(
            [covering("0.000000001", "USD"), covering("1.231", "KWD"), covering("4.1", "ISK")],
            ["0.01", "1.24", "5"]
        );
        assert_eq!(ChargeUnit::of("USD").covering(Nano::from_units(i128::MAX)), None);
    }

    #[test]
    fn amounts_have_separated_thousands() {
        let cases = [
            ("0", "USD", "0.00"),
            ("1234567.5", "USD", "1,234,567.50"),
            ("-1234.5", "USD", "-1,234.50"),
            ("-0.000000000001", "USD", "-0.000000000001"),
            ("999", "USD", "999.00"),
            ("1000", "JPY", "1,000"),
            ("1000.25", "JPY", "1,000.25"),
            ("0.0000005", "EUR", "0.0000005"),
            ("12.3", "KWD", "12.300"),
        ];
        for (amount, code, written) in cases {
            assert_eq!(format(Pico::parse(amount).unwrap(), code), written);
        }
        assert_eq!(grouped("-100"), "-100");
        assert_eq!(grouped("-1000"), "-1,000");
    }
}
