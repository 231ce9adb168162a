//! Reads of the components that daily rows and credit notes count in addition to tokens.

use catalog::{Component, Parts};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::{Day, Month};
use kernel::ids::OrganizationId;

use super::recording;
use crate::rules::invoicing::BilledUsage;

/// The parts of one model, kind and price on one day.
#[derive(Clone, Debug)]
pub struct PartSum {
    day: Day,
    model: String,
    kind: String,
    price_version: i64,
    parts: Parts,
}

impl PartSum {
    fn is_of(&self, used: &BilledUsage) -> bool {
        (self.day, self.price_version) == (used.day, used.price_version)
            && (&*self.model, &*self.kind) == (&*used.model, used.kind.as_str())
    }
}

/// Adds parts to the usage that they belong to. Both have one entry for each model, kind, price and day.
pub fn add_to(used: &mut [BilledUsage], parts: &[PartSum]) -> Result<(), db::Error> {
    let wrong = |sum: &PartSum| {
        db::Error::Internal(format!("the parts {sum:?} have no usage, or don't fit in 64 bits"))
    };
    for sum in parts {
        let entry = used.iter_mut().find(|used| sum.is_of(used)).ok_or_else(|| wrong(sum))?;
        entry.parts = entry.parts.checked_add(sum.parts).ok_or_else(|| wrong(sum))?;
    }
    Ok(())
}

/// Reads a row with one component.
impl FromRow for PartSum {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            day: row.get("day")?,
            model: row.get("model")?,
            kind: row.get("kind")?,
            price_version: row.get("price_version")?,
            parts: part(row)?,
        })
    }
}

/// Reads the column `component`.
pub(super) fn component(row: &Row) -> Result<Component, db::Error> {
    let name: String = row.get("component")?;
    name.parse().map_err(|_| db::Error::Internal(format!("unknown component {name:?}")))
}

/// Reads the columns `component` and `quantity`.
pub fn part(row: &Row) -> Result<Parts, db::Error> {
    Ok(Parts::default().with(component(row)?, row.get("quantity")?))
}

/// Selects the parts of the daily rows of an organization that are billed in a month.
pub const BILLED: &str = "SELECT day, model, kind, price_version, component, CAST(SUM(quantity) AS BIGINT) AS quantity
     FROM usage_daily_parts /*+ INDEXED BY usage_daily_parts_month */ WHERE organization_id = $1 AND month = $2
     GROUP BY day, model, kind, price_version, component";

/// Returns the parts that are billed to an organization in a month.
pub async fn billed(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Vec<PartSum>, db::Error> {
    sql(BILLED).bind(organization_id).bind(month).heavy().all(tx).await
}

/// Returns the parts that were used in the month `of` and billed before `month`.
pub async fn billed_before(
    tx: &mut Tx,
    organization_id: OrganizationId,
    of: Month,
    month: Month,
) -> Result<Vec<PartSum>, db::Error> {
    sql("SELECT day, model, kind, price_version, component, CAST(SUM(quantity) AS BIGINT) AS quantity
         FROM usage_daily_parts WHERE organization_id = $1 AND month < $2 AND day >= $3 AND day < $4
         GROUP BY day, model, kind, price_version, component")
    .bind(organization_id)
    .bind(month)
    .bind(of.start().day())
    .bind(of.end().day())
    .heavy()
    .all(tx)
    .await
}

/// The parts of a row of `credited_usage`.
struct Credited(PartSum);

impl FromRow for Credited {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self(PartSum {
            day: row.get("day")?,
            model: row.get("model")?,
            kind: row.get("kind")?,
            price_version: row.get("price_version")?,
            parts: recording::parts(row)?,
        }))
    }
}

/// Returns the parts that credit notes took back while a month was open.
pub async fn credited(
    tx: &mut Tx,
    organization_id: OrganizationId,
    booked: Month,
) -> Result<Vec<PartSum>, db::Error> {
    let rows: Vec<Credited> = sql("SELECT day, model, kind, price_version, parts FROM credited_usage
         WHERE organization_id = $1 AND booked_month = $2 AND parts IS NOT NULL")
    .bind(organization_id)
    .bind(booked)
    .heavy()
    .all(tx)
    .await?;
    Ok(rows.into_iter().map(|Credited(sum)| sum).collect())
}

struct CreditedParts(Parts);

impl FromRow for CreditedParts {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        recording::parts(row).map(Self)
    }
}

/// Returns the parts of this usage that credit notes took back. `month` is the month of the credit notes'
/// invoice, and `booked` is the month that was open.
pub async fn of_credited(
    tx: &mut Tx,
    organization_id: OrganizationId,
    (booked, month): (Month, Month),
    used: &BilledUsage,
) -> Result<Parts, db::Error> {
    let found: Option<CreditedParts> = sql("SELECT parts FROM credited_usage
         WHERE organization_id = $1 AND booked_month = $2 AND month = $3 AND day = $4 AND model = $5
             AND kind = $6 AND price_version = $7")
    .bind(organization_id)
    .bind(booked)
    .bind(month)
    .bind(used.day)
    .bind(used.model.as_str())
    .bind(used.kind.as_str())
    .bind(used.price_version)
    .optional(tx)
    .await?;
    Ok(found.map(|CreditedParts(parts)| parts).unwrap_or_default())
}

/// The parts of a daily row, with its project and caller.
#[derive(Clone, Debug)]
pub struct RowParts {
    pub project_id: String,
    pub api_key_id: String,
    pub sum: PartSum,
}

impl RowParts {
    /// Returns `true` if they belong to this row.
    pub fn are_of(&self, project_id: &str, api_key_id: &str, used: &BilledUsage) -> bool {
        (&*self.project_id, &*self.api_key_id) == (project_id, api_key_id) && self.sum.is_of(used)
    }

    /// Returns the parts.
    pub fn parts(&self) -> Parts {
        self.sum.parts
    }
}

impl FromRow for RowParts {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            project_id: row.get("project_id")?,
            api_key_id: row.get("api_key_id")?,
            sum: PartSum::from_row(row)?,
        })
    }
}

/// Returns the parts of an organization's rows of a day that are billed in a month.
pub async fn of_day(
    tx: &mut Tx,
    organization_id: OrganizationId,
    day: Day,
    month: Month,
) -> Result<Vec<RowParts>, db::Error> {
    sql("SELECT project_id, api_key_id, day, model, kind, price_version, component, quantity
         FROM usage_daily_parts WHERE organization_id = $1 AND month = $2 AND day = $3")
    .bind(organization_id)
    .bind(month)
    .bind(day)
    .heavy()
    .all(tx)
    .await
}
