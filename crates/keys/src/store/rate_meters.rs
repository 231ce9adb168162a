//! The table `rate_meters`: rates that replicas share.

use crate::rules::rate_pool::Pool;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::rates::Meter;

impl FromRow for Pool {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let at: Time = row.get("at")?;
        let meter =
            Meter { level: row.get("level")?, at_ms: at.unix_ms(), per_minute: row.get("per_minute")? };
        Ok(Self { meter, lent: row.get("lent")?, lent_before: row.get("lent_before")? })
    }
}

/// Locks and returns a pool, and creates the row if it doesn't exist. The row stays locked until the
/// transaction ends.
pub async fn lock(tx: &mut Tx, meter: u128, per_minute: u32, now: Time) -> Result<Pool, db::Error> {
    sql("INSERT INTO rate_meters (meter, per_minute, level, at, lent, lent_before) VALUES ($1, $2, 0, $3, 0, 0)
         ON CONFLICT (meter) DO UPDATE SET at = rate_meters.at
         RETURNING per_minute, level, at, lent, lent_before")
    .bind(meter.to_be_bytes().as_slice())
    .bind(per_minute)
    .bind(now)
    .one(tx)
    .await
}

/// Writes a changed pool.
pub async fn set(tx: &mut Tx, meter: u128, pool: &Pool) -> Result<(), db::Error> {
    let level = i64::try_from(pool.meter.level).unwrap_or(i64::MAX);
    sql("UPDATE rate_meters SET per_minute = $2, level = $3, at = $4, lent = $5, lent_before = $6 WHERE meter = $1")
        .bind(meter.to_be_bytes().as_slice())
        .bind(pool.meter.per_minute)
        .bind(level)
        .bind(Time::from_unix_ms(pool.meter.at_ms))
        .bind(pool.lent)
        .bind(pool.lent_before)
        .execute(tx)
        .await?;
    Ok(())
}

/// Removes meters that haven't been used since `time`, and returns their number. A meter is empty after a
/// minute and two terms without use.
pub async fn remove_unused_since(tx: &mut Tx, time: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM rate_meters WHERE at < $1").bind(time).execute(tx).await
}
