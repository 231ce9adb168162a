//! `/v1/organizations/{organization_id}/projects/{project_id}/api-keys` and `…/{key_id}`
//! (docs/contract/api-keys.md).

pub mod bodies;
pub mod end_rotation;
pub mod rotate;

use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Message;
use crate::organizations::PersonBrief;
use crate::paging::{ListQuery, PageInfo};
use billing::Billing;
use billing::totals;
use idempotency::Uncommitted;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::ApiKeyId;
use keys::Keys;
use keys::access::KeyScope;
use keys::api_keys::{
    self, ApiKey as ApiKeyRow, Attributes, Changed, Created, KeyList, Restrictions, StatusFilter,
};
use tenants::access::ProjectScope;
use web::input::{Body, IfMatch, NoInput, Query};
use web::reply::{Enveloped, Versioned, ok, private, versioned};
use web::route::Operation;

pub use bodies::{CreateApiKey, UpdateApiKey};
pub use end_rotation::end_rotation;
pub use rotate::rotate;

/// A new key. Only this reply and the reply to a rotation contain its secret.
#[derive(Serialize, JsonSchema)]
pub struct CreatedApiKey {
    /// The key's id.
    id: ApiKeyId,
    /// The secret.
    key: String,
    #[serde(flatten)]
    attributes: Attributes,
    /// The time when the key was created.
    created_at: Time,
    /// The time at which the key expires; null if it never expires.
    expires_at: Option<Time>,
    /// The restrictions of the key.
    restrictions: Restrictions,
    /// The user who created the key. The key acts with this user's roles.
    created_by: PersonBrief,
}

pub const CREATE: Operation = Operation {
    errors: &[Code::KeyExceedsCaller, Code::LimitReached, Code::NameTaken],
    example: r#"{
  "name": "Acme chat server",
  "permissions": ["chat", "models"],
  "restrictions": {"rate_limit": 600, "max_tokens": 4096}
}"#,
    ..Operation::new("create_api_key")
};

/// Create an API key.
///
/// Only this response contains the secret.
pub async fn create(
    keys: Keys,
    scope: ProjectScope,
    Body(body): Body<CreateApiKey>,
) -> Result<Uncommitted<Enveloped<CreatedApiKey>>, Error> {
    let created = api_keys::create(&keys, &scope, body.into()).await?;
    Ok(created.map(|Created { api_key, secret }| {
        private(CreatedApiKey {
            created_by: created_by(&api_key),
            id: api_key.id,
            key: secret.expose().to_owned(),
            attributes: api_key.attributes,
            created_at: api_key.created_at,
            expires_at: api_key.expires_at,
            restrictions: api_key.restrictions,
        })
    }))
}

/// A page of keys.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApiKeyPage {
    /// The keys of this page.
    api_keys: Vec<ListedApiKey>,
    #[serde(flatten)]
    page: PageInfo,
}

/// The state of a key at the time of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ApiKeyStatus")]
pub enum Status {
    /// The key can be used.
    Active,
    /// The key is past its `expires_at`.
    Expired,
}

/// A key in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedApiKey {
    /// The key's id.
    id: ApiKeyId,
    #[serde(flatten)]
    attributes: Attributes,
    /// The time when the key was created.
    created_at: Time,
    /// The time at which the key expires; null if it never expires.
    expires_at: Option<Time>,
    /// The time when the key was last used; null if never.
    last_used_at: Option<Time>,
    /// The state of the key.
    status: Status,
}

pub const LIST: Operation = Operation::new("list_api_keys");

/// List the API keys of a project.
pub async fn list(
    keys: Keys,
    scope: ProjectScope,
    Query(query): Query<ListQuery<StatusFilter>>,
) -> Result<Enveloped<ApiKeyPage>, Error> {
    let ListQuery { page, search_folded, filter } = query;
    let KeyList { api_keys, total, now } = api_keys::list(&keys, &scope, search_folded, filter, page).await?;
    let api_keys = api_keys.into_iter().map(|row| ListedApiKey {
        id: row.id,
        status: status(&row, now),
        attributes: row.attributes,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
    });
    Ok(ok(ApiKeyPage { api_keys: api_keys.collect(), page: PageInfo::new(total, page) }))
}

