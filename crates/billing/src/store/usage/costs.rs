//! Costs of calls by day, organization, model and upstream: the table `daily_costs`. It contains only calls
//! on routes that have a cost, with all of their requests, tokens and list price.

use std::sync::LazyLock;

use super::accumulation::{Accumulation, AmountSum, RowLimits};
use crate::rules::periods::Range;
use crate::store::amounts::{stored_amount, whole_and_rest};
use db::sized::{Sizes, values};
use db::{Row, Tx, sql};
use kernel::clock::Day;
use kernel::ids::OrganizationId;
use kernel::money::Pico;

/// The key of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CostKey<'a> {
    pub day: Day,
    pub organization_id: OrganizationId,
    pub model: &'a str,
    pub upstream: &'a str,
}

/// The sums of calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CostSums {
    pub requests: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
    pub cost: Pico,
}

impl CostSums {
    /// Returns the sums of both; `None` if one overflows.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(other.requests)?,
            prompt_tokens: self.prompt_tokens.checked_add(other.prompt_tokens)?,
            completion_tokens: self.completion_tokens.checked_add(other.completion_tokens)?,
            amount: self.amount.checked_add(other.amount)?,
            cost: self.cost.checked_add(other.cost)?,
        })
    }
}

/// The limits of a row, the same as in `usage_daily_sums`.
const LIMITS: RowLimits = super::sums::LIMITS;

const COLUMNS: usize = 11;

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let Accumulation { set, fits, .. } = Accumulation::of("daily_costs", LIMITS);
        let cost = AmountSum::of("daily_costs", "cost", LIMITS);
        format!(
            "INSERT INTO daily_costs (day, organization_id, model, upstream, requests, prompt_tokens,
                 completion_tokens, amount_whole, amount_pico, cost_whole, cost_pico)
             VALUES {}
             ON CONFLICT (day, organization_id, model, upstream) DO UPDATE
             SET {set}, cost_whole = {}, cost_pico = {}
             WHERE {fits} AND {}",
            values(rows, COLUMNS),
            cost.whole,
            cost.pico,
            cost.fits
        )
    })
});

/// Adds to the rows of organizations whose wallets are locked. Returns `false` if a row would overflow: then
/// the caller must not commit.
pub async fn add(tx: &mut Tx, added: &[(CostKey<'_>, CostSums)]) -> Result<bool, db::Error> {
    let mut changed = 0;
    for (text, chunk) in ADD.chunks(added) {
        let mut statement = sql(text).expecting(chunk.len() * COLUMNS);
        for (key, sums) in chunk {
            let (amount, cost) = (stored_amount(sums.amount)?, stored_amount(sums.cost)?);
            statement = statement
                .bind(key.day)
                .bind(key.organization_id)
                .bind(key.model)
                .bind(key.upstream)
                .bind(sums.requests)
                .bind(sums.prompt_tokens)
                .bind(sums.completion_tokens)
                .bind(amount.0)
                .bind(amount.1)
                .bind(cost.0)
                .bind(cost.1);
        }
        changed += statement.execute(tx).await?;
    }
    Ok(u64::try_from(added.len()) == Ok(changed))
}

/// The columns by which the costs of a report are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CostGroups {
    pub model: bool,
    pub organization: bool,
    pub upstream: bool,
}

/// The costs of a group. Columns by which costs aren't grouped are `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupCosts {
    pub model: Option<String>,
    pub organization_id: Option<OrganizationId>,
    /// `None` also for a deleted organization.
    pub organization_name: Option<String>,
    pub upstream: Option<String>,
    pub sums: CostSums,
}

db::row!(GroupCosts { model, organization_id, organization_name, upstream, sums: sums });

fn sums(row: &Row) -> Result<CostSums, db::Error> {
    Ok(CostSums {
        requests: row.get("requests")?,
        prompt_tokens: row.get("prompt_tokens")?,
        completion_tokens: row.get("completion_tokens")?,
        amount: amount(row, ["amount_whole", "amount_micro", "amount_rest"])?,
        cost: amount(row, ["cost_whole", "cost_micro", "cost_rest"])?,
    })
}

/// Reads a sum of amounts: whole units, millionths and pico.
fn amount(row: &Row, [whole, micro, rest]: [&str; 3]) -> Result<Pico, db::Error> {
    let (whole, micro, rest): (i64, i64, i64) = (row.get(whole)?, row.get(micro)?, row.get(rest)?);
    let micro = Pico::from_units(i128::from(micro) * 1_000_000);
    let sum = whole_and_rest(whole, rest).checked_add(micro);
    sum.ok_or_else(|| db::Error::Internal("a sum of costs is too large".to_owned()))
}

/// Returns the sums of an amount in three parts, none of which exceeds 64 bits in any number of rows.
fn summed(amount: &str) -> String {
    format!(
        "CAST(SUM({amount}_whole + {amount}_pico / 1000000000000) AS BIGINT) AS {amount}_whole,
         CAST(SUM({amount}_pico % 1000000000000 / 1000000) AS BIGINT) AS {amount}_micro,
         CAST(SUM({amount}_pico % 1000000) AS BIGINT) AS {amount}_rest"
    )
}

/// Returns the statement of [`of_days`].
pub fn days_text(groups: CostGroups) -> String {
    let columns =
        [("model", groups.model), ("organization_id", groups.organization), ("upstream", groups.upstream)];
    let shown = columns.map(|(column, is_shown)| match is_shown {
        true => column.to_owned(),
        false => format!("CAST(NULL AS TEXT) AS {column}"),
    });
    let by: Vec<_> = columns.iter().filter(|(_, is_shown)| *is_shown).map(|(column, _)| *column).collect();
    let by = if by.is_empty() { String::new() } else { format!(" GROUP BY {}", by.join(", ")) };
    format!(
        "WITH c AS MATERIALIZED (
             SELECT {}, CAST(SUM(requests) AS BIGINT) AS requests,
                    CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
                    CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens, {}, {}
             FROM daily_costs WHERE day >= $1 AND day < $2{by}
         )
         SELECT c.model AS model, c.organization_id AS organization_id, c.upstream AS upstream,
                (SELECT o.name FROM organizations o WHERE o.id = c.organization_id) AS organization_name,
                c.requests AS requests, c.prompt_tokens AS prompt_tokens,
                c.completion_tokens AS completion_tokens, c.amount_whole AS amount_whole,
                c.amount_micro AS amount_micro, c.amount_rest AS amount_rest, c.cost_whole AS cost_whole,
                c.cost_micro AS cost_micro, c.cost_rest AS cost_rest
         FROM c WHERE c.requests IS NOT NULL LIMIT $3",
        shown.join(", "),
        summed("amount"),
        summed("cost")
    )
}

/// Returns the costs of these days by group, at most `limit` rows, in no order.
pub async fn of_days(
    tx: &mut Tx,
    range: Range,
    groups: CostGroups,
    limit: i64,
) -> Result<Vec<GroupCosts>, db::Error> {
    let statement = sql(days_text(groups)).bind(range.start).bind(range.end_exclusive).bind(limit);
    statement.heavy().all(tx).await
}
