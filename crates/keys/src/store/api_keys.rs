//! API keys for management. The module `live` has the keys for the keyring, and `secrets` has the secrets.

pub mod endings;
pub mod listing;
mod live;
pub mod makers;
mod secrets;
pub mod standings;

use crate::rules::api_keys::Bounds;
use crate::rules::permissions::Permissions;
use cluster::changes::{self, Change};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use kernel::naming::Name;
use kernel::version::Version;
use schemars::JsonSchema;
use serde::Serialize;
use tenants::access::LockedTx;
use tenants::rules::allowed_ips::AllowedIps;

pub use listing::{Filter, StatusFilter};
pub use live::{KeyUse, LastUse, LiveKey, by_secret_hash, write_key_uses};
pub use secrets::{
    END_PREVIOUS_SECRET, NewSecret, ShownSecret, end_previous_secret, fetch_sealed, insert_secret, of_key,
    replace_secret, set_sealed,
};

/// The values of a key that users set, except for its restrictions. Requests, rows and replies share this
/// type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Attributes {
    /// The name, of 1 to 100 characters.
    #[schemars(with = "String")]
    pub name: Name,
    /// A description of up to 1,000 characters.
    pub description: Option<String>,
    /// The permissions of the key.
    pub permissions: Permissions,
}

/// The restrictions of a key; null if not set.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApiKeyRestrictions")]
pub struct Restrictions {
    /// The addresses and networks from which the key may be used; null for any.
    #[schemars(with = "Option<Vec<String>>")]
    pub allowed_ips: Option<AllowedIps>,
    /// The maximum number of requests per minute.
    pub rate_limit: Option<i64>,
    /// The maximum number of tokens per request.
    pub max_tokens: Option<i64>,
    /// The models that the key may use; null for all.
    pub models: Option<Vec<String>>,
}

impl Restrictions {
    /// Returns the restrictions to compare with those of a calling key.
    pub fn bounds(&self, expires_at: Option<Time>) -> Bounds<'_> {
        Bounds { allowed_ips: self.allowed_ips.as_ref(), rate_limit: self.rate_limit, expires_at }
    }
}

/// A row of `api_keys`, with its creator and last use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub attributes: Attributes,
    pub restrictions: Restrictions,
    pub created_at: Time,
    /// The time of the last change by a user.
    pub updated_at: Time,
    pub expires_at: Option<Time>,
    pub last_used_at: Option<Time>,
    pub last_used_ip: Option<String>,
    /// The creator, with whose roles the key acts.
    pub created_by: UserId,
    pub created_by_email: String,
    pub created_by_username: String,
}

impl ApiKey {
    /// Returns `true` if the key has expired.
    pub fn has_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns the version, which changes with all visible values of the key except its usage.
    pub fn version(&self, now: Time) -> Result<Version, Error> {
        let Self {
            id,
            attributes,
            restrictions,
            created_at,
            updated_at,
            expires_at,
            last_used_at: _,
            last_used_ip: _,
            created_by,
            created_by_email,
            created_by_username,
        } = self;
        let times = (created_at, updated_at, expires_at, self.has_expired(now));
        let creator = (created_by, created_by_email, created_by_username);
        Version::of(&(id, attributes, restrictions, times, creator))
    }
}

/// The columns of an [`ApiKey`], from the tables `k`, `l` and `u`.
pub const COLUMNS: &str = "k.id, k.name, k.name_folded, k.description, k.permissions, k.allowed_ips, k.rate_limit, k.max_tokens, k.models,
     k.created_at, k.updated_at, k.expires_at, k.last_used_at, k.last_used_ip, k.created_by,
     l.last_used_at AS noted_at, l.last_used_ip AS noted_ip, u.email AS created_by_email, u.username AS created_by_username";

/// The keys joined with their creators and their last uses.
const JOINED: &str =
    "api_keys k JOIN users u ON u.id = k.created_by LEFT JOIN api_key_last_uses l ON l.api_key_id = k.id";

impl FromRow for ApiKey {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (last_used_at, last_used_ip) = last_use(row)?;
        Ok(Self {
            id: row.get("id")?,
            attributes: Attributes {
                name: Name { display: row.get("name")?, folded: row.get("name_folded")? },
                description: row.get("description")?,
                permissions: permissions(row)?,
            },
            restrictions: Restrictions {
                allowed_ips: allowed_ips(row)?,
                rate_limit: row.get("rate_limit")?,
                max_tokens: row.get("max_tokens")?,
                models: string_list(row, "models")?,
            },
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
            expires_at: row.get("expires_at")?,
            last_used_at,
            last_used_ip,
            created_by: row.get("created_by")?,
            created_by_email: row.get("created_by_email")?,
            created_by_username: row.get("created_by_username")?,
        })
    }
}

/// Reads the time and the address of the last use. They are in `api_key_last_uses`, or in the key's own row
/// if an older server without that table has written a later use.
fn last_use(row: &Row) -> Result<(Option<Time>, Option<String>), db::Error> {
    let noted: Option<Time> = row.get("noted_at")?;
    let own: Option<Time> = row.get("last_used_at")?;
    if own > noted { Ok((own, row.get("last_used_ip")?)) } else { Ok((noted, row.get("noted_ip")?)) }
}

fn permissions(row: &Row) -> Result<Permissions, db::Error> {
    let words: String = row.get("permissions")?;
    Permissions::parse(&words).ok_or_else(|| db::Error::Internal(format!("permissions are {words:?}")))
}

