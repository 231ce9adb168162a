//! The fields of an API key that users set, with values for the tests of each operation. A field of the
//! document that is missing here fails a test.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use support::documented::document;

/// A field that users set.
pub struct Field {
    /// The field's JSON pointer in bodies and answers.
    pub place: &'static str,
    /// The field's value if the body doesn't contain it; `None` if it is required. A change accepts null only
    /// if this is null.
    pub default: Option<Value>,
    /// A value, and its form in answers.
    pub sent: Value,
    pub shown: Value,
    /// Another value, and its form in answers.
    pub changed: Value,
    pub shown_changed: Value,
    /// Invalid values, and the rest of the error's detail: the path below the field, and the code.
    pub invalid: Vec<(Value, &'static str)>,
}

pub fn all() -> Vec<Field> {
    let field = |place, default, [sent, shown]: [Value; 2], [changed, shown_changed]: [Value; 2], invalid| {
        Field { place, default, sent, shown, changed, shown_changed, invalid }
    };
    let same = |value: Value| [value.clone(), value];
    let all_permissions = json!(["chat", "embeddings", "models", "files"]);
    vec![
        field("/name", None, same(json!("Prod")), [json!(" prod "), json!("prod")], vec![]),
        field("/description", Some(json!(null)), same(json!("For the shop")), same(json!("new")), vec![]),
        field(
            "/permissions",
            Some(all_permissions),
            [json!(["files", "models", "files"]), json!(["models", "files"])],
            [json!(["models", "chat", "chat"]), json!(["chat", "models"])],
            vec![
                (json!([]), " empty"),
                (json!(["root"]), "[0] unknown_value"),
                (json!("chat"), " wrong_type"),
            ],
        ),
        field(
            "/restrictions/allowed_ips",
            Some(json!(null)),
            same(json!(["127.0.0.1", "2001:db8::/32"])),
            same(json!(["127.0.0.1"])),
            vec![(json!([]), " empty"), (json!(["10.0.0.0/8", "10.0.0"]), "[1] ")],
        ),
        field(
            "/restrictions/rate_limit",
            Some(json!(null)),
            same(json!(600)),
            same(json!(100)),
            vec![
                (json!(0), " out_of_range"),
                (json!(1_000_001), " out_of_range"),
                (json!("60"), " wrong_type"),
            ],
        ),
        field(
            "/restrictions/max_tokens",
            Some(json!(null)),
            same(json!(100)),
            same(json!(90)),
            vec![(json!(0), " out_of_range"), (json!(1_000_000_001), " out_of_range")],
        ),
        field(
            "/restrictions/models",
            Some(json!(null)),
            same(json!(["svc-1-pro"])),
            same(json!(["svc-1"])),
            vec![(json!([]), " empty"), (json!(["svc-1", "gpt-9"]), "[1] unknown_model")],
        ),
    ]
}

impl Field {
    /// Returns a detail about this field that ends with `rest`.
    pub fn detail(&self, rest: &str) -> String {
        format!("{}{rest}", self.place.trim_start_matches('/').replace('/', "."))
    }

    /// Returns a body with this value only.
    pub fn body(&self, value: &Value) -> Value {
        let mut body = json!({});
        set(&mut body, self.place, value);
        body
    }
}

/// Sets the value at a JSON pointer.
pub fn set(object: &mut Value, place: &str, value: &Value) {
    let mut at = object;
    for name in place.split('/').skip(1) {
        at = &mut at[name];
    }
    *at = value.clone();
}

/// Adds a value of each of these fields to an object.
pub fn with(mut object: Value, fields: &[Field], value: fn(&Field) -> &Value) -> Value {
    for field in fields {
        set(&mut object, field.place, value(field));
    }
    object
}

/// Adds the JSON pointers of the values in a schema.
fn add_places(schema: &Value, place: &str, found: &mut BTreeSet<String>) {
    let reference = schema.get("$ref").or_else(|| schema.pointer("/anyOf/0/$ref"));
    let schema = match reference {
        Some(reference) => document().pointer(reference.as_str().unwrap().trim_start_matches('#')).unwrap(),
        None => schema,
    };
    match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            for (name, schema) in properties {
                add_places(schema, &format!("{place}/{name}"), found);
            }
        }
        None => {
            found.insert(place.to_owned());
        }
    }
}

#[test]
fn every_field_of_the_document_is_in_the_list() {
    let path = "/v1/organizations/{organization_id}/projects/{project_id}/api-keys";
    let places = |path: &str, method: &str| {
        let operation = &document()["paths"][path][method];
        let mut found = BTreeSet::new();
        add_places(&operation["requestBody"]["content"]["application/json"]["schema"], "", &mut found);
        found
    };
    let changed = places(&format!("{path}/{{key_id}}"), "put");
    let mut created = places(path, "post");
    let known: BTreeSet<_> = all().iter().map(|field| field.place.to_owned()).collect();
    assert_eq!(changed, known);
    // Only the body of a new key has `expires_at`.
    created.remove("/expires_at");
    assert_eq!(created, known);
}
