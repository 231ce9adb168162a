//! The secrets of API keys: the current secret, and after a rotation the previous secret until it ends. A
//! secret is looked up by its SHA-256. The sealed copy is needed for `previous_key` of the next rotation.

use cluster::changes::{self, Change};
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, UserId};
use tenants::access::LockedTx;

/// A secret to store.
#[derive(Clone, Copy)]
pub struct NewSecret<'a> {
    /// The SHA-256 of the secret.
    pub hash: [u8; 32],
    /// The sealed secret; `None` if only hashes are kept.
    pub sealed: Option<&'a [u8]>,
    /// The user who created the secret by a rotation, if not the key's creator.
    pub rotated_by: Option<UserId>,
}

/// Adds the first secret of a key.
pub async fn insert_secret(
    tx: &mut LockedTx<'_>,
    api_key_id: ApiKeyId,
    new: NewSecret<'_>,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO api_key_secrets (secret_hash, api_key_id, sealed_secret, rotated_by, created_at)
         VALUES ($1, $2, $3, $4, $5)")
    .bind(new.hash)
    .bind(api_key_id)
    .bind(new.sealed)
    .bind(new.rotated_by)
    .bind(now)
    .defer(tx)
    .await
}

/// Replaces the secret of a key, and announces the change. The current secret ends at `previous_ends_at`, and
/// older secrets end immediately. The sealed copy of the current secret is removed, because it is no longer
/// needed.
///
/// A secret that ends now is removed immediately, because the clock of another replica may be behind.
pub async fn replace_secret(
    tx: &mut LockedTx<'_>,
    api_key_id: ApiKeyId,
    new: NewSecret<'_>,
    previous_ends_at: Time,
    now: Time,
) -> Result<(), db::Error> {
    if previous_ends_at > now {
        sql("DELETE FROM api_key_secrets WHERE api_key_id = $1 AND ends_at IS NOT NULL")
            .bind(api_key_id)
            .defer(tx)
            .await?;
        sql("UPDATE api_key_secrets SET ends_at = $2, sealed_secret = NULL WHERE api_key_id = $1")
            .bind(api_key_id)
            .bind(previous_ends_at)
            .defer(tx)
            .await?;
    } else {
        sql("DELETE FROM api_key_secrets WHERE api_key_id = $1").bind(api_key_id).defer(tx).await?;
    }
    insert_secret(tx, api_key_id, new, now).await?;
    changes::record(tx, Change::ApiKey(api_key_id), now).await
}

/// A secret in its public form.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownSecret {
    pub secret_hash: Vec<u8>,
    pub created_at: Time,
    /// The end of the secret; `None` for the current secret.
    pub ends_at: Option<Time>,
}

db::row!(ShownSecret { secret_hash, created_at, ends_at });

/// Returns the current secret of a key, and the previous one.
pub async fn of_key(tx: &mut Tx, api_key_id: ApiKeyId) -> Result<Vec<ShownSecret>, db::Error> {
    sql("SELECT secret_hash, created_at, ends_at FROM api_key_secrets WHERE api_key_id = $1")
        .bind(api_key_id)
        .all(tx)
        .await
}

/// Removes the previous secret of a key, and announces the change. Returns `false` if the key has no previous
/// secret, or if it has already ended.
pub async fn end_previous_secret(
    tx: &mut LockedTx<'_>,
    api_key_id: ApiKeyId,
    now: Time,
) -> Result<bool, db::Error> {
    if sql(END_PREVIOUS_SECRET).bind(api_key_id).bind(now).execute(tx).await? == 0 {
        return Ok(false);
    }
    changes::record(tx, Change::ApiKey(api_key_id), now).await?;
    Ok(true)
}

/// The statement of [`end_previous_secret`].
pub const END_PREVIOUS_SECRET: &str = "DELETE FROM api_key_secrets WHERE api_key_id = $1 AND ends_at > $2";

/// A secret with its sealed copy.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub secret_hash: Vec<u8>,
    pub api_key_id: ApiKeyId,
    /// The sealed secret.
    pub sealed: Vec<u8>,
}

db::row!(SealedSecret { secret_hash, api_key_id, sealed: "sealed_secret" });

/// Returns at most `limit` secrets with a sealed copy whose hash is greater than `secret_hash`, ordered by
/// hash.
pub async fn fetch_sealed(
    tx: &mut Tx,
    secret_hash: &[u8],
    limit: i64,
) -> Result<Vec<SealedSecret>, db::Error> {
    sql("SELECT secret_hash, api_key_id, sealed_secret FROM api_key_secrets
         WHERE secret_hash > $1 AND sealed_secret IS NOT NULL ORDER BY secret_hash LIMIT $2")
    .bind(secret_hash)
    .bind(limit)
    .all(tx)
    .await
}

/// Replaces the sealed copy of a secret, unless a rotation has removed it in the meantime.
pub async fn set_sealed(tx: &mut Tx, secret_hash: &[u8], sealed_secret: &[u8]) -> Result<(), db::Error> {
    sql("UPDATE api_key_secrets SET sealed_secret = $2 WHERE secret_hash = $1 AND sealed_secret IS NOT NULL")
        .bind(secret_hash)
        .bind(sealed_secret)
        .defer(tx)
        .await
}
