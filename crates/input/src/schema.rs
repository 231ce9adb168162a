//! The description of the fields of an object, for the OpenAPI document.

use serde_json::{Map, Value, json};

/// The fields of an object, in the order in which they are read.
#[derive(Debug, Default)]
pub struct ObjectSchema {
    pub properties: Vec<Property>,
    /// `true` if fields that aren't listed are accepted.
    pub is_open: bool,
}

/// A field of an object.
#[derive(Debug)]
pub struct Property {
    pub name: &'static str,
    /// The schema of the field's type.
    pub schema: Value,
    pub is_required: bool,
    /// The meaning of the field; empty if the schema of its type describes it.
    pub description: &'static str,
}

impl Property {
    /// Returns a field that is always sent.
    pub fn required(name: &'static str, schema: Value, description: &'static str) -> Self {
        Self { name, schema, is_required: true, description }
    }

    /// Returns a field that can be left out.
    pub fn optional(name: &'static str, schema: Value, description: &'static str) -> Self {
        Self { name, schema, is_required: false, description }
    }

    fn to_value(&self) -> Value {
        let mut schema = self.schema.clone();
        if let (Some(members), false) = (schema.as_object_mut(), self.description.is_empty()) {
            members.insert("description".into(), self.description.into());
        }
        schema
    }
}

impl ObjectSchema {
    /// Returns the JSON schema of the object.
    pub fn to_value(&self) -> Value {
        let properties: Map<_, _> =
            self.properties.iter().map(|one| (one.name.to_owned(), one.to_value())).collect();
        let required: Vec<_> =
            self.properties.iter().filter(|one| one.is_required).map(|one| one.name).collect();
        let mut schema =
            json!({"type": "object", "properties": properties, "additionalProperties": self.is_open});
        if let (Some(object), false) = (schema.as_object_mut(), required.is_empty()) {
            object.insert("required".into(), json!(required));
        }
        schema
    }
}
