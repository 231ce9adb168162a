//! Usage: events that count once, and the daily rows that every reading is made from.

use crate::catalog::Kind;
use crate::clock::{Day, Time};
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId};
use crate::money::Pico;
use crate::rules::periods::Range;

/// Who pays for an event: found by the key that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payer {
    /// The tenant.
    pub organization_id: OrganizationId,
    /// The project.
    pub project_id: ProjectId,
}

impl FromRow for Payer {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self { organization_id: row.get("organization_id")?, project_id: row.get("project_id")? })
    }
}

/// The tenant and project of a key; an expired or deleted key still pays for what it was used for.
pub async fn payer(tx: &mut Tx, api_key_id: ApiKeyId) -> Result<Option<Payer>, db::Error> {
    // One statement: between two, a key could have gone from the one table to the other.
    sql("SELECT organization_id, project_id FROM api_keys WHERE id = $1
         UNION ALL SELECT organization_id, project_id FROM former_api_keys WHERE id = $1")
    .bind(api_key_id)
    .optional(tx)
    .await
}

/// An event, rated.
#[derive(Clone, Debug)]
pub struct RatedEvent {
    /// Who pays.
    pub payer: Payer,
    /// Who reports it.
    pub source: String,
    /// Unique within the source.
    pub event_id: String,
    /// SHA-256 of what it says.
    pub payload_hash: [u8; 32],
    /// Whose use it was.
    pub api_key_id: ApiKeyId,
    /// The model.
    pub model: String,
    /// Chat or embeddings.
    pub kind: Kind,
    /// When it happened: the day it counts on.
    pub occurred_at: Time,
    /// Tokens in.
    pub prompt_tokens: i64,
    /// Tokens out.
    pub completion_tokens: i64,
    /// Unix milliseconds from which its price is in force.
    pub price_version: i64,
    /// What it costs at list price.
    pub amount: Pico,
}

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// It is new and counts.
    New,
    /// The same event was there already.
    Duplicate,
    /// Another event has this id.
    Conflict,
}

/// What was stored under this id, if anything was: the SHA-256 of what the event says.
pub async fn payload_hash(
    tx: &mut Tx,
    organization_id: OrganizationId,
    source: &str,
    event_id: &str,
) -> Result<Option<[u8; 32]>, db::Error> {
    let stored: Option<([u8; 32],)> = sql(
        "SELECT payload_hash FROM usage_events WHERE organization_id = $1 AND source = $2 AND event_id = $3",
    )
    .bind(organization_id)
    .bind(source)
    .bind(event_id)
    .optional(tx)
    .await?;
    Ok(stored.map(|(hash,)| hash))
}

/// Records an event unless it is there. The primary key of `usage_events` is the gate that makes it count exactly once;
/// what is new has to be added to its day in the same transaction.
pub async fn record(tx: &mut Tx, event: &RatedEvent, now: Time) -> Result<Recorded, db::Error> {
    let amount_pico =
        event.amount.to_i64().ok_or_else(|| db::Error::Internal("amount past 64 bits".into()))?;
    let inserted = sql("INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id,
                model, kind, occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
             ON CONFLICT (organization_id, source, event_id) DO NOTHING")
    .bind(event.payer.organization_id)
    .bind(event.source.as_str())
    .bind(event.event_id.as_str())
    .bind(event.payload_hash)
    .bind(event.payer.project_id)
    .bind(event.api_key_id)
    .bind(event.model.as_str())
    .bind(event.kind.as_str())
    .bind(event.occurred_at)
    .bind(now)
    .bind(event.prompt_tokens)
    .bind(event.completion_tokens)
    .bind(event.price_version)
    .bind(amount_pico)
    .execute(tx)
    .await?;
    if inserted == 1 {
        return Ok(Recorded::New);
    }
    let stored = payload_hash(tx, event.payer.organization_id, &event.source, &event.event_id).await?;
    Ok(if stored == Some(event.payload_hash) { Recorded::Duplicate } else { Recorded::Conflict })
}

/// What a daily row is for. Rows are written in this order, so that two batches never wait for each other in a circle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DailyKey {
    organization_id: String,
    project_id: String,
    day: Day,
    api_key_id: String,
    model: String,
    price_version: i64,
    kind: &'static str,
}

impl DailyKey {
    /// The row that this event belongs to.
    pub fn of(event: &RatedEvent) -> Self {
        Self {
            organization_id: event.payer.organization_id.to_string(),
            project_id: event.payer.project_id.to_string(),
            day: event.occurred_at.day(),
            api_key_id: event.api_key_id.to_string(),
            model: event.model.clone(),
            price_version: event.price_version,
            kind: event.kind.as_str(),
        }
    }
}

/// What events add to a daily row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DailySums {
    requests: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    amount: Pico,
}

impl DailySums {
    /// The sums with this event; `None` past 64 bits of tokens.
    pub fn plus(self, event: &RatedEvent) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(1)?,
            prompt_tokens: self.prompt_tokens.checked_add(event.prompt_tokens)?,
            completion_tokens: self.completion_tokens.checked_add(event.completion_tokens)?,
            amount: self.amount.checked_add(event.amount)?,
        })
    }
}

/// Adds to a daily row.
pub async fn add_to_day(tx: &mut Tx, key: &DailyKey, sums: &DailySums) -> Result<(), db::Error> {
    let amount_pico =
        sums.amount.to_i64().ok_or_else(|| db::Error::Internal("amount past 64 bits".into()))?;
    sql("INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                  requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $12, $8, $9, $10, $11, 0)
         ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month) DO UPDATE
         SET requests = usage_daily.requests + excluded.requests,
             prompt_tokens = usage_daily.prompt_tokens + excluded.prompt_tokens,
             completion_tokens = usage_daily.completion_tokens + excluded.completion_tokens,
             amount_pico = usage_daily.amount_pico + excluded.amount_pico")
    .bind(key.organization_id.as_str())
    .bind(key.project_id.as_str())
    .bind(key.api_key_id.as_str())
    .bind(key.model.as_str())
    .bind(key.price_version)
    .bind(key.kind)
    .bind(key.day)
    .bind(sums.requests)
    .bind(sums.prompt_tokens)
    .bind(sums.completion_tokens)
    .bind(amount_pico)
    .bind(key.day.month())
    .execute(tx)
    .await?;
    Ok(())
}

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
