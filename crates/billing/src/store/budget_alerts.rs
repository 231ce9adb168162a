//! The thresholds that budgets have reached: the table `budget_alerts`. Only the holder of the wallet's lock
//! adds them.

use super::budgets::parts;
use crate::rules::budgets::Period;
use crate::store::amounts::whole_and_rest;
use crate::store::wallets::nano;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::{Day, Time};
use kernel::ids::{BudgetId, OrganizationId};
use kernel::money::{Nano, Pico};

/// A threshold that a budget has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReachedThreshold {
    pub budget_id: BudgetId,
    /// The first day of the period.
    pub period_start: Day,
    /// In percent of the limit.
    pub threshold: i64,
    /// The limit at that time.
    pub limit: Nano,
    /// The amount spent at that time.
    pub spent: Pico,
}

/// Records that a budget has reached a threshold.
pub async fn insert(tx: &mut Tx, reached: &ReachedThreshold, now: Time) -> Result<(), db::Error> {
    let (whole, pico) = parts(reached.spent)?;
    sql("INSERT INTO budget_alerts (budget_id, period_start, threshold, limit_nano, spent_whole, spent_pico,
             reached_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (budget_id, period_start, threshold) DO NOTHING")
    .bind(reached.budget_id)
    .bind(reached.period_start)
    .bind(reached.threshold)
    .bind(nano(reached.limit)?)
    .bind(whole)
    .bind(pico)
    .bind(now)
    .defer(tx)
    .await
}

/// A budget that has reached thresholds in a period and has no e-mail about them yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueAlert {
    pub budget_id: BudgetId,
    /// The first day of the period.
    pub period_start: Day,
    pub organization_id: OrganizationId,
    pub name: String,
    pub period: Period,
    pub hard: bool,
    /// ISO 4217 code.
    pub currency: String,
}

db::row!(DueAlert { budget_id, period_start, organization_id, name, period, hard, currency });

/// The statement of [`due`].
pub const DUE: &str =
    "SELECT a.budget_id, a.period_start, b.organization_id, b.name, b.period, b.hard, w.currency
     FROM (SELECT DISTINCT budget_id, period_start FROM
           (SELECT budget_id, period_start FROM budget_alerts WHERE mailed_at IS NULL
            ORDER BY reached_at, budget_id LIMIT $1) oldest) a
     JOIN budgets b ON b.id = a.budget_id JOIN wallets w ON w.organization_id = b.organization_id";

/// Returns budgets that have reached thresholds and have no e-mail about them yet, the earliest first.
pub async fn due(tx: &mut Tx, at_most: i64) -> Result<Vec<DueAlert>, db::Error> {
    sql(DUE).bind(at_most).all(tx).await
}

impl FromRow for ReachedThreshold {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            budget_id: row.get("budget_id")?,
            period_start: row.get("period_start")?,
            threshold: row.get("threshold")?,
            limit: row.get("limit_nano")?,
            spent: whole_and_rest(row.get("spent_whole")?, row.get("spent_pico")?),
        })
    }
}

/// Marks the thresholds that a budget has reached in a period as mailed. Returns the newly marked ones.
pub async fn set_mailed(
    tx: &mut Tx,
    id: BudgetId,
    period_start: Day,
    now: Time,
) -> Result<Vec<ReachedThreshold>, db::Error> {
    sql("UPDATE budget_alerts SET mailed_at = $3
         WHERE budget_id = $1 AND period_start = $2 AND mailed_at IS NULL
         RETURNING budget_id, period_start, threshold, limit_nano, spent_whole, spent_pico")
    .bind(id)
    .bind(period_start)
    .bind(now)
    .all(tx)
    .await
}
