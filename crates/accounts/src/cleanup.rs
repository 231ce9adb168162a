//! Removal of what would only grow.

use crate::Accounts;
use crate::guesses::NETWORK_KNOWN_MS;
use crate::rules::throttling::FORGET_MS;
use crate::store;
use db::Tx;
use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;

use crate::store::users::unused;

pub use crate::store::users::unused::Position;

/// How long a session is kept after it ended or expired, in milliseconds: for an operator who looks into what
/// happened.
const SESSIONS_KEPT_MS: i64 = 30 * DAY_MS;

/// The most sessions that one turn removes, so that writers don't wait long for it.
const MAX_SESSIONS: i64 = 10_000;

/// Removes the rows that no rule looks at any more: guesses, networks of logins, links and sessions.
///
/// # Errors
/// The database's.
pub async fn remove_expired(tx: &mut Tx, now: Time) -> Result<(), Error> {
    store::login_guesses::remove_older_than(tx, now.plus_ms(-FORGET_MS)).await?;
    store::login_networks::remove_older_than(tx, now.plus_ms(-NETWORK_KNOWN_MS)).await?;
    store::email_tokens::remove_expired(tx, now).await?;
    store::sessions::remove_over_by(tx, now.plus_ms(-SESSIONS_KEPT_MS), MAX_SESSIONS).await?;
    Ok(())
}

/// Removes the accounts of one slice that were made before `before` and never used: never verified, never
/// logged in to, and no part of anything. Returns how many went, and where the next slice begins, if there is
/// one.
///
/// # Errors
/// The database's; the same slice can be tried again.
pub async fn remove_unused(
    accounts: &Accounts,
    before: Time,
    after: &Position,
    size: i64,
) -> Result<(u64, Option<Position>), Error> {
    let slice = unused::slice(&mut accounts.db.read().await?, before, after, size).await?;
    let Some(last) = slice.last() else { return Ok((0, None)) };
    let mut removed = 0;
    // Most slices have nothing to remove, and then nothing has to wait for a writer.
    if slice.iter().any(|account| account.is_unused) {
        let mut tx = accounts.db.write().await?;
        removed = unused::remove(&mut tx, before, after, &last.position).await?;
        tx.commit().await?;
    }
    let is_last = i64::try_from(slice.len()).is_ok_and(|length| length < size);
    Ok((removed, (!is_last).then(|| last.position.clone())))
}
