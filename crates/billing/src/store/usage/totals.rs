//! What a project or a key ever used: a sum of its daily rows.
//!
//! Rows that are billed in a closed month never change any more. Who adds to rows locks the wallet before the commit and begins
//! again unless it has the month open that was assumed; who closes a month holds that lock too. So whatever sees a month as
//! closed sees all that will ever be billed in it, and one statement sees the database at one moment: what it adds up of the
//! months that it sees as closed stays so for good. `live::totals` keeps that.

use std::sync::LazyLock;

use db::{FromRow, Row, Statement, Tx, sql};
use kernel::clock::Month;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

/// Daily rows that are added up while others wait for it: a year of one key with one model and more. Beyond that the sum is made
/// where it keeps nobody waiting, which costs more than to make so small a one.
pub const ADDED_AT_ONCE: i64 = 1_000;

/// Some usage, or all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Events.
    pub requests: i64,
    /// Tokens in and out.
    pub tokens: i64,
}

impl Totals {
    /// Both together; `None` past 64 bits.
    pub fn plus(self, other: Self) -> Option<Self> {
        let requests = self.requests.checked_add(other.requests)?;
        Some(Self { requests, tokens: self.tokens.checked_add(other.tokens)? })
    }
}

/// The last month that there is. A plan that PostgreSQL keeps is made for any month: a range with two ends it takes for a small
/// one, but one without an end for a third of all rows, so that it would rather plan anew at each reading of an old key.
pub const LAST: Month = Month::from_unix_months(i64::MAX);

/// What the rows of a part come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added {
    /// All of them.
    pub all: Totals,
    /// Those that are billed in closed months.
    pub closed: Totals,
    /// How many of them are billed in months that are open.
    pub open_rows: i64,
    /// The first month that isn't closed; none where there is no wallet.
    pub open_month: Option<Month>,
}

impl FromRow for Added {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            all: Totals { requests: row.get("used_requests")?, tokens: row.get("used_tokens")? },
            closed: Totals { requests: row.get("closed_requests")?, tokens: row.get("closed_tokens")? },
            open_rows: row.get("open_rows")?,
            open_month: row.get("open_month")?,
        })
    }
}

/// Adds up the rows of a place, which are those of the organization `$1` and of the id `$2`, from the month `$3` to `$4`: one
/// row, as [`Added`] reads it.
fn adding(index: &str, place: &str) -> String {
    let open_month = "(SELECT open_month FROM wallets WHERE organization_id = $1) AS open_month";
    format!(
        "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS used_requests,
                CAST(COALESCE(SUM(tokens), 0) AS BIGINT) AS used_tokens,
                CAST(COALESCE(SUM(CASE WHEN month < open_month THEN requests END), 0) AS BIGINT) AS closed_requests,
                CAST(COALESCE(SUM(CASE WHEN month < open_month THEN tokens END), 0) AS BIGINT) AS closed_tokens,
                COUNT(CASE WHEN month < open_month THEN NULL ELSE 1 END) AS open_rows,
                {open_month}
         FROM (SELECT month, requests, prompt_tokens + completion_tokens AS tokens, {open_month}
               FROM usage_daily /*+ INDEXED BY {index} */
               WHERE {place} AND month BETWEEN $3 AND $4) d"
    )
}

/// The statement of [`project`].
pub static PROJECT: LazyLock<String> =
    LazyLock::new(|| adding("usage_daily_project_month", "organization_id = $1 AND project_id = $2"));

/// The statement of [`key`].
pub static KEY: LazyLock<String> =
    LazyLock::new(|| adding("usage_daily_api_key_id_month", "api_key_id = $2"));

/// The rows of a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Those that are billed in this month or later.
    pub from: Month,
    /// Whether there may be more than [`ADDED_AT_ONCE`].
    pub is_large: bool,
}

/// A project's rows.
pub async fn project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    part: Part,
) -> Result<Added, db::Error> {
    let statement = sql(PROJECT.as_str()).bind(organization_id).bind(project_id);
    add_up(tx, statement, part).await
}

/// A key's.
pub async fn key(
    tx: &mut Tx,
    organization_id: OrganizationId,
    api_key_id: ApiKeyId,
    part: Part,
) -> Result<Added, db::Error> {
    let statement = sql(KEY.as_str()).bind(organization_id).bind(api_key_id);
    add_up(tx, statement, part).await
}

async fn add_up(tx: &mut Tx, statement: Statement, part: Part) -> Result<Added, db::Error> {
    let statement = statement.bind(part.from).bind(LAST);
    let statement = if part.is_large { statement.heavy() } else { statement.batched() };
    statement.one(tx).await
}