fn string_list(row: &Row, column: &str) -> Result<Option<Vec<String>>, db::Error> {
    let json: Option<String> = row.get(column)?;
    json.map(|json| serde_json::from_str(&json))
        .transpose()
        .map_err(|error| db::Error::Internal(format!("{column}: {error}")))
}

fn allowed_ips(row: &Row) -> Result<Option<AllowedIps>, db::Error> {
    // A list that can't be read must not be treated as no restriction.
    string_list(row, "allowed_ips")?
        .map(|texts| AllowedIps::parse(&texts, "allowed_ips"))
        .transpose()
        .map_err(|_| db::Error::Internal("allowed_ips can't be read".into()))
}

/// Adds a key without a secret; [`insert_secret`] adds the secret.
///
/// # Errors
/// `Unique` with `ApiKeyName`.
pub async fn insert(
    tx: &mut LockedTx<'_>,
    (organization_id, project_id): (OrganizationId, ProjectId),
    key: &ApiKey,
) -> Result<(), db::Error> {
    let ApiKey { attributes, restrictions, .. } = key;
    sql("INSERT INTO api_keys (id, organization_id, project_id, name, name_folded, description, permissions, allowed_ips,
                               rate_limit, max_tokens, models, created_by, created_at, updated_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $14)")
    .bind(key.id)
    .bind(organization_id)
    .bind(project_id)
    .bind(&attributes.name.display)
    .bind(&attributes.name.folded)
    .bind(attributes.description.clone())
    .bind(attributes.permissions.to_string())
    .bind(addresses(restrictions.allowed_ips.as_ref())?)
    .bind(restrictions.rate_limit)
    .bind(restrictions.max_tokens)
    .bind(restrictions.models.as_ref().map(json).transpose()?)
    .bind(key.created_by)
    .bind(key.created_at)
    .bind(key.expires_at)
    .defer(tx)
    .await
}

fn addresses(list: Option<&AllowedIps>) -> Result<Option<String>, db::Error> {
    list.map(|list| json(&list.texts().collect::<Vec<_>>())).transpose()
}

fn json(list: &impl serde::Serialize) -> Result<String, db::Error> {
    serde_json::to_string(list).map_err(|error| db::Error::Internal(format!("list as JSON: {error}")))
}

/// Returns `true` if a key with this id exists or existed.
pub async fn has_existed(tx: &mut Tx, api_key_id: ApiKeyId) -> Result<bool, db::Error> {
    let (count,): (i64,) = sql("SELECT (SELECT COUNT(*) FROM api_keys WHERE id = $1)
              + (SELECT COUNT(*) FROM former_api_keys WHERE id = $1) AS value")
    .bind(api_key_id)
    .one(tx)
    .await?;
    Ok(count > 0)
}

/// Writes a change of name, description, permissions and restrictions, with `updated_at`, and announces it.
/// The caller holds the organization's lock, so that concurrent changes don't undo each other.
///
/// # Errors
/// `Unique` with `ApiKeyName`.
pub async fn update(tx: &mut LockedTx<'_>, key: &ApiKey) -> Result<(), db::Error> {
    let ApiKey { attributes, restrictions, .. } = key;
    sql("UPDATE api_keys SET name = $2, name_folded = $3, description = $4, permissions = $5, allowed_ips = $6,
                rate_limit = $7, max_tokens = $8, models = $9, updated_at = $10 WHERE id = $1")
    .bind(key.id)
    .bind(&attributes.name.display)
    .bind(&attributes.name.folded)
    .bind(attributes.description.clone())
    .bind(attributes.permissions.to_string())
    .bind(addresses(restrictions.allowed_ips.as_ref())?)
    .bind(restrictions.rate_limit)
    .bind(restrictions.max_tokens)
    .bind(restrictions.models.as_ref().map(json).transpose()?)
    .bind(key.updated_at)
    .defer(tx)
    .await?;
    changes::record(tx, Change::ApiKey(key.id), key.updated_at).await
}

/// Removes a key with its secrets, and announces the change. A trigger keeps the name for reports. The caller
/// has read the key while holding the organization's lock.
pub async fn delete(
    tx: &mut LockedTx<'_>,
    project_id: ProjectId,
    api_key_id: ApiKeyId,
    now: Time,
) -> Result<(), db::Error> {
    sql("DELETE FROM api_keys WHERE id = $1 AND project_id = $2")
        .bind(api_key_id)
        .bind(project_id)
        .defer(tx)
        .await?;
    changes::record(tx, Change::ApiKey(api_key_id), now).await
}

/// Returns the organizations in which a user has created keys that still exist, in locking order.
pub async fn organizations_with_keys_of(
    tx: &mut Tx,
    creator: UserId,
) -> Result<Vec<OrganizationId>, db::Error> {
    let rows: Vec<(OrganizationId,)> =
        sql("SELECT DISTINCT organization_id FROM api_keys WHERE created_by = $1 ORDER BY organization_id")
            .bind(creator)
            .all(tx)
            .await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Removes every key that a user has created, like [`delete`], and returns each key with its organization and
/// project. Announces only one change per organization. The caller holds the locks of
/// [`organizations_with_keys_of`].
pub async fn delete_created_by(
    tx: &mut Tx,
    creator: UserId,
    now: Time,
) -> Result<Vec<(ApiKeyId, OrganizationId, ProjectId)>, db::Error> {
    let keys: Vec<(ApiKeyId, OrganizationId, ProjectId)> =
        sql("DELETE FROM api_keys WHERE created_by = $1 RETURNING id, organization_id, project_id")
            .bind(creator)
            .all(tx)
            .await?;
    for (_, organization_id, _) in &keys {
        changes::record(tx, Change::Organization(*organization_id), now).await?;
    }
    Ok(keys)
}
