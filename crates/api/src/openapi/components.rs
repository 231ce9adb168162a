//! Names for nested schemas: objects and enums become components. Client generators make a class of each
//! component, and the name of the class must not depend on where the schema is used.

use serde_json::{Map, Value, json};

/// The schemas of the components by their names.
type Schemas = Map<String, Value>;

/// Moves the objects and enums in schemas and parameters to the components. Each is named after its `title`,
/// or else after its position. Equal enums become one component.
pub fn name_inner_schemas(paths: &mut Map<String, Value>, schemas: &mut Schemas) {
    for schema in schemas.values_mut() {
        list_words(schema);
    }
    let names: Vec<_> = schemas.keys().cloned().collect();
    for name in names {
        // Removed for now, because its parts are added to the same map.
        let Some(mut schema) = schemas.get_mut(&name).map(Value::take) else { continue };
        visit_parts(&mut schema, &name, schemas);
        schemas.insert(name, schema);
    }
    let operations = paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    for operation in operations {
        let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default();
        let place = type_name(id);
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
            let suggestion = format!("{place}{}", type_name(name));
            if let Some(schema) = parameter.get_mut("schema") {
                visit(schema, &suggestion, schemas);
            }
        }
    }
}

/// Returns the type name for a name in snake case: `ApiKey` for `api_key`.
pub fn type_name(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_uppercase() + rest
    });
    words.collect()
}

/// Converts alternatives that are constants with descriptions to an enum, which client generators support.
fn list_words(schema: &mut Value) {
    let Some(alternatives) = schema.get("oneOf").and_then(Value::as_array) else { return };
    let words: Option<Map<_, _>> = alternatives
        .iter()
        .map(|one| {
            let word = one.get("const")?.as_str()?.to_owned();
            Some((word, one.get("description").cloned().unwrap_or_default()))
        })
        .collect();
    if let (Some(words), Some(schema)) = (words, schema.as_object_mut()) {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), words.keys().cloned().collect());
        schema.insert("x-enumDescriptions".into(), words.into());
    }
}

/// Names the schemas nested in the schema with this name.
fn visit_parts(schema: &mut Value, name: &str, schemas: &mut Schemas) {
    for (property, part) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
    {
        visit(part, &format!("{name}{}", type_name(property)), schemas);
    }
}

/// Names a schema and the schemas nested in it, and replaces each by a reference.
fn visit(schema: &mut Value, suggestion: &str, schemas: &mut Schemas) {
    if let Some(items) = schema.get_mut("items") {
        visit(items, &format!("{suggestion}Item"), schemas);
    }
    let has_name = schema.get("enum").is_some() || schema.get("properties").is_some();
    let Some(members) = schema.as_object_mut().filter(|_| has_name) else { return };
    let title = members.remove("title");
    let name = title.as_ref().and_then(Value::as_str).unwrap_or(suggestion).to_owned();
    let kept: Vec<_> = ["description", "examples"]
        .into_iter()
        .filter_map(|keyword| Some((keyword.to_owned(), members.remove(keyword)?)))
        .collect();
    let is_nullable = remove_null(members);
    visit_parts(schema, &name, schemas);
    let name = define(name, suggestion, schema.take(), schemas);
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    *schema = if is_nullable { json!({"anyOf": [reference, {"type": "null"}]}) } else { reference };
    if let Some(members) = schema.as_object_mut() {
        members.extend(kept);
    }
}

/// Removes null from the types and values of a schema. Returns `true` if null was one of its types.
fn remove_null(schema: &mut Map<String, Value>) -> bool {
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !word.is_null());
    }
    let Some(kinds) = schema.get_mut("type") else { return false };
    let others: Vec<_> =
        kinds.as_array().into_iter().flatten().filter(|kind| *kind != "null").cloned().collect();
    let is_nullable = kinds.as_array().is_some_and(|kinds| kinds.len() > others.len());
    if let (true, [kind]) = (is_nullable, others.as_slice()) {
        *kinds = kind.clone();
    }
    is_nullable
}

/// Adds a schema, unless an equal enum exists, and returns its name.
fn define(name: String, suggestion: &str, schema: Value, schemas: &mut Schemas) -> String {
    let words = words(&schema);
    let is_equal = |(_, other): &(&String, &Value)| words.is_some() && self::words(other) == words;
    if let Some((known, _)) = schemas.iter().find(is_equal) {
        return known.clone();
    }
    let is_taken = schemas.get(&name).is_some_and(|other| *other != schema);
    let name = if is_taken { suggestion.to_owned() } else { name };
    schemas.insert(name.clone(), schema);
    name
}

/// Returns the values of an enum, sorted; `None` for other schemas.
fn words(schema: &Value) -> Option<Vec<&str>> {
    let mut words: Vec<_> = schema.get("enum")?.as_array()?.iter().filter_map(Value::as_str).collect();
    words.sort_unstable();
    Some(words)
}
