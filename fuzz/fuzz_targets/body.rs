//! Checks that the body reader accepts the same JSON as serde_json, except objects with repeated keys. A
//! record accepts only values that its published schema allows, and reports every other error.

#![cfg_attr(feature = "engine", no_main)]

use std::collections::HashSet;

use fuzz::WORLD;
use fuzz::fuzz_target;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tollkeeper::api::Api;
use tollkeeper::api::auth::change_password::ChangePassword;
use tollkeeper::api::auth::login::Login;
use tollkeeper::api::auth::register::Register;
use tollkeeper::api::organizations::projects::api_keys::CreateApiKey;
use tollkeeper::error::{Code, Error};
use tollkeeper::input::fields::{self, Record};
use tollkeeper::input::json::{self, Json};
use tollkeeper::web::input::{Body, Input};

fuzz_target!(|bytes: &[u8]| {
    let tree = serde_json::from_slice::<Tree>(bytes).ok().filter(|tree| !tree.repeats_a_key());
    let ours = json::parse(bytes);
    match (&tree, &ours) {
        (Some(tree), Ok(json)) => assert!(tree.is(json), "{tree:?} is read as {json:?}"),
        // Rejected at the first object that is too large, regardless of the rest.
        (_, Err(error)) if error.code == Code::InvalidRequest => {
            assert_eq!(error.details.len(), 1);
            assert!(error.details[0].code == "too_many" && bytes.len() > json::MAX_MEMBERS * 5);
        }
        (None, Err(error)) => assert_eq!(error.code, Code::InvalidJson),
        _ => panic!("serde_json: {tree:?}, ours: {ours:?}"),
    }
    let value = tree.map(Tree::into_value);
    record::<Register>(bytes, value.as_ref());
    record::<Login>(bytes, value.as_ref());
    record::<ChangePassword>(bytes, value.as_ref());
    record::<CreateApiKey>(bytes, value.as_ref());
});

/// Checks a record. `value` is the body as JSON, if the body is valid JSON.
fn record<T: Record<Api>>(bytes: &[u8], value: Option<&Value>) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut call = WORLD.call(Method::POST, headers, bytes.to_vec());
    let outcome = WORLD.runtime.block_on(Body::<T>::read(&WORLD.app.api, &mut call));
    let schema = fields::describe::<Api, T>().to_value();
    match outcome {
        Ok(_) => {
            let value = value.expect("only JSON is accepted");
            let problem = breaks(value, &schema);
            assert!(problem.is_none(), "{value} is accepted; its schema says: {problem:?}");
        }
        Err(error) => refusal(&error, bytes, value),
    }
}

fn refusal(error: &Error, bytes: &[u8], value: Option<&Value>) {
    assert_eq!(error.code.status(), StatusCode::BAD_REQUEST, "{error}");
    if matches!(error.details.as_slice(), [only] if only.code == "too_many" && only.param == "body") {
        return;
    }
    let is_object = bytes.is_empty() || value.is_some_and(Value::is_object);
    assert_eq!(error.code == Code::InvalidRequest, is_object, "{error}");
    assert_eq!(error.details.is_empty(), !is_object, "{error}");
    // The password contains a character that our messages don't contain, so that a part of a message isn't
    // mistaken for the password.
    let password = value.and_then(|value| value.get("password")?.as_str()).filter(|text| text.contains('#'));
    // Only a field with an empty name is reported with an empty name.
    let nameless = value.is_some_and(|value| value.get("").is_some());
    for detail in &error.details {
        assert!(nameless || !detail.param.is_empty());
        assert!(!detail.code.is_empty() && !detail.message.is_empty());
        assert!(detail.message.len() < 1_000, "{}", detail.message);
        // The name of an unknown field is repeated, even if it equals the password.
        let repeats = password.is_some_and(|password| detail.message.contains(password));
        assert!(!repeats || detail.code == "unknown_field", "{}", detail.message);
    }
}

/// Returns the first violation of the schema. Supports the keywords of JSON Schema that our documents use.
fn breaks(value: &Value, schema: &Value) -> Option<String> {
    let no = |what: &str| Some(format!("{what}: {value} by {schema}"));
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => Vec::from_iter(one.as_str()),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    // `fields.object` reads null as `{}`, which the documents don't mention.
    if kind == "null" && types == ["object"] {
        return None;
    }
    let is_allowed = types.contains(&kind) || kind == "integer" && types.contains(&"number");
    if !types.is_empty() && !is_allowed {
        return no("type");
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return no("enum");
    }
    match value {
        Value::String(text) => {
            // The length of a name is checked after trimming.
            let length = text.trim().chars().count() as u64;
            let least = schema["minLength"].as_u64().unwrap_or(0);
            (length < least || schema["maxLength"].as_u64().is_some_and(|most| length > most))
                .then(|| no("length"))
                .flatten()
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let inside = schema["minimum"].as_f64().is_none_or(|least| number >= least)
                && schema["maximum"].as_f64().is_none_or(|most| number <= most);
            if inside { None } else { no("range") }
        }
        Value::Array(items) => {
            if schema["maxItems"].as_u64().is_some_and(|most| items.len() as u64 > most)
                || schema["minItems"].as_u64().is_some_and(|least| (items.len() as u64) < least)
            {
                return no("items");
            }
            items.iter().find_map(|item| breaks(item, &schema["items"]))
        }
        Value::Object(members) => {
            let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            if required.iter().any(|name| value.get(name.as_str().unwrap_or_default()).is_none()) {
                return no("required");
            }
            members.iter().find_map(|(name, member)| match schema["properties"].get(name) {
                Some(schema) => breaks(member, schema),
                None => no("unknown member"),
            })
        }
        Value::Null | Value::Bool(_) => None,
    }
}

/// JSON as serde_json reads it, including repeated keys.
#[derive(Debug)]
enum Tree {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    fn repeats_a_key(&self) -> bool {
        match self {
            Self::Array(items) => items.iter().any(Self::repeats_a_key),
            Self::Object(members) => {
                let names: HashSet<_> = members.iter().map(|(name, _)| name).collect();
                names.len() < members.len() || members.iter().any(|(_, member)| member.repeats_a_key())
            }
            _ => false,
        }
    }

    fn is(&self, json: &Json<'_>) -> bool {
        match (self, json) {
            (Self::Null, Json::Null) => true,
            (Self::Bool(a), Json::Bool(b)) => a == b,
            (Self::Number(a), Json::Integer(b)) => a.as_i64() == Some(*b),
            (Self::Number(a), Json::Float(b)) => a.as_i64().is_none() && a.as_f64() == Some(*b),
            (Self::Text(a), Json::Text(b)) => a == b,
            (Self::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b)),
            (Self::Object(a), Json::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((a, x), (b, y))| a == b && x.is(y))
            }
            _ => false,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Number(number) => Value::Number(number),
            Self::Text(text) => Value::String(text),
            Self::Array(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(members) => {
                members.into_iter().map(|(name, member)| (name, member.into_value())).collect()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        serde_json::Number::from_f64(value).map(Tree::Number).ok_or_else(|| E::custom("not finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Tree::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Tree::Object(object))
    }
}
