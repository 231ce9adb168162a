//! Lists of accounts for operators, and the fields that only operators change: whether an account is
//! disabled, and whether its user is an operator.

use std::sync::LazyLock;

use cluster::changes::{self, Change};
use db::{Page, Tx, contains_pattern, sql};
use kernel::clock::Time;
use kernel::ids::UserId;

use super::{COLUMNS, User};

/// The filter of a list of accounts.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The text that the folded address or username must contain; empty for all accounts.
    pub search_folded: String,
    /// `true` to list only disabled accounts.
    pub is_disabled: bool,
    /// `true` to list only operators.
    pub is_operator: bool,
}

/// The condition of a [`Filter`]. Its parameters are `$1` to `$3`.
const CONDITION: &str = "(email_folded LIKE $1 ESCAPE '\\' OR username_folded LIKE $1 ESCAPE '\\')
     AND (CAST($2 AS BIGINT) = 0 OR disabled_at IS NOT NULL) AND (CAST($3 AS BIGINT) = 0 OR operator_since IS NOT NULL)";

/// The statement of [`list`].
pub static LIST: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM users WHERE {CONDITION} ORDER BY id DESC LIMIT $4 OFFSET $5")
});

static COUNT: LazyLock<String> =
    LazyLock::new(|| format!("SELECT COUNT(*) AS value FROM users WHERE {CONDITION}"));

/// The statement of [`list_after`].
pub static AFTER: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM users WHERE {CONDITION} AND id > $4 ORDER BY id LIMIT $5")
});

fn bind(text: &'static str, filter: &Filter) -> db::Statement {
    sql(text).bind(contains_pattern(&filter.search_folded)).bind(filter.is_disabled).bind(filter.is_operator)
}

/// Returns one page of accounts, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<Vec<User>, db::Error> {
    bind(LIST.as_str(), filter).bind(page.page_size).bind(page.offset()).heavy().all(tx).await
}

/// Returns the number of accounts on all pages of [`list`].
pub async fn count(tx: &mut Tx, filter: &Filter) -> Result<i64, db::Error> {
    let (count,): (i64,) = bind(COUNT.as_str(), filter).heavy().one(tx).await?;
    Ok(count)
}

/// Returns at most `limit` accounts after the account with this id, oldest first.
pub async fn list_after(
    tx: &mut Tx,
    filter: &Filter,
    after: Option<UserId>,
    limit: i64,
) -> Result<Vec<User>, db::Error> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    bind(AFTER.as_str(), filter).bind(after).bind(limit).heavy().all(tx).await
}

/// Returns `true` if any account exists.
pub async fn has_any(tx: &mut Tx) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> = sql("SELECT id FROM users LIMIT 1").optional(tx).await?;
    Ok(found.is_some())
}

/// Returns `true` if any operator's account isn't disabled.
pub async fn has_operator(tx: &mut Tx) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> = sql(HAS_OPERATOR).optional(tx).await?;
    Ok(found.is_some())
}

/// The statement of [`has_operator`].
pub const HAS_OPERATOR: &str =
    "SELECT id FROM users WHERE operator_since IS NOT NULL AND disabled_at IS NULL LIMIT 1";

/// Returns the address of each operator whose address is verified and whose account isn't disabled, in no
/// particular order.
pub async fn operator_addresses(tx: &mut Tx) -> Result<Vec<String>, db::Error> {
    let rows: Vec<(String,)> = sql(OPERATOR_ADDRESSES).all(tx).await?;
    Ok(rows.into_iter().map(|(email,)| email).collect())
}

/// The statement of [`operator_addresses`].
pub const OPERATOR_ADDRESSES: &str = "SELECT email FROM users
     WHERE operator_since IS NOT NULL AND disabled_at IS NULL AND email_verified_at IS NOT NULL";

/// Returns `true` if the user is an operator and their account isn't disabled.
pub async fn is_operator(tx: &mut Tx, user_id: UserId) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> =
        sql("SELECT id FROM users WHERE id = $1 AND operator_since IS NOT NULL AND disabled_at IS NULL")
            .bind(user_id)
            .optional(tx)
            .await?;
    Ok(found.is_some())
}

