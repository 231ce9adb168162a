//! Unused accounts: never verified, never logged in to, and not referenced by any other row.

use std::sync::LazyLock;

use db::{Tx, sql};
use kernel::clock::Time;

/// The condition for an unused row of `users`, except its age. It must contain every table that refers to an
/// account and whose rows aren't deleted with it.
pub const UNUSED: &str =
    "users.email_verified_at IS NULL AND users.last_login_at IS NULL AND users.operator_since IS NULL
     AND NOT EXISTS (SELECT 1 FROM organization_members m WHERE m.user_id = users.id)
     AND NOT EXISTS (SELECT 1 FROM project_members m WHERE m.user_id = users.id)
     AND NOT EXISTS (SELECT 1 FROM organizations o WHERE o.created_by = users.id)
     AND NOT EXISTS (SELECT 1 FROM projects p WHERE p.created_by = users.id)
     AND NOT EXISTS (SELECT 1 FROM api_keys k WHERE k.created_by = users.id)
     AND NOT EXISTS (SELECT 1 FROM api_key_secrets s WHERE s.rotated_by = users.id)
     AND NOT EXISTS (SELECT 1 FROM invitations i WHERE i.invited_by = users.id)
     AND NOT EXISTS (SELECT 1 FROM invitations i WHERE i.accepted_by = users.id)
     AND NOT EXISTS (SELECT 1 FROM usage_daily d WHERE d.api_key_id = users.id)";

/// A position in the order of registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    created_at: Time,
    id: String,
}

impl Default for Position {
    /// Returns the position before the first account.
    fn default() -> Self {
        Self { created_at: Time::from_unix_ms(i64::MIN), id: String::new() }
    }
}

/// An account whose address isn't verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnverifiedAccount {
    pub position: Position,
    /// `true` if the account satisfies [`UNUSED`].
    pub is_unused: bool,
}

db::row!(Position { created_at, id });
db::row!(UnverifiedAccount { position: Position::from_row, is_unused });

/// The statement of [`fetch_slice`].
pub static SLICE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT created_at, id, CASE WHEN {UNUSED} THEN 1 ELSE 0 END AS is_unused FROM users
         WHERE email_verified_at IS NULL AND created_at < $1 AND (created_at, id) > ($2, $3)
         ORDER BY created_at, id LIMIT $4"
    )
});

/// The statement of [`remove`].
pub static REMOVE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM users WHERE email_verified_at IS NULL AND created_at < $1
         AND (created_at, id) > ($2, $3) AND (created_at, id) <= ($4, $5) AND {UNUSED}"
    )
});

/// Returns the next unverified accounts that were created before `before`, oldest first.
pub async fn fetch_slice(
    tx: &mut Tx,
    before: Time,
    after: &Position,
    limit: i64,
) -> Result<Vec<UnverifiedAccount>, db::Error> {
    sql(SLICE.as_str())
        .bind(before)
        .bind(after.created_at)
        .bind(after.id.as_str())
        .bind(limit)
        .heavy()
        .all(tx)
        .await
}

/// Removes the unused accounts of a slice, with their e-mail tokens, and returns their number. Their
/// usernames and addresses can be used again.
pub async fn remove(tx: &mut Tx, before: Time, after: &Position, last: &Position) -> Result<u64, db::Error> {
    sql(REMOVE.as_str())
        .bind(before)
        .bind(after.created_at)
        .bind(after.id.as_str())
        .bind(last.created_at)
        .bind(last.id.as_str())
        .execute(tx)
        .await
}
