//! The operations on API keys. Each checks the caller's right again under the lock that it needs, and leaves an entry in the
//! audit log; the functions of `store::api_keys` that write also announce the change to every replica.

use crate::rules::permissions::Permissions;
use crate::rules::rotation::grace_period_ends;
use crate::secret::ApiKeySecret;
use crate::store;
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::ApiKeyId;
use kernel::naming::Name;
use kernel::patch::Patch;
use tenants::access::ProjectScope;
use tenants::rules::allowed_ips::AllowedIps;
use tenants::rules::counts;
use tenants::rules::counts::Kind;

use crate::store::api_keys::{Filter, NewApiKey, NewSecret};
use db::Page;
use trail::{Action, Event};

pub use crate::store::api_keys::{ApiKey, StatusFilter};

use super::Keys;
use super::access::{KeyScope, Rotation};

/// The restrictions of a key; `None` where it has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restrictions {
    /// Addresses it may be used from.
    pub allowed_ips: Option<AllowedIps>,
    /// Requests a minute.
    pub rate_limit: Option<i64>,
    /// The most tokens of one request.
    pub max_tokens: Option<i64>,
    /// Models it may be used with, of the catalog.
    pub models: Option<Vec<String>>,
}

/// A key to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct New {
    /// Unique within the project.
    pub name: Name,
    /// A sentence about it.
    pub description: Option<String>,
    /// What it may be used for.
    pub permissions: Permissions,
    /// When it ends, in the future; `None`: never.
    pub expires_at: Option<Time>,
    /// Where, how often and for what it may be used.
    pub restrictions: Restrictions,
}

/// A key that was just made.
pub struct Created {
    /// The key.
    pub api_key: ApiKey,
    /// Its secret, which is told this once.
    pub secret: ApiKeySecret,
}

/// Makes a key.
///
/// # Errors
/// 403 without the right, or when the key would reach beyond the API key that calls; 404 when the project is gone; 409 when its
/// name is taken or the project has as many keys as it may.
pub async fn create(keys: &Keys, scope: &ProjectScope, new: New) -> Result<Created, Error> {
    let now = keys.clock.now();
    let New { name, description, permissions, expires_at, restrictions } = new;
    let id = ApiKeyId::new(now, &keys.random);
    let secret = ApiKeySecret::generate(&keys.settings.prefix, &keys.random);
    let sealed = sealed_copy(keys, &secret, id)?;
    let row = NewApiKey {
        id,
        organization_id: scope.organization_id(),
        project_id: scope.project_id(),
        name: &name.display,
        name_folded: &name.folded,
        description: description.as_deref(),
        permissions,
        allowed_ips: restrictions.allowed_ips.as_ref(),
        rate_limit: restrictions.rate_limit,
        max_tokens: restrictions.max_tokens,
        models: restrictions.models.as_deref(),
        created_by: scope.user_id(),
        expires_at,
    };
    scope.may_hand_out(&row.bounds())?;
    let mut tx = keys.db.write().await?;
    let (mut held, project) = scope.hold(&mut tx).await?;
    counts::one_more(&keys.limits, Kind::ApiKeys, project.found.detail.api_keys_count)?;
    let maker =
        accounts::store::users::by_id(&mut held, scope.user_id()).await?.ok_or(Code::InsufficientRole)?;
    store::api_keys::insert(&mut held, &row, now).await?;
    let new_secret =
        NewSecret { hash: secret.hash(), sealed: sealed.as_deref(), rotated_by: scope.rotated_by() };
    store::api_keys::insert_secret(&mut held, id, new_secret, now).await?;
    let event = Event {
        action: Action::ApiKeyCreated,
        target: id.to_string(),
        organization_id: Some(scope.organization_id()),
    };
    trail::record(&mut tx, scope.trail(), &event, now, &keys.random).await?;
    tx.commit().await?;
    let Restrictions { allowed_ips, rate_limit, max_tokens, models } = restrictions;
    let api_key = ApiKey {
        id,
        name: name.display,
        name_folded: name.folded,
        description,
        permissions,
        allowed_ips,
        rate_limit,
        max_tokens,
        models,
        created_at: now,
        updated_at: now,
        expires_at,
        last_used_at: None,
        last_used_ip: None,
        created_by: scope.user_id(),
        created_by_email: maker.email,
        created_by_username: maker.username,
    };
    Ok(Created { api_key, secret })
}

/// One page of a project's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The keys of the page, the newest first.
    pub api_keys: Vec<ApiKey>,
    /// How many keys all pages have together.
    pub total: i64,
    /// The instant that decides which keys have expired.
    pub at: Time,
}

/// Returns one page of the project's keys: those whose folded name holds a text, and that are in a state.
///
/// # Errors
/// The database can't say.
pub async fn list(
    keys: &Keys,
    scope: &ProjectScope,
    search_folded: String,
    status: Option<StatusFilter>,
    page: Page,
) -> Result<Listed, Error> {
    let now = keys.clock.now();
    let filter = Filter { project_id: scope.project_id(), search_folded, status, now };
    let mut tx = keys.db.read().await?;
    let total = store::api_keys::count(&mut tx, &filter).await?;
    let api_keys = store::api_keys::list(&mut tx, &filter, page).await?;
    Ok(Listed { api_keys, total, at: now })
}

