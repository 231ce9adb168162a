//! Login attempts on accounts by client network, and failed logins of a day; shared by all replicas.
//!
//! Accounts go by the SHA-256 of the folded address, so that addresses without an account count like those with one.

use crate::rules::throttling::{Attempts, LoginAttempts};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::{DAY_MS, MINUTE_MS, Time};
use kernel::networks::Network;

impl FromRow for Attempts {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            count: row.get("attempts")?,
            since: row.get("since")?,
            blocked_until: row.get("blocked_until")?,
        })
    }
}

/// A row of `login_guesses`.
struct Counted {
    network: String,
    attempts: Attempts,
}

impl FromRow for Counted {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self { network: row.get("network")?, attempts: Attempts::from_row(row)? })
    }
}

/// The attempts on this account from this network and from strangers. The rows are made where there are none and stay locked
/// until the transaction ends, so that parallel attempts are counted one after the other; fresh ones have count 0.
///
/// The row of the strangers, whose network is the empty text, is always locked first: nobody waits in a circle.
pub async fn lock(
    tx: &mut Tx,
    account_hash: [u8; 32],
    network: Network,
    now: Time,
) -> Result<LoginAttempts, db::Error> {
    let rows: Vec<Counted> =
        sql("INSERT INTO login_guesses (account_hash, network, attempts, since, blocked_until)
         VALUES ($1, '', 0, $3, $3), ($1, $2, 0, $3, $3)
         ON CONFLICT (account_hash, network) DO UPDATE SET attempts = login_guesses.attempts
         RETURNING network, attempts, since, blocked_until")
        .bind(account_hash)
        .bind(network.to_string())
        .bind(now)
        .all(tx)
        .await?;
    let none = Attempts { count: 0, since: now, blocked_until: now };
    let mut found = LoginAttempts { network: none, strangers: none };
    for row in rows {
        *(if row.network.is_empty() { &mut found.strangers } else { &mut found.network }) = row.attempts;
    }
    Ok(found)
}

/// Writes what was counted.
pub async fn set(
    tx: &mut Tx,
    account_hash: [u8; 32],
    network: Network,
    counted: &LoginAttempts,
) -> Result<(), db::Error> {
    sql("UPDATE login_guesses
         SET attempts = CASE network WHEN '' THEN CAST($3 AS BIGINT) ELSE CAST($6 AS BIGINT) END,
             since = CASE network WHEN '' THEN CAST($4 AS BIGINT) ELSE CAST($7 AS BIGINT) END,
             blocked_until = CASE network WHEN '' THEN CAST($5 AS BIGINT) ELSE CAST($8 AS BIGINT) END
         WHERE account_hash = $1 AND network IN ('', $2)")
    .bind(account_hash)
    .bind(network.to_string())
    .bind(counted.strangers.count)
    .bind(counted.strangers.since)
    .bind(counted.strangers.blocked_until)
    .bind(counted.network.count)
    .bind(counted.network.since)
    .bind(counted.network.blocked_until)
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes back an attempt that was counted among the strangers' and was none of theirs.
pub async fn give_back(tx: &mut Tx, account_hash: [u8; 32]) -> Result<(), db::Error> {
    sql("UPDATE login_guesses SET attempts = attempts - 1, blocked_until = since
         WHERE account_hash = $1 AND network = '' AND attempts > 0")
    .bind(account_hash)
    .defer(tx)
    .await
}

/// Forgets the attempts on an account from one network.
pub async fn clear_network(tx: &mut Tx, account_hash: [u8; 32], network: Network) -> Result<(), db::Error> {
    sql("DELETE FROM login_guesses WHERE account_hash = $1 AND network = $2")
        .bind(account_hash)
        .bind(network.to_string())
        .defer(tx)
        .await
}

/// Forgets all attempts on an account.
pub async fn clear_account(tx: &mut Tx, account_hash: [u8; 32]) -> Result<(), db::Error> {
    // In the order in which attempts lock them.
    for text in [
        "DELETE FROM login_guesses WHERE account_hash = $1 AND network = ''",
        "DELETE FROM login_guesses WHERE account_hash = $1",
    ] {
        sql(text).bind(account_hash).defer(tx).await?;
    }
    Ok(())
}

/// How many failed logins of a day the owner of an account is told of; once a day.
pub const FAILURES_TOLD: i64 = 10;

/// Counts a failed login; how many there were within a day, this one included. The day begins with the first of them, and
/// again when there are [`FAILURES_TOLD`].
pub async fn count_failure(tx: &mut Tx, account_hash: [u8; 32], now: Time) -> Result<i64, db::Error> {
    // A day that begins in the future was begun by a clock that has been set back since.
    let (failures,): (i64,) =
        sql("INSERT INTO login_failures (account_hash, failures, since) VALUES ($1, 1, $2)
         ON CONFLICT (account_hash) DO UPDATE SET
             failures = CASE WHEN login_failures.since <= $3 OR login_failures.since > $4 THEN 1
                             ELSE login_failures.failures + 1 END,
             since = CASE WHEN login_failures.since <= $3 OR login_failures.since > $4
                               OR login_failures.failures + 1 = $5 THEN $2
                          ELSE login_failures.since END
         RETURNING failures")
        .bind(account_hash)
        .bind(now)
        .bind(now.plus_ms(-DAY_MS))
        .bind(now.plus_ms(MINUTE_MS))
        .bind(FAILURES_TOLD)
        .one(tx)
        .await?;
    Ok(failures)
}

/// Removes what has long been forgotten.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<(), db::Error> {
    // In the order in which attempts lock them.
    for text in [
        "DELETE FROM login_guesses WHERE since < $1 AND network = ''",
        "DELETE FROM login_guesses WHERE since < $1",
        "DELETE FROM login_failures WHERE since < $1",
    ] {
        sql(text).bind(time).execute(tx).await?;
    }
    Ok(())
}
