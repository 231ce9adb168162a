//! The usage that is billed in a month, and the open months of organizations.

use std::collections::BTreeSet;

use crate::rules::invoicing::BilledUsage;
use crate::store::amounts::PICO_PER_WHOLE;
use crate::store::usage::day_parts;
use crate::store::usage::reports::amount;
use crate::store::wallets::nano;
use catalog::Parts;
use db::{Row, Tx, sql};
use kernel::clock::Month;
use kernel::ids::OrganizationId;
use kernel::money::{Nano, Pico};

/// Posted amounts are summed in two parts, so that a sum that exceeds 64 bits stays exact on both databases.
const NANO_PER_WHOLE: i128 = 1_000_000_000;

fn posted(row: &Row) -> Result<Nano, db::Error> {
    let (whole, rest_nano): (i64, i64) = (row.get("posted_whole")?, row.get("posted_rest_nano")?);
    Ok(Nano::from_units(i128::from(whole) * NANO_PER_WHOLE + i128::from(rest_nano)))
}

db::row!(BilledUsage {
    model,
    kind,
    price_version,
    day,
    prompt_tokens,
    completion_tokens,
    cached_prompt_tokens,
    parts: no_parts,
    amount: amount,
    posted: posted
});

/// Returns no parts, because the parts of daily rows are in separate rows.
fn no_parts(_row: &Row) -> Result<Parts, db::Error> {
    Ok(Parts::default())
}

