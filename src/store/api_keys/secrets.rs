//! The secrets of API keys: one that is current, and after a rotation the one before it, until it ends. A secret is looked
//! up by its SHA-256; the sealed copy is for `previous_key` of the next rotation.

use crate::access::HeldTx;
use crate::clock::Time;
use crate::db::{self, sql};
use crate::ids::{ApiKeyId, UserId};

/// Adds a secret to a key: the current one. `rotated_by` names the person who made it, where that isn't the key's maker.
pub async fn insert_secret(
    tx: &mut HeldTx<'_>,
    api_key_id: ApiKeyId,
    secret_hash: [u8; 32],
    sealed_secret: Option<&[u8]>,
    rotated_by: Option<UserId>,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO api_key_secrets (secret_hash, api_key_id, sealed_secret, rotated_by, created_at)
         VALUES ($1, $2, $3, $4, $5)")
    .bind(secret_hash)
    .bind(api_key_id)
    .bind(sealed_secret)
    .bind(rotated_by)
    .bind(now)
    .defer(tx)
    .await
}

/// Gives the current secret an end, and ends those from before at once. What was sealed of it is not needed any more.
pub async fn retire_secrets(
    tx: &mut HeldTx<'_>,
    api_key_id: ApiKeyId,
    ends_at: Time,
) -> Result<(), db::Error> {
    sql("DELETE FROM api_key_secrets WHERE api_key_id = $1 AND ends_at IS NOT NULL")
        .bind(api_key_id)
        .defer(tx)
        .await?;
    sql("UPDATE api_key_secrets SET ends_at = $2, sealed_secret = NULL WHERE api_key_id = $1")
        .bind(api_key_id)
        .bind(ends_at)
        .defer(tx)
        .await
}
