//! Operations on API keys. Each operation checks the caller's right again under a lock, and adds an audit
//! entry. The functions of [`crate::store::api_keys`] that write also announce the change to every replica.

use crate::rules::rotation::grace_period_end;
use crate::secret::ApiKeySecret;
use crate::store;
use db::{Tx, Uncommitted};
use events::data::{ApiKeyChange, ApiKeyChanged};
use kernel::clock::{HOUR_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};
use kernel::version::{Expected, Version};
use tenants::access::ProjectScope;
use tenants::rules::counts::{self, CountedKind};

use crate::store::api_keys::{Filter, NewSecret};
use db::Page;
use trail::{Action, Event};

pub use crate::store::api_keys::{ApiKey, Attributes, Restrictions, StatusFilter};

use super::Keys;
use super::access::{KeyScope, Rotation};

/// A key to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct New {
    /// The id, from [`new_ids`](crate::new_ids); `None` to generate one.
    pub id: Option<ApiKeyId>,
    pub attributes: Attributes,
    /// The time at which the key expires, in the future; `None` if it never expires.
    pub expires_at: Option<Time>,
    pub restrictions: Restrictions,
}

/// A key that was just created.
pub struct Created {
    pub api_key: ApiKey,
    /// The secret, which is shown only once.
    pub secret: ApiKeySecret,
}

/// Creates a key.
///
/// # Errors
/// 403 without the right, or if the key would exceed the calling API key; 404 if the project no longer
/// exists; 412 if a key with this id was already created; 409 if its name is taken or the project has reached
/// its maximum number of keys.
pub fn create<'a>(
    keys: &'a Keys,
    scope: &'a ProjectScope,
    new: New,
) -> BoxFuture<'a, Result<Uncommitted<Created>, Error>> {
    Box::pin(async move {
        let now = keys.clock.now();
        let New { id: chosen_id, attributes, expires_at, restrictions } = new;
        let id = chosen_id.unwrap_or_else(|| ApiKeyId::new(now, &keys.random));
        let secret = ApiKeySecret::generate(&keys.settings.prefix, &keys.random);
        let sealed = sealed_copy(keys, &secret, id)?;
        scope.check_key_bounds(&restrictions.bounds(expires_at))?;
        let mut tx = keys.db.write().await?;
        let (mut held, project) = scope.lock_and_recheck(&mut tx).await?;
        check_is_new(&mut held, chosen_id).await?;
        counts::check_limit(&keys.limits, CountedKind::ApiKeys, project.found.detail.api_keys_count)?;
        let creator =
            accounts::store::users::by_id(&mut held, scope.user_id()).await?.ok_or(Code::InsufficientRole)?;
        let api_key = ApiKey {
            id,
            attributes,
            restrictions,
            created_at: now,
            updated_at: now,
            expires_at,
            last_used_at: None,
            last_used_ip: None,
            created_by: scope.user_id(),
            created_by_email: creator.email,
            created_by_username: creator.username,
        };
        let place = (scope.organization_id(), scope.project_id());
        store::api_keys::insert(&mut held, place, &api_key).await?;
        let new_secret =
            NewSecret { hash: secret.hash(), sealed: sealed.as_deref(), rotated_by: scope.rotated_by() };
        store::api_keys::insert_secret(&mut held, id, new_secret, now).await?;
        let (action, target) = (Action::ApiKeyCreated, id.to_string());
        let event = Event { action, target, organization_id: Some(scope.organization_id()) };
        trail::record(&mut tx, scope.trail(), &event, now, &keys.random).await?;
        emit(keys, &mut tx, place, id, ApiKeyChange::Created, now).await?;
        Ok(Uncommitted::new(tx, Created { api_key, secret }))
    })
}

/// Refuses an id that another key has or had.
async fn check_is_new(tx: &mut Tx, chosen_id: Option<ApiKeyId>) -> Result<(), Error> {
    match chosen_id {
        Some(id) if store::api_keys::has_existed(tx, id).await? => Err(Code::PreconditionFailed.into()),
        _ => Ok(()),
    }
}

/// A page of a project's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyList {
    /// The keys of the page, newest first.
    pub api_keys: Vec<ApiKey>,
    /// The number of keys on all pages.
    pub total: i64,
    /// The time that determines which keys have expired.
    pub now: Time,
}