/// Selects the daily rows of an organization that are billed in a month, as sums by model, price and day.
pub const BILLED: &str = "SELECT model, kind, price_version, day,
            CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
            CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
            CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached_prompt_tokens,
            CAST(SUM(usage_daily.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
            CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_rest_pico,
            CAST(SUM(posted_nano / 1000000000) AS BIGINT) AS posted_whole,
            CAST(SUM(posted_nano % 1000000000) AS BIGINT) AS posted_rest_nano
     FROM usage_daily /*+ INDEXED BY usage_daily_organization_month */
         WHERE organization_id = $1 AND month = $2
     GROUP BY model, kind, price_version, day ORDER BY day, model, kind, price_version";

/// Returns the usage billed to an organization in a month, without the usage that credit notes took back
/// while the month was open.
pub async fn billed(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Vec<BilledUsage>, db::Error> {
    let mut used: Vec<BilledUsage> = sql(BILLED).bind(organization_id).bind(month).heavy().all(tx).await?;
    day_parts::add_to(&mut used, &day_parts::billed(tx, organization_id, month).await?)?;
    let credited = credited_in(tx, organization_id, month).await?;
    Ok(subtract(used, &credited))
}

/// Returns the parts of daily rows that are in credit notes made while a month was open. Counts and amounts
/// are 0 or negative.
pub async fn credited_in(
    tx: &mut Tx,
    organization_id: OrganizationId,
    booked: Month,
) -> Result<Vec<BilledUsage>, db::Error> {
    let mut credited: Vec<BilledUsage> =
        sql(CREDITED_IN).bind(organization_id).bind(booked).heavy().all(tx).await?;
    day_parts::add_to(&mut credited, &day_parts::credited(tx, organization_id, booked).await?)?;
    Ok(credited)
}

/// Selects the parts of daily rows that are in credit notes made while a month was open.
pub const CREDITED_IN: &str = "SELECT model, kind, price_version, day,
            CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
            CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
            CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached_prompt_tokens,
            CAST(SUM(credited_usage.amount_whole) AS BIGINT) AS amount_whole,
            CAST(SUM(amount_pico) AS BIGINT) AS amount_rest_pico,
            CAST(SUM(posted_nano / 1000000000) AS BIGINT) AS posted_whole,
            CAST(SUM(posted_nano % 1000000000) AS BIGINT) AS posted_rest_nano
     FROM credited_usage WHERE organization_id = $1 AND booked_month = $2
     GROUP BY model, kind, price_version, day";

/// Subtracts `credited` from `used`; both have one entry for each model, kind, price and day.
fn subtract(mut used: Vec<BilledUsage>, credited: &[BilledUsage]) -> Vec<BilledUsage> {
    let key = |used: &BilledUsage| (used.day, used.model.clone(), used.kind.as_str(), used.price_version);
    for taken in credited {
        let Some(entry) = used.iter_mut().find(|entry| key(entry) == key(taken)) else { continue };
        entry.prompt_tokens = entry.prompt_tokens.saturating_sub(taken.prompt_tokens);
        entry.completion_tokens = entry.completion_tokens.saturating_sub(taken.completion_tokens);
        entry.cached_prompt_tokens = entry.cached_prompt_tokens.saturating_sub(taken.cached_prompt_tokens);
        for (part, quantity) in taken.parts.iter() {
            entry.parts.set(part, entry.parts.get(part).saturating_sub(quantity));
        }
        entry.amount = Pico::from_units(entry.amount.units() - taken.amount.units());
        entry.posted = Nano::from_units(entry.posted.units() - taken.posted.units());
    }
    let counts = |used: &BilledUsage| {
        (used.prompt_tokens, used.completion_tokens, used.cached_prompt_tokens) != (0, 0, 0)
            || !used.parts.is_empty()
            || (used.amount, used.posted) != (Pico::ZERO, Nano::ZERO)
    };
    used.retain(counts);
    used
}

/// Returns the usage of the months `months_of_use` that was known when `month` was billed, or is known while
/// it is open: the usage billed in earlier months, minus the credit notes made until then.
pub async fn billed_before(
    tx: &mut Tx,
    organization_id: OrganizationId,
    months_of_use: &BTreeSet<Month>,
    month: Month,
) -> Result<Vec<BilledUsage>, db::Error> {
    let mut used = Vec::new();
    for month_of_use in months_of_use {
        used.extend(one_billed_before(tx, organization_id, *month_of_use, month).await?);
    }
    Ok(used)
}

async fn one_billed_before(
    tx: &mut Tx,
    organization_id: OrganizationId,
    of: Month,
    month: Month,
) -> Result<Vec<BilledUsage>, db::Error> {
    // The rows of credit notes have the month that was open, so those of `month` itself aren't among the rows
    // of earlier months.
    let mut used: Vec<BilledUsage> = sql(BILLED_BEFORE)
        .bind(organization_id)
        .bind(of.start().day())
        .bind(of.end().day())
        .bind(month)
        .heavy()
        .all(tx)
        .await?;
    day_parts::add_to(&mut used, &day_parts::billed_before(tx, organization_id, of, month).await?)?;
    let credited = credited_in(tx, organization_id, month).await?;
    for taken in credited.into_iter().filter(|taken| taken.day.month() == of) {
        let same = |entry: &&mut BilledUsage| {
            (&entry.model, entry.kind, entry.price_version, entry.day)
                == (&taken.model, taken.kind, taken.price_version, taken.day)
        };
        match used.iter_mut().find(same) {
            Some(entry) => {
                entry.prompt_tokens = entry.prompt_tokens.saturating_add(taken.prompt_tokens);
                entry.completion_tokens = entry.completion_tokens.saturating_add(taken.completion_tokens);
                entry.cached_prompt_tokens =
                    entry.cached_prompt_tokens.saturating_add(taken.cached_prompt_tokens);
                for (part, quantity) in taken.parts.iter() {
                    entry.parts.set(part, entry.parts.get(part).saturating_add(quantity));
                }
                entry.amount = Pico::from_units(entry.amount.units() + taken.amount.units());
                entry.posted = Nano::from_units(entry.posted.units() + taken.posted.units());
            }
            None => used.push(taken),
        }
    }
    Ok(used)
}

/// Selects the usage on the days from `$2` to before `$3` that was billed before the month `$4`.
const BILLED_BEFORE: &str = "SELECT model, kind, price_version, day,
            CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
            CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
            CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached_prompt_tokens,
            CAST(SUM(usage_daily.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
            CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_rest_pico,
            CAST(SUM(posted_nano / 1000000000) AS BIGINT) AS posted_whole,
            CAST(SUM(posted_nano % 1000000000) AS BIGINT) AS posted_rest_nano
     FROM usage_daily WHERE organization_id = $1 AND day >= $2 AND day < $3 AND month < $4
     GROUP BY model, kind, price_version, day";

/// A part of daily rows that a credit note takes back. Counts and amounts are 0 or negative.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditedUsage {
    /// The month in which the usage was billed.
    pub month: Month,
    pub used: BilledUsage,
}

/// Adds to the usage that credit notes took back while the month `booked` was open.
pub async fn add_credited(
    tx: &mut Tx,
    organization_id: OrganizationId,
    booked: Month,
    credited: &CreditedUsage,
) -> Result<(), db::Error> {
    let CreditedUsage { month, used } = credited;
    let out_of_range =
        |_| db::Error::Internal("the amount of a credit note doesn't fit in 64 bits".to_owned());
    let mut parts = used.parts;
    if !parts.is_empty() {
        let before = day_parts::of_credited(tx, organization_id, (booked, *month), used).await?;
        parts = parts.checked_add(before).ok_or_else(|| {
            db::Error::Internal("the parts of a credit note don't fit in 64 bits".to_owned())
        })?;
    }
    let whole = i64::try_from(used.amount.units() / PICO_PER_WHOLE).map_err(out_of_range)?;
    let rest = i64::try_from(used.amount.units() % PICO_PER_WHOLE).map_err(out_of_range)?;
    sql("INSERT INTO credited_usage (organization_id, booked_month, month, day, model, kind,
             price_version, prompt_tokens, completion_tokens, amount_whole, amount_pico, posted_nano,
             cached_prompt_tokens, parts)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         ON CONFLICT (organization_id, booked_month, month, day, model, kind, price_version) DO UPDATE
         SET prompt_tokens = credited_usage.prompt_tokens + excluded.prompt_tokens,
             completion_tokens = credited_usage.completion_tokens + excluded.completion_tokens,
             cached_prompt_tokens = credited_usage.cached_prompt_tokens + excluded.cached_prompt_tokens,
             amount_whole = credited_usage.amount_whole + excluded.amount_whole,
             amount_pico = credited_usage.amount_pico + excluded.amount_pico,
             posted_nano = credited_usage.posted_nano + excluded.posted_nano,
             parts = COALESCE(excluded.parts, credited_usage.parts)")
    .bind(organization_id)
    .bind(booked)
    .bind(*month)
    .bind(used.day)
    .bind(used.model.as_str())
    .bind(used.kind.as_str())
    .bind(used.price_version)
    .bind(used.prompt_tokens)
    .bind(used.completion_tokens)
    .bind(whole)
    .bind(rest)
    .bind(nano(used.posted)?)
    .bind(used.cached_prompt_tokens)
    .bind(parts.to_text())
    .defer(tx)
    .await
}

/// The charges of a month at list price, minus the amounts that credits have paid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MonthCharge {
    /// The month in which the charges are billed.
    pub month: Month,
    /// The part that no credit has paid; negative if credits paid for usage that was taken back later.
    pub unpaid: Nano,
}

db::row!(MonthCharge { month, unpaid: posted });

/// Returns the charges of this month and later ones, which aren't billed yet, the oldest first.
pub async fn charges_from(
    tx: &mut Tx,
    organization_id: impl Into<db::Value>,
    month: Month,
) -> Result<Vec<MonthCharge>, db::Error> {
    sql("SELECT month, CAST(SUM(nano / 1000000000) AS BIGINT) AS posted_whole,
                CAST(SUM(nano % 1000000000) AS BIGINT) AS posted_rest_nano FROM (
             SELECT month, posted_nano AS nano
             FROM usage_daily /*+ INDEXED BY usage_daily_organization_month */
                 WHERE organization_id = $1 AND month >= $2
             UNION ALL SELECT booked_month, -posted_nano FROM credited_usage
                 WHERE organization_id = $1 AND booked_month >= $2
             UNION ALL SELECT month, -amount_nano FROM credit_uses
                 WHERE organization_id = $1 AND month >= $2) charged
         GROUP BY month ORDER BY month")
    .bind(organization_id)
    .bind(month)
    .heavy()
    .all(tx)
    .await
}

/// Returns `true` if an organization has usage that is billed in a later month.
pub async fn has_later(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<bool, db::Error> {
    let later: Option<(Month,)> = sql("SELECT month
         FROM usage_daily /*+ INDEXED BY usage_daily_organization_month */
             WHERE organization_id = $1 AND month > $2 LIMIT 1")
    .bind(organization_id)
    .bind(month)
    .optional(tx)
    .await?;
    Ok(later.is_some())
}

/// Returns the oldest open month of all organizations, unless it is later than `up_to`.
pub async fn first_open(tx: &mut Tx, up_to: Month) -> Result<Option<Month>, db::Error> {
    let (first,): (Option<Month>,) =
        sql("SELECT MIN(open_month) FROM wallets WHERE open_month <= $1").bind(up_to).one(tx).await?;
    Ok(first)
}

/// Returns the organizations with this open month by id, after the given one.
pub async fn with_open_month(
    tx: &mut Tx,
    month: Month,
    after: Option<OrganizationId>,
    limit: i64,
) -> Result<Vec<OrganizationId>, db::Error> {
    let rows: Vec<(OrganizationId,)> = sql("SELECT organization_id FROM wallets
         WHERE open_month = $1 AND organization_id > $2 ORDER BY organization_id LIMIT $3")
    .bind(month)
    .bind(after.map(|id| id.to_string()).unwrap_or_default())
    .bind(limit)
    .all(tx)
    .await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}
