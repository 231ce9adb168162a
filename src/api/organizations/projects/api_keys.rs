//! `/v1/organizations/{organization_id}/projects/{project_id}/api-keys` and `…/{key_id}` (section 4.4).

mod bodies;
pub mod rotate;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::access::ProjectScope;
use crate::api::auth::Message;
use crate::api::organizations::PersonBrief;
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::ApiKeyId;
use crate::input::{Body, Nothing, Query};
use crate::keys_access::KeyScope;
use crate::live::totals::Subject;
use crate::reply::{Enveloped, ok, private};
use crate::rules::counts::{self, Kind};
use crate::rules::restrictions::{AllowedIps, Permissions};
use crate::secrets::api_key::ApiKeySecret;
use crate::store;
use crate::store::api_keys::{ApiKey as ApiKeyRow, Filter, NewApiKey, StatusFilter};
use crate::store::audit_log::{Action, Event};
use crate::store::changes::Change;

pub use bodies::{CreateApiKey, UpdateApiKey};
pub use rotate::rotate;

/// What a key is restricted to; null where it isn't.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Restrictions {
    allowed_ips: Option<Vec<String>>,
    /// Requests a minute.
    rate_limit: Option<i64>,
    /// Most tokens of one request.
    max_tokens: Option<i64>,
    models: Option<Vec<String>>,
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

/// A key right after its creation: the only time, besides a rotation, that its secret is told.
#[derive(Serialize, JsonSchema)]
pub struct CreatedApiKey {
    id: ApiKeyId,
    /// The secret.
    key: String,
    name: String,
    description: Option<String>,
    permissions: Permissions,
    created_at: Time,
    expires_at: Option<Time>,
    restrictions: Restrictions,
    created_by: PersonBrief,
}

/// POST …/api-keys
pub async fn create(
    app: App,
    scope: ProjectScope,
    Body(body): Body<CreateApiKey>,
) -> Result<Enveloped<CreatedApiKey>, Error> {
    let now = app.clock.now();
    let models = body.restrictions.models.map(|ids| ids.0);
    let id = ApiKeyId::new(now, &app.random);
    let secret = ApiKeySecret::generate(&app.config.api_keys.prefix, &app.random);
    let sealed = sealed_copy(&app, &secret, id)?;
    let new = NewApiKey {
        id,
        organization_id: scope.organization_id(),
        project_id: scope.project_id(),
        name: &body.name.display,
        name_folded: &body.name.folded,
        description: body.description.as_ref().map(|text| text.0.as_str()),
        permissions: body.permissions,
        allowed_ips: body.restrictions.allowed_ips.as_ref(),
        rate_limit: body.restrictions.rate_limit.map(|rate| rate.0),
        max_tokens: body.restrictions.max_tokens.map(|tokens| tokens.0),
        models: models.as_deref(),
        created_by: scope.user_id(),
        expires_at: body.expires_at,
    };
    scope.may_hand_out(&new.bounds())?;
    let mut tx = app.db.write().await?;
    let (mut held, project) = scope.hold(&mut tx).await?;
    counts::one_more(&app.config.limits, Kind::ApiKeys, project.found.detail.api_keys_count)?;
    let maker = store::users::by_id(&mut held, scope.user_id()).await?.ok_or(Code::InsufficientRole)?;
    store::api_keys::insert(&mut held, &new, now).await?;
    let rotated_by = scope.rotated_by();
    store::api_keys::insert_secret(&mut held, id, secret.hash(), sealed.as_deref(), rotated_by, now).await?;
    let event = Event {
        action: Action::ApiKeyCreated,
        target: id.to_string(),
        organization_id: Some(scope.organization_id()),
    };
    store::audit_log::record(&mut tx, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    let restrictions = Restrictions {
        allowed_ips: body.restrictions.allowed_ips.as_ref().map(texts),
        rate_limit: new.rate_limit,
        max_tokens: new.max_tokens,
        models,
    };
    Ok(private(CreatedApiKey {
        id,
        key: secret.expose().to_owned(),
        name: body.name.display,
        description: body.description.map(|text| text.0),
        permissions: body.permissions,
        created_at: now,
        expires_at: body.expires_at,
        restrictions,
        created_by: PersonBrief { id: scope.user_id(), email: maker.email, username: maker.username },
    }))
}

/// One page of keys.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApiKeyPage {
    api_keys: Vec<ListedApiKey>,
    total: i64,
    page: i64,
    page_size: i64,
}

/// Whether a key can be used, computed at the moment of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It can.
    Active,
    /// It has passed its `expires_at`.
    Expired,
}

/// A key in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedApiKey {
    id: ApiKeyId,
    name: String,
    description: Option<String>,
    permissions: Permissions,
    created_at: Time,
    expires_at: Option<Time>,
    last_used_at: Option<Time>,
    status: Status,
}

