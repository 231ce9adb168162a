//! Networks from which an account has logged in recently.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::UserId;
use kernel::networks::Network;

/// Stores a successful login from this network.
pub async fn note(tx: &mut Tx, user_id: UserId, network: Network, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO login_networks (user_id, network, last_login_at) VALUES ($1, $2, $3)
         ON CONFLICT (user_id, network) DO UPDATE SET last_login_at = $3")
    .bind(user_id)
    .bind(network.to_string())
    .bind(now)
    .defer(tx)
    .await
}

/// Returns `true` if the account has logged in from another network after `since`.
pub async fn has_others(
    tx: &mut Tx,
    user_id: UserId,
    network: Network,
    since: Time,
) -> Result<bool, db::Error> {
    let other: Option<(String,)> = sql("SELECT network FROM login_networks
         WHERE user_id = $1 AND network <> $2 AND last_login_at > $3 LIMIT 1")
    .bind(user_id)
    .bind(network.to_string())
    .bind(since)
    .optional(tx)
    .await?;
    Ok(other.is_some())
}

/// Removes networks without a successful login after `time`, and returns their number.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM login_networks WHERE last_login_at <= $1").bind(time).execute(tx).await
}
