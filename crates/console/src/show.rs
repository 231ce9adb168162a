//! The formats of values on pages.

use std::borrow::Borrow;
use std::fmt::Display;

use kernel::currencies;
use kernel::error::Error;
use kernel::money::{Nano, Pico, Ppm};

/// Returns a time to the minute, for example `2026-03-10 09:30 UTC`.
pub fn minute(time: impl Display) -> String {
    let text = time.to_string();
    format!("{} {} UTC", text.get(..10).unwrap_or_default(), text.get(11..16).unwrap_or_default())
}

/// Returns a count with its noun, for example `1 project` or `2 projects`.
pub fn count(number: impl Borrow<i64>, noun: &str) -> String {
    let number = number.borrow();
    let plural = if *number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", currencies::grouped(&number.to_string()))
}

/// Returns a fraction in percent, for example `5%`.
pub fn percent(fraction: impl Borrow<Ppm>) -> String {
    fraction.borrow().checked_mul(100).map_or_else(String::new, |percent| format!("{percent}%"))
}

/// Returns a sentence with the time to wait after this error, for example `Try again in 30 seconds.`
pub fn wait(error: &Error) -> String {
    let seconds =
        error.rate_limit.map_or(1, |limit| limit.retry_after_ms.saturating_add(999).div_euclid(1000));
    let time = match seconds {
        ..=1 => "a second".to_owned(),
        2..=90 => format!("{seconds} seconds"),
        _ => format!("{} minutes", seconds.saturating_add(59).div_euclid(60)),
    };
    format!("Try again in {time}.")
}

/// Returns a whole number with thousands separators.
pub fn number(number: impl Display) -> String {
    currencies::grouped(&number.to_string())
}

/// Returns an amount with all its digits and its currency, for example `1,234.50 USD`.
pub fn money(amount: impl Into<Amount>, currency: &str) -> String {
    format!("{} {currency}", currencies::format(amount.into().0, currency))
}

/// An amount of any scale.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Amount(pub Pico);

impl From<Pico> for Amount {
    fn from(amount: Pico) -> Self {
        Self(amount)
    }
}

impl From<Nano> for Amount {
    fn from(amount: Nano) -> Self {
        // No balance comes near the limit of 128 bits.
        Self(amount.to_pico().unwrap_or_default())
    }
}

impl<T: Copy + Into<Self>> From<&T> for Amount {
    fn from(amount: &T) -> Self {
        (*amount).into()
    }
}

/// The format of a column of amounts, which have the same number of decimals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    currency: String,
    digits: usize,
}

impl Column {
    /// Returns the format for a column of these amounts.
    pub fn new<T: Into<Amount>>(currency: &str, amounts: impl IntoIterator<Item = T>) -> Self {
        let digits =
            amounts.into_iter().map(|amount| fraction(&currencies::format(amount.into().0, currency)));
        Self { currency: currency.to_owned(), digits: digits.max().unwrap_or(0) }
    }

    /// Returns an amount without its currency.
    pub fn write(&self, amount: impl Into<Amount>) -> String {
        let text = currencies::format(amount.into().0, &self.currency);
        let missing = self.digits.saturating_sub(fraction(&text));
        let point = if missing > 0 && !text.contains('.') { "." } else { "" };
        format!("{text}{point}{}", "0".repeat(missing))
    }

    /// Returns the currency's ISO 4217 code.
    pub fn currency(&self) -> &str {
        &self.currency
    }
}

/// Returns the number of digits after the decimal point.
fn fraction(text: &str) -> usize {
    text.split_once('.').map_or(0, |(_, digits)| digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_amounts_has_one_number_of_digits() {
        let amounts = ["0", "1234.5", "-0.000012"].map(|text| Pico::parse(text).unwrap());
        let column = Column::new("USD", amounts);
        assert_eq!(amounts.map(|amount| column.write(amount)), ["0.000000", "1,234.500000", "-0.000012"]);
        let column = Column::new("JPY", [Nano::from_units(1_000_000_000)]);
        assert_eq!(column.write(Nano::from_units(2_500_000_000)), "2.5");
        assert_eq!(Column::new("JPY", amounts).write(Pico::ZERO), "0.000000");
        assert_eq!(money(Nano::from_units(1_500_000_000), "USD"), "1.50 USD");
    }
}
