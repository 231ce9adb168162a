//! The connections of accounts to providers, and the single-use values of sign-ons.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ConnectionId, UserId};

/// A connection in its owner's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    pub id: ConnectionId,
    pub provider_id: String,
    pub issuer: String,
    /// The e-mail address that the provider last reported.
    pub email: Option<String>,
    pub connected_at: Time,
    pub last_used_at: Option<Time>,
}

db::row!(Connection { id, provider_id, issuer, email, connected_at, last_used_at });

/// The values of a new connection.
#[derive(Clone, Copy, Debug)]
pub struct NewConnection<'a> {
    pub id: ConnectionId,
    pub user_id: UserId,
    pub provider_id: &'a str,
    /// The provider's issuer. The combination of issuer and subject is unique.
    pub issuer: &'a str,
    pub subject: &'a str,
    pub email: Option<&'a str>,
}

/// Returns the connection of a provider's user, and the account that it belongs to.
pub async fn by_subject(
    tx: &mut Tx,
    issuer: &str,
    subject: &str,
) -> Result<Option<(ConnectionId, UserId)>, db::Error> {
    sql(BY_SUBJECT).bind(issuer).bind(subject).optional(tx).await
}

/// The statement of [`by_subject`].
pub const BY_SUBJECT: &str = "SELECT id, user_id FROM connections WHERE issuer = $1 AND subject = $2";

/// Returns the connections of an account, oldest first.
pub async fn of_user(tx: &mut Tx, user_id: UserId) -> Result<Vec<Connection>, db::Error> {
    sql(OF_USER).bind(user_id).all(tx).await
}

/// The statement of [`of_user`].
pub const OF_USER: &str = "SELECT id, provider_id, issuer, email, connected_at, last_used_at FROM connections
     WHERE user_id = $1 ORDER BY connected_at, id";

/// Returns `true` if the connection belongs to this account.
pub async fn is_of(tx: &mut Tx, id: ConnectionId, user_id: UserId) -> Result<bool, db::Error> {
    let found: Option<(ConnectionId,)> = sql("SELECT id FROM connections WHERE id = $1 AND user_id = $2")
        .bind(id)
        .bind(user_id)
        .optional(tx)
        .await?;
    Ok(found.is_some())
}

/// Returns `true` if the account has a connection to this issuer.
pub async fn has_issuer(tx: &mut Tx, user_id: UserId, issuer: &str) -> Result<bool, db::Error> {
    let found: Option<(ConnectionId,)> = sql(HAS_ISSUER).bind(user_id).bind(issuer).optional(tx).await?;
    Ok(found.is_some())
}

/// The statement of [`has_issuer`].
pub const HAS_ISSUER: &str = "SELECT id FROM connections WHERE user_id = $1 AND issuer = $2 LIMIT 1";

/// Adds a connection. Returns `false` if the provider's user already has a connection. The unique index
/// decides races.
pub async fn insert(tx: &mut Tx, connection: &NewConnection<'_>, now: Time) -> Result<bool, db::Error> {
    let added =
        sql("INSERT INTO connections (id, user_id, provider_id, issuer, subject, email, connected_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (issuer, subject) DO NOTHING")
        .bind(connection.id)
        .bind(connection.user_id)
        .bind(connection.provider_id)
        .bind(connection.issuer)
        .bind(connection.subject)
        .bind(connection.email)
        .bind(now)
        .execute(tx)
        .await?;
    Ok(added == 1)
}

/// Stores the time of a connection's use, and the address that the provider reports.
pub async fn note_use(
    tx: &mut Tx,
    id: ConnectionId,
    provider_id: &str,
    email: Option<&str>,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE connections SET last_used_at = $4, provider_id = $2, email = $3 WHERE id = $1")
        .bind(id)
        .bind(provider_id)
        .bind(email)
        .bind(now)
        .defer(tx)
        .await
}

/// Removes a connection of an account. Returns its provider, or `None` if the connection doesn't exist.
pub async fn remove(tx: &mut Tx, user_id: UserId, id: ConnectionId) -> Result<Option<String>, db::Error> {
    let text = "DELETE FROM connections WHERE id = $1 AND user_id = $2 RETURNING provider_id";
    let removed: Option<(String,)> = sql(text).bind(id).bind(user_id).optional(tx).await?;
    Ok(removed.map(|(provider_id,)| provider_id))
}

/// Consumes the value with this SHA-256 hash. Returns `false` if it was used before.
pub async fn use_once(tx: &mut Tx, value_hash: [u8; 32], expires_at: Time) -> Result<bool, db::Error> {
    let used = sql("INSERT INTO used_sign_on_values (value_hash, expires_at) VALUES ($1, $2)
         ON CONFLICT (value_hash) DO NOTHING")
    .bind(value_hash.as_slice())
    .bind(expires_at)
    .execute(tx)
    .await?;
    Ok(used == 1)
}

/// Removes used values that have expired.
pub async fn remove_expired_values(tx: &mut Tx, now: Time) -> Result<u64, db::Error> {
    sql(REMOVE_EXPIRED_VALUES).bind(now).execute(tx).await
}

/// The statement of [`remove_expired_values`].
pub const REMOVE_EXPIRED_VALUES: &str = "DELETE FROM used_sign_on_values WHERE expires_at <= $1";
