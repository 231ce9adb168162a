//! Usage: daily rows, what corrections took out of closed months, and events. The database sums them up by day, model and price.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use db::{FromRow, Row, Tx, sql};
use kernel::clock::{Day, Month, Time};

use super::NANO_PER_WHOLE;
use crate::recount::prices::Tokens;
use crate::recount::usage::{UseKey, Used};

const PICO_PER_WHOLE: i128 = 1_000_000_000_000;
/// How many events one statement sums up.
const EVENTS_AT_ONCE: i64 = 4_000;
/// More than any source of events.
const LAST_SOURCE: &str = "\u{10ffff}";

/// Daily rows of one key that are billed in one month.
#[derive(Clone, Debug)]
pub struct DayRow {
    pub month: Month,
    pub key: UseKey,
    pub used: Used,
    /// The whole nanos of each of the rows, rounded down, together.
    pub nanos: i128,
}

/// The events of one key.
#[derive(Clone, Debug)]
pub struct EventsRow {
    pub key: UseKey,
    pub used: Used,
    /// How many of them are of a version that didn't record where it billed them.
    pub without_month: i64,
    pub first_at: Time,
    pub last_at: Time,
    pub first_received_at: Time,
}

/// Usage that a correction took out of a closed month.
#[derive(Clone, Debug)]
pub struct CreditedRow {
    /// The month in which it had been billed.
    pub month: Month,
    /// The month that was open when it was taken back; its daily rows have that one.
    pub booked_month: Month,
    pub key: UseKey,
    /// None or less.
    pub used: Used,
    pub nanos: i128,
}

fn key(row: &Row) -> Result<UseKey, db::Error> {
    let (day, model): (Day, String) = (row.get("day")?, row.get("model")?);
    Ok(UseKey { day, model, kind: row.get("kind")?, version: row.get("price_version")? })
}

fn used(row: &Row) -> Result<Used, db::Error> {
    let (prompt, cached): (i64, i64) = (row.get("prompt_tokens")?, row.get("cached_prompt_tokens")?);
    let completion: i64 = row.get("completion_tokens")?;
    let tokens = Tokens { prompt: prompt.into(), cached: cached.into(), completion: completion.into() };
    let (whole, rest): (i64, i64) = (row.get("whole")?, row.get("rest_pico")?);
    Ok(Used { tokens, amount: i128::from(whole) * PICO_PER_WHOLE + i128::from(rest) })
}

impl FromRow for DayRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (whole, rest): (i64, i64) = (row.get("whole")?, row.get("rest_nano")?);
        let nanos = i128::from(whole) * NANO_PER_WHOLE + i128::from(rest);
        Ok(Self { month: row.get("month")?, key: key(row)?, used: used(row)?, nanos })
    }
}

/// Sums up the daily rows by billed month, day, model and price.
pub const DAILY: &str = "SELECT month, day, model, kind, price_version,
         CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
         CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached_prompt_tokens,
         CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
         CAST(SUM(usage_daily.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS whole,
         CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS rest_pico,
         CAST(SUM((amount_pico % 1000000000000) / 1000 - CASE WHEN amount_pico % 1000 < 0 THEN 1 ELSE 0 END)
             AS BIGINT) AS rest_nano
     FROM usage_daily WHERE organization_id = $1 GROUP BY month, day, model, kind, price_version";

/// Runs [`DAILY`].
pub async fn days(tx: &mut Tx, organization_id: &str) -> Result<Vec<DayRow>, db::Error> {
    sql(DAILY).bind(organization_id).heavy().all(tx).await
}

impl FromRow for CreditedRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (month, booked_month) = (row.get("month")?, row.get("booked_month")?);
        let nanos: i64 = row.get("posted_nano")?;
        Ok(Self { month, booked_month, key: key(row)?, used: used(row)?, nanos: nanos.into() })
    }
}

/// Returns the usage that corrections took out of closed months.
pub async fn credited(tx: &mut Tx, organization_id: &str) -> Result<Vec<CreditedRow>, db::Error> {
    sql("SELECT month, booked_month, day, model, kind, price_version, prompt_tokens, cached_prompt_tokens,
                completion_tokens, amount_whole AS whole, amount_pico AS rest_pico, posted_nano
         FROM credited_usage WHERE organization_id = $1")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

impl FromRow for EventsRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            key: key(row)?,
            used: used(row)?,
            without_month: row.get("without_month")?,
            first_at: row.get("first_at")?,
            last_at: row.get("last_at")?,
            first_received_at: row.get("first_received_at")?,
        })
    }
}

/// Selects the key of the event that is `$4` behind the key `$2`, `$3`.
pub const EVENTS_END: &str = "SELECT source, event_id FROM usage_events
     WHERE organization_id = $1 AND (source, event_id) > ($2, $3) ORDER BY source, event_id LIMIT 1 OFFSET $4";

/// Sums up the events between two keys by day, model and price; the first one is left out.
pub const EVENTS: &str = "SELECT occurred_at / 86400000 AS day, model, kind, price_version,
         CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
         CAST(SUM(COALESCE(cached_prompt_tokens, 0)) AS BIGINT) AS cached_prompt_tokens,
         CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
         CAST(SUM(amount_pico / 1000000000000) AS BIGINT) AS whole,
         CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS rest_pico,
         CAST(SUM(CASE WHEN billed_month IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS without_month,
         MIN(occurred_at) AS first_at, MAX(occurred_at) AS last_at, MIN(received_at) AS first_received_at
     FROM usage_events
     WHERE organization_id = $1 AND (source, event_id) > ($2, $3) AND (source, event_id) <= ($4, $5)
     GROUP BY occurred_at / 86400000, model, kind, price_version";

impl EventsRow {
    /// Adds other events of the same key.
    fn add(&mut self, other: &Self) {
        self.used = self.used.plus(other.used);
        self.without_month += other.without_month;
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
        self.first_received_at = self.first_received_at.min(other.first_received_at);
    }
}

/// Returns the events, which are summed up in slices.
pub async fn events(tx: &mut Tx, organization_id: &str) -> Result<Vec<EventsRow>, db::Error> {
    let mut after = (String::new(), String::new());
    let mut sums: BTreeMap<UseKey, EventsRow> = BTreeMap::new();
    loop {
        let end: Option<(String, String)> = sql(EVENTS_END)
            .bind(organization_id)
            .bind(after.0.as_str())
            .bind(after.1.as_str())
            .bind(EVENTS_AT_ONCE - 1)
            .heavy()
            .optional(tx)
            .await?;
        let is_last = end.is_none();
        let until = end.unwrap_or_else(|| (LAST_SOURCE.to_owned(), String::new()));
        let slice: Vec<EventsRow> = sql(EVENTS)
            .bind(organization_id)
            .bind(after.0.as_str())
            .bind(after.1.as_str())
            .bind(until.0.as_str())
            .bind(until.1.as_str())
            .heavy()
            .all(tx)
            .await?;
        for row in slice {
            match sums.entry(row.key.clone()) {
                Entry::Vacant(new) => {
                    new.insert(row);
                }
                Entry::Occupied(mut sum) => sum.get_mut().add(&row),
            }
        }
        if is_last {
            return Ok(sums.into_values().collect());
        }
        after = until;
    }
}

/// Returns the time before which events may have been removed by age.
pub async fn events_gone_before(tx: &mut Tx) -> Result<Time, db::Error> {
    let (before,): (Time,) = sql("SELECT usage_events_before FROM retention").one(tx).await?;
    Ok(before)
}