/// Returns `true` if the account of any of these users is disabled.
pub async fn is_any_disabled(tx: &mut Tx, people: [Option<UserId>; 2]) -> Result<bool, db::Error> {
    let [one, other] = people.map(|id| id.map(|id| id.to_string()).unwrap_or_default());
    let found: Option<(UserId,)> = sql(IS_ANY_DISABLED).bind(one).bind(other).optional(tx).await?;
    Ok(found.is_some())
}

/// The statement of [`is_any_disabled`].
pub const IS_ANY_DISABLED: &str =
    "SELECT id FROM users WHERE id IN ($1, $2) AND disabled_at IS NOT NULL LIMIT 1";

/// Disables an account, or enables it again if `disabled_at` is `None`, and notifies every replica. Returns
/// `true` if the account was changed.
pub async fn set_disabled(
    tx: &mut Tx,
    user_id: UserId,
    disabled_at: Option<Time>,
    now: Time,
) -> Result<bool, db::Error> {
    changes::record(tx, Change::User(user_id), now).await?;
    let changed = sql("UPDATE users SET disabled_at = $2
         WHERE id = $1 AND CASE WHEN disabled_at IS NULL THEN 1 ELSE 0 END = CAST($3 AS BIGINT)")
    .bind(user_id)
    .bind(disabled_at)
    .bind(disabled_at.is_some())
    .execute(tx)
    .await?;
    Ok(changed == 1)
}

/// Makes a user an operator, or revokes this if `operator_since` is `None`, and notifies every replica.
/// Returns `true` if the account was changed.
pub async fn set_operator(
    tx: &mut Tx,
    user_id: UserId,
    operator_since: Option<Time>,
    now: Time,
) -> Result<bool, db::Error> {
    changes::record(tx, Change::User(user_id), now).await?;
    let changed = sql("UPDATE users SET operator_since = $2
         WHERE id = $1 AND CASE WHEN operator_since IS NULL THEN 1 ELSE 0 END = CAST($3 AS BIGINT)")
    .bind(user_id)
    .bind(operator_since)
    .bind(operator_since.is_some())
    .execute(tx)
    .await?;
    Ok(changed == 1)
}

/// Returns the number of a user's sessions that have neither ended nor expired.
pub async fn count_sessions(tx: &mut Tx, user_id: UserId, now: Time) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(COUNT_SESSIONS).bind(user_id).bind(now).one(tx).await?;
    Ok(count)
}

/// The statement of [`count_sessions`].
pub const COUNT_SESSIONS: &str = "SELECT COUNT(*) AS value FROM sessions /*+ INDEXED BY sessions_live */
     WHERE user_id = $1 AND ended_at IS NULL AND expires_at > $2";

/// Returns `true` if a user has this folded username.
pub async fn is_username_taken(tx: &mut Tx, username_folded: &str) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> =
        sql("SELECT id FROM users WHERE username_folded = $1").bind(username_folded).optional(tx).await?;
    Ok(found.is_some())
}

/// Removes the token for creating the first account, if any.
pub async fn remove_first_account_token(tx: &mut Tx) -> Result<(), db::Error> {
    sql("DELETE FROM first_account").defer(tx).await
}

/// Consumes the token for creating the first account. Returns `true` to only one of several concurrent
/// callers.
pub async fn consume_first_account_token(tx: &mut Tx, token_hash: [u8; 32]) -> Result<bool, db::Error> {
    let removed = sql("DELETE FROM first_account WHERE token_hash = $1").bind(token_hash).execute(tx).await?;
    Ok(removed == 1)
}

/// Returns the hash of the token for creating the first account, if one exists.
pub async fn first_account_token(tx: &mut Tx) -> Result<Option<[u8; 32]>, db::Error> {
    let found: Option<([u8; 32],)> =
        sql("SELECT token_hash FROM first_account WHERE id = 1").optional(tx).await?;
    Ok(found.map(|(hash,)| hash))
}

/// Stores the hash of a token for creating the first account. Returns `false` if one already exists.
pub async fn insert_first_account_token(
    tx: &mut Tx,
    token_hash: [u8; 32],
    now: Time,
) -> Result<bool, db::Error> {
    let inserted =
        sql("INSERT INTO first_account (id, token_hash, created_at) VALUES (1, $1, $2) ON CONFLICT (id) DO NOTHING")
            .bind(token_hash)
            .bind(now)
            .execute(tx)
            .await?;
    Ok(inserted == 1)
}
