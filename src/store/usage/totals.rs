//! What a project or a key ever used: a sum of its daily rows.
//!
//! Rows that are billed in a closed month never change any more. Who adds to rows locks the wallet before the commit and begins
//! again unless it has the month open that was assumed; who closes a month holds that lock too. So whatever sees a month as
//! closed sees all that will ever be billed in it, and one statement sees the database at one moment: what it adds up of the
//! months that it sees as closed stays so for good. `live::totals` keeps that.

use std::sync::LazyLock;

use crate::clock::Month;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId};

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

/// Which rows are added up beside a question about something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Those that are billed in this month or later.
    pub from: Month,
    /// But no more than these.
    pub most: Most,
}

/// How many rows are added up at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Most {
    /// [`ADDED_AT_ONCE`].
    Few,
    /// One, where there are more than those anyway.
    One,
}

impl Most {
    /// The number.
    pub const fn rows(self) -> i64 {
        match self {
            Self::Few => ADDED_AT_ONCE,
            Self::One => 1,
        }
    }
}

/// A statement for each of the numbers of rows that it may add up: they stand in the text, because many such statements are
/// answered together, and a limit can't be another for each.
pub struct Limited {
    few: String,
    one: String,
}

impl Limited {
    /// Makes both.
    pub(in crate::store) fn new(text: impl Fn(Most) -> String) -> Self {
        Self { few: text(Most::Few), one: text(Most::One) }
    }

    /// The one for this number.
    pub fn text(&self, most: Most) -> &str {
        match most {
            Most::Few => &self.few,
            Most::One => &self.one,
        }
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
    /// How many there are.
    pub rows: i64,
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
            rows: row.get("used_rows")?,
            open_rows: row.get("open_rows")?,
            open_month: row.get("open_month")?,
        })
    }
}

/// What an [`Added`] is read from, of the table `used`.
pub(in crate::store) const COLUMNS: &str =
    "used.used_requests, used.used_tokens, used.closed_requests, used.closed_tokens, used.used_rows, used.open_rows,
     used.open_month";

/// Adds up the rows of a place, which are those of the organization `$1`: one row, as [`Added`] reads it. `parameters` is the
/// number of the first of two, both ends of the months.
fn adding(index: &str, place: &str, parameters: usize, most: Option<Most>) -> String {
    let (from, to) = (parameters, parameters + 1);
    let limit = most.map(|most| format!("LIMIT {}", most.rows())).unwrap_or_default();
    let open_month = "(SELECT open_month FROM wallets WHERE organization_id = $1) AS open_month";
    format!(
        "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS used_requests,
                CAST(COALESCE(SUM(tokens), 0) AS BIGINT) AS used_tokens,
                CAST(COALESCE(SUM(CASE WHEN month < open_month THEN requests END), 0) AS BIGINT) AS closed_requests,
                CAST(COALESCE(SUM(CASE WHEN month < open_month THEN tokens END), 0) AS BIGINT) AS closed_tokens,
                COUNT(*) AS used_rows, COUNT(CASE WHEN month < open_month THEN NULL ELSE 1 END) AS open_rows,
                {open_month}
         FROM (SELECT month, requests, prompt_tokens + completion_tokens AS tokens, {open_month}
               FROM usage_daily /*+ INDEXED BY {index} */
               WHERE {place} AND month BETWEEN ${from} AND ${to} {limit}) d"
    )
}

/// Adds up a part of the project `$2`; see `adding` for the parameters.
pub(in crate::store) fn of_project(parameters: usize, most: Option<Most>) -> String {
    adding("usage_daily_project_month", "organization_id = $1 AND project_id = $2", parameters, most)
}

/// The same of a key, whose parameter has this number.
pub(in crate::store) fn of_key(key: usize, parameters: usize, most: Option<Most>) -> String {
    adding("usage_daily_api_key_id_month", &format!("api_key_id = ${key}"), parameters, most)
}

/// The statement of [`project`].
pub static PROJECT: LazyLock<String> = LazyLock::new(|| of_project(3, None));

/// The statement of [`key`].
pub static KEY: LazyLock<String> = LazyLock::new(|| of_key(2, 3, None));

/// A project's rows from this month on, however many there are.
pub async fn project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    from: Month,
) -> Result<Added, db::Error> {
    let statement = sql(PROJECT.as_str()).bind(organization_id).bind(project_id);
    statement.bind(from).bind(LAST).heavy().one(tx).await
}

/// A key's.
pub async fn key(
    tx: &mut Tx,
    organization_id: OrganizationId,
    api_key_id: ApiKeyId,
    from: Month,
) -> Result<Added, db::Error> {
    let statement = sql(KEY.as_str()).bind(organization_id).bind(api_key_id);
    statement.bind(from).bind(LAST).heavy().one(tx).await
}
