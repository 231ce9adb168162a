//! The table `email_changes`: new addresses of accounts that aren't confirmed yet, at most one for each
//! account. Only the SHA-256 of a link's token is stored.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{SessionId, UserId};

/// A new address that isn't confirmed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmailChange {
    pub user_id: UserId,
    /// The session that requested the change.
    pub session_id: SessionId,
    /// The new address, as entered.
    pub email: String,
    /// The folded address, for comparisons.
    pub email_folded: String,
}

db::row!(EmailChange { user_id, session_id, email, email_folded });

/// The fields of an [`EmailChange`] that the account's owner sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingAddress {
    /// The new address, as entered.
    pub email: String,
    /// The time at which the link stops working.
    pub expires_at: Time,
}

db::row!(PendingAddress { email, expires_at });

/// Returns the pending new address of an account.
pub async fn pending(tx: &mut Tx, user_id: UserId, now: Time) -> Result<Option<PendingAddress>, db::Error> {
    sql("SELECT email, expires_at FROM email_changes WHERE user_id = $1 AND expires_at > $2")
        .bind(user_id)
        .bind(now)
        .optional(tx)
        .await
}

/// Stores a new address, in place of an earlier one of the same account. It has no token yet.
pub async fn replace(
    tx: &mut Tx,
    change: &EmailChange,
    now: Time,
    expires_at: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO email_changes (user_id, session_id, email, email_folded, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (user_id) DO UPDATE
         SET session_id = excluded.session_id, email = excluded.email, email_folded = excluded.email_folded,
             token_hash = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at")
    .bind(change.user_id)
    .bind(change.session_id)
    .bind(change.email.as_str())
    .bind(change.email_folded.as_str())
    .bind(now)
    .bind(expires_at)
    .defer(tx)
    .await
}

/// Sets the token of the link that confirms this address, in place of an earlier one. Returns `false` if this
/// address is no longer pending.
pub async fn set_token(
    tx: &mut Tx,
    user_id: UserId,
    email: &str,
    token_hash: [u8; 32],
    now: Time,
) -> Result<bool, db::Error> {
    let changed =
        sql("UPDATE email_changes SET token_hash = $3 WHERE user_id = $1 AND email = $2 AND expires_at > $4")
            .bind(user_id)
            .bind(email)
            .bind(token_hash)
            .bind(now)
            .execute(tx)
            .await?;
    Ok(changed == 1)
}

/// Returns the change that a token confirms, without consuming the token; `None` if the token is unknown,
/// used or expired.
pub async fn by_token(
    tx: &mut Tx,
    token_hash: [u8; 32],
    now: Time,
) -> Result<Option<EmailChange>, db::Error> {
    sql("SELECT user_id, session_id, email, email_folded FROM email_changes
         WHERE token_hash = $1 AND expires_at > $2")
    .bind(token_hash)
    .bind(now)
    .optional(tx)
    .await
}

/// Consumes a token, and returns the change that it confirms; `None` if the token is unknown, used or
/// expired. Deleting and reading in one statement ensures that only one of two concurrent requests gets it.
pub async fn consume(tx: &mut Tx, token_hash: [u8; 32], now: Time) -> Result<Option<EmailChange>, db::Error> {
    sql("DELETE FROM email_changes WHERE token_hash = $1 AND expires_at > $2
         RETURNING user_id, session_id, email, email_folded")
    .bind(token_hash)
    .bind(now)
    .optional(tx)
    .await
}

/// Moves a pending change from its session to the session that replaces it.
pub async fn set_session(
    tx: &mut Tx,
    user_id: UserId,
    before: SessionId,
    after: SessionId,
) -> Result<(), db::Error> {
    sql("UPDATE email_changes SET session_id = $3 WHERE user_id = $1 AND session_id = $2")
        .bind(user_id)
        .bind(before)
        .bind(after)
        .defer(tx)
        .await
}

/// Removes the pending new address of an account, if any: its link stops working.
pub async fn remove(tx: &mut Tx, user_id: UserId) -> Result<(), db::Error> {
    sql("DELETE FROM email_changes WHERE user_id = $1").bind(user_id).defer(tx).await
}

/// Removes expired changes, and returns their number.
pub async fn remove_expired(tx: &mut Tx, now: Time) -> Result<u64, db::Error> {
    sql(REMOVE_EXPIRED).bind(now).execute(tx).await
}

/// The statement of [`remove_expired`].
pub const REMOVE_EXPIRED: &str = "DELETE FROM email_changes WHERE expires_at <= $1";