/// A change of a key. Its end can't be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Another name.
    pub name: Option<Name>,
    /// The sentence about it.
    pub description: Patch<String>,
    /// Other permissions.
    pub permissions: Option<Permissions>,
    /// Addresses it may be used from.
    pub allowed_ips: Patch<AllowedIps>,
    /// Requests a minute.
    pub rate_limit: Patch<i64>,
    /// The most tokens of one request.
    pub max_tokens: Patch<i64>,
    /// Models it may be used with, of the catalog.
    pub models: Patch<Vec<String>>,
}

impl Change {
    /// The key after the change; `updated_at` is as before.
    fn onto(self, before: ApiKey) -> ApiKey {
        let mut key = before;
        if let Some(name) = self.name {
            (key.name, key.name_folded) = (name.display, name.folded);
        }
        key.description = self.description.onto(key.description);
        key.permissions = self.permissions.unwrap_or(key.permissions);
        key.allowed_ips = self.allowed_ips.onto(key.allowed_ips);
        key.rate_limit = self.rate_limit.onto(key.rate_limit);
        key.max_tokens = self.max_tokens.onto(key.max_tokens);
        key.models = self.models.onto(key.models);
        key
    }
}

/// Changes a key, and returns it as it is then. A change that leaves everything as it was writes nothing.
///
/// # Errors
/// 403 without the right, or when the key would reach beyond the API key that calls; 404 when it is gone; 409 when its name is
/// taken.
pub async fn update(keys: &Keys, scope: &KeyScope, change: Change) -> Result<ApiKey, Error> {
    let mut tx = keys.db.write().await?;
    let (mut held, before) = scope.hold(&mut tx).await?;
    let mut row = change.onto(before.clone());
    scope.may_hand_out(&row.bounds())?;
    if row != before {
        let now = keys.clock.now();
        row.updated_at = now;
        store::api_keys::update(&mut held, &row).await?;
        record(keys, &mut held, scope, Action::ApiKeyChanged, now).await?;
        tx.commit().await?;
    }
    Ok(row)
}

/// A new secret of a key.
pub struct Rotated {
    /// The new secret, which is told this once.
    pub secret: ApiKeySecret,
    /// The secret before; only its beginning where hashes alone are kept, and for callers that are neither the key's maker nor
    /// an owner of the organization.
    pub previous: String,
    /// When the key was rotated.
    pub rotated_at: Time,
    /// When the secret before ends.
    pub previous_ends_at: Time,
}

/// Gives a key a new secret; everything else about it stays. Of several at once each rotates what the one before has left, so
/// all of them are true when they are answered.
///
/// # Errors
/// 403 without the right, 404 when the key is gone, 409 when it has expired.
pub async fn rotate(keys: &Keys, scope: &KeyScope) -> Result<Rotated, Error> {
    let (id, settings) = (scope.api_key_id(), &keys.settings);
    let secret = ApiKeySecret::generate(&settings.prefix, &keys.random);
    let sealed = sealed_copy(keys, &secret, id)?;
    let mut tx = keys.db.write().await?;
    let (mut held, rotation) = scope.hold_with_secret(&mut tx).await?;
    let Rotation { found, rotated_by, may_see_previous } = rotation;
    let now = keys.clock.now();
    let previous_ends_at = grace_period_ends(now, settings.rotation_grace_hours, found.key.expires_at)?;
    let new = NewSecret { hash: secret.hash(), sealed: sealed.as_deref(), rotated_by };
    store::api_keys::replace_secret(&mut held, id, new, previous_ends_at, now).await?;
    record(keys, &mut held, scope, Action::ApiKeyRotated, now).await?;
    let previous = match found.sealed.filter(|_| may_see_previous && settings.keep_sealed) {
        Some(sealed) => opened(keys, &sealed, id)?,
        None => ApiKeySecret::masked(&settings.prefix),
    };
    tx.commit().await?;
    Ok(Rotated { secret, previous, rotated_at: now, previous_ends_at })
}

/// Deletes a key: from then on it can't be used.
///
/// # Errors
/// 403 without the right, 404 when the key is gone.
pub async fn delete(keys: &Keys, scope: &KeyScope) -> Result<(), Error> {
    let now = keys.clock.now();
    let mut tx = keys.db.write().await?;
    let (mut held, _) = scope.hold(&mut tx).await?;
    store::api_keys::delete(&mut held, scope.project_id(), scope.api_key_id(), now).await?;
    record(keys, &mut held, scope, Action::ApiKeyDeleted, now).await?;
    Ok(tx.commit().await?)
}

/// Leaves an audit entry about the key.
async fn record(keys: &Keys, tx: &mut Tx, scope: &KeyScope, action: Action, now: Time) -> Result<(), Error> {
    let event = Event {
        action,
        target: scope.api_key_id().to_string(),
        organization_id: Some(scope.organization_id()),
    };
    Ok(trail::record(tx, scope.trail(), &event, now, &keys.random).await?)
}

/// The secret, sealed for its next rotation; `None` where the configuration keeps hashes only.
fn sealed_copy(keys: &Keys, secret: &ApiKeySecret, id: ApiKeyId) -> Result<Option<Vec<u8>>, Error> {
    if !keys.settings.keep_sealed {
        return Ok(None);
    }
    Ok(Some(keys.sealer.seal(secret.expose().as_bytes(), &id.to_string(), &keys.random)?))
}

fn opened(keys: &Keys, sealed: &[u8], id: ApiKeyId) -> Result<String, Error> {
    String::from_utf8(keys.sealer.open(sealed, &id.to_string())?).map_err(Error::internal)
}
