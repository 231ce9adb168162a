//! Types of fields. Each type reads a value, and describes the expected value in its errors.

use std::borrow::Cow;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::fields::{Field, Location, Problems};
use super::json::Json;
use kernel::clock::Time;
use kernel::ids::{Id, Kind};
use kernel::money::{Nano, Ppm};
use kernel::naming::{self, Problem};
use kernel::phones;

/// A string of limited length without other rules, for values that are compared and never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Text<const MAX: usize>(pub String);

impl<const MAX: usize> std::fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Passwords and tokens have this type, so the text isn't printed.
        f.write_str("***")
    }
}

impl<const MAX: usize> Field for Text<MAX> {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        if text.chars().count() > MAX {
            return problems.add(at, "too_long", format!("`{}` may have at most {MAX} characters.", at.path));
        }
        if text.contains('\0') {
            // PostgreSQL can't store NUL in text.
            return problems.add(at, "invalid_characters", format!("`{}` must not contain NUL.", at.path));
        }
        Some(Self(text.into_owned()))
    }
    fn schema() -> Value {
        json!({"type": "string", "maxLength": MAX, "examples": ["…"]})
    }
}

impl Field for bool {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Bool(value) => Some(value),
            Json::Text(text) if at.origin == super::fields::Origin::Query && text == "true" => Some(true),
            Json::Text(text) if at.origin == super::fields::Origin::Query && text == "false" => Some(false),
            other => problems.wrong_type(at, "true or false", &other),
        }
    }
    fn schema() -> Value {
        json!({"type": "boolean", "examples": [false]})
    }
}

/// A whole number between two inclusive bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integer<const MIN: i64, const MAX: i64>(pub i64);

impl<const MIN: i64, const MAX: i64> Integer<MIN, MAX> {
    pub const MIN: i64 = MIN;
    pub const MAX: i64 = MAX;
}

impl<const MIN: i64, const MAX: i64> Field for Integer<MIN, MAX> {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let number = match &value {
            Json::Integer(number) => Some(*number),
            // JSON has only one type of number, so 3.0 is an integer, too.
            Json::Float(number) => to_integer(*number),
            Json::Text(text) if at.origin == super::fields::Origin::Query => match text.parse() {
                Ok(number) => Some(number),
                Err(_) => return problems.wrong_type(at, "an integer", &value),
            },
            _ => return problems.wrong_type(at, "an integer", &value),
        };
        match number {
            Some(number) if (MIN..=MAX).contains(&number) => Some(Self(number)),
            _ => problems.add(
                at,
                "out_of_range",
                format!("`{}` must be a whole number between {MIN} and {MAX}.", at.path),
            ),
        }
    }
    fn schema() -> Value {
        json!({"type": "integer", "minimum": MIN, "maximum": MAX, "examples": [MIN.max(1)]})
    }
}

#[allow(clippy::cast_possible_truncation, reason = "checked: no fraction and within 2^53")]
fn to_integer(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

/// Maximum number of digits of a JSON number that every parser keeps, except zeros at its ends.
const MAX_NUMBER_DIGITS: usize = 15;
/// Maximum of an [`Amount`], in nano: 9,000,000,000 of the currency.
const MAX_AMOUNT: Nano = Nano::from_units(9_000_000_000_000_000_000);

/// An amount of money, more than 0, with at most nine decimals. It is a number, or a string if it has more
/// digits than all JSON parsers keep in a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amount(pub Nano);

impl Field for Amount {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let amount = amount(&value, at, problems)?;
        match amount {
            Some(amount) if amount > Nano::ZERO && amount <= MAX_AMOUNT => Some(Self(amount)),
            _ => problems.add(
                at,
                "invalid_amount",
                format!(
                    "`{}` must be more than 0 and at most {MAX_AMOUNT}, with at most nine decimals.",
                    at.path
                ),
            ),
        }
    }
    fn schema() -> Value {
        json!({
            "type": ["number", "string"],
            "maximum": 9_000_000_000_i64,
            "description": "An amount of the currency with up to nine decimals; as a string if it has more than 15 digits",
            "examples": [25],
        })
    }
}

/// An amount of money like [`Amount`], which may also be 0 or less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignedAmount(pub Nano);

