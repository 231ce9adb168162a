//! Objects that another library reads.

use serde_json::{Map, Value, json};

use crate::fields::{Field, Location, Problems};
use crate::json::Json;

/// A JSON object with any members, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct AnyObject(pub String);

impl std::fmt::Debug for AnyObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{…}")
    }
}

impl Field for AnyObject {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Object(_) => Some(Self(plain(value).to_string())),
            other => problems.wrong_type(at, "an object", &other),
        }
    }
    fn schema() -> Value {
        json!({"type": "object", "examples": [{}]})
    }
}

/// Returns the value as `serde_json`'s type. The parser has already limited the depth.
fn plain(value: Json<'_>) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => value.into(),
        Json::Integer(number) => number.into(),
        Json::Float(number) => number.into(),
        Json::Text(text) => text.into_owned().into(),
        Json::Array(values) => values.into_iter().map(plain).collect(),
        Json::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name.into_owned(), plain(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn object_stays_what_it_was() {
        let text = r#"{"a":[null,true,-7,1.5,"ö\""],"b":{"c":{}}}"#;
        assert_eq!(plain(parse(text.as_bytes()).unwrap()).to_string(), text);
    }
}
