//! Sums of the calls of each hour.

use std::fmt::Write;
use std::sync::LazyLock;

use db::sized::{Sizes, values};
use db::{Tx, sql};

use crate::hour_sums::{HourKey, HourSums};
use crate::rules::histograms::BUCKETS;

/// The sums that saturate instead of exceeding 64 bits.
const SUMS: [&str; 6] =
    ["prompt_tokens", "cached_prompt_tokens", "completion_tokens", "amount_pico", "timed_tokens", "timed_ms"];
const COLUMNS: usize = 6 + 1 + SUMS.len() + 2 * BUCKETS;
const MAX: i64 = i64::MAX;
const HALF: i64 = i64::MAX / 2;

/// Returns the names of the columns of both histograms.
pub(crate) fn bucket_columns() -> impl Iterator<Item = String> {
    let of = |kind: &'static str| (0..BUCKETS).map(move |bucket| format!("{kind}_{bucket}"));
    of("first").chain(of("duration"))
}

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    let buckets: Vec<_> = bucket_columns().collect();
    let mut set = "calls = call_hours.calls + excluded.calls".to_owned();
    for column in SUMS {
        // Writing to a string can't fail.
        write!(
            set,
            ", {column} = CASE WHEN call_hours.{column} / 2 + excluded.{column} / 2 < {HALF}
                 THEN call_hours.{column} + excluded.{column} ELSE {MAX} END"
        )
        .ok();
    }
    for column in &buckets {
        write!(set, ", {column} = call_hours.{column} + excluded.{column}").ok();
    }
    let columns = format!("{}, {}", SUMS.join(", "), buckets.join(", "));
    Sizes::new(|rows| {
        format!(
            "INSERT INTO call_hours (organization, hour, project, caller, model, code, calls, {columns})
             VALUES {}
             ON CONFLICT (organization, hour, project, caller, model, code) DO UPDATE SET {set}",
            values(rows, COLUMNS)
        )
    })
});

/// Adds to rows, which are in the order of their keys, so that replicas can't deadlock.
pub async fn add(tx: &mut Tx, rows: &[(HourKey, HourSums)]) -> Result<(), db::Error> {
    for (text, chunk) in ADD.chunks(rows) {
        let mut statement = sql(text).expecting(chunk.len() * COLUMNS);
        for (key, sums) in chunk {
            let amount = sums.amount.to_i64().unwrap_or(i64::MAX);
            statement = statement.bind_all([
                key.organization.into(),
                key.hour.into(),
                key.project.into(),
                key.caller.into(),
                key.model.into(),
                key.code.into(),
                sums.calls.into(),
                sums.prompt_tokens.into(),
                sums.cached_prompt_tokens.into(),
                sums.completion_tokens.into(),
                amount.into(),
                sums.timed_tokens.into(),
                sums.timed_ms.into(),
            ]);
            for count in sums.first_events.iter().chain(&sums.durations) {
                statement = statement.bind(*count);
            }
        }
        statement.execute(tx).await?;
    }
    Ok(())
}
