//! Readers of strings, numbers and lists in a document, for `#[serde(deserialize_with = "…")]` and for custom
//! types. An error describes the expected value, never the actual value.

use std::fmt::Display;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use toml::Value;

use super::MISSING_KEY;
use crate::clock::Time;
use crate::currencies;
use crate::money::Decimal;
use crate::secrets::{HIDDEN, Secret};

/// A struct that must be written as a table. By default, serde would also accept a list of its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }
        deserializer.deserialize_map(TableVisitor(std::marker::PhantomData))
    }
}

/// Reads a [`Table`].
///
/// # Errors
/// The value isn't a table, or a value in the table is invalid.
pub fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Table::deserialize(deserializer).map(|Table(value)| value)
}

/// Reads any value. A number that exceeds 64 bits becomes an empty table, which is invalid everywhere, too.
fn any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Value::deserialize(deserializer).or_else(|error| match error.to_string() {
        message if message.starts_with(MISSING_KEY) => Err(error),
        _ => Ok(Value::Table(toml::Table::new())),
    })
}

fn expected<T, E: Error>(what: impl Display) -> Result<T, E> {
    Err(E::custom(format_args!("expected {what}")))
}

/// Reads a string with `parse`, whose error describes the expected string. `parse` must refuse the empty
/// string, which stands for a value that isn't a string.
///
/// # Errors
/// The error of `parse`.
pub fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let value = any(deserializer)?;
    parse(value.as_str().unwrap_or_default()).map_err(D::Error::custom)
}

/// Reads a string with `parse`, which must refuse the empty string.
///
/// # Errors
/// `parse` returns `None`. The error describes the expected string as `what`.
pub fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    parsed(deserializer, |text| parse(text).ok_or_else(|| format!("expected {what}")))
}

/// Reads one of the words of an enum.
///
/// # Errors
/// The value isn't valid.
pub fn word<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let word = |text: &str| T::deserialize(text.into_deserializer());
    parsed(deserializer, |text| word(text).map_err(|error: serde::de::value::Error| error.to_string()))
}

/// Reads a list of strings, or one string with entries separated by commas.
///
/// # Errors
/// The value is neither, or `parse` returns `None` for an entry. The error describes the expected list as
/// `what`.
pub fn list<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    what: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, D::Error> {
    let value = any(deserializer)?;
    let items: Option<Vec<&str>> = match &value {
        Value::String(text) if text.trim().is_empty() => Some(Vec::new()),
        Value::String(text) => Some(text.split(',').map(str::trim).collect()),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let Some(items) = items else { return expected(what) };
    let one = |(index, item): (usize, &str)| match parse(item) {
        Some(item) => Ok(item),
        None => expected(format_args!("{what}; entry {} is invalid", index + 1)),
    };
    items.into_iter().enumerate().map(one).collect()
}

/// Reads a whole number from `MIN` to `MAX`.
///
/// # Errors
/// The value isn't valid.
pub fn whole<'de, const MIN: i64, const MAX: i64, D: Deserializer<'de>, T: TryFrom<i64>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let number = any(deserializer)?.as_integer().filter(|number| (MIN..=MAX).contains(number));
    match number.and_then(|number| T::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => expected(format_args!("a whole number from {MIN} to {MAX}")),
    }
}

/// Reads an exact decimal from 0 to `max`: a whole number, or a string with a decimal point. A float is
/// refused, because it isn't exact. `what` and `example` are used in the error.
///
/// # Errors
/// The value isn't valid.
pub fn decimal<'de, const SCALE: u32, D: Deserializer<'de>>(
    deserializer: D,
    what: &str,
    max: Decimal<SCALE>,
    example: &str,
) -> Result<Decimal<SCALE>, D::Error> {
    let what = format!("{what} from 0 to {max} such as {example}");
    let number = match any(deserializer)? {
        Value::Integer(number) => Decimal::parse(&number.to_string()),
        Value::String(text) => Decimal::parse(&text),
        Value::Float(_) => return expected(what + "; write it in quotes, so that it stays exact"),
        _ => None,
    };
    match number {
        Some(number) if (Decimal::ZERO..=max).contains(&number) => Ok(number),
        Some(_) => expected(what),
        None => expected(format_args!("{what}, with at most {SCALE} digits after the point")),
    }
}

/// Reads the code of a currency in use, which may be optional.
///
/// # Errors
/// The string isn't such a code.
pub fn currency<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    parsed(deserializer, |code| {
        if currencies::minor_digits(code).is_some() {
            return Ok(code.to_owned().into());
        }
        let hint = currencies::closest(code).map(|code| format!(" (did you mean `{code}`?)"));
        Err(format!("expected a currency code of ISO 4217 such as \"USD\"{}", hint.unwrap_or_default()))
    })
}

/// Reads a time, as a string or as a TOML datetime, which may be optional.
///
/// # Errors
/// The value isn't valid.
pub fn time<'de, D: Deserializer<'de>, T: From<Time>>(deserializer: D) -> Result<T, D::Error> {
    let time = match any(deserializer)? {
        Value::String(text) => Time::parse(&text),
        Value::Datetime(time) => Time::parse(&time.to_string()),
        _ => None,
    };
    match time {
        Some(time) => Ok(time.into()),
        None => expected("a timestamp such as \"2024-01-01T00:00:00Z\""),
    }
}

/// Reads the path of a file or folder, which may be optional.
///
/// # Errors
/// The value isn't a string, or it is empty.
pub fn path<'de, D: Deserializer<'de>, T: From<PathBuf>>(deserializer: D) -> Result<T, D::Error> {
    let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text).into());
    text(deserializer, "a path that is not empty", path)
}

/// Writes a value as the string of its `Display` form.
///
/// # Errors
/// The errors of the serializer.
pub fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes `***` if the secret is set.
///
/// # Errors
/// The errors of the serializer.
pub fn hidden<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(_) => serializer.serialize_str(HIDDEN),
        None => serializer.serialize_none(),
    }
}
