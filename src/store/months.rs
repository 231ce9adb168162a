//! What is billed in a month, and whose months are still open.

use crate::catalog::Kind;
use crate::clock::{Day, Month};
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::OrganizationId;
use crate::money::Nano;
use crate::rules::invoicing::Used;
use crate::store::usage::days::whole_and_rest;

/// Posted amounts are summed in two parts, so that a sum past 64 bits stays exact on both databases.
const NANO_PER_WHOLE: i128 = 1_000_000_000;

fn posted(row: &Row) -> Result<Nano, db::Error> {
    let (whole, rest_nano): (i64, i64) = (row.get("posted_whole")?, row.get("posted_rest_nano")?);
    Ok(Nano::from_units(i128::from(whole) * NANO_PER_WHOLE + i128::from(rest_nano)))
}

impl FromRow for Used {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let kind: String = row.get("kind")?;
        let (whole, rest_pico): (i64, i64) = (row.get("amount_whole")?, row.get("amount_rest_pico")?);
        Ok(Self {
            model: row.get("model")?,
            kind: Kind::parse(&kind).ok_or_else(|| db::Error::Internal(format!("kind is {kind:?}")))?,
            price_version: row.get("price_version")?,
            day: Day::from_unix_days(row.get("day")?),
            prompt_tokens: row.get("prompt_tokens")?,
            completion_tokens: row.get("completion_tokens")?,
            amount: whole_and_rest(whole, rest_pico),
            posted: posted(row)?,
        })
    }
}

/// Everything that is billed to an organization in a month, by model, price and day.
pub const USED: &str = "SELECT model, kind, price_version, day,
            CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
            CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
            CAST(SUM(usage_daily.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
            CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_rest_pico,
            CAST(SUM(posted_nano / 1000000000) AS BIGINT) AS posted_whole,
            CAST(SUM(posted_nano % 1000000000) AS BIGINT) AS posted_rest_nano
     FROM usage_daily /*+ INDEXED BY usage_daily_organization_month */ WHERE organization_id = $1 AND month = $2
     GROUP BY model, kind, price_version, day ORDER BY day, model, kind, price_version";

/// Runs [`USED`].
pub async fn used(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Vec<Used>, db::Error> {
    sql(USED).bind(organization_id).bind(month).heavy().all(tx).await
}

struct Charged(Nano);

impl FromRow for Charged {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        posted(row).map(Self)
    }
}

/// What an organization was charged for the months after this one.
pub async fn charged_after(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Nano, db::Error> {
    let Charged(charged) = sql("SELECT CAST(COALESCE(SUM(posted_nano / 1000000000), 0) AS BIGINT) AS posted_whole,
                CAST(COALESCE(SUM(posted_nano % 1000000000), 0) AS BIGINT) AS posted_rest_nano
         FROM usage_daily /*+ INDEXED BY usage_daily_organization_month */ WHERE organization_id = $1 AND month > $2")
    .bind(organization_id)
    .bind(month)
    .heavy()
    .one(tx)
    .await?;
    Ok(charged)
}

/// The first month that somebody has open, when it isn't later than this one.
pub async fn first_open(tx: &mut Tx, up_to: Month) -> Result<Option<Month>, db::Error> {
    let (first,): (Option<Month>,) =
        sql("SELECT MIN(open_month) FROM wallets WHERE open_month <= $1").bind(up_to).one(tx).await?;
    Ok(first)
}

/// Those whose first open month this is, by id from after this one on.
pub async fn open_in(
    tx: &mut Tx,
    month: Month,
    after: Option<OrganizationId>,
    most: i64,
) -> Result<Vec<OrganizationId>, db::Error> {
    let rows: Vec<(OrganizationId,)> = sql("SELECT organization_id FROM wallets
         WHERE open_month = $1 AND organization_id > $2 ORDER BY organization_id LIMIT $3")
    .bind(month)
    .bind(after.map(|id| id.to_string()).unwrap_or_default())
    .bind(most)
    .all(tx)
    .await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}
