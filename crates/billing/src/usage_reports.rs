//! Usage reports: days, weeks or months of an organization or a project, put together by groups.

use std::collections::BTreeMap;

use crate::Billing;
use crate::rules::periods::{self, DateBound, Range};
use crate::rules::usage_groups::Groups;
use crate::store;
use catalog::Kind;
use kernel::clock::Day;
use kernel::error::{Detail, Error};
use kernel::ids::{OrganizationId, ProjectId};
use kernel::money::Pico;

use crate::store::usage::reports::{self, DayUsage};

pub use crate::store::usage::reports::Group;

/// The most rows that are read for one report: a year of days of 270 keys. What is more is refused, so that no question
/// fills the memory.
const MAX_ROWS: usize = 100_000;

/// Which usage is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The first day; without it the range is completed, see [`periods::range`].
    pub start: Option<DateBound>,
    /// The end.
    pub end: Option<DateBound>,
    /// What rows are told apart by.
    pub groups: Groups,
    /// `true` if the report is to name the currency.
    pub needs_currency: bool,
}

/// Usage, put together.
#[derive(Clone, Debug)]
pub struct Report {
    /// The UTC days that it is about.
    pub range: Range,
    /// By date, then group; days without usage are left out.
    pub rows: Vec<Row>,
    /// All rows together.
    pub total: Cells,
    /// The organization's currency, an ISO 4217 code, where it was asked for.
    pub currency: Option<String>,
}

/// One row of a report.
#[derive(Clone, Debug)]
pub struct Row {
    /// The first day of its period.
    pub date: Day,
    /// What it is about.
    pub group: Group,
    /// What was used.
    pub cells: Cells,
}

/// Chat and embeddings, side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cells {
    /// Usage of chat models.
    pub chat: Used,
    /// Usage of embedding models.
    pub embeddings: Used,
}

/// Usage of one kind of models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Events.
    pub requests: i64,
    /// Tokens in.
    pub prompt_tokens: i64,
    /// Tokens out; 0 for embeddings.
    pub completion_tokens: i64,
    /// At list price.
    pub amount: Pico,
}

impl Used {
    /// `None` past 64 bits.
    fn plus(self, day: &DayUsage) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(day.requests)?,
            prompt_tokens: self.prompt_tokens.checked_add(day.prompt_tokens)?,
            completion_tokens: self.completion_tokens.checked_add(day.completion_tokens)?,
            amount: self.amount.checked_add(day.amount)?,
        })
    }
}

impl Cells {
    /// Adds what a day saw of one kind.
    fn add(&mut self, day: &DayUsage) -> Result<(), Error> {
        let used = match day.kind {
            Kind::Chat => &mut self.chat,
            Kind::Embeddings => &mut self.embeddings,
        };
        *used = used.plus(day).ok_or_else(|| Error::internal("a sum of usage passed 64 bits"))?;
        Ok(())
    }
}

/// Reports what an organization used.
///
/// # Errors
/// 400 when the range ends before it begins or is too long, or there are too many rows; the database's.
pub async fn of_organization(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
) -> Result<Report, Error> {
    let range = range(billing, query)?;
    let mut tx = billing.db.reports().await?;
    let days = reports::of_organization(&mut tx, organization_id, range, query.groups, too_many()).await?;
    drop(tx);
    report(billing, organization_id, query, range, days).await
}

/// Reports what a project used, by key and person.
///
/// # Errors
/// As of [`of_organization`].
pub async fn of_project(
    billing: &Billing,
    organization_id: OrganizationId,
    project_id: ProjectId,
    query: Query,
) -> Result<Report, Error> {
    let range = range(billing, query)?;
    let mut tx = billing.db.reports().await?;
    let days =
        reports::of_project(&mut tx, organization_id, project_id, range, query.groups, too_many()).await?;
    drop(tx);
    report(billing, organization_id, query, range, days).await
}

fn range(billing: &Billing, query: Query) -> Result<Range, Error> {
    periods::range(query.start, query.end, billing.clock.now()).map_err(Error::invalid)
}

/// How many rows to read in order to notice too many.
fn too_many() -> i64 {
    i64::try_from(MAX_ROWS).unwrap_or(i64::MAX).saturating_add(1)
}

async fn report(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
    range: Range,
    days: Vec<DayUsage>,
) -> Result<Report, Error> {
    if days.len() > MAX_ROWS {
        let message =
            format!("would give more than {MAX_ROWS} rows a day and group: ask for fewer days or groups");
        let detail = Detail {
            param: "group_by".to_owned(),
            code: "too_many",
            message: format!("`group_by` {message}."),
        };
        return Err(Error::invalid(vec![detail]));
    }
    let (rows, total) = put_together(query.groups, days)?;
    let mut currency = None;
    if query.needs_currency {
        let wallet = store::wallets::get(&mut billing.db.read().await?, organization_id).await?;
        currency = Some(wallet.ok_or_else(|| Error::internal("an organization has no wallet"))?.currency);
    }
    Ok(Report { range, rows, total, currency })
}

/// The rows by date, then group; and all of them together.
fn put_together(groups: Groups, days: Vec<DayUsage>) -> Result<(Vec<Row>, Cells), Error> {
    let mut rows: BTreeMap<(Day, Group), Cells> = BTreeMap::new();
    let mut total = Cells::default();
    for day in days {
        total.add(&day)?;
        let date = groups.period.first_day(day.day);
        rows.entry((date, day.group.clone())).or_default().add(&day)?;
    }
    let rows = rows.into_iter().map(|((date, group), cells)| Row { date, group, cells });
    Ok((rows.collect(), total))
}
