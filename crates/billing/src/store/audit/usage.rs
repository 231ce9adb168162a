//! Reads of daily rows, their sums, totals and events.

use crate::rules::audit::{DailyKey, DailyRow, EventRow, SumKey, SumRow, TotalRow, UsageSums};
use crate::store::amounts::whole_and_rest;
use crate::store::usage::{day_parts, recording};
use catalog::Parts;
use db::{FromRow, Row, Statement, Tx, sql};
use kernel::clock::{Day, Month, Time};
use kernel::money::Pico;

/// Reads the columns that daily rows and events have in common; the caller reads the day.
fn daily_key(row: &Row, day: Day) -> Result<DailyKey, db::Error> {
    Ok(DailyKey {
        project_id: row.get("project_id")?,
        day,
        api_key_id: row.get("api_key_id")?,
        model: row.get("model")?,
        price_version: row.get("price_version")?,
        kind: row.get("kind")?,
    })
}

fn usage_sums(row: &Row, requests: i64, amount: Pico) -> Result<UsageSums, db::Error> {
    let (prompt, completion): (i64, i64) = (row.get("prompt_tokens")?, row.get("completion_tokens")?);
    let cached_prompt: i64 = row.get("cached_prompt_tokens")?;
    Ok(UsageSums {
        requests: requests.into(),
        prompt_tokens: prompt.into(),
        completion_tokens: completion.into(),
        cached_prompt_tokens: cached_prompt.into(),
        parts: Parts::default(),
        amount,
    })
}

impl FromRow for DailyRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            key: daily_key(row, row.get("day")?)?,
            month: row.get("month")?,
            sums: usage_sums(
                row,
                row.get("requests")?,
                whole_and_rest(row.get("amount_whole")?, row.get("amount_pico")?),
            )?,
            posted: row.get("posted_nano")?,
        })
    }
}

/// Selects at most `$9` daily rows in the order of their key, after the given key.
pub const DAILY: &str = "SELECT project_id, day, api_key_id, model, price_version, kind, month,
         requests, prompt_tokens, completion_tokens, cached_prompt_tokens, amount_whole, amount_pico,
         posted_nano
     FROM usage_daily
     WHERE organization_id = $1
       AND (project_id, day, api_key_id, model, price_version, kind, month) > ($2, $3, $4, $5, $6, $7, $8)
     ORDER BY project_id, day, api_key_id, model, price_version, kind, month LIMIT $9";

/// Runs [`DAILY`]; without `after`, from the first row on.
pub async fn daily(
    tx: &mut Tx,
    organization_id: &str,
    after: Option<&DailyRow>,
    limit: i64,
) -> Result<Vec<DailyRow>, db::Error> {
    let key = after.map(|row| (&row.key, row.month));
    bind_after(sql(DAILY).bind(organization_id), key).bind(limit).heavy().all(tx).await
}

/// Binds the key of a daily row after which a slice begins; without a key, binds one that precedes all
/// others.
fn bind_after(statement: Statement, after: Option<(&DailyKey, Month)>) -> Statement {
    let key = after.map(|(key, _)| key);
    let text = |of: fn(&DailyKey) -> &str| key.map(of).unwrap_or_default().to_owned();
    statement
        .bind(text(|key| &key.project_id))
        .bind(key.map_or(i64::MIN, |key| key.day.unix_days()))
        .bind(text(|key| &key.api_key_id))
        .bind(text(|key| &key.model))
        .bind(key.map_or(i64::MIN, |key| key.price_version))
        .bind(text(|key| &key.kind))
        .bind(after.map_or(i64::MIN, |(_, month)| month.unix_months()))
}

/// A row of `usage_daily_parts`.
#[derive(Clone, Debug)]
pub struct DailyPart {
    pub key: DailyKey,
    pub month: Month,
    pub component: String,
    pub parts: Parts,
}

impl FromRow for DailyPart {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            key: daily_key(row, row.get("day")?)?,
            month: row.get("month")?,
            component: row.get("component")?,
            parts: day_parts::part(row)?,
        })
    }
}

/// Selects at most `$10` parts of daily rows in the order of their key, after the given key.
pub const DAILY_PARTS: &str =
    "SELECT project_id, day, api_key_id, model, price_version, kind, month, component, quantity
     FROM usage_daily_parts
     WHERE organization_id = $1
       AND (project_id, day, api_key_id, model, price_version, kind, month, component)
           > ($2, $3, $4, $5, $6, $7, $8, $9)
     ORDER BY project_id, day, api_key_id, model, price_version, kind, month, component LIMIT $10";

