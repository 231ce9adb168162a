//! Login attempts on accounts by client network, and the failed logins within a day. All replicas share them.
//!
//! Accounts are identified by the SHA-256 hash of the folded address, so that attempts on addresses without
//! an account are counted too.

use crate::rules::throttling::{Attempts, LoginAttempts};
use db::{Tx, sql};
use kernel::clock::{DAY_MS, MINUTE_MS, Time};
use kernel::networks::Network;

db::row!(Attempts { count: "attempts", since, blocked_until });

/// A row of `login_guesses`.
struct GuessRow {
    network: String,
    attempts: Attempts,
}

db::row!(GuessRow { network, attempts: Attempts::from_row });

/// Locks and returns the attempts on this account from this network and from all unknown networks. Missing
/// rows are created with a count of 0. The rows stay locked until the transaction ends, so that parallel
/// attempts are counted one after the other.
///
/// The row of the unknown networks, whose network is the empty string, is always locked first, to prevent
/// deadlocks.
pub async fn lock(
    tx: &mut Tx,
    account_hash: [u8; 32],
    network: Network,
    now: Time,
) -> Result<LoginAttempts, db::Error> {
    let rows: Vec<GuessRow> =
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
    let mut found = LoginAttempts { network: none, unknown_networks: none };
    for row in rows {
        *(if row.network.is_empty() { &mut found.unknown_networks } else { &mut found.network }) =
            row.attempts;
    }
    Ok(found)
}

/// Stores the new counts.
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
    .bind(counted.unknown_networks.count)
    .bind(counted.unknown_networks.since)
    .bind(counted.unknown_networks.blocked_until)
    .bind(counted.network.count)
    .bind(counted.network.since)
    .bind(counted.network.blocked_until)
    .execute(tx)
    .await?;
    Ok(())
}

/// Removes an attempt from the count of the unknown networks, because the password was right.
pub async fn take_back(tx: &mut Tx, account_hash: [u8; 32]) -> Result<(), db::Error> {
    sql("UPDATE login_guesses SET attempts = attempts - 1, blocked_until = since
         WHERE account_hash = $1 AND network = '' AND attempts > 0")
    .bind(account_hash)
    .defer(tx)
    .await
}

/// Clears the attempts on an account from one network.
pub async fn clear_network(tx: &mut Tx, account_hash: [u8; 32], network: Network) -> Result<(), db::Error> {
    sql("DELETE FROM login_guesses WHERE account_hash = $1 AND network = $2")
        .bind(account_hash)
        .bind(network.to_string())
        .defer(tx)
        .await
}

/// Clears all attempts on an account.
pub async fn clear_account(tx: &mut Tx, account_hash: [u8; 32]) -> Result<(), db::Error> {
    // The rows are deleted in the order in which attempts lock them.
    for text in [
        "DELETE FROM login_guesses WHERE account_hash = $1 AND network = ''",
        "DELETE FROM login_guesses WHERE account_hash = $1",
    ] {
        sql(text).bind(account_hash).defer(tx).await?;
    }
    Ok(())
}

/// The number of failed logins within a day after which the owner of the account gets an e-mail, at most once
/// per day.
pub const FAILURES_BEFORE_MAIL: i64 = 10;

/// Counts a failed login. Returns the number of failures within a day, including this one. The day begins
/// with the first failure, and starts over at failure number [`FAILURES_BEFORE_MAIL`].
pub async fn count_failure(tx: &mut Tx, account_hash: [u8; 32], now: Time) -> Result<i64, db::Error> {
    // A day that begins in the future was started before the clock was set back.
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
        .bind(FAILURES_BEFORE_MAIL)
        .one(tx)
        .await?;
    Ok(failures)
}

/// Removes attempts and failures from before `time`, which aren't needed anymore.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<(), db::Error> {
    // The rows are deleted in the order in which attempts lock them.
    for text in [
        "DELETE FROM login_guesses WHERE since < $1 AND network = ''",
        "DELETE FROM login_guesses WHERE since < $1",
        "DELETE FROM login_failures WHERE since < $1",
    ] {
        sql(text).bind(time).execute(tx).await?;
    }
    Ok(())
}
