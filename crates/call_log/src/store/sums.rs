//! Reads of the sums of hours, by group.

use std::fmt::Write;

use db::{FromRow, Row, Tx, sql};
use kernel::money::Pico;

use super::hours::bucket_columns;
use crate::hour_sums::HourSums;
use crate::rules::histograms::BUCKETS;

/// The columns by which sums are grouped, in addition to the period and the error code.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Groups {
    pub model: bool,
    pub caller: bool,
    pub project: bool,
}

/// The sums of a group's calls that ended with this code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSums {
    /// Hours since 1970, divided by the length of the period.
    pub period: i64,
    pub model: Option<String>,
    pub caller: Option<String>,
    pub project: Option<String>,
    pub code: Option<String>,
    pub sums: HourSums,
}

impl FromRow for GroupSums {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let buckets = |kind: &str| {
            let mut counts = [0; BUCKETS];
            for (bucket, count) in counts.iter_mut().enumerate() {
                *count = row.get(&format!("{kind}_{bucket}"))?;
            }
            Ok::<_, db::Error>(counts)
        };
        let (whole, rest): (i64, i64) = (row.get("amount_whole")?, row.get("amount_rest")?);
        let amount = i128::from(whole) * 1_000_000 + i128::from(rest);
        Ok(Self {
            period: row.get("period")?,
            model: row.get("model_id")?,
            caller: row.get("caller_id")?,
            project: row.get("project_id")?,
            code: row.get("code_name")?,
            sums: HourSums {
                calls: row.get("calls")?,
                prompt_tokens: row.get("prompt_tokens")?,
                cached_prompt_tokens: row.get("cached_prompt_tokens")?,
                completion_tokens: row.get("completion_tokens")?,
                amount: Pico::from_units(amount),
                timed_tokens: row.get("timed_tokens")?,
                timed_ms: row.get("timed_ms")?,
                first_events: buckets("first")?,
                durations: buckets("duration")?,
            },
        })
    }
}

/// Returns the statement of [`of_range`].
pub fn range_text(groups: Groups) -> String {
    let columns = [("model", groups.model), ("caller", groups.caller), ("project", groups.project)];
    let (mut names, mut numbers, mut by) = (String::new(), String::new(), String::new());
    // Writing to a string can't fail.
    for (column, is_grouped) in columns {
        let name = format!("(SELECT n.name FROM call_names n WHERE n.number = s.{column})");
        let shown = if is_grouped { name } else { "CAST(NULL AS TEXT)".to_owned() };
        write!(names, ", {shown} AS {column}_id").ok();
        if is_grouped {
            write!(numbers, ", {column}").ok();
            write!(by, ", {column}").ok();
        }
    }
    let plain =
        ["calls", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "timed_tokens", "timed_ms"];
    let plain = plain.map(str::to_owned).into_iter().chain(bucket_columns());
    let (mut sums, mut outer) = (String::new(), String::new());
    for column in plain {
        write!(sums, ", CAST(SUM({column}) AS BIGINT) AS {column}").ok();
        write!(outer, ", s.{column} AS {column}").ok();
    }
    format!(
        "SELECT s.period AS period{names}, (SELECT n.name FROM call_names n WHERE n.number = s.code) AS code_name,
             s.amount_whole AS amount_whole, s.amount_rest AS amount_rest{outer}
         FROM (
             SELECT hour / $4 AS period{numbers}, code, CAST(SUM(amount_pico / 1000000) AS BIGINT) AS amount_whole,
                 CAST(SUM(amount_pico % 1000000) AS BIGINT) AS amount_rest{sums}
             FROM call_hours
             WHERE organization = $1 AND hour >= $2 AND hour < $3 AND ($5 < 0 OR project = $5)
                 AND ($6 < 0 OR model = $6)
             GROUP BY hour / $4{by}, code LIMIT $7
         ) s"
    )
}

/// The range and the filters of sums, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HourRange {
    pub organization: i64,
    /// The first hour since 1970.
    pub from: i64,
    /// The hour after the last one.
    pub to: i64,
    /// The hours of a period.
    pub period: i64,
    pub project: Option<i64>,
    pub model: Option<i64>,
}

/// Returns the sums of a range by group, in no order.
pub async fn of_range(
    tx: &mut Tx,
    range: HourRange,
    groups: Groups,
    limit: i64,
) -> Result<Vec<GroupSums>, db::Error> {
    sql(range_text(groups))
        .bind(range.organization)
        .bind(range.from)
        .bind(range.to)
        .bind(range.period)
        .bind(range.project.unwrap_or(-1))
        .bind(range.model.unwrap_or(-1))
        .bind(limit)
        .heavy()
        .all(tx)
        .await
}
