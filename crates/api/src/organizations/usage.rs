//! `/v1/organizations/{organization_id}/usage/performance` (docs/contract/calls.md#performance).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use crate::Api;
use crate::dates::DateField;
use billing::Billing;
use call_log::performance::{self, Groups, Interval, Percentiles, Query as ReportQuery, Row};
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::{Text, one_of, string};
use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;
use kernel::ids::{ApiKeyId, ProjectId, UserId};
use kernel::money::Pico;
use tenants::access::OrgScope;
use web::input::Query;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The length of a report's periods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Period {
    Hour,
    Day,
}

impl Field for Period {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "PerformancePeriod", "enum": ["hour", "day"], "examples": ["hour"]})
    }
}

/// The words of `group_by`.
const WORDS: [&str; 3] = ["model", "api_key", "project"];

struct PerformanceGroups(Groups);

impl Field for PerformanceGroups {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        let mut groups = Groups::default();
        for word in text.split(',').map(str::trim) {
            match word {
                "model" => groups.model = true,
                "api_key" => groups.caller = true,
                "project" => groups.project = true,
                _ => {
                    let message = format!("`{}` must have words out of {}.", at.path, WORDS.join(", "));
                    return problems.add(at, "unknown_value", message);
                }
            }
        }
        Some(Self(groups))
    }
    fn schema() -> Value {
        json!({"type": "string", "examples": ["model"],
               "description": format!("Comma-separated words out of {}", WORDS.join(", "))})
    }
}

/// The query of a performance report. A missing bound is completed when the report is made.
#[derive(Debug)]
pub struct PerformanceQuery {
    from: Option<Time>,
    to: Option<Time>,
    period: Interval,
    groups: Groups,
    project_id: Option<ProjectId>,
    model: Option<String>,
}

impl Record<Api> for PerformanceQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let from: Option<Option<DateField>> = fields
            .described(
                "The beginning, inclusive; by default 24 hours, or with `interval=day` 30 days, before `to`.",
            )
            .optional("from");
        let to: Option<Option<DateField>> =
            fields.described("The end, exclusive; by default now.").optional("to");
        let period = fields.described("The length of a row's period.").or("interval", Period::Hour);
        let groups: Option<Option<PerformanceGroups>> = fields.optional("group_by");
        let project_id: Option<Option<ProjectId>> =
            fields.described("The id of the project.").optional("project_id");
        let model: Option<Option<Text<128>>> = fields.described("The id of the model.").optional("model");
        let instant = |bound: Option<DateField>| bound.map(|DateField(bound)| bound.instant());
        let (from, to) = (instant(from?), instant(to?));
        let period = match period? {
            Period::Hour => Interval::Hour,
            Period::Day => Interval::Day,
        };
        if let Some((from, to)) = from.zip(to) {
            if to < from {
                return fields.problem("to", "end_before_start", "`to` must not be before `from`.");
            }
            if to.unix_ms() - from.unix_ms() > period.max_days() * DAY_MS {
                let message = format!("The range has more than {} days.", period.max_days());
                return fields.problem("to", "range_too_long", message);
            }
        }
        let groups = groups?.map(|PerformanceGroups(groups)| groups).unwrap_or_default();
        let model = model?.map(|text| text.0);
        Some(Self { from, to, period, groups, project_id: project_id?, model })
    }
}

impl PerformanceQuery {
    /// Returns the query with both bounds, the end at `now` by default. A range that is too long loses its
    /// beginning.
    fn complete(self, now: Time) -> ReportQuery {
        let default_days = match self.period {
            Interval::Hour => 1,
            Interval::Day => 30,
        };
        let to = match (self.to, self.from) {
            (Some(to), _) => to,
            (None, Some(from)) => now.max(from),
            (None, None) => now,
        };
        let from = self.from.unwrap_or_else(|| to.plus_ms(-default_days * DAY_MS));
        let from = from.max(to.plus_ms(-self.period.max_days() * DAY_MS));
        let Self { period: interval, groups, project_id, model, .. } = self;
        ReportQuery { from, to, interval, groups, project_id, model }
    }
}

