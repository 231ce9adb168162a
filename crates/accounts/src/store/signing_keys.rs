//! The keys that sign tokens. Their private halves are sealed with the master key.

use cluster::changes::{self, Change};
use db::{Tx, sql};
use kernel::clock::Time;

/// A row of `signing_keys`.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKeyRow {
    pub kid: String,
    /// The public half.
    pub public_key: [u8; 32],
    /// The time at which the key was created and began to sign.
    pub created_at: Time,
    /// The time at which another key replaced it.
    pub retired_at: Option<Time>,
    /// The private key, sealed.
    pub sealed_private_key: Vec<u8>,
}

db::row!(SigningKeyRow { kid, public_key, created_at, retired_at, sealed_private_key });

/// Returns all keys: active keys first, then retired keys, both by age, newest first.
pub async fn all(tx: &mut Tx) -> Result<Vec<SigningKeyRow>, db::Error> {
    sql("SELECT kid, public_key, sealed_private_key, created_at, retired_at FROM signing_keys
         ORDER BY CASE WHEN retired_at IS NULL THEN 0 ELSE 1 END, created_at DESC, kid")
    .all(tx)
    .await
}

/// Adds a key.
pub async fn insert(
    tx: &mut Tx,
    kid: &str,
    public_key: &[u8; 32],
    sealed_private_key: &[u8],
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO signing_keys (kid, public_key, sealed_private_key, created_at) VALUES ($1, $2, $3, $4)")
        .bind(kid)
        .bind(public_key.as_slice())
        .bind(sealed_private_key)
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}

/// Retires every active key.
pub async fn retire_all(tx: &mut Tx, now: Time) -> Result<(), db::Error> {
    sql("UPDATE signing_keys SET retired_at = $1 WHERE retired_at IS NULL").bind(now).execute(tx).await?;
    Ok(())
}

/// Removes every key, and notifies every replica: tokens of these keys are no longer valid. Returns the
/// number of removed keys.
pub async fn remove_all(tx: &mut Tx, now: Time) -> Result<u64, db::Error> {
    changes::record(tx, Change::AllSessions, now).await?;
    sql("DELETE FROM signing_keys").execute(tx).await
}

/// Replaces the sealed private half of a key.
pub async fn set_sealed(tx: &mut Tx, kid: &str, sealed_private_key: &[u8]) -> Result<(), db::Error> {
    sql("UPDATE signing_keys SET sealed_private_key = $2 WHERE kid = $1")
        .bind(kid)
        .bind(sealed_private_key)
        .defer(tx)
        .await
}
