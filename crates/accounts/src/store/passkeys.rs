//! Passkeys, the handles that identify users to authenticators, and ceremonies that were used. A user's rows
//! are changed only under the account's lock.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{PasskeyId, UserId};

/// A passkey in its owner's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passkey {
    pub id: PasskeyId,
    pub name: String,
    pub created_at: Time,
    /// The time at which it was last used to log in or to confirm its owner's identity.
    pub last_used_at: Option<Time>,
    /// `true` if the passkey is synced to other devices, as last reported by its authenticator.
    pub is_synced: bool,
}

db::row!(Passkey { id, name, created_at, last_used_at, is_synced });

/// Returns the passkeys of a user, oldest first.
pub async fn list(tx: &mut Tx, user_id: UserId) -> Result<Vec<Passkey>, db::Error> {
    sql(LIST).bind(user_id).all(tx).await
}

/// The statement of [`list`].
pub const LIST: &str = "SELECT id, name, created_at, last_used_at, is_synced FROM passkeys WHERE user_id = $1 ORDER BY created_at, id";

/// Returns a passkey if it belongs to this user.
pub async fn by_id(tx: &mut Tx, user_id: UserId, id: PasskeyId) -> Result<Option<Passkey>, db::Error> {
    sql("SELECT id, name, created_at, last_used_at, is_synced FROM passkeys WHERE id = $1 AND user_id = $2")
        .bind(id)
        .bind(user_id)
        .optional(tx)
        .await
}

/// Returns the credential ids of a user's passkeys, which identify the passkeys to authenticators.
pub async fn credential_ids(tx: &mut Tx, user_id: UserId) -> Result<Vec<Vec<u8>>, db::Error> {
    let rows: Vec<(Vec<u8>,)> = sql(CREDENTIAL_IDS).bind(user_id).all(tx).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// The statement of [`credential_ids`].
pub const CREDENTIAL_IDS: &str =
    "SELECT credential_id FROM passkeys WHERE user_id = $1 ORDER BY created_at, id";

/// The values of a new passkey.
pub struct NewPasskey<'a> {
    pub id: PasskeyId,
    pub user_id: UserId,
    pub credential_id: &'a [u8],
    /// The data for checking signatures, as JSON.
    pub credential: &'a str,
    pub name: &'a str,
    pub sign_count: u32,
    pub is_synced: bool,
}

/// Adds a passkey. Returns `false` if any user already has this credential.
pub async fn insert(tx: &mut Tx, passkey: &NewPasskey<'_>, now: Time) -> Result<bool, db::Error> {
    let added = sql("INSERT INTO passkeys (id, user_id, credential_id, credential, name, sign_count, is_synced, created_at)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (credential_id) DO NOTHING")
    .bind(passkey.id)
    .bind(passkey.user_id)
    .bind(passkey.credential_id)
    .bind(passkey.credential)
    .bind(passkey.name)
    .bind(i64::from(passkey.sign_count))
    .bind(passkey.is_synced)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(added == 1)
}

/// Changes the name of a passkey.
pub async fn rename(tx: &mut Tx, id: PasskeyId, name: &str) -> Result<(), db::Error> {
    sql("UPDATE passkeys SET name = $2 WHERE id = $1").bind(id).bind(name).defer(tx).await
}

/// Removes a passkey.
pub async fn remove(tx: &mut Tx, id: PasskeyId) -> Result<(), db::Error> {
    sql("DELETE FROM passkeys WHERE id = $1").bind(id).defer(tx).await
}

/// A passkey's data for checking a signature, and its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    pub id: PasskeyId,
    pub user_id: UserId,
    /// The 32 bytes that identify the user to authenticators.
    pub handle: Vec<u8>,
    /// The data for checking signatures, as JSON.
    pub credential: String,
}

db::row!(Known { id, user_id, handle, credential });

/// Returns the passkey with this credential.
pub async fn by_credential_id(tx: &mut Tx, credential_id: &[u8]) -> Result<Option<Known>, db::Error> {
    sql(BY_CREDENTIAL_ID).bind(credential_id).optional(tx).await
}

/// The statement of [`by_credential_id`].
pub const BY_CREDENTIAL_ID: &str = "SELECT p.id, p.user_id, h.handle, p.credential
     FROM passkeys p JOIN passkey_handles h ON h.user_id = p.user_id WHERE p.credential_id = $1";