/// Errors and durations of an organization's calls.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PerformanceReport {
    /// The rows, the oldest first. Periods without calls are omitted.
    performance: Vec<PerformanceRow>,
}

/// The calls of a period, and of the groups of `group_by`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PerformanceRow {
    /// The beginning of the period.
    start: Time,
    /// The id of the model; null if the report isn't grouped by `model`, or for an unknown model.
    model: Option<String>,
    /// The id of the project; null if the report isn't grouped by `project`.
    #[schemars(with = "Option<ProjectId>")]
    project_id: Option<String>,
    /// The id of the API key; null if the report isn't grouped by `api_key`, or for calls of a user without a
    /// key.
    #[schemars(with = "Option<ApiKeyId>")]
    api_key_id: Option<String>,
    /// The id of the user who called without a key; otherwise null.
    #[schemars(with = "Option<UserId>")]
    user_id: Option<String>,
    /// The number of calls, including refused ones.
    calls: i64,
    /// The number of calls by error code.
    errors: BTreeMap<String, i64>,
    /// The number of prompt tokens.
    prompt_tokens: i64,
    /// The part of `prompt_tokens` that came from a cache.
    cached_prompt_tokens: i64,
    /// The number of completion tokens.
    completion_tokens: i64,
    /// The list price.
    amount: Pico,
    /// The completion tokens per second of a call; null if no duration is known.
    tokens_per_second: Option<i64>,
    /// The time to the first event of streams, in milliseconds; null without streams.
    first_event_ms: Option<DurationPercentiles>,
    /// The duration of calls, in milliseconds; null if no duration is known.
    duration_ms: Option<DurationPercentiles>,
}

/// Percentiles, estimated from a histogram.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DurationPercentiles {
    /// Half of the calls took at most this long.
    p50: i64,
    /// 95 % of the calls took at most this long.
    p95: i64,
    /// 99 % of the calls took at most this long.
    p99: i64,
}

impl From<Percentiles> for DurationPercentiles {
    fn from(Percentiles { p50, p95, p99 }: Percentiles) -> Self {
        Self { p50, p95, p99 }
    }
}

impl From<Row> for PerformanceRow {
    fn from(row: Row) -> Self {
        let (sums, caller) = (row.sums, row.caller);
        let is_key = caller.as_deref().is_some_and(|caller| ApiKeyId::parse(caller).is_some());
        let (api_key_id, user_id) = if is_key { (caller, None) } else { (None, caller) };
        let timed = i128::from(sums.timed_tokens) * 1_000;
        let speed = timed
            .checked_div(i128::from(sums.timed_ms))
            .map(|speed| i64::try_from(speed).unwrap_or(i64::MAX));
        Self {
            start: row.start,
            model: row.model,
            project_id: row.project,
            api_key_id,
            user_id,
            calls: sums.calls,
            errors: row.errors,
            prompt_tokens: sums.prompt_tokens,
            cached_prompt_tokens: sums.cached_prompt_tokens,
            completion_tokens: sums.completion_tokens,
            amount: sums.amount,
            tokens_per_second: speed,
            first_event_ms: Percentiles::of(&sums.first_events).map(Into::into),
            duration_ms: Percentiles::of(&sums.durations).map(Into::into),
        }
    }
}

pub const PERFORMANCE: Operation =
    Operation { query: &[("interval", "day"), ("group_by", "model")], ..Operation::new("get_performance") };

/// Report the errors and durations of an organization's calls.
///
/// Periods without calls are omitted.
pub async fn performance(
    billing: Billing,
    scope: OrgScope,
    Query(query): Query<PerformanceQuery>,
) -> Result<Enveloped<PerformanceReport>, Error> {
    let query = query.complete(billing.clock.now());
    let rows = performance::report(&billing.call_log, scope.organization_id(), &query).await?;
    Ok(private(PerformanceReport { performance: rows.into_iter().map(Into::into).collect() }))
}
