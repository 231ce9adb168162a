//! Amounts and dates as people read them on pages and in e-mails: amounts rounded to a few decimals, dates
//! with the name of the month. Files and the API have exact amounts and ISO 8601 dates.
//!
//! The rules are in docs/contract/console.md#amounts.

use crate::clock::{Day, Month, Time};
use crate::currencies;
use crate::money::Pico;

/// The direction in which an amount is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Toward negative infinity: money that someone has. A debt, which is negative, never looks smaller.
    Down,
    /// Toward positive infinity: money that someone owes.
    Up,
    /// To the nearest figure, half away from zero: usage, costs, and changes of a balance.
    Nearest,
}

/// The number of decimals of [`Pico`].
const SCALE: u32 = 12;

/// The number of decimals that an amount below 100 smallest units, such as 1.00 USD, has in addition to those
/// of its currency's smallest unit.
const FURTHER: u32 = 2;

/// The number of digits, from the first that isn't zero, of an amount whose further decimals are all zero.
const SIGNIFICANT: u32 = 2;

/// Returns an amount rounded to the figure that people read. An amount other than zero never becomes zero.
pub fn rounded(amount: Pico, code: &str, rounding: Rounding) -> Pico {
    to_decimals(amount, decimals(amount, code), rounding)
}

/// Returns an amount rounded to the smallest unit of its currency.
pub fn payable(amount: Pico, code: &str, rounding: Rounding) -> Pico {
    to_decimals(amount, minor(code), rounding)
}

/// Returns the figure of an amount, such as `1,234.50`, without its currency.
pub fn amount(amount: Pico, code: &str, rounding: Rounding) -> String {
    currencies::format(rounded(amount, code, rounding), code)
}

fn minor(code: &str) -> u32 {
    currencies::minor_digits(code).unwrap_or(currencies::DEFAULT_DIGITS)
}

/// Returns the maximum number of decimals of an amount's figure.
fn decimals(amount: Pico, code: &str) -> u32 {
    let (units, minor) = (amount.units().unsigned_abs(), minor(code));
    let further = minor.saturating_add(FURTHER).min(SCALE);
    let is_at_least = |decimals: u32| units >= 10_u128.pow(SCALE.saturating_sub(decimals));
    if units == 0 || units >= 100_u128.saturating_mul(10_u128.pow(SCALE.saturating_sub(minor))) {
        minor
    } else if is_at_least(further) {
        further
    } else {
        let first = (further..SCALE).find(|decimals| is_at_least(*decimals)).unwrap_or(SCALE);
        first.saturating_add(SIGNIFICANT - 1).min(SCALE)
    }
}

fn to_decimals(amount: Pico, decimals: u32, rounding: Rounding) -> Pico {
    let step = 10_i128.pow(SCALE.saturating_sub(decimals));
    let units = amount.units();
    let rest = units.rem_euclid(step);
    if rest == 0 {
        return amount;
    }
    let is_up = match rounding {
        Rounding::Down => false,
        Rounding::Up => true,
        Rounding::Nearest => rest * 2 > step || (rest * 2 == step && units > 0),
    };
    let below = units.saturating_sub(rest);
    Pico::from_units(if is_up { below.saturating_add(step) } else { below })
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn name_of(month: Month) -> &'static str {
    let index = usize::try_from(month.unix_months().rem_euclid(12)).unwrap_or_default();
    MONTHS.get(index).copied().unwrap_or_default()
}

/// Returns a month, such as `Dec 2026`.
pub fn month(month: Month) -> String {
    format!("{} {}", name_of(month), month.unix_months().div_euclid(12) + 1970)
}

/// Returns a day, such as `2 Dec 2026`.
pub fn day(day: Day) -> String {
    let of_month = day.unix_days() - day.month_start().unix_days() + 1;
    format!("{of_month} {}", month(day.month()))
}

/// Returns a time to the minute, such as `2 Dec 2026, 09:30 UTC`.
pub fn minute(time: Time) -> String {
    format!("{}, {} UTC", day(time.day()), time.to_string().get(11..16).unwrap_or_default())
}

