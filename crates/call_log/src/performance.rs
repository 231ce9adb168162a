//! The performance report: errors and durations by hour or day.

use std::collections::BTreeMap;

use kernel::clock::{DAY_MS, HOUR_MS, Time};
use kernel::error::{Detail, Error};
use kernel::ids::{OrganizationId, ProjectId};

use crate::CallLog;
use crate::hour_sums::{HourKey, HourSums};
use crate::rules::histograms::{BUCKETS, percentile};
use crate::store::{names, sums};

pub use crate::store::sums::Groups;

/// Maximum number of rows that are read for a report.
const MAX_ROWS: i64 = 20_000;

/// The length of a report's periods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interval {
    Hour,
    Day,
}

impl Interval {
    fn hours(self) -> i64 {
        match self {
            Self::Hour => 1,
            Self::Day => DAY_MS / HOUR_MS,
        }
    }

    /// Returns the maximum length of a report, in days.
    pub const fn max_days(self) -> i64 {
        match self {
            Self::Hour => 31,
            Self::Day => 366,
        }
    }
}

/// The options of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// The beginning; rounded down to a period.
    pub from: Time,
    /// The end; rounded up to a period.
    pub to: Time,
    pub interval: Interval,
    pub groups: Groups,
    pub project_id: Option<ProjectId>,
    pub model: Option<String>,
}

/// A row of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The beginning of the period.
    pub start: Time,
    pub model: Option<String>,
    pub caller: Option<String>,
    pub project: Option<String>,
    /// The sums of all calls, with any code.
    pub sums: HourSums,
    /// The number of calls by error code.
    pub errors: BTreeMap<String, i64>,
}

/// Percentiles of durations, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percentiles {
    pub p50: i64,
    pub p95: i64,
    pub p99: i64,
}

impl Percentiles {
    /// Returns the percentiles of a histogram; `None` if it is empty.
    pub fn of(counts: &[i64; BUCKETS]) -> Option<Self> {
        Some(Self {
            p50: percentile(counts, 50)?,
            p95: percentile(counts, 95)?,
            p99: percentile(counts, 99)?,
        })
    }
}

/// Reports the performance of an organization's calls, by period and group. The caller has checked the
/// access.
///
/// # Errors
/// 400 if the report has too many rows, and failures of the database.
pub async fn report(
    log: &CallLog,
    organization_id: OrganizationId,
    query: &Query,
) -> Result<Vec<Row>, Error> {
    let mut tx = log.db.reports().await?;
    let mut texts: Vec<Box<str>> = vec![organization_id.text().into()];
    texts.extend(query.project_id.map(|id| id.text().into()));
    texts.extend(query.model.as_deref().map(Into::into));
    texts.sort_unstable();
    let found = names::find(&mut tx, &texts).await?;
    if found.len() < texts.len() {
        return Ok(Vec::new());
    }
    let number = |name: &str| found.iter().find(|(known, _)| **known == *name).map(|(_, number)| *number);
    let hours = query.interval.hours();
    let last = HourKey::hour_of(query.to.plus_ms(-1));
    let range = sums::HourRange {
        organization: number(&organization_id.text()).unwrap_or(-1),
        from: HourKey::hour_of(query.from).div_euclid(hours) * hours,
        to: (last.div_euclid(hours) + 1) * hours,
        period: hours,
        project: query.project_id.and_then(|id| number(&id.text())),
        model: query.model.as_deref().and_then(number),
    };
    let read = sums::of_range(&mut tx, range, query.groups, MAX_ROWS + 1).await?;
    if i64::try_from(read.len()).is_ok_and(|read| read > MAX_ROWS) {
        let message = "The report has too many rows. Ask for a shorter range or fewer groups.".to_owned();
        return Err(Error::invalid(vec![Detail { param: "group_by".to_owned(), code: "too_many", message }]));
    }
    let mut rows: BTreeMap<_, Row> = BTreeMap::new();
    for group in read {
        let key = (group.period, group.model.clone(), group.project.clone(), group.caller.clone());
        let row = rows.entry(key).or_insert_with(|| Row {
            start: Time::from_unix_ms(group.period * hours * HOUR_MS),
            model: group.model,
            caller: group.caller,
            project: group.project,
            sums: HourSums::default(),
            errors: BTreeMap::new(),
        });
        if let Some(code) = group.code {
            *row.errors.entry(code).or_default() += group.sums.calls;
        }
        row.sums.add(&group.sums);
    }
    Ok(rows.into_values().collect())
}