/// Returns one page of the project's keys whose folded name contains the search text and that have the
/// requested status.
///
/// # Errors
/// The database fails.
pub fn list<'a>(
    keys: &'a Keys,
    scope: &'a ProjectScope,
    search_folded: String,
    status: Option<StatusFilter>,
    page: Page,
) -> BoxFuture<'a, Result<KeyList, Error>> {
    Box::pin(async move {
        let now = keys.clock.now();
        let filter = Filter { project_id: scope.project_id(), search_folded, status, now };
        let mut tx = keys.db.read().await?;
        let (total, api_keys) = store::api_keys::listing::list(&mut tx, &filter, page).await?;
        Ok(KeyList { api_keys, total, now })
    })
}

/// A change of a key, which sets some of its values. The expiry can't be changed.
pub type Change = Box<dyn FnOnce(&mut Attributes, &mut Restrictions) + Send>;

/// A key that was just changed.
#[derive(Clone, Debug)]
pub struct Changed {
    pub api_key: ApiKey,
    pub version: Version,
}

/// Changes a key, and returns it after the change. A change to the same values writes nothing.
///
/// # Errors
/// 403 without the right, or if the key would exceed the calling API key; 404 if the key no longer exists;
/// 412 if it doesn't have the expected version; 409 if its name is taken.
pub fn update<'a>(
    keys: &'a Keys,
    scope: &'a KeyScope,
    expected: &'a Expected,
    change: Change,
) -> BoxFuture<'a, Result<Changed, Error>> {
    Box::pin(async move {
        let mut tx = keys.db.write().await?;
        let (mut held, before) = scope.lock_and_recheck(&mut tx).await?;
        let now = keys.clock.now();
        expected.check(before.version(now)?)?;
        let mut row = before.clone();
        change(&mut row.attributes, &mut row.restrictions);
        scope.check_key_bounds(&row.bounds())?;
        if row != before {
            row.updated_at = now;
            store::api_keys::update(&mut held, &row).await?;
            record(keys, &mut held, scope, Action::ApiKeyChanged, now).await?;
            tx.commit().await?;
        }
        Ok(Changed { version: row.version(now)?, api_key: row })
    })
}

/// The version and times of a key's secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// The version of the current secret; each rotation creates a new version.
    pub version: Version,
    /// The time at which the current secret was created.
    pub created_at: Time,
    /// The end of the previous secret, while it is valid.
    pub previous_ends_at: Option<Time>,
}

/// Returns the version and times of a key's secrets.
///
/// # Errors
/// 404 if the key no longer exists, or the database fails.
pub async fn secrets(keys: &Keys, scope: &KeyScope) -> Result<Secrets, Error> {
    let now = keys.clock.now();
    let found = store::api_keys::of_key(&mut keys.db.read().await?, scope.api_key_id()).await?;
    let current = found.iter().find(|secret| secret.ends_at.is_none()).ok_or(Code::ApiKeyNotFound)?;
    Ok(Secrets {
        version: Version::of(&current.secret_hash)?,
        created_at: current.created_at,
        previous_ends_at: found.iter().filter_map(|secret| secret.ends_at).filter(|at| *at > now).max(),
    })
}

/// The outcome of a rotation.
pub struct Rotated {
    /// The new secret, which is shown only once.
    pub secret: ApiKeySecret,
    /// The previous secret. It is masked if only hashes are kept, or if the caller is neither the key's
    /// creator nor an owner of the organization.
    pub previous: String,
    /// The time of the rotation.
    pub rotated_at: Time,
    /// The end of the previous secret.
    pub previous_ends_at: Time,
}

