//! Reads of daily rows for exports of charges, each with the names of its project and its caller.

use catalog::Parts;
use db::{Row, Tx, sql};
use kernel::clock::{Day, Month};
use kernel::ids::OrganizationId;
use kernel::money::Nano;

use crate::rules::focus::usage::NamedUsage;
use crate::rules::focus::{Caller, Named};
use crate::rules::invoicing::BilledUsage;
use crate::store::usage::day_parts;
use crate::store::usage::reports::{self, amount};

/// Selects the days of the usage that is billed to an organization in a month.
pub const DAYS: &str = "SELECT DISTINCT day FROM usage_daily /*+ INDEXED BY usage_daily_organization_month */
         WHERE organization_id = $1 AND month = $2
     ORDER BY day";

/// Returns the days of the usage that is billed to an organization in a month, the oldest first.
pub async fn days(tx: &mut Tx, organization_id: OrganizationId, month: Month) -> Result<Vec<Day>, db::Error> {
    let rows: Vec<(Day,)> = sql(DAYS).bind(organization_id).bind(month).heavy().all(tx).await?;
    Ok(rows.into_iter().map(|(day,)| day).collect())
}

/// Selects an organization's rows of a day that are billed in a month. Each name is looked up once.
pub const OF_DAY: &str = "WITH d AS MATERIALIZED (
         SELECT project_id, api_key_id, model, kind, price_version, day, prompt_tokens, completion_tokens,
                cached_prompt_tokens, usage_daily.amount_whole + amount_pico / 1000000000000 AS amount_whole,
                amount_pico % 1000000000000 AS amount_rest_pico
         FROM usage_daily /*+ INDEXED BY usage_daily_organization_day */
             WHERE organization_id = $1 AND day = $2 AND month = $3),
     callers AS MATERIALIZED (
         SELECT i.api_key_id,
                COALESCE((SELECT k.name FROM api_keys k WHERE k.id = i.api_key_id),
                         (SELECT f.name FROM former_api_keys f WHERE f.id = i.api_key_id),
                         (SELECT u.username FROM users u WHERE u.id = i.api_key_id)) AS name
         FROM (SELECT DISTINCT api_key_id FROM d) i),
     named_projects AS MATERIALIZED (
         SELECT i.project_id, (SELECT p.name FROM projects p WHERE p.id = i.project_id) AS name
         FROM (SELECT DISTINCT project_id FROM d) i)
     SELECT d.project_id AS project_id, named_projects.name AS project_name, d.api_key_id AS api_key_id,
            callers.name AS caller_name, d.model AS model, d.kind AS kind, d.price_version AS price_version,
            d.day AS day, d.prompt_tokens AS prompt_tokens, d.completion_tokens AS completion_tokens,
            d.cached_prompt_tokens AS cached_prompt_tokens, d.amount_whole AS amount_whole,
            d.amount_rest_pico AS amount_rest_pico
     FROM d JOIN callers ON callers.api_key_id = d.api_key_id
            JOIN named_projects ON named_projects.project_id = d.project_id
     ORDER BY d.project_id, d.api_key_id, d.model, d.kind, d.price_version";

db::row!(NamedUsage { project: project, caller: caller, used: used });

fn project(row: &Row) -> Result<Named, db::Error> {
    Ok(Named { id: row.get("project_id")?, name: row.get("project_name")? })
}

fn caller(row: &Row) -> Result<Caller, db::Error> {
    let named = Named { id: row.get("api_key_id")?, name: row.get("caller_name")? };
    Ok(Caller { is_key: !reports::is_user(&named.id), named })
}

/// Reads a part of the billed usage, without its charge in whole nanos.
fn used(row: &Row) -> Result<BilledUsage, db::Error> {
    Ok(BilledUsage {
        model: row.get("model")?,
        kind: row.get("kind")?,
        price_version: row.get("price_version")?,
        day: row.get("day")?,
        prompt_tokens: row.get("prompt_tokens")?,
        completion_tokens: row.get("completion_tokens")?,
        cached_prompt_tokens: row.get("cached_prompt_tokens")?,
        parts: Parts::default(),
        amount: amount(row)?,
        posted: Nano::ZERO,
    })
}

/// Returns an organization's usage of a day that is billed in a month, by project, caller, model and price.
pub async fn of_day(
    tx: &mut Tx,
    organization_id: OrganizationId,
    day: Day,
    month: Month,
) -> Result<Vec<NamedUsage>, db::Error> {
    let mut rows: Vec<NamedUsage> =
        sql(OF_DAY).bind(organization_id).bind(day).bind(month).heavy().all(tx).await?;
    for part in day_parts::of_day(tx, organization_id, day, month).await? {
        let row = rows.iter_mut().find(|row| part.are_of(&row.project.id, &row.caller.named.id, &row.used));
        let sum = row.and_then(|row| Some((row.used.parts.checked_add(part.parts())?, row)));
        let (sum, row) = sum.ok_or_else(|| db::Error::Internal(format!("the parts {part:?} have no row")))?;
        row.used.parts = sum;
    }
    Ok(rows)
}