impl Field for SignedAmount {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let amount = amount(&value, at, problems)?;
        match amount {
            Some(amount) if amount.units().abs() <= MAX_AMOUNT.units() => Some(Self(amount)),
            _ => problems.add(
                at,
                "invalid_amount",
                format!(
                    "`{}` must be between -{MAX_AMOUNT} and {MAX_AMOUNT}, with at most nine decimals.",
                    at.path
                ),
            ),
        }
    }
    fn schema() -> Value {
        json!({
            "type": ["number", "string"],
            "minimum": -9_000_000_000_i64,
            "maximum": 9_000_000_000_i64,
            "description": "An amount of the currency with up to nine decimals; as a string if it has more than 15 digits",
            "examples": [25],
        })
    }
}

/// Reads a decimal number. Returns `Some(None)` if the value isn't a number with at most nine decimals.
fn amount(value: &Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Option<Nano>> {
    let literal = match value {
        Json::Integer(number) => number.to_string(),
        Json::Float(number) => {
            let literal = number.to_string();
            let digits: String = literal.chars().filter(char::is_ascii_digit).collect();
            if digits.trim_matches('0').len() > MAX_NUMBER_DIGITS {
                let message = format!(
                    "`{}` has more than {MAX_NUMBER_DIGITS} digits: send it as a string to keep all of them.",
                    at.path
                );
                return problems.add(at, "too_many_digits", message);
            }
            literal
        }
        Json::Text(text) => text.to_string(),
        _ => return problems.wrong_type(at, "a number, or a string that contains a number", value),
    };
    Some(Nano::parse(&literal))
}

/// A sampling temperature between 0 and 2 with at most six decimals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Temperature(pub Ppm);

impl Field for Temperature {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let literal = match &value {
            Json::Integer(number) => number.to_string(),
            Json::Float(number) => number.to_string(),
            _ => return problems.wrong_type(at, "a number", &value),
        };
        match Ppm::parse(&literal) {
            Some(ppm) if (0..=2_000_000).contains(&ppm.units()) => Some(Self(ppm)),
            _ => problems.add(
                at,
                "out_of_range",
                format!("`{}` must be between 0 and 2, with at most six decimals.", at.path),
            ),
        }
    }
    fn schema() -> Value {
        json!({"type": "number", "minimum": 0, "maximum": 2, "examples": [0.7]})
    }
}

/// The name of an organization, project or key, and its folded form for comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The name as entered, trimmed.
    pub display: String,
    pub folded: String,
}

impl From<Name> for naming::Name {
    fn from(Name { display, folded }: Name) -> Self {
        Self { display, folded }
    }
}

impl Field for Name {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        let name = checked(naming::name(&text), at, problems)?;
        Some(Self { folded: name.folded, display: name.display })
    }
    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 100, "examples": ["Acme"]})
    }
}

/// The description of an organization, project or key, or a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescriptionText(pub String);

impl Field for DescriptionText {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        checked(naming::description(&text), at, problems).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "maxLength": 1000, "examples": ["What it is for"]})
    }
}

/// An e-mail address, and its folded form for comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Email {
    /// The text as entered.
    pub display: String,
    pub folded: String,
}

impl Field for Email {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        let email = checked(naming::email(&text), at, problems)?;
        Some(Self { folded: email.folded, display: email.display })
    }
    fn schema() -> Value {
        json!({"type": "string", "format": "email", "maxLength": 254, "examples": ["…"]})
    }
}

impl From<Email> for naming::Name {
    fn from(email: Email) -> Self {
        Self { display: email.display, folded: email.folded }
    }
}

/// A username, and its folded form for comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Username {
    /// The text as entered.
    pub display: String,
    pub folded: String,
}

impl From<Username> for naming::Name {
    fn from(Username { display, folded }: Username) -> Self {
        Self { display, folded }
    }
}

impl Field for Username {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        let username = checked(naming::username(&text), at, problems)?;
        Some(Self { folded: username.folded, display: username.display })
    }
    fn schema() -> Value {
        json!({"type": "string", "minLength": 3, "maxLength": 64, "examples": ["ada"]})
    }
}

/// A user's full name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FullName(pub String);

