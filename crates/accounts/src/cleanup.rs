//! Removal of old rows: expired sessions, links and login attempts, and accounts that were never used.

use crate::factors::passkeys::ceremonies;
use crate::rules::throttling::FORGET_AFTER_MS;
use crate::sign_in::attempts::KNOWN_NETWORK_MS;
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;

use crate::store::users::unused;

pub use crate::store::users::unused::Position;

/// The time for which a session is kept after it ended or expired, in milliseconds, so that operators can
/// investigate incidents.
const SESSION_RETENTION_MS: i64 = 30 * DAY_MS;

/// The maximum number of sessions that one run removes, so that it doesn't block writers for long.
const MAX_SESSIONS_PER_RUN: i64 = 10_000;

/// Removes the rows that aren't needed anymore: login attempts, known networks, e-mailed links, unconfirmed
/// addresses and seeds, passkey ceremonies, used values of sign-ons, and sessions.
///
/// # Errors
/// The database fails.
pub async fn remove_expired(tx: &mut Tx, now: Time) -> Result<(), Error> {
    store::login_guesses::remove_older_than(tx, now.plus_ms(-FORGET_AFTER_MS)).await?;
    store::login_networks::remove_older_than(tx, now.plus_ms(-KNOWN_NETWORK_MS)).await?;
    store::email_tokens::remove_expired(tx, now).await?;
    store::email_changes::remove_expired(tx, now).await?;
    store::second_factors::remove_expired_enrolments(tx, now).await?;
    store::passkeys::remove_expired_ceremonies(tx, ceremonies::expired_before(now)).await?;
    store::connections::remove_expired_values(tx, now).await?;
    store::sessions::remove_ended_before(tx, now.plus_ms(-SESSION_RETENTION_MS), MAX_SESSIONS_PER_RUN)
        .await?;
    Ok(())
}

/// Removes unused accounts from one slice of the accounts registered before `before`. An account is unused if
/// it was never verified, never logged in to, and isn't referenced by any other row. Returns the number of
/// removed accounts, and the position after which the next slice begins, if any.
///
/// # Errors
/// The database fails; the same slice can be retried.
pub async fn remove_unused(
    accounts: &Accounts,
    before: Time,
    after: &Position,
    size: i64,
) -> Result<(u64, Option<Position>), Error> {
    let slice = unused::fetch_slice(&mut accounts.db.read().await?, before, after, size).await?;
    let Some(last) = slice.last() else { return Ok((0, None)) };
    let mut removed = 0;
    // Most slices contain nothing to remove, so they don't need a write transaction.
    if slice.iter().any(|account| account.is_unused) {
        let mut tx = accounts.db.write().await?;
        removed = unused::remove(&mut tx, before, after, &last.position).await?;
        tx.commit().await?;
    }
    let is_last = i64::try_from(slice.len()).is_ok_and(|length| length < size);
    Ok((removed, (!is_last).then(|| last.position.clone())))
}