/// Returns the highest signature count that the authenticator of a user's passkey has reported, or `None` if
/// the passkey doesn't exist.
pub async fn sign_count(tx: &mut Tx, user_id: UserId, id: PasskeyId) -> Result<Option<i64>, db::Error> {
    let row: Option<(i64,)> = sql("SELECT sign_count FROM passkeys WHERE id = $1 AND user_id = $2")
        .bind(id)
        .bind(user_id)
        .optional(tx)
        .await?;
    Ok(row.map(|(count,)| count))
}

/// Stores the time of a passkey's use, with the signature count and the sync state.
pub async fn note_use(
    tx: &mut Tx,
    id: PasskeyId,
    sign_count: i64,
    is_synced: bool,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE passkeys SET sign_count = $2, is_synced = $3, last_used_at = $4 WHERE id = $1")
        .bind(id)
        .bind(sign_count)
        .bind(is_synced)
        .bind(now)
        .defer(tx)
        .await
}

/// Returns the handle of a user, if they have one.
pub async fn handle(tx: &mut Tx, user_id: UserId) -> Result<Option<Vec<u8>>, db::Error> {
    let row: Option<(Vec<u8>,)> =
        sql("SELECT handle FROM passkey_handles WHERE user_id = $1").bind(user_id).optional(tx).await?;
    Ok(row.map(|(handle,)| handle))
}

/// Sets the handle of a user unless they already have one. Returns the user's handle.
pub async fn set_handle(tx: &mut Tx, user_id: UserId, handle: &[u8]) -> Result<Vec<u8>, db::Error> {
    sql("INSERT INTO passkey_handles (user_id, handle, asked_after_password) VALUES ($1, $2, 0)
         ON CONFLICT (user_id) DO NOTHING")
    .bind(user_id)
    .bind(handle)
    .execute(tx)
    .await?;
    let (handle,): (Vec<u8>,) =
        sql("SELECT handle FROM passkey_handles WHERE user_id = $1").bind(user_id).one(tx).await?;
    Ok(handle)
}

/// Stores whether the passkeys of a user make a second factor required after the password.
pub async fn set_asked_after_password(tx: &mut Tx, user_id: UserId, is_asked: bool) -> Result<(), db::Error> {
    sql("UPDATE passkey_handles SET asked_after_password = $2 WHERE user_id = $1")
        .bind(user_id)
        .bind(is_asked)
        .defer(tx)
        .await
}

/// The number of a user's passkeys, and whether they make a second factor required.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PasskeyCount {
    pub count: i64,
    /// `true` if passkeys make a second factor required after the password.
    pub is_asked_after_password: bool,
}

db::row!(PasskeyCount { count: "passkeys", is_asked_after_password: "asked" });

/// Counts the passkeys of a user.
pub async fn count(tx: &mut Tx, user_id: UserId) -> Result<PasskeyCount, db::Error> {
    sql(COUNT).bind(user_id).one(tx).await
}

/// The statement of [`count`].
pub const COUNT: &str = "SELECT COUNT(*) AS passkeys,
            COALESCE((SELECT asked_after_password FROM passkey_handles WHERE user_id = $1), 0) AS asked
     FROM passkeys WHERE user_id = $1";

/// Removes all passkeys of a user, and the user's handle. Returns `true` if the user had passkeys.
pub async fn remove_all(tx: &mut Tx, user_id: UserId) -> Result<bool, db::Error> {
    let removed = sql(REMOVE_ALL).bind(user_id).execute(tx).await?;
    sql("DELETE FROM passkey_handles WHERE user_id = $1").bind(user_id).defer(tx).await?;
    Ok(removed > 0)
}

/// The statement of [`remove_all`] that removes passkeys.
pub const REMOVE_ALL: &str = "DELETE FROM passkeys WHERE user_id = $1";

/// Consumes a ceremony. Returns `false` if it was used before. Of two concurrent uses, only one succeeds.
pub async fn use_ceremony(tx: &mut Tx, ceremony_hash: [u8; 32], expires_at: Time) -> Result<bool, db::Error> {
    let used = sql("INSERT INTO used_ceremonies (ceremony_hash, expires_at) VALUES ($1, $2)
                    ON CONFLICT (ceremony_hash) DO NOTHING")
    .bind(ceremony_hash)
    .bind(expires_at)
    .execute(tx)
    .await?;
    Ok(used == 1)
}

/// Removes used ceremonies that had expired by this time, and returns their number.
pub async fn remove_expired_ceremonies(tx: &mut Tx, before: Time) -> Result<u64, db::Error> {
    sql(REMOVE_EXPIRED_CEREMONIES).bind(before).execute(tx).await
}

/// The statement of [`remove_expired_ceremonies`].
pub const REMOVE_EXPIRED_CEREMONIES: &str = "DELETE FROM used_ceremonies WHERE expires_at <= $1";