impl Field for FullName {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        checked(naming::full_name(&text), at, problems).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "maxLength": 200, "examples": ["Ada Lovelace"]})
    }
}

/// An international phone number in its canonical form (E.164).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phone(pub String);

impl Field for Phone {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        checked(phones::phone(&text), at, problems).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "maxLength": 40, "examples": ["+441632960961"]})
    }
}

impl Field for Time {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match Self::parse(&text) {
            Some(time) => Some(time),
            None => problems.add(
                at,
                "invalid_timestamp",
                format!("`{}` must be a timestamp such as 2026-01-31T09:30:00Z.", at.path),
            ),
        }
    }
    fn schema() -> Value {
        json!({"type": "string", "format": "date-time", "examples": ["2030-01-31T09:30:00Z"]})
    }
}

impl Field for IpAddr {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                problems.add(at, "invalid_address", format!("`{}` must be an IPv4 or IPv6 address.", at.path))
            }
        }
    }
    fn schema() -> Value {
        json!({"type": "string", "examples": ["203.0.113.7"]})
    }
}

impl<K: Kind> Field for Id<K> {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match Self::parse(&text) {
            Some(id) => Some(id),
            None => problems.add(
                at,
                "invalid_id",
                format!("`{}` must be an id such as `{}_…`.", at.path, K::PREFIX),
            ),
        }
    }
    fn schema() -> Value {
        json!({"type": "string", "examples": [format!("{}_01kfz3v9xee8tb2m6h0q5w7r4n", K::PREFIX)]})
    }
}

/// Reads a string that must be one of several words.
pub fn one_of<T: Copy + Into<&'static str>>(
    value: Json<'_>,
    at: &Location<'_>,
    problems: &mut Problems,
    choices: &[T],
) -> Option<T> {
    let text = string(value, at, problems)?;
    match choices.iter().find(|choice| (**choice).into() == text) {
        Some(choice) => Some(*choice),
        None => {
            let words: Vec<_> = choices.iter().map(|choice| format!("`{}`", (*choice).into())).collect();
            problems.add(at, "unknown_value", format!("`{}` must be one of {}.", at.path, words.join(", ")))
        }
    }
}

/// A list of 1 to 100 model ids. The caller checks them against the catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelIds(pub Vec<String>);

impl Field for ModelIds {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let mut ids = items(value, at, problems, |item, at, problems| {
            Text::<128>::read(item, at, problems).map(|text| text.0)
        })?;
        if ids.is_empty() || ids.len() > 100 {
            let code = if ids.is_empty() { "empty" } else { "too_many" };
            return problems.add(
                at,
                code,
                format!("`{}` must name 1 to 100 models: null removes the restriction.", at.path),
            );
        }
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        Some(Self(ids))
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string", "maxLength": 128},
               "examples": [["svc-1"]]})
    }
}

/// Reads the items of an array, each with its own path.
pub fn items<'a, T>(
    value: Json<'a>,
    at: &Location<'_>,
    problems: &mut Problems,
    mut read: impl FnMut(Json<'a>, &Location<'_>, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    let Json::Array(array) = value else {
        return problems.wrong_type(at, "an array", &value);
    };
    if array.len() > 1_000 {
        return problems.add(at, "too_many", format!("`{}` may have at most 1000 entries.", at.path));
    }
    let mut read_items = Vec::with_capacity(array.len());
    let mut is_complete = true;
    for (index, item) in array.into_iter().enumerate() {
        let path = format!("{}[{index}]", at.path);
        match read(item, &Location { path: &path, origin: at.origin }, problems) {
            Some(item) => read_items.push(item),
            None => is_complete = false,
        }
    }
    is_complete.then_some(read_items)
}

/// Reads a string.
pub fn string<'a>(value: Json<'a>, at: &Location<'_>, problems: &mut Problems) -> Option<Cow<'a, str>> {
    match value {
        Json::Text(text) => Some(text),
        other => problems.wrong_type(at, "a string", &other),
    }
}

/// Returns the value of a check, or adds its problem at this location.
pub fn checked<T>(result: Result<T, Problem>, at: &Location<'_>, problems: &mut Problems) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(problem) => problems.add(at, problem.code, format!("`{}` {}.", at.path, problem.message)),
    }
}
