//! Exact money in whole numbers: pico (1e-12) for prices and rated usage, nano (1e-9) for balances.
//!
//! Amounts are never converted to floats. JSON numbers are exact decimal literals without an exponent
//! (docs/contract/README.md#money).

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A decimal number with `SCALE` digits after the decimal point, stored as a whole number of units of the
/// last digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Decimal<const SCALE: u32>(i128);

/// An amount in units of 1e-12: unit prices and the price of usage.
pub type Pico = Decimal<12>;
/// An amount in units of 1e-9: balances, ledger entries and invoice totals.
pub type Nano = Decimal<9>;
/// Parts per million: fractions such as discounts, and the sampling temperature.
pub type Ppm = Decimal<6>;

impl<const SCALE: u32> Decimal<SCALE> {
    pub const ZERO: Self = Self(0);

    /// Returns the number with this many units of the last digit.
    pub const fn from_units(units: i128) -> Self {
        Self(units)
    }

    /// Returns the number in units of the last digit.
    pub const fn units(self) -> i128 {
        self.0
    }

    /// Returns the units as stored in the databases; `None` if they exceed 64 bits.
    pub fn to_i64(self) -> Option<i64> {
        i64::try_from(self.0).ok()
    }

    /// Returns the sum; `None` if it exceeds 128 bits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns the difference; `None` if it exceeds 128 bits.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// Returns the product; `None` if it exceeds 128 bits.
    pub fn checked_mul(self, times: i64) -> Option<Self> {
        self.0.checked_mul(i128::from(times)).map(Self)
    }

    /// Parses a plain decimal such as `25`, `-0.5` or `0.000002`: no exponent, no `+` sign, and at most
    /// `SCALE` digits after the decimal point, not counting trailing zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = match digits.split_once('.') {
            Some((_, "")) => return None,
            Some((whole, fraction)) => (whole, fraction.trim_end_matches('0')),
            None => (digits, ""),
        };
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let scale = usize::try_from(SCALE).ok()?;
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > scale {
            return None;
        }
        let units: i128 = format!("{whole}{fraction:0<scale$}").parse().ok()?;
        Some(Self(if negative { -units } else { units }))
    }
}

const PICO_PER_NANO: i128 = 1_000;

impl Pico {
    /// Rounds down to nano, toward negative infinity.
    pub fn floor_nano(self) -> Nano {
        Decimal(self.0.div_euclid(PICO_PER_NANO))
    }

    /// Rounds up to nano, toward positive infinity.
    pub fn ceil_nano(self) -> Nano {
        Decimal(-(-self.0).div_euclid(PICO_PER_NANO))
    }
}

impl Nano {
    /// Returns the same amount in pico; `None` if it exceeds 128 bits.
    pub fn to_pico(self) -> Option<Pico> {
        self.0.checked_mul(PICO_PER_NANO).map(Decimal)
    }
}

impl<const SCALE: u32> fmt::Display for Decimal<SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = 10_u128.pow(SCALE);
        let units = self.0.unsigned_abs();
        let (whole, fraction) = (units / step, units % step);
        let sign = if self.0 < 0 { "-" } else { "" };
        if fraction == 0 {
            return write!(f, "{sign}{whole}");
        }
        let width = usize::try_from(SCALE).unwrap_or(0);
        let digits = format!("{fraction:0width$}");
        write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl<const SCALE: u32> Serialize for Decimal<SCALE> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<const SCALE: u32> JsonSchema for Decimal<SCALE> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Decimal{SCALE}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let description = format!(
            "An exact decimal with up to {SCALE} digits after the point; \
             read it as a decimal, not as a float"
        );
        json_schema!({"type": "number", "description": description, "examples": [0.25]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_literals_are_exact_without_exponent() {
        let cases: [(i128, &str); 7] = [
            (0, "0"),
            (1, "0.000000000001"),
            (-1, "-0.000000000001"),
            (2_000_000, "0.000002"),
            (1_500_000_000_000, "1.5"),
            (-25_000_000_000_000, "-25"),
            (123_456_789_012_345_678_901_234, "123456789012.345678901234"),
        ];
        for (units, literal) in cases {
            let amount = Pico::from_units(units);
            assert_eq!(serde_json::to_string(&amount).unwrap(), literal);
            assert_eq!(Pico::parse(literal), Some(amount), "{literal}");
        }
    }

    #[test]
    fn only_plain_decimals_parse() {
        assert_eq!(Nano::parse("0.500000000000"), Some(Nano::from_units(500_000_000)));
        for bad in
            ["", "-", ".5", "5.", "1e3", "+1", " 1", "1 ", "0.0000000001", "1_000", "NaN", "٣", "--1", "0.-1"]
        {
            assert_eq!(Nano::parse(bad), None, "{bad}");
        }
        assert_eq!(Nano::parse(&"9".repeat(60)), None);
    }

    proptest::proptest! {
        #[test]
        fn amounts_round_trip(units in -(1_i128 << 100)..(1_i128 << 100)) {
            let amount = Nano::from_units(units);
            proptest::prop_assert_eq!(Nano::parse(&amount.to_string()), Some(amount));
        }
    }
}
