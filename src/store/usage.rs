//! Usage: the daily rows that every reading is made from. Events are recorded in [`recording`], and added
//! to their days in [`days`].

pub mod days;
pub mod recording;

use crate::catalog::Kind;
use crate::clock::Day;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId};
use crate::money::Pico;
use crate::rules::periods::Range;

/// The usage of one day and kind, of the whole organization or of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DayUsage {
    /// UTC.
    pub day: Day,
    /// Chat or embeddings.
    pub kind: Kind,
    /// Events.
    pub requests: i64,
    /// Tokens in.
    pub prompt_tokens: i64,
    /// Tokens out.
    pub completion_tokens: i64,
    /// At list price.
    pub amount: Pico,
}

impl FromRow for DayUsage {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let kind: String = row.get("kind")?;
        let whole: i64 = row.get("amount_whole")?;
        let rest_pico: i64 = row.get("amount_rest_pico")?;
        Ok(Self {
            day: Day::from_unix_days(row.get("day")?),
            kind: Kind::parse(&kind).ok_or_else(|| db::Error::Internal(format!("kind is {kind:?}")))?,
            requests: row.get("requests")?,
            prompt_tokens: row.get("prompt_tokens")?,
            completion_tokens: row.get("completion_tokens")?,
            amount: Pico::from_units(i128::from(whole) * PICO_PER_PART + i128::from(rest_pico)),
        })
    }
}

/// Amounts are summed in two parts, so that a sum past 64 bits of pico stays exact on both databases.
const PICO_PER_PART: i128 = 1_000_000_000_000;

const SUMS: &str = "CAST(SUM(requests) AS BIGINT) AS requests,
     CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
     CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
     CAST(SUM(amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
     CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_rest_pico";

/// The days of an organization on which something was used, oldest first.
pub async fn by_day(
    tx: &mut Tx,
    organization_id: OrganizationId,
    range: Range,
) -> Result<Vec<DayUsage>, db::Error> {
    sql(format!(
        "SELECT day, kind, {SUMS} FROM usage_daily
         WHERE organization_id = $1 AND day >= $2 AND day < $3 GROUP BY day, kind ORDER BY day, kind"
    ))
    .bind(organization_id)
    .bind(range.start.unix_days())
    .bind(range.end_exclusive.unix_days())
    .heavy()
    .all(tx)
    .await
}

/// The usage of one key on one day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyDayUsage {
    /// Which key.
    pub api_key_id: ApiKeyId,
    /// Its name.
    pub api_key_name: String,
    /// What it used.
    pub usage: DayUsage,
}

impl FromRow for KeyDayUsage {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            api_key_id: row.get("api_key_id")?,
            api_key_name: row.get("api_key_name")?,
            usage: DayUsage::from_row(row)?,
        })
    }
}

/// The days of a project on which something was used, key by key, oldest first. Deleted keys keep their name.
pub async fn by_key_and_day(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    range: Range,
) -> Result<Vec<KeyDayUsage>, db::Error> {
    sql(format!(
        "SELECT d.day AS day, d.kind AS kind, d.api_key_id AS api_key_id,
                COALESCE(k.name, f.name, d.api_key_id) AS api_key_name,
                requests, prompt_tokens, completion_tokens, amount_whole, amount_rest_pico
         FROM (SELECT day, kind, api_key_id, {SUMS} FROM usage_daily
               WHERE organization_id = $1 AND project_id = $2 AND day >= $3 AND day < $4
               GROUP BY day, kind, api_key_id) d
         LEFT JOIN api_keys k ON k.id = d.api_key_id
         LEFT JOIN former_api_keys f ON f.id = d.api_key_id
         ORDER BY d.day, COALESCE(k.name_folded, f.name_folded, ''), d.api_key_id, d.kind"
    ))
    .bind(organization_id)
    .bind(project_id)
    .bind(range.start.unix_days())
    .bind(range.end_exclusive.unix_days())
    .heavy()
    .all(tx)
    .await
}

/// Everything that was ever used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Events.
    pub requests: i64,
    /// Tokens in and out.
    pub tokens: i64,
}

impl FromRow for Totals {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self { requests: row.get("requests")?, tokens: row.get("tokens")? })
    }
}

/// Of a project, from its days.
pub const PROJECT_TOTALS: &str = "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS requests,
     CAST(COALESCE(SUM(prompt_tokens + completion_tokens), 0) AS BIGINT) AS tokens FROM usage_daily
     WHERE organization_id = $1 AND project_id = $2";

/// Of a project.
pub async fn project_totals(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
) -> Result<Totals, db::Error> {
    sql(PROJECT_TOTALS).bind(organization_id).bind(project_id).heavy().one(tx).await
}

/// Of a key.
pub async fn key_totals(tx: &mut Tx, api_key_id: ApiKeyId) -> Result<Totals, db::Error> {
    sql("SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS requests,
                CAST(COALESCE(SUM(prompt_tokens + completion_tokens), 0) AS BIGINT) AS tokens FROM usage_daily
         WHERE api_key_id = $1")
    .bind(api_key_id)
    .heavy()
    .one(tx)
    .await
}
