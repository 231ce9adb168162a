//! The fields of a JSON schema as rows of a page.

use serde_json::{Map, Value};

use super::words::Words;

/// The maximum depth of nested fields that are shown.
const MAX_DEPTH: usize = 6;

/// A field of a body or a response, or a parameter.
#[derive(Debug)]
pub struct Field {
    /// The path of the name, for instance `restrictions.models` or `api_keys[].id`.
    pub name: String,
    /// The type with its bounds.
    pub kind: Words,
    /// `Some(true)` if it is required; `None` where this doesn't apply, as in responses.
    pub required: Option<bool>,
    pub description: Words,
    /// The possible values with their meanings, if the values are limited.
    pub values: Vec<(String, Words)>,
}

impl Field {
    /// Returns `true` if at least one value has an explanation.
    pub fn explains_values(&self) -> bool {
        self.values.iter().any(|(_, meaning)| !meaning.is_empty())
    }
}

/// Returns the fields of an object, including nested fields. `is_answer` is `true` for responses, where no
/// field is marked as required.
pub fn of_schema(document: &Value, schema: &Value, is_answer: bool) -> Vec<Field> {
    let mut fields = Vec::new();
    collect(document, schema, "", is_answer, 0, &mut fields);
    fields
}

/// Returns parameters as fields.
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
        collect(document, values, &format!("{prefix}.{{key}}"), is_answer, depth.saturating_add(1), fields);
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

/// Returns the properties of an object. The required properties come first, in the order in which the schema
/// requires them.
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

/// Returns the schemas in `anyOf`, `oneOf` and `allOf`, except null and constants.
fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword)?.as_array())
        .flatten()
        .filter(|part| part.get("type").is_none_or(|kind| kind != "null") && part.get("const").is_none())
}

/// Follows a reference, if the schema is one.
pub fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
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

/// Returns the possible values of a field with their meanings; empty if the values aren't limited.
fn values(document: &Value, schema: &Value) -> Vec<(String, Words)> {
    let schema = resolve(document, schema);
    let mut found = Vec::new();
    for word in schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        let meaning = schema.get("x-enumDescriptions").map(|words| text(words, word)).unwrap_or_default();
        found.push((word.to_owned(), Words::new(&meaning)));
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
    let mut names: Vec<String> = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
        Some(Value::String(name)) => vec![name.clone()],
        _ => Vec::new(),
    };
    if names.is_empty() && schema.pointer("/oneOf/0/const").is_some() {
        names.push("string".to_owned());
    }
    let null = names.iter().position(|name| name == "null").map(|place| names.remove(place));
    let is_nullable = null.is_some() || is_nullable(schema);
    let mut words: Vec<_> = names.iter().map(|name| typed(document, schema, name)).collect();
    if words.is_empty() {
        words.extend(alternatives(schema).map(|part| kind(document, part)));
        words.dedup();
    }
    if words.is_empty() {
        words.push("any value".to_owned());
    }
    if is_nullable {
        words.push("null".to_owned());
    }
    match bounds(schema) {
        bounds if bounds.is_empty() => words.join(" or "),
        bounds => format!("{}, {bounds}", words.join(" or ")),
    }
}

/// Returns `true` if null is one of the alternatives of a schema.
fn is_nullable(schema: &Value) -> bool {
    let parts = schema.get("anyOf").and_then(Value::as_array);
    parts.is_some_and(|parts| parts.iter().any(|part| part.get("type").is_some_and(|kind| kind == "null")))
}

/// Describes a value of one type, in words.
fn typed(document: &Value, schema: &Value, name: &str) -> String {
    match (name, schema.get("format").and_then(Value::as_str)) {
        ("array", _) => match schema.get("items") {
            Some(items) => format!("array of {}", plural(&kind(document, items))),
            None => "array".to_owned(),
        },
        (_, Some("date-time")) => "timestamp".to_owned(),
        (_, Some("date")) => "day".to_owned(),
        _ => name.to_owned(),
    }
}

fn plural(words: &str) -> String {
    match words.split_once([',', ' ']) {
        Some((kind, rest)) if words.contains(',') => format!("{kind}s,{rest}"),
        Some(_) => words.to_owned(),
        None => format!("{words}s"),
    }
}

/// Returns the bounds of a value, in words.
fn bounds(schema: &Value) -> String {
    // The bounds of an unsigned integer are only those of its Rust type.
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        return String::new();
    }
    let rows = [
        ("minItems", "maxItems", " of them"),
        ("minLength", "maxLength", " characters"),
        ("minimum", "maximum", ""),
    ];
    let found = rows.into_iter().find_map(|(least, most, unit)| {
        let number = |keyword| schema.get(keyword).filter(|bound| bound.is_number()).map(written);
        let (least, most) = (number(least), number(most));
        (least.is_some() || most.is_some()).then_some((least, most, unit))
    });
    match found {
        Some((Some(least), Some(most), unit)) => format!("{least} to {most}{unit}"),
        Some((Some(least), None, "")) if least == "0" => "0 or more".to_owned(),
        Some((Some(least), None, unit)) => format!("at least {least}{unit}"),
        Some((None, Some(most), unit)) => format!("at most {most}{unit}"),
        _ => String::new(),
    }
}

/// Formats a number with commas between the thousands.
fn written(number: &Value) -> String {
    let text = number.to_string();
    if text.len() < 4 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text;
    }
    let digits: Vec<_> = text.chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|group| group.iter().collect()).collect();
    groups.join(",")
}

/// Returns a string member of an object, or an empty string.
pub fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_written_in_words() {
        let document = json!({"components": {"schemas": {
            "Time": {"type": "string", "format": "date-time"},
            "Role": {"oneOf": [{"const": "owner", "type": "string", "description": "May do everything."}]},
        }}});
        for (schema, words) in [
            (json!({"type": "string", "minLength": 1, "maxLength": 1000}), "string, 1 to 1,000 characters"),
            (json!({"type": ["string", "null"], "maxLength": 100}), "string or null, at most 100 characters"),
            (json!({"type": "integer", "minimum": 1, "maximum": 1_000_000}), "integer, 1 to 1,000,000"),
            (json!({"type": "integer", "minimum": 0}), "integer, 0 or more"),
            (
                json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
                "array of strings, at least 1 of them",
            ),
            (
                json!({"type": "array", "items": {"type": "string", "maxLength": 9}}),
                "array of strings, at most 9 characters",
            ),
            (
                json!({"anyOf": [{"$ref": "#/components/schemas/Time"}, {"type": "null"}]}),
                "timestamp or null",
            ),
            (json!({"$ref": "#/components/schemas/Role"}), "string"),
            (json!({}), "any value"),
        ] {
            assert_eq!(kind(&document, &schema), words, "{schema}");
        }
    }

    #[test]
    fn nested_fields_have_the_path_of_their_name() {
        let document = json!({"components": {"schemas": {
            "Row": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
        }}});
        let schema = json!({"type": "object", "required": ["rows"], "properties": {
            "by_name": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Row"}},
            "rows": {"type": "array", "items": {"$ref": "#/components/schemas/Row"}},
        }});
        let fields = of_schema(&document, &schema, false);
        let found: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.required)).collect();
        let due = [("rows", true), ("rows[].id", true), ("by_name", false), ("by_name.{key}.id", true)];
        assert_eq!(found, due.map(|(name, required)| (name, Some(required))));
    }
}