/// A key without its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApiKey {
    /// The key's id.
    id: ApiKeyId,
    #[serde(flatten)]
    attributes: Attributes,
    /// The time when the key was created.
    created_at: Time,
    /// The time at which the key expires; null if it never expires.
    expires_at: Option<Time>,
    /// The restrictions of the key.
    restrictions: Restrictions,
    /// The usage of the key.
    usage: Usage,
    /// The state of the key.
    status: Status,
    /// The user who created the key. The key acts with this user's roles.
    created_by: PersonBrief,
}

/// The usage of a key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApiKeyUsage")]
pub struct Usage {
    /// The number of calls with the key.
    total_requests: i64,
    /// The number of tokens in these calls.
    total_tokens: i64,
    /// The time when the key was last used; null if never.
    last_used_at: Option<Time>,
    /// The IP address from which the key was last used.
    last_used_ip: Option<String>,
}

pub const READ: Operation = Operation::new("get_api_key");

/// Get an API key.
pub async fn read(billing: Billing, scope: KeyScope, _: NoInput) -> Result<Versioned<ApiKey>, Error> {
    let totals = totals::api_key(&billing, &scope).await?;
    let (row, now) = (scope.into_api_key(), billing.clock.now());
    let version = row.version(now)?;
    let data = ApiKey {
        id: row.id,
        status: status(&row, now),
        created_by: created_by(&row),
        attributes: row.attributes,
        created_at: row.created_at,
        expires_at: row.expires_at,
        restrictions: row.restrictions,
        usage: Usage {
            total_requests: totals.requests,
            total_tokens: totals.tokens,
            last_used_at: row.last_used_at,
            last_used_ip: row.last_used_ip,
        },
    };
    Ok(versioned(version, data))
}

/// A key after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatedApiKey {
    /// The key's id.
    id: ApiKeyId,
    #[serde(flatten)]
    attributes: Attributes,
    /// The time of the last change.
    updated_at: Time,
    /// The restrictions of the key.
    restrictions: Restrictions,
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::KeyExceedsCaller, Code::NameTaken],
    example: r#"{
  "name": "Acme chat server 2",
  "restrictions": {"rate_limit": 1200}
}"#,
    ..Operation::new("update_api_key")
};

/// Change an API key.
///
/// A merge patch: omitted fields don't change, and null clears a field.
pub async fn update(
    keys: Keys,
    scope: KeyScope,
    IfMatch(expected, Body(body)): IfMatch<Body<UpdateApiKey>>,
) -> Result<Versioned<UpdatedApiKey>, Error> {
    let Changed { api_key: row, version } = api_keys::update(&keys, &scope, &expected, body.into()).await?;
    let data = UpdatedApiKey {
        id: row.id,
        attributes: row.attributes,
        updated_at: row.updated_at,
        restrictions: row.restrictions,
    };
    Ok(versioned(version, data))
}

pub const DELETE: Operation = Operation::new("delete_api_key");

/// Delete an API key.
///
/// It stops working on every replica within a second.
pub async fn delete(
    keys: Keys,
    scope: KeyScope,
    IfMatch(expected, _): IfMatch<NoInput>,
) -> Result<Enveloped<Message>, Error> {
    api_keys::delete(&keys, &scope, &expected).await?;
    Ok(ok(Message { message: "The API key is deleted and no longer works.".into() }))
}

fn status(row: &ApiKeyRow, now: Time) -> Status {
    if row.has_expired(now) { Status::Expired } else { Status::Active }
}

fn created_by(row: &ApiKeyRow) -> PersonBrief {
    PersonBrief {
        id: row.created_by,
        email: row.created_by_email.clone(),
        username: row.created_by_username.clone(),
    }
}
