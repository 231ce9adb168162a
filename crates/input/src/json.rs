//! A JSON parser that refuses duplicate keys, because parsers interpret them differently (RFC 8259, section
//! 4).

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use kernel::error::{Code, Detail, Error};

/// Maximum number of members of an object.
pub const MAX_MEMBERS: usize = 256;
/// The start of the parser's message about an object with more members. No other message starts with it.
const TOO_MANY: &str = "an object has more than";

/// A JSON value. Strings without escapes borrow from the parsed text.
#[derive(Clone, PartialEq, Debug)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number that fits in 64 bits.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Members<'a>),
}

/// The members of an object, in the order of the text.
pub type Members<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

impl Json<'_> {
    /// Returns the name of the value's type, with an article, for messages.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// Parses one JSON value, which nothing may follow. The parser refuses values nested deeper than 128, and
/// objects with more than [`MAX_MEMBERS`] members.
pub fn parse(bytes: &[u8]) -> Result<Json<'_>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Error::new(Code::InvalidJson)
            .param("body")
            .message(format!("The body is not valid UTF-8 at byte {}.", error.valid_up_to()))
    })?;
    serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        if error.starts_with(TOO_MANY) {
            let message = format!("The body is too large: {error}.");
            return Error::invalid(vec![Detail { param: "body".to_owned(), code: "too_many", message }]);
        }
        Error::new(Code::InvalidJson).param("body").message(format!("The body is not valid JSON: {error}."))
    })
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

/// Maximum number of keys of an object that are compared one by one. For so few keys, hashing is slower.
const MAX_COMPARED_KEYS: usize = 16;

/// The initial capacity for the members of an object.
const USUAL_MEMBERS: usize = 12;

/// The name of a member.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value))
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "a number that doesn't fit in an i64 is out of range for every field"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(i64::try_from(value).map_or(Json::Float(value as f64), Json::Integer))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Float(value))
    }
    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }
    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut object = Members::with_capacity(USUAL_MEMBERS);
        let mut names = HashSet::new();
        while let Some(Name(name)) = members.next_key()? {
            if object.len() == MAX_MEMBERS {
                return Err(A::Error::custom(format_args!("{TOO_MANY} {MAX_MEMBERS} members")));
            }
            let value = members.next_value()?;
            if object.len() == MAX_COMPARED_KEYS {
                names.extend(object.iter().map(|(name, _)| name.clone()));
            }
            let is_duplicate = match object.len() {
                ..MAX_COMPARED_KEYS => object.iter().any(|(other, _)| *other == name),
                _ => !names.insert(name.clone()),
            };
            if is_duplicate {
                return Err(A::Error::custom(format_args!("the key {name:?} appears twice in one object")));
            }
            object.push((name, value));
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_parses() {
        let text = r#"{"a":[null,true,-3,2.5,18446744073709551615,"\u0000é"]}"#;
        let expected = Json::Object(vec![(
            "a".into(),
            Json::Array(vec![
                Json::Null,
                Json::Bool(true),
                Json::Integer(-3),
                Json::Float(2.5),
                Json::Float(18_446_744_073_709_551_615.0),
                Json::Text("\0é".into()),
            ]),
        )]);
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn invalid_json_is_refused() {
        let deep = "[".repeat(100_000);
        for bad in [
            "{",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "nul",
            "{\"a\":1,\"a\":1}",
            "\"\\ud800\"",
            "01",
            "1e999",
            deep.as_str(),
        ] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert_eq!(error.code, Code::InvalidJson, "{bad:.20}");
        }
        assert!(parse(b"{\"a\":1,\"a\":1}").unwrap_err().public_message().contains("\"a\" appears twice"));
        // A small object, objects around the limit, and a large object, with any key repeated at the end.
        for size in [2, MAX_COMPARED_KEYS, MAX_COMPARED_KEYS + 1, MAX_COMPARED_KEYS + 2, MAX_MEMBERS - 1] {
            let members: Vec<_> = (0..size).map(|index| format!("\"k{index}\":1")).collect();
            assert!(parse(format!("{{{}}}", members.join(",")).as_bytes()).is_ok());
            for again in [0, size / 2, size - 1] {
                let twice = format!("{{{},\"k{again}\":2}}", members.join(","));
                assert_eq!(parse(twice.as_bytes()).unwrap_err().code, Code::InvalidJson, "{size} {again}");
            }
        }
        assert!(parse(b"\"an object has more than\":").unwrap_err().details.is_empty());
        assert!(parse(b"\"\xff\"").unwrap_err().public_message().contains("UTF-8 at byte 1"));
    }

    #[test]
    fn members_of_an_object_are_limited() {
        let object = |count: usize| {
            let members: Vec<_> = (0..count).map(|index| format!("\"k{index}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(parse(object(MAX_MEMBERS).as_bytes()).is_ok());
        assert!(parse(format!("[{0},{0}]", object(MAX_MEMBERS)).as_bytes()).is_ok());
        let large = object(MAX_MEMBERS + 1);
        // Such an object is refused at any depth, and without reading the rest.
        for text in [large.clone(), format!("{{\"a\":[{large}]}}"), large.replace('}', ",}")] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (Code::InvalidRequest, Some("body")));
            assert_eq!((error.details.len(), error.details[0].code), (1, "too_many"));
            assert!(error.public_message().contains("more than 256 members"), "{}", error.public_message());
        }
    }
}
