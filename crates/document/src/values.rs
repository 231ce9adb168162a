//! Readers of TOML values as numbers, flags, texts or currencies, shared by the configuration and the
//! catalog. An error says what is expected; the caller adds what was found.

use std::ops::RangeInclusive;

use crate::Value;
use kernel::currencies;
use kernel::money::Decimal;

/// The result of reading a value; the error says what is expected.
pub type Read<T> = Result<T, String>;

/// Returns the error of a value of another kind.
///
/// # Errors
/// Always.
pub fn expected<T>(what: &str) -> Read<T> {
    Err(format!("expected {what}"))
}

/// Reads `true` or `false`.
pub fn boolean(value: &Value) -> Read<bool> {
    match value {
        Value::Boolean(flag) => Ok(*flag),
        _ => expected("true or false"),
    }
}

/// Reads a whole number within the range.
pub fn whole<T: TryFrom<i64>>(value: &Value, range: RangeInclusive<i64>) -> Read<T> {
    let number = match value {
        Value::Integer(number) if range.contains(number) => T::try_from(*number).ok(),
        _ => None,
    };
    number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
}

/// Reads an exact decimal: a whole number, or a string with a point. A float is refused, because it isn't
/// exact.
pub fn decimal<const SCALE: u32>(value: &Value, what: &str) -> Read<Decimal<SCALE>> {
    let read = match value {
        Value::Integer(number) => Decimal::parse(&number.to_string()),
        Value::Text(text) => Decimal::parse(text),
        Value::Float(literal) => {
            return Err(format!("expected {what}; write \"{literal}\" in quotes, so that it stays exact"));
        }
        _ => None,
    };
    read.ok_or_else(|| format!("expected {what} with at most {SCALE} digits behind the point"))
}

/// Reads a string.
pub fn text<'a>(value: &'a Value, what: &str) -> Read<&'a str> {
    match value {
        Value::Text(text) => Ok(text),
        _ => expected(what),
    }
}

/// Reads a string with `read`.
pub fn from_text<T>(value: &Value, what: &str, read: impl Fn(&str) -> Option<T>) -> Read<T> {
    let text = text(value, what)?;
    read(text).map_or_else(|| expected(what), Ok)
}

/// Reads the code of a currency in use.
pub fn currency(value: &Value) -> Read<String> {
    let what = "a currency code of ISO 4217 such as \"USD\"";
    let code = text(value, what)?;
    if currencies::minor_digits(code).is_some() {
        return Ok(code.to_owned());
    }
    let hint = currencies::closest(code).map(|code| format!(" (did you mean `{code}`?)"));
    Err(format!("expected {what}{}", hint.unwrap_or_default()))
}