/// Returns a time to the second, such as `2 Dec 2026, 09:30:05 UTC`.
pub fn second(time: Time) -> String {
    format!("{}, {} UTC", day(time.day()), time.to_string().get(11..19).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Rounding::{Down, Nearest, Up};

    /// Returns the figures that are rounded down, to the nearest, and up.
    fn figures(text: &str, code: &str) -> [String; 3] {
        [Down, Nearest, Up].map(|rounding| amount(Pico::parse(text).unwrap(), code, rounding))
    }

    #[test]
    fn figures_have_few_decimals() {
        // The exact amount: rounded down, to the nearest, up.
        let cases = [
            ("0", "USD", ["0.00", "0.00", "0.00"]),
            ("10", "USD", ["10.00", "10.00", "10.00"]),
            ("1234567.5", "USD", ["1,234,567.50", "1,234,567.50", "1,234,567.50"]),
            // From 1 on two decimals.
            ("7.2500000007", "USD", ["7.25", "7.25", "7.26"]),
            ("1.004999999999", "USD", ["1.00", "1.00", "1.01"]),
            ("1.005", "USD", ["1.00", "1.01", "1.01"]),
            ("2512.103814204", "USD", ["2,512.10", "2,512.10", "2,512.11"]),
            // Below 1 four, without zeros at the end.
            ("0.5", "USD", ["0.50", "0.50", "0.50"]),
            ("0.123449", "USD", ["0.1234", "0.1234", "0.1235"]),
            ("0.12345", "USD", ["0.1234", "0.1235", "0.1235"]),
            ("0.99996", "USD", ["0.9999", "1.00", "1.00"]),
            ("0.0001", "USD", ["0.0001", "0.0001", "0.0001"]),
            ("0.000258", "USD", ["0.0002", "0.0003", "0.0003"]),
            // Below 0.0001 the first two digits that aren't zero.
            ("0.0000999", "USD", ["0.000099", "0.0001", "0.0001"]),
            ("0.000027", "USD", ["0.000027", "0.000027", "0.000027"]),
            ("0.0000274", "USD", ["0.000027", "0.000027", "0.000028"]),
            ("0.0000000106", "USD", ["0.00000001", "0.000000011", "0.000000011"]),
            ("0.000000000015", "USD", ["0.000000000015", "0.000000000015", "0.000000000015"]),
            ("0.000000000001", "USD", ["0.000000000001", "0.000000000001", "0.000000000001"]),
            // A debt never looks smaller when it is rounded down.
            ("-8691.408078661", "USD", ["-8,691.41", "-8,691.41", "-8,691.40"]),
            ("-1.005", "USD", ["-1.01", "-1.01", "-1.00"]),
            ("-1.001", "USD", ["-1.01", "-1.00", "-1.00"]),
            ("-0.12345", "USD", ["-0.1235", "-0.1235", "-0.1234"]),
            ("-0.00027", "USD", ["-0.0003", "-0.0003", "-0.0002"]),
            ("-0.000000000001", "USD", ["-0.000000000001", "-0.000000000001", "-0.000000000001"]),
            // Without a minor unit: none, and two below 100.
            ("1234.5", "JPY", ["1,234", "1,235", "1,235"]),
            ("100", "JPY", ["100", "100", "100"]),
            ("99.994", "JPY", ["99.99", "99.99", "100"]),
            ("2.5", "JPY", ["2.5", "2.5", "2.5"]),
            ("0.00123", "JPY", ["0.0012", "0.0012", "0.0013"]),
            // With thousandths: three, and five below 0.1.
            ("12.34567", "KWD", ["12.345", "12.346", "12.346"]),
            ("0.0123456", "KWD", ["0.01234", "0.01235", "0.01235"]),
            ("12.345", "XXX", ["12.34", "12.35", "12.35"]),
        ];
        for (exact, code, expected) in cases {
            assert_eq!(figures(exact, code), expected, "{exact} {code}");
        }
    }

    #[test]
    fn payable_amounts_are_whole_smallest_units() {
        let cases = [
            ("0.504", "USD", ["0.50", "0.50", "0.51"]),
            ("-0.975", "USD", ["-0.98", "-0.98", "-0.97"]),
            ("0.000000001", "JPY", ["0", "0", "1"]),
        ];
        for (exact, code, expected) in cases {
            let found = [Down, Nearest, Up].map(|rounding| {
                currencies::format(payable(Pico::parse(exact).unwrap(), code, rounding), code)
            });
            assert_eq!(found, expected, "{exact} {code}");
        }
    }

    proptest::proptest! {
        #[test]
        fn figures_are_near_their_amounts(units in -(1_i128 << 90)..(1_i128 << 90), shift in 0_u32..90) {
            let exact = Pico::from_units(units >> shift);
            for code in ["USD", "JPY", "KWD", "UYW"] {
                let [down, nearest, up] = [Down, Nearest, Up].map(|rounding| rounded(exact, code, rounding));
                proptest::prop_assert!(down <= exact && exact <= up && down <= nearest && nearest <= up);
                let step = 10_i128.pow(SCALE - decimals(exact, code));
                proptest::prop_assert!(up.units() - down.units() <= step);
                proptest::prop_assert!((nearest.units() - exact.units()).abs() * 2 <= step);
                for figure in [down, nearest, up] {
                    proptest::prop_assert_eq!(figure == Pico::ZERO, exact == Pico::ZERO);
                }
            }
        }
    }

    #[test]
    fn extreme_amounts_are_kept() {
        for units in [i128::MIN, i128::MAX] {
            for rounding in [Down, Nearest, Up] {
                assert_eq!(
                    rounded(Pico::from_units(units), "USD", rounding).units().signum(),
                    units.signum()
                );
            }
        }
    }

    #[test]
    fn dates_have_the_name_of_the_month() {
        let time = Time::parse("2026-12-02T09:30:05.123Z").unwrap();
        assert_eq!(
            [day(time.day()), month(time.day().month()), minute(time), second(time)],
            ["2 Dec 2026", "Dec 2026", "2 Dec 2026, 09:30 UTC", "2 Dec 2026, 09:30:05 UTC"]
        );
        let names: Vec<_> = (0..12).map(|index| month(Month::from_unix_months(672 + index))).collect();
        assert_eq!(names.first().map(String::as_str), Some("Jan 2026"));
        assert_eq!(names.last().map(String::as_str), Some("Dec 2026"));
        assert_eq!(day(Day::parse("2024-02-29").unwrap()), "29 Feb 2024");
        assert_eq!(day(Day::parse("1969-12-31").unwrap()), "31 Dec 1969");
    }
}
