//! All usage ever of a project or a key, summed up from its daily rows.
//!
//! Rows that are billed in a closed month never change. A transaction that adds to rows locks the wallet
//! before its commit, and starts over unless the month that it assumed is open; a transaction that closes a
//! month holds that lock too. So a statement that sees a month as closed sees everything that will ever be
//! billed in it, and its sum of the closed months is final. [`crate::totals`] keeps it in memory.

use std::sync::LazyLock;

use db::{FromRow, Row, Statement, Tx, sql};
use kernel::clock::Month;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

/// Maximum number of daily rows that are summed up by a short statement: more than a year of one key with one
/// model. Larger sums run as heavy statements, which cost more for small ones.
pub const MAX_SHORT_SUM_ROWS: i64 = 1_000;

/// Sums of usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub requests: i64,
    /// Input and output tokens.
    pub tokens: i64,
}

impl Totals {
    /// Returns the sum; `None` if it exceeds 64 bits.
    pub fn plus(self, other: Self) -> Option<Self> {
        let requests = self.requests.checked_add(other.requests)?;
        Some(Self { requests, tokens: self.tokens.checked_add(other.tokens)? })
    }
}

/// The last month. PostgreSQL keeps a plan for any month: it takes a range with two ends for a small one, but
/// one without an end for a third of all rows, and would then plan each statement anew.
pub const LAST_MONTH: Month = Month::from_unix_months(i64::MAX);

/// The sums of a range of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeTotals {
    pub all: Totals,
    /// Those that are billed in closed months.
    pub closed: Totals,
    /// The number of rows that are billed in open months.
    pub open_rows: i64,
    /// The first month that isn't closed; `None` without a wallet.
    pub open_month: Option<Month>,
}

impl FromRow for RangeTotals {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            all: Totals { requests: row.get("used_requests")?, tokens: row.get("used_tokens")? },
            closed: Totals { requests: row.get("closed_requests")?, tokens: row.get("closed_tokens")? },
            open_rows: row.get("open_rows")?,
            open_month: row.get("open_month")?,
        })
    }
}

/// Returns a statement that sums up the rows of a place, for the organization `$1` and the id `$2`, from the
/// month `$3` to `$4`, into one row, an [`RangeTotals`].
fn sum_statement(index: &str, condition: &str) -> String {
    let open_month = "(SELECT open_month FROM wallets WHERE organization_id = $1) AS open_month";
    format!(
        "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS used_requests,
                CAST(COALESCE(SUM(tokens), 0) AS BIGINT) AS used_tokens,
                CAST(COALESCE(SUM(CASE WHEN month < open_month THEN requests END), 0) AS BIGINT)
                    AS closed_requests,
                CAST(COALESCE(SUM(CASE WHEN month < open_month THEN tokens END), 0) AS BIGINT)
                    AS closed_tokens,
                COUNT(CASE WHEN month < open_month THEN NULL ELSE 1 END) AS open_rows,
                {open_month}
         FROM (SELECT month, requests, prompt_tokens + completion_tokens AS tokens, {open_month}
               FROM usage_daily /*+ INDEXED BY {index} */
               WHERE {condition} AND month BETWEEN $3 AND $4) d"
    )
}

/// The statement of [`project`].
pub static PROJECT: LazyLock<String> =
    LazyLock::new(|| sum_statement("usage_daily_project_month", "organization_id = $1 AND project_id = $2"));

/// The statement of [`key`].
pub static KEY: LazyLock<String> =
    LazyLock::new(|| sum_statement("usage_daily_api_key_id_month", "api_key_id = $2"));

/// A range of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TotalsRange {
    /// The first month in which they are billed.
    pub from: Month,
    /// There may be more than [`MAX_SHORT_SUM_ROWS`].
    pub is_large: bool,
}

/// Sums up the rows of a project.
pub async fn project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    range: TotalsRange,
) -> Result<RangeTotals, db::Error> {
    let statement = sql(PROJECT.as_str()).bind(organization_id).bind(project_id);
    add_up(tx, statement, range).await
}

/// Sums up the rows of an API key.
pub async fn key(
    tx: &mut Tx,
    organization_id: OrganizationId,
    api_key_id: ApiKeyId,
    range: TotalsRange,
) -> Result<RangeTotals, db::Error> {
    let statement = sql(KEY.as_str()).bind(organization_id).bind(api_key_id);
    add_up(tx, statement, range).await
}

async fn add_up(tx: &mut Tx, statement: Statement, range: TotalsRange) -> Result<RangeTotals, db::Error> {
    let statement = statement.bind(range.from).bind(LAST_MONTH);
    let statement = if range.is_large { statement.heavy() } else { statement };
    statement.one(tx).await
}
