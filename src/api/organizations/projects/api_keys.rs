//! `/v1/organizations/{organization_id}/projects/{project_id}/api-keys` and `…/{key_id}` (section 4.4).

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::access::{KeyScope, ProjectScope};
use crate::api::organizations::PersonBrief;
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::ApiKeyId;
use crate::input::types::{DescriptionText, Integer, ModelIds, Name};
use crate::input::{Body, Fields, Nothing, Query, Record};
use crate::reply::{Enveloped, ok, private};
use crate::rules::api_keys::{check_expiry, unknown_models};
use crate::rules::restrictions::{AllowedIps, Permissions};
use crate::secrets::api_key::ApiKeySecret;
use crate::store;
use crate::store::api_keys::{ApiKey as ApiKeyRow, Filter, NewApiKey, StatusFilter};
use crate::store::audit_log::{Action, Event};

/// A new API key.
#[derive(Debug)]
pub struct CreateApiKey {
    name: Name,
    description: Option<DescriptionText>,
    permissions: Permissions,
    expires_at: Option<Time>,
    restrictions: CreateRestrictions,
}

impl Record for CreateApiKey {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.required("name");
        let description = fields.optional("description");
        let permissions = fields.or("permissions", Permissions::all());
        let expires_at = fields.optional::<Time>("expires_at");
        if let (Some(app), Some(Some(at))) = (fields.app(), expires_at)
            && let Err(problem) = check_expiry(at, app.clock.now())
        {
            fields.problem::<()>("expires_at", problem.code, problem.message);
        }
        let restrictions = fields.object("restrictions");
        Some(Self {
            name: name?,
            description: description?,
            permissions: permissions?,
            expires_at: expires_at?,
            restrictions: restrictions?,
        })
    }
}

#[derive(Debug)]
struct CreateRestrictions {
    allowed_ips: Option<AllowedIps>,
    rate_limit: Option<Integer<1, 1_000_000>>,
    max_tokens: Option<Integer<1, 1_000_000_000>>,
    models: Option<ModelIds>,
}

impl Record for CreateRestrictions {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let allowed_ips = fields.optional("allowed_ips");
        let rate_limit = fields.optional("rate_limit");
        let max_tokens = fields.optional("max_tokens");
        let models = fields.optional::<ModelIds>("models");
        if let (Some(app), Some(Some(ids))) = (fields.app(), &models) {
            for (index, problem) in unknown_models(&app.catalog, &ids.0) {
                fields.problem::<()>(&format!("models[{index}]"), problem.code, problem.message);
            }
        }
        Some(Self {
            allowed_ips: allowed_ips?,
            rate_limit: rate_limit?,
            max_tokens: max_tokens?,
            models: models?,
        })
    }
}

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
    let sealed = if app.config.api_keys.keep_sealed {
        Some(app.sealer.seal(secret.expose().as_bytes(), &id.to_string(), &app.random)?)
    } else {
        None
    };
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
    let mut tx = app.db.write().await?;
    // Since the gate has looked, the project may have gone.
    store::projects::detail(&mut tx, scope.organization_id(), scope.project_id())
        .await?
        .ok_or(Code::ProjectNotFound)?;
    store::api_keys::insert(&mut tx, &new, now).await?;
    store::api_keys::insert_secret(&mut tx, id, secret.hash(), sealed.as_deref(), now).await?;
    let row = store::api_keys::by_id(&mut tx, scope.project_id(), id).await?.ok_or(Code::ApiKeyNotFound)?;
    let event = Event {
        action: Action::ApiKeyCreated,
        target: id.to_string(),
        organization_id: Some(scope.organization_id()),
    };
    store::audit_log::record(&mut tx, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    let (restrictions, created_by) = (restrictions(&row), created_by(&row));
    Ok(private(CreatedApiKey {
        id,
        key: secret.expose().to_owned(),
        name: row.name,
        description: row.description,
        permissions: row.permissions,
        created_at: row.created_at,
        expires_at: row.expires_at,
        restrictions,
        created_by,
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
    let mut tx = app.db.read().await?;
    let row = store::api_keys::by_id(&mut tx, scope.project_id(), scope.api_key_id())
        .await?
        .ok_or(Code::ApiKeyNotFound)?;
    let totals = store::usage::key_totals(&mut tx, scope.api_key_id()).await?;
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

fn status(row: &ApiKeyRow, now: Time) -> Status {
    if row.expires_at.is_some_and(|at| at <= now) { Status::Expired } else { Status::Active }
}

fn restrictions(row: &ApiKeyRow) -> Restrictions {
    Restrictions {
        allowed_ips: row.allowed_ips.as_ref().map(|list| list.texts().map(str::to_owned).collect()),
        rate_limit: row.rate_limit,
        max_tokens: row.max_tokens,
        models: row.models.clone(),
    }
}

fn created_by(row: &ApiKeyRow) -> PersonBrief {
    PersonBrief {
        id: row.created_by,
        email: row.created_by_email.clone(),
        username: row.created_by_username.clone(),
    }
}