/// Runs [`DAILY_PARTS`]; without `after`, from the first row on.
pub async fn daily_parts(
    tx: &mut Tx,
    organization_id: &str,
    after: Option<&DailyPart>,
    limit: i64,
) -> Result<Vec<DailyPart>, db::Error> {
    let key = after.map(|row| (&row.key, row.month));
    let component = after.map(|row| row.component.as_str()).unwrap_or_default();
    bind_after(sql(DAILY_PARTS).bind(organization_id), key).bind(component).bind(limit).heavy().all(tx).await
}

impl FromRow for SumRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            key: SumKey {
                project_id: row.get("project_id")?,
                grouped_by: row.get("grouped_by")?,
                day: row.get("day")?,
                group_id: row.get("group_id")?,
                kind: row.get("kind")?,
            },
            sums: usage_sums(
                row,
                row.get("requests")?,
                whole_and_rest(row.get("amount_whole")?, row.get("amount_pico")?),
            )?,
        })
    }
}

/// Selects at most `$7` sums of daily rows in the order of their key, after the given key.
pub const SUMS: &str =
    "SELECT project_id, grouped_by, day, group_id, kind, requests, prompt_tokens, completion_tokens,
         CAST(0 AS BIGINT) AS cached_prompt_tokens, amount_whole, amount_pico
     FROM usage_daily_sums
     WHERE organization_id = $1 AND (project_id, grouped_by, day, group_id, kind) > ($2, $3, $4, $5, $6)
     ORDER BY project_id, grouped_by, day, group_id, kind LIMIT $7";

/// Runs [`SUMS`]; without `after`, from the first row on.
pub async fn sums(
    tx: &mut Tx,
    organization_id: &str,
    after: Option<&SumKey>,
    limit: i64,
) -> Result<Vec<SumRow>, db::Error> {
    let text = |of: fn(&SumKey) -> &str| after.map(of).unwrap_or_default().to_owned();
    sql(SUMS)
        .bind(organization_id)
        .bind(text(|key| &key.project_id))
        .bind(text(|key| &key.grouped_by))
        .bind(after.map_or(i64::MIN, |key| key.day.unix_days()))
        .bind(text(|key| &key.group_id))
        .bind(text(|key| &key.kind))
        .bind(limit)
        .heavy()
        .all(tx)
        .await
}

db::row!(TotalRow { subject_id, requests, tokens });

/// Selects at most `$3` total usages by the id of their project or API key, after the id `$2`.
pub const TOTALS: &str = "SELECT subject_id, requests, tokens FROM usage_totals
     WHERE organization_id = $1 AND subject_id > $2 ORDER BY subject_id LIMIT $3";

/// Runs [`TOTALS`].
pub async fn totals(
    tx: &mut Tx,
    organization_id: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<TotalRow>, db::Error> {
    sql(TOTALS).bind(organization_id).bind(after).bind(limit).heavy().all(tx).await
}

impl FromRow for EventRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let occurred_at: Time = row.get("occurred_at")?;
        Ok(Self {
            source: row.get("source")?,
            event_id: row.get("event_id")?,
            // A correction counts on the day of the event that it corrects, and isn't a request.
            key: daily_key(row, occurred_at.day())?,
            sums: UsageSums {
                parts: recording::parts(row)?,
                ..usage_sums(row, row.get("requests")?, whole_and_rest(0, row.get("amount_pico")?))?
            },
            billed_month: row.get("billed_month")?,
            rated_month: row.get("rated_month")?,
        })
    }
}

/// Selects at most `$4` events in the order of their key, after the given key.
pub const EVENTS: &str =
    "SELECT source, event_id, project_id, occurred_at, api_key_id, model, price_version, kind,
         CAST(CASE WHEN corrects IS NULL THEN 1 ELSE 0 END AS BIGINT) AS requests,
         prompt_tokens, completion_tokens, COALESCE(cached_prompt_tokens, 0) AS cached_prompt_tokens,
         parts, amount_pico, billed_month,
         CASE WHEN corrects IS NULL THEN billed_month
              ELSE (SELECT o.billed_month FROM usage_events o
                    WHERE o.organization_id = $1 AND o.source = e.source AND o.event_id = e.corrects) END
                        AS rated_month
     FROM usage_events e WHERE organization_id = $1 AND (source, event_id) > ($2, $3)
     ORDER BY source, event_id LIMIT $4";

/// Runs [`EVENTS`]; without `after`, from the first event on.
pub async fn events(
    tx: &mut Tx,
    organization_id: &str,
    after: Option<&EventRow>,
    limit: i64,
) -> Result<Vec<EventRow>, db::Error> {
    sql(EVENTS)
        .bind(organization_id)
        .bind(after.map(|event| event.source.as_str()).unwrap_or_default())
        .bind(after.map(|event| event.event_id.as_str()).unwrap_or_default())
        .bind(limit)
        .heavy()
        .all(tx)
        .await
}
