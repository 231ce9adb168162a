//! Input fields of API keys: permissions, grace periods and filters.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use strum::VariantArray;

use crate::rules::permissions::{Permission, Permissions};
use crate::rules::rotation::MAX_GRACE_SECONDS;
use crate::store::api_keys::StatusFilter;
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::types::{Integer, items, one_of};

impl Field for Permission {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::ALL)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "Permission", "enum": ["chat", "embeddings", "models", "files"], "examples": ["chat"]})
    }
}

impl Field for Permissions {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let permissions = items(value, at, problems, Permission::read)?;
        if permissions.is_empty() {
            return problems.add(
                at,
                "empty",
                format!("`{}` can't be empty. Omit it to grant all permissions.", at.path),
            );
        }
        Some(permissions.into_iter().collect())
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "items": Permission::schema(),
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
        json_schema!({"type": "array", "items": Permission::schema(),
                      "examples": [["chat", "models"]]})
    }
}

/// A grace period in seconds. Its maximum is configured, so the operation checks it with
/// [`check_grace`](crate::rules::rotation::check_grace).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraceSeconds(pub i64);

impl Field for GraceSeconds {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Integer(seconds) => Some(Self(seconds)),
            other => {
                Integer::<0, MAX_GRACE_SECONDS>::read(other, at, problems).map(|seconds| Self(seconds.0))
            }
        }
    }
    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": MAX_GRACE_SECONDS, "examples": [3600]})
    }
}

impl Field for StatusFilter {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "ApiKeyStatus", "enum": ["active", "expired"], "examples": ["active"]})
    }
}
