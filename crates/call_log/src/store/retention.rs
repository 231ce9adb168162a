//! Removal of old rows of an organization.

use db::{Tx, sql};
use kernel::clock::Time;

use super::calls::StoredId;
use crate::hour_sums::HourKey;

/// The statement of [`next_organization`].
pub const NEXT_ORGANIZATION: &str = "SELECT MIN(number) AS number FROM (
         SELECT MIN(organization) AS number FROM calls WHERE organization > $1
         UNION ALL SELECT MIN(organization) AS number FROM call_hours WHERE organization > $1) numbers";

/// Returns the number of the next organization that has rows.
pub async fn next_organization(tx: &mut Tx, after: i64) -> Result<Option<i64>, db::Error> {
    let (next,): (Option<i64>,) = sql(NEXT_ORGANIZATION).bind(after).one(tx).await?;
    Ok(next)
}

/// The statement of [`slice_end`].
pub const SLICE_END: &str = "SELECT MAX(second) AS second FROM (
         SELECT second FROM calls WHERE organization = $1 AND second < $2 ORDER BY second LIMIT $3) old";

/// Returns the last second of the oldest `size` rows from before a time; `None` without any.
pub async fn slice_end(
    tx: &mut Tx,
    organization: i64,
    before: Time,
    size: i64,
) -> Result<Option<i64>, db::Error> {
    let before = StoredId::first_of(before).second;
    let (end,): (Option<i64>,) = sql(SLICE_END).bind(organization).bind(before).bind(size).one(tx).await?;
    Ok(end)
}

/// The statement of [`remove_calls`].
pub const REMOVE_CALLS: &str = "DELETE FROM calls WHERE organization = $1 AND second <= $2";

/// Removes rows up to a second. Returns their number.
pub async fn remove_calls(tx: &mut Tx, organization: i64, end: i64) -> Result<u64, db::Error> {
    sql(REMOVE_CALLS).bind(organization).bind(end).execute(tx).await
}

/// The statement of [`has_old_hours`].
pub const FIRST_HOUR: &str = "SELECT MIN(hour) AS hour FROM call_hours WHERE organization = $1";

/// Returns `true` if an organization has sums of hours before a time.
pub async fn has_old_hours(tx: &mut Tx, organization: i64, before: Time) -> Result<bool, db::Error> {
    let (first,): (Option<i64>,) = sql(FIRST_HOUR).bind(organization).one(tx).await?;
    Ok(first.is_some_and(|first| first < HourKey::hour_of(before)))
}

/// The statement of [`remove_hours`].
pub const REMOVE_HOURS: &str = "DELETE FROM call_hours WHERE organization = $1 AND hour < $2";

/// Removes sums of hours before a time. Returns their number.
pub async fn remove_hours(tx: &mut Tx, organization: i64, before: Time) -> Result<u64, db::Error> {
    sql(REMOVE_HOURS).bind(organization).bind(HourKey::hour_of(before)).execute(tx).await
}