/// Replaces the secret of a key, and leaves everything else unchanged. The previous secret stays valid for
/// `grace_seconds`, checked by [`check_grace`](crate::rules::rotation::check_grace), or for the configured
/// grace period if `None`. Concurrent rotations run one after the other. `expected` is the version of the
/// current secret ([`Secrets`]).
///
/// # Errors
/// 403 without the right, 404 if the key no longer exists, 412 if its secret doesn't have the expected
/// version, 409 if it has expired.
pub fn rotate<'a>(
    keys: &'a Keys,
    scope: &'a KeyScope,
    expected: &'a Expected,
    grace_seconds: Option<i64>,
) -> BoxFuture<'a, Result<Uncommitted<Rotated>, Error>> {
    Box::pin(async move {
        let (id, settings) = (scope.api_key_id(), &keys.settings);
        let configured_ms = i64::from(settings.rotation_grace_hours) * HOUR_MS;
        let grace_ms = grace_seconds.map_or(configured_ms, |seconds| seconds.saturating_mul(SECOND_MS));
        let secret = ApiKeySecret::generate(&settings.prefix, &keys.random);
        let sealed = sealed_copy(keys, &secret, id)?;
        let mut tx = keys.db.write().await?;
        let (mut held, rotation) = scope.lock_and_recheck_with_secret(&mut tx).await?;
        let Rotation { found, rotated_by, may_see_previous } = rotation;
        expected.check(Version::of(&found.secret_hash)?)?;
        let now = keys.clock.now();
        let previous_ends_at = grace_period_end(now, grace_ms, found.key.expires_at)?;
        let new = NewSecret { hash: secret.hash(), sealed: sealed.as_deref(), rotated_by };
        store::api_keys::replace_secret(&mut held, id, new, previous_ends_at, now).await?;
        record(keys, &mut held, scope, Action::ApiKeyRotated, now).await?;
        emit(keys, &mut held, place(scope), id, ApiKeyChange::Rotated, now).await?;
        let previous = match found.sealed.filter(|_| may_see_previous && settings.keep_sealed) {
            Some(sealed) => open_sealed(keys, &sealed, id)?,
            None => ApiKeySecret::masked(&settings.prefix),
        };
        Ok(Uncommitted::new(tx, Rotated { secret, previous, rotated_at: now, previous_ends_at }))
    })
}

/// Ends the previous secret of a rotated key. From the commit on, only the current secret is valid.
///
/// # Errors
/// 403 without the right, 404 if the key no longer exists, 409 if it has no previous secret, or if the
/// previous secret has already ended.
pub fn end_rotation<'a>(
    keys: &'a Keys,
    scope: &'a KeyScope,
) -> BoxFuture<'a, Result<Uncommitted<()>, Error>> {
    Box::pin(async move {
        let mut tx = keys.db.write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        let now = keys.clock.now();
        if !store::api_keys::end_previous_secret(&mut held, scope.api_key_id(), now).await? {
            return Err(Code::NoRotationPending.into());
        }
        record(keys, &mut held, scope, Action::ApiKeyRotationEnded, now).await?;
        Ok(Uncommitted::new(tx, ()))
    })
}

/// Deletes a key, which is invalid from the commit on.
///
/// # Errors
/// 403 without the right, 404 if the key no longer exists, 412 if it doesn't have the expected version.
pub fn delete<'a>(
    keys: &'a Keys,
    scope: &'a KeyScope,
    expected: &'a Expected,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let mut tx = keys.db.write().await?;
        let (mut held, found) = scope.lock_and_recheck(&mut tx).await?;
        let now = keys.clock.now();
        expected.check(found.version(now)?)?;
        store::api_keys::delete(&mut held, scope.project_id(), scope.api_key_id(), now).await?;
        record(keys, &mut held, scope, Action::ApiKeyDeleted, now).await?;
        emit(keys, &mut held, place(scope), scope.api_key_id(), ApiKeyChange::Deleted, now).await?;
        Ok(tx.commit().await?)
    })
}

/// Adds an audit entry about the key.
async fn record(keys: &Keys, tx: &mut Tx, scope: &KeyScope, action: Action, now: Time) -> Result<(), Error> {
    let event = Event {
        action,
        target: scope.api_key_id().to_string(),
        organization_id: Some(scope.organization_id()),
    };
    Ok(trail::record(tx, scope.trail(), &event, now, &keys.random).await?)
}

fn place(scope: &KeyScope) -> (OrganizationId, ProjectId) {
    (scope.organization_id(), scope.project_id())
}

/// Queues an event about a key for webhooks.
async fn emit(
    keys: &Keys,
    tx: &mut Tx,
    (organization_id, project_id): (OrganizationId, ProjectId),
    api_key_id: ApiKeyId,
    change: ApiKeyChange,
    now: Time,
) -> Result<(), Error> {
    let changed = ApiKeyChanged { change, organization_id, project_id, api_key_id };
    Ok(events::emit(tx, &changed, now, &keys.random).await?)
}

/// Returns the secret, sealed for its next rotation; `None` if the configuration keeps only hashes.
fn sealed_copy(keys: &Keys, secret: &ApiKeySecret, id: ApiKeyId) -> Result<Option<Vec<u8>>, Error> {
    if !keys.settings.keep_sealed {
        return Ok(None);
    }
    Ok(Some(keys.sealer.seal(secret.expose().as_bytes(), &id.to_string(), &keys.random)?))
}

fn open_sealed(keys: &Keys, sealed: &[u8], id: ApiKeyId) -> Result<String, Error> {
    String::from_utf8(keys.sealer.open(sealed, &id.to_string())?).map_err(Error::internal)
}