/// GET …/api-keys
pub async fn list(
    app: App,
    scope: ProjectScope,
    Query(query): Query<ListQuery<StatusFilter>>,
) -> Result<Enveloped<ApiKeyPage>, Error> {
    let now = app.clock.now();
    let filter = Filter {
        project_id: scope.project_id(),
        search_folded: query.search_folded,
        status: query.filter,
        now,
    };
    let mut tx = app.db.read().await?;
    let total = store::api_keys::count(&mut tx, &filter).await?;
    let rows = store::api_keys::list(&mut tx, &filter, query.page).await?;
    let api_keys = rows.into_iter().map(|row| ListedApiKey {
        id: row.id,
        status: status(&row, now),
        name: row.name,
        description: row.description,
        permissions: row.permissions,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
    });
    Ok(ok(ApiKeyPage {
        api_keys: api_keys.collect(),
        total,
        page: query.page.page,
        page_size: query.page.page_size,
    }))
}

/// A key, whole but for its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApiKey {
    id: ApiKeyId,
    name: String,
    description: Option<String>,
    permissions: Permissions,
    created_at: Time,
    expires_at: Option<Time>,
    restrictions: Restrictions,
    usage: Usage,
    status: Status,
    created_by: PersonBrief,
}

/// What a key was used for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Usage {
    total_requests: i64,
    total_tokens: i64,
    last_used_at: Option<Time>,
    last_used_ip: Option<String>,
}

/// GET …/api-keys/{key_id}
pub async fn read(app: App, scope: KeyScope, _: Nothing) -> Result<Enveloped<ApiKey>, Error> {
    let organization_id = scope.organization_id();
    let row = scope.into_api_key();
    let totals = app.usage_totals.total(organization_id, Subject::ApiKey(row.id)).await?;
    let (restrictions, created_by) = (restrictions(&row), created_by(&row));
    Ok(ok(ApiKey {
        id: row.id,
        status: status(&row, app.clock.now()),
        name: row.name,
        description: row.description,
        permissions: row.permissions,
        created_at: row.created_at,
        expires_at: row.expires_at,
        restrictions,
        usage: Usage {
            total_requests: totals.requests,
            total_tokens: totals.tokens,
            last_used_at: row.last_used_at,
            last_used_ip: row.last_used_ip,
        },
        created_by,
    }))
}

/// A key after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatedApiKey {
    id: ApiKeyId,
    name: String,
    description: Option<String>,
    permissions: Permissions,
    updated_at: Time,
    restrictions: Restrictions,
}

/// PUT …/api-keys/{key_id}
pub async fn update(
    app: App,
    scope: KeyScope,
    Body(body): Body<UpdateApiKey>,
) -> Result<Enveloped<UpdatedApiKey>, Error> {
    let mut tx = app.db.write().await?;
    let (mut held, before) = scope.hold(&mut tx).await?;
    let mut row = body.onto(before.clone());
    scope.may_hand_out(&row.bounds())?;
    // What changes nothing leaves no trace either.
    if row != before {
        let now = app.clock.now();
        row.updated_at = now;
        store::api_keys::update(&mut held, &row).await?;
        record(&app, &mut held, &scope, Action::ApiKeyChanged, now).await?;
        tx.commit().await?;
    }
    let restrictions = restrictions(&row);
    Ok(ok(UpdatedApiKey {
        id: row.id,
        name: row.name,
        description: row.description,
        permissions: row.permissions,
        updated_at: row.updated_at,
        restrictions,
    }))
}

/// DELETE …/api-keys/{key_id}
pub async fn delete(app: App, scope: KeyScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let (mut held, _) = scope.hold(&mut tx).await?;
    store::api_keys::delete(&mut held, scope.project_id(), scope.api_key_id()).await?;
    record(&app, &mut held, &scope, Action::ApiKeyDeleted, now).await?;
    tx.commit().await?;
    Ok(ok(Message { message: "The API key is deleted: it can't be used any more.".into() }))
}

/// Leaves an audit entry about the key and tells every replica of the change: the end of its transaction.
async fn record(app: &App, tx: &mut Tx, scope: &KeyScope, action: Action, now: Time) -> Result<(), Error> {
    let event = Event {
        action,
        target: scope.api_key_id().to_string(),
        organization_id: Some(scope.organization_id()),
    };
    store::audit_log::record(tx, scope.trail(), &event, now, &app.random).await?;
    store::changes::record(tx, Change::ApiKey(scope.api_key_id()), now).await?;
    Ok(())
}

/// The secret, sealed for its next rotation, unless the configuration keeps hashes only.
fn sealed_copy(app: &App, secret: &ApiKeySecret, id: ApiKeyId) -> Result<Option<Vec<u8>>, Error> {
    if !app.config.api_keys.keep_sealed {
        return Ok(None);
    }
    Ok(Some(app.sealer.seal(secret.expose().as_bytes(), &id.to_string(), &app.random)?))
}

fn status(row: &ApiKeyRow, now: Time) -> Status {
    if row.expires_at.is_some_and(|at| at <= now) { Status::Expired } else { Status::Active }
}

fn restrictions(row: &ApiKeyRow) -> Restrictions {
    Restrictions {
        allowed_ips: row.allowed_ips.as_ref().map(texts),
        rate_limit: row.rate_limit,
        max_tokens: row.max_tokens,
        models: row.models.clone(),
    }
}

fn texts(list: &AllowedIps) -> Vec<String> {
    list.texts().map(str::to_owned).collect()
}

fn created_by(row: &ApiKeyRow) -> PersonBrief {
    PersonBrief {
        id: row.created_by,
        email: row.created_by_email.clone(),
        username: row.created_by_username.clone(),
    }
}
