//! Single-use tokens in e-mailed links. Only their SHA-256 hashes are stored.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::UserId;

/// The purpose of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Purpose {
    /// Verifies that the holder can read e-mails to the address.
    VerifyEmail,
    /// Allows the holder to set a new password without the old one.
    ResetPassword,
}

db::words!(Purpose);

struct TokenOwner {
    user_id: UserId,
}

db::row!(TokenOwner { user_id });

/// Stores a token, in place of an earlier one for the same purpose.
pub async fn replace(
    tx: &mut Tx,
    user_id: UserId,
    purpose: Purpose,
    token_hash: [u8; 32],
    now: Time,
    expires_at: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO email_tokens (token_hash, user_id, purpose, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (user_id, purpose) DO UPDATE
         SET token_hash = excluded.token_hash, created_at = excluded.created_at, expires_at = excluded.expires_at")
    .bind(token_hash)
    .bind(user_id)
    .bind(purpose)
    .bind(now)
    .bind(expires_at)
    .defer(tx)
    .await
}

/// Returns the user that a token belongs to, without consuming the token; `None` if the token is unknown,
/// used or expired.
pub async fn owner(
    tx: &mut Tx,
    purpose: Purpose,
    token_hash: [u8; 32],
    now: Time,
) -> Result<Option<UserId>, db::Error> {
    let owner: Option<TokenOwner> =
        sql("SELECT user_id FROM email_tokens WHERE token_hash = $1 AND purpose = $2 AND expires_at > $3")
            .bind(token_hash)
            .bind(purpose)
            .bind(now)
            .optional(tx)
            .await?;
    Ok(owner.map(|owner| owner.user_id))
}

/// Removes a user's tokens for this purpose.
pub async fn remove(tx: &mut Tx, user_id: UserId, purpose: Purpose) -> Result<(), db::Error> {
    sql("DELETE FROM email_tokens WHERE user_id = $1 AND purpose = $2")
        .bind(user_id)
        .bind(purpose)
        .defer(tx)
        .await
}

/// Removes all tokens of a user.
pub async fn remove_all(tx: &mut Tx, user_id: UserId) -> Result<(), db::Error> {
    sql("DELETE FROM email_tokens WHERE user_id = $1").bind(user_id).defer(tx).await
}

/// Removes expired tokens, and returns their number.
pub async fn remove_expired(tx: &mut Tx, now: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM email_tokens WHERE expires_at <= $1").bind(now).execute(tx).await
}

/// Consumes a token, and returns the user that it belonged to; `None` if the token is unknown, used or
/// expired. Deleting and reading in one statement ensures that only one of two concurrent requests gets it.
pub async fn consume(
    tx: &mut Tx,
    purpose: Purpose,
    token_hash: [u8; 32],
    now: Time,
) -> Result<Option<UserId>, db::Error> {
    let owner: Option<TokenOwner> =
        sql("DELETE FROM email_tokens WHERE token_hash = $1 AND purpose = $2 AND expires_at > $3 RETURNING user_id")
            .bind(token_hash)
            .bind(purpose)
            .bind(now)
            .optional(tx)
            .await?;
    Ok(owner.map(|owner| owner.user_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_words_never_change() {
        assert_eq!(Purpose::VerifyEmail.as_str(), "verify_email");
        assert_eq!(Purpose::ResetPassword.as_str(), "reset_password");
    }
}
