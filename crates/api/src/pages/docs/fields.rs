//! The fields of a JSON schema as rows of a page.

use serde_json::{Map, Value};

use super::words::Words;

/// The deepest nesting of fields that is shown.
const MAX_DEPTH: usize = 6;

/// A field of a body or an answer, or a parameter.
#[derive(Debug)]
pub struct Field {
    /// The path of the name, for instance `restrictions.models` or `api_keys[].id`.
    pub name: String,
    /// The type with its bounds.
    pub kind: Words,
    /// `Some(true)` if it is required; `None` where that says nothing, as in answers.
    pub required: Option<bool>,
    pub description: Words,
    /// The values with what they mean, if there are only some.
    pub values: Vec<(String, Words)>,
}

/// Returns the fields of an object with those in its fields. `is_answer` is `true` if every field is there.
pub fn of_schema(document: &Value, schema: &Value, is_answer: bool) -> Vec<Field> {
    let mut fields = Vec::new();
    collect(document, schema, "", is_answer, 0, &mut fields);
    fields
}

/// Returns the fields that are parameters.
pub fn of_parameters<'a>(document: &Value, parameters: impl Iterator<Item = &'a Value>) -> Vec<Field> {
    let fields = parameters.map(|parameter| {
        let schema = parameter.get("schema").unwrap_or(&Value::Null);
        let required = parameter.get("required").and_then(Value::as_bool);
        let mut field = field(document, &text(parameter, "name"), schema, required);
        field.description = Words::new(&text(parameter, "description"));
        field
    });
    fields.collect()
}

fn collect(
    document: &Value,
    schema: &Value,
    prefix: &str,
    is_answer: bool,
    depth: usize,
    fields: &mut Vec<Field>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    let schema = resolve(document, schema);
    for part in alternatives(schema) {
        collect(document, part, prefix, is_answer, depth, fields);
    }
    if let Some(items) = schema.get("items") {
        collect(document, items, &format!("{prefix}[]"), is_answer, depth.saturating_add(1), fields);
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        collect(document, values, &format!("{prefix}.*"), is_answer, depth.saturating_add(1), fields);
    }
    for (name, property, is_required) in properties(schema) {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if fields.iter().all(|field| field.name != path) {
            let required = (!is_answer).then_some(is_required);
            fields.push(field(document, &path, property, required));
        }
        collect(document, property, &path, is_answer, depth.saturating_add(1), fields);
    }
}

/// Returns the properties of an object, first the required ones in their order, then the rest.
fn properties(schema: &Value) -> Vec<(&String, &Value, bool)> {
    let required: Vec<_> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let place = |name: &str| required.iter().position(|other| *other == name);
    let mut properties: Vec<_> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
        .map(|(name, property)| (name, property, place(name).is_some()))
        .collect();
    properties.sort_by_key(|(name, ..)| place(name).unwrap_or(usize::MAX));
    properties
}

/// Returns the schemas of which one or all apply, but for null and for single values.
fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword)?.as_array())
        .flatten()
        .filter(|part| part.get("type").is_none_or(|kind| kind != "null") && part.get("const").is_none())
}

/// Follows a reference.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| document.pointer(pointer)).unwrap_or(schema)
}

fn field(document: &Value, name: &str, schema: &Value, required: Option<bool>) -> Field {
    let own = text(schema, "description");
    let target = resolve(document, schema);
    let description = if own.is_empty() { text(target, "description") } else { own };
    Field {
        name: name.to_owned(),
        kind: Words::new(&kind(document, schema)),
        required,
        description: Words::new(&description),
        values: values(document, schema),
    }
}

/// Returns the values of a field that takes only some, with what they mean.
fn values(document: &Value, schema: &Value) -> Vec<(String, Words)> {
    let schema = resolve(document, schema);
    let mut found = Vec::new();
    for word in schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        found.push((word.to_owned(), Words::default()));
    }
    for part in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        if let Some(word) = part.get("const").and_then(Value::as_str) {
            found.push((word.to_owned(), Words::new(&text(part, "description"))));
        }
    }
    for part in alternatives(schema) {
        found.extend(values(document, part));
    }
    if let Some(items) = schema.get("items") {
        found.extend(values(document, items));
    }
    found
}

/// Returns the type of a value with its bounds, in words.
fn kind(document: &Value, schema: &Value) -> String {
    let schema = resolve(document, schema);
    let nullable = |words: String| format!("{words} or null");
    if let Some(types) = schema.get("type").and_then(Value::as_array) {
        let names: Vec<_> = types.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect();
        let words = typed(document, schema, &names.join(" or "));
        return if names.len() < types.len() { nullable(words) } else { words };
    }
    if let Some(name) = schema.get("type").and_then(Value::as_str) {
        return typed(document, schema, name);
    }
    if schema.get("const").is_some() || schema.pointer("/oneOf/0/const").is_some() {
        return "string".to_owned();
    }
    let mut words: Vec<_> = alternatives(schema).map(|part| kind(document, part)).collect();
    words.dedup();
    let words = if words.is_empty() { "any value".to_owned() } else { words.join(" or ") };
    let has_null = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .is_some_and(|parts| parts.iter().any(|part| part.get("type").is_some_and(|kind| kind == "null")));
    if has_null { nullable(words) } else { words }
}

/// Returns the words of one type.
fn typed(document: &Value, schema: &Value, name: &str) -> String {
    let words = match (name, schema.get("format").and_then(Value::as_str)) {
        (_, Some("date-time")) => "timestamp".to_owned(),
        (_, Some("date")) => "day".to_owned(),
        ("array", _) => match schema.get("items") {
            Some(items) => format!("array of {}", plural(&kind(document, items))),
            None => "array".to_owned(),
        },
        _ => name.to_owned(),
    };
    match bounds(schema, name) {
        bounds if bounds.is_empty() => words,
        bounds => format!("{words}, {bounds}"),
    }
}

fn plural(words: &str) -> String {
    match words.split_once(',') {
        Some((kind, rest)) => format!("{kind}s,{rest}"),
        None => format!("{words}s"),
    }
}

/// Returns the bounds of a value, in words.
fn bounds(schema: &Value, name: &str) -> String {
    let number = |keyword: &str| schema.get(keyword).filter(|bound| bound.is_number()).map(written);
    let (least, most, unit) = match name {
        "array" => (number("minItems"), number("maxItems"), " of them"),
        "string" => (number("minLength"), number("maxLength"), " characters"),
        _ => (number("minimum"), number("maximum"), ""),
    };
    match (least.filter(|least| least != "0" || unit.is_empty()), most) {
        (Some(least), Some(most)) => format!("{least} to {most}{unit}"),
        (Some(least), None) => format!("at least {least}{unit}"),
        (None, Some(most)) => format!("at most {most}{unit}"),
        (None, None) => String::new(),
    }
}

/// Returns a number with a comma before each three digits.
fn written(number: &Value) -> String {
    let text = number.to_string();
    if text.len() < 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text;
    }
    let digits: Vec<_> = text.chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|group| group.iter().collect()).collect();
    groups.join(",")
}

/// Returns a member that is a text.
pub fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
