//! Sums of the calls of a day, which the audit compares with the usage.

use db::{FromRow, Row, Tx, sql};
use kernel::clock::{DAY_MS, Day, Time};
use kernel::money::Pico;

use super::calls::StoredId;

/// The charged usage of an organization's calls on a day.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DaySums {
    pub requests: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
}

impl FromRow for DaySums {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (whole, rest): (i64, i64) = (row.get("amount_whole")?, row.get("amount_rest")?);
        Ok(Self {
            requests: row.get("requests")?,
            prompt_tokens: row.get("prompt_tokens")?,
            completion_tokens: row.get("completion_tokens")?,
            amount: Pico::from_units(i128::from(whole) * 1_000_000 + i128::from(rest)),
        })
    }
}

/// The statement of [`of_day`].
pub const OF_DAY: &str = "SELECT CAST(COALESCE(SUM(events), 0) AS BIGINT) AS requests,
         CAST(COALESCE(SUM(prompt_tokens), 0) AS BIGINT) AS prompt_tokens,
         CAST(COALESCE(SUM(completion_tokens), 0) AS BIGINT) AS completion_tokens,
         CAST(COALESCE(SUM(amount_pico / 1000000), 0) AS BIGINT) AS amount_whole,
         CAST(COALESCE(SUM(amount_pico % 1000000), 0) AS BIGINT) AS amount_rest
     FROM calls
     WHERE organization = (SELECT number FROM call_names WHERE name = $1) AND second >= $2 AND second < $3";

/// Returns the sums of an organization's calls on a day.
pub async fn of_day(tx: &mut Tx, organization: &str, day: Day) -> Result<DaySums, db::Error> {
    let start = day.start();
    let end = start.plus_ms(DAY_MS);
    sql(OF_DAY)
        .bind(organization)
        .bind(StoredId::first_of(start).second)
        .bind(StoredId::first_of(end).second)
        .one(tx)
        .await
}

/// Returns the time since which all calls are logged; `None` while the log is off.
pub async fn since(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let since: Option<(Time,)> = sql("SELECT since FROM call_log_since").optional(tx).await?;
    Ok(since.map(|(since,)| since))
}

/// Notes that calls are logged from now on, unless they are already.
pub async fn begin(tx: &mut Tx, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO call_log_since (only_row, since) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING")
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}

/// Notes that calls are no longer logged.
pub async fn end(tx: &mut Tx) -> Result<(), db::Error> {
    sql("DELETE FROM call_log_since").execute(tx).await?;
    Ok(())
}
