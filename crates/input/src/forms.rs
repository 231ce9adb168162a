//! Conversion of HTML forms to equivalent objects.
//!
//! A form contains only strings. The schema of a record determines the type of each value:
//! `restrictions.rate_limit=60` becomes a number in an object, and `permissions=chat&permissions=models`
//! becomes an array. So the same record reads both the JSON body and the form of an operation, and reports
//! the same mistakes under the same paths.
//!
//! * An absent field is absent in the object, and an empty string becomes null.
//! * A field of an array has one value per line, and may be sent several times.
//! * Browsers don't send unchecked boxes. A form lists the names of its boxes in fields named [`SHOWN`]. A
//!   box that was shown and not sent becomes `false`, and a group of boxes of which none was sent becomes an
//!   empty array.
//! * A field `was.NAME` has the initial value of the field NAME. If the same value was sent, the field is
//!   absent, so that a change doesn't set fields that the user hasn't edited.
//! * Fields that the record doesn't have are dropped.

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{Json, Members};

/// The name of the fields that list the checkboxes of a form.
pub const SHOWN: &str = "shown";

/// The prefix of the names of fields that contain other fields' initial values.
pub const WAS: &str = "was.";

/// The fields of a form, in order.
pub type Pairs = [(String, String)];

/// Returns the members of the object that is equivalent to a form; `schema` describes the object.
pub fn members(schema: &Value, form: &Pairs) -> Members<'static> {
    let is_unchanged = |name: &str| {
        let mut filled = form.iter().filter(|(other, _)| other.strip_prefix(WAS) == Some(name)).peekable();
        filled.peek().is_some() && lines(filled).eq(lines(form.iter().filter(|(other, _)| other == name)))
    };
    let is_changed =
        |(name, value): &&(String, String)| !is_unchanged(if name == SHOWN { value } else { name });
    object(schema, "", &form.iter().filter(is_changed).cloned().collect::<Vec<_>>())
}

/// Returns the non-empty lines of fields.
fn lines<'a>(fields: impl Iterator<Item = &'a (String, String)>) -> impl Iterator<Item = &'a str> {
    fields.flat_map(|(_, value)| value.lines()).map(str::trim).filter(|line| !line.is_empty())
}

fn object(schema: &Value, prefix: &str, form: &Pairs) -> Members<'static> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let member = |(name, property): (&String, &Value)| {
        let path = format!("{prefix}{name}");
        let value = match Kind::of(property) {
            Kind::Object => {
                let inner = format!("{path}.");
                let is_sent = |(name, value): &(String, String)| {
                    name.starts_with(&inner) || name == SHOWN && value.starts_with(&inner)
                };
                form.iter().any(is_sent).then(|| Json::Object(object(property, &inner, form)))
            }
            kind => value(kind, &path, form),
        };
        value.map(|value| (Cow::Owned(name.clone()), value))
    };
    properties.into_iter().flatten().filter_map(member).collect()
}

/// The type of value to which a string is converted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Object,
    Array { of_numbers: bool },
    Bool,
    Number,
    Text,
}

impl Kind {
    fn of(schema: &Value) -> Self {
        let is = |wanted: &str| match schema.get("type") {
            Some(Value::String(kind)) => kind == wanted,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
            _ => false,
        };
        if is("object") {
            Self::Object
        } else if is("array") {
            let items = schema.get("items").map(Self::of);
            Self::Array { of_numbers: items == Some(Self::Number) }
        } else if is("boolean") {
            Self::Bool
        } else if (is("integer") || is("number")) && !is("string") {
            Self::Number
        } else {
            Self::Text
        }
    }
}

/// Returns the value of a field; `None` if it is absent.
fn value(kind: Kind, path: &str, form: &Pairs) -> Option<Json<'static>> {
    let named = |wanted: &str| {
        let wanted = wanted.to_owned();
        form.iter().filter(move |(name, _)| *name == wanted).map(|(_, value)| value.as_str())
    };
    let is_shown = named(SHOWN).any(|name| name == path);
    let last = named(path).next_back();
    if last.is_none() && !is_shown {
        return None;
    }
    Some(match kind {
        Kind::Array { of_numbers } => {
            let items: Vec<_> = lines(form.iter().filter(|(name, _)| name == path))
                .map(|line| if of_numbers { number(line) } else { text(line) })
                .collect();
            if items.is_empty() && !is_shown { Json::Null } else { Json::Array(items) }
        }
        Kind::Bool => match last.map(str::trim) {
            None | Some("false") => Json::Bool(false),
            Some("true" | "on") => Json::Bool(true),
            Some("") => Json::Null,
            Some(other) => text(other),
        },
        Kind::Number => match last.map(str::trim) {
            None | Some("") => Json::Null,
            Some(literal) => number(literal),
        },
        Kind::Text | Kind::Object => match last {
            None | Some("") => Json::Null,
            // HTML forms send line ends as CR LF.
            Some(words) => text(&words.replace("\r\n", "\n")),
        },
    })
}

fn text(words: &str) -> Json<'static> {
    Json::Text(Cow::Owned(words.to_owned()))
}

/// Returns a number, or the text if it isn't a number, so that the record reports the mistake.
fn number(literal: &str) -> Json<'static> {
    let is_literal = literal.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+'));
    if let Ok(whole) = literal.parse() {
        return Json::Integer(whole);
    }
    match literal.parse() {
        Ok(decimal) if is_literal => Json::Float(decimal),
        _ => text(literal),
    }
}

#[cfg(test)]
mod tests;
