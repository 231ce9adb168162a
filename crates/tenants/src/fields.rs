//! Input fields of tenants: roles, statuses of invitations, visibility and address ranges.

use serde_json::{Value, json};

use crate::roles::{OrganizationRole, ProjectRole, Visibility};
use crate::rules::allowed_ips::AllowedIps;
use crate::rules::invitations::InvitationStatus;
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::types::{items, one_of, string};

impl Field for OrganizationRole {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Owner, Self::Admin, Self::Member])
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "OrganizationRole", "enum": ["owner", "admin", "member"], "examples": ["member"]})
    }
}

impl Field for ProjectRole {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Owner, Self::Admin, Self::Developer, Self::Viewer])
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "ProjectRole", "enum": ["owner", "admin", "developer", "viewer"], "examples": ["viewer"]})
    }
}

/// The default role of new members of an organization; `owner` isn't allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultRole(pub OrganizationRole);

impl Field for DefaultRole {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let roles = [OrganizationRole::Member, OrganizationRole::Admin];
        one_of(value, at, problems, &roles).map(Self)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "DefaultRole", "enum": ["member", "admin"], "examples": ["member"]})
    }
}

impl Field for InvitationStatus {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::ALL)
    }
    fn schema() -> Value {
        let words: Vec<_> = Self::ALL.iter().map(|status| status.as_str()).collect();
        json!({"type": "string", "title": "InvitationStatus", "enum": words, "examples": ["pending"]})
    }
}

impl Field for Visibility {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Private, Self::Public])
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "Visibility", "enum": ["private", "public"], "examples": ["private"]})
    }
}

impl Field for AllowedIps {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let texts = items(value, at, problems, string)?;
        match Self::parse(&texts, at.path) {
            Ok(list) => Some(list),
            Err(wrong) => {
                for detail in wrong {
                    let message = format!("`{}` {}.", detail.param, detail.message);
                    problems.add::<()>(
                        &Location { path: &detail.param, origin: at.origin },
                        detail.code,
                        message,
                    );
                }
                None
            }
        }
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string"},
               "examples": [["203.0.113.7", "2001:db8::/32"]]})
    }
}
