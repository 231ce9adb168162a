//! Input fields of API keys: permissions and filters.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use strum::VariantArray;

use crate::rules::permissions::{Permission, Permissions};
use crate::store::api_keys::StatusFilter;
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::types::{items, one_of};

impl Field for Permission {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::ALL)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["chat", "embeddings", "models", "files"], "examples": ["chat"]})
    }
}

impl Field for Permissions {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let permissions = items(value, at, problems, Permission::read)?;
        if permissions.is_empty() {
            return problems.add(
                at,
                "empty",
                format!("`{}` can't be empty: leave it out for all permissions.", at.path),
            );
        }
        Some(permissions.into_iter().collect())
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["chat", "embeddings", "models", "files"]},
               "examples": [["chat", "embeddings", "models"]]})
    }
}

impl JsonSchema for Permissions {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Permissions".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": {"type": "string", "enum": ["chat", "embeddings", "models", "files"]},
                      "examples": [["chat", "models"]]})
    }
}

impl Field for StatusFilter {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["active", "expired"], "examples": ["active"]})
    }
}
