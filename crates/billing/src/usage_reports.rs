//! Usage reports: the usage of an organization or a project by day, week or month, and by group.

use std::collections::BTreeMap;

use crate::rules::periods::{self, DateBound, Range};
use crate::rules::usage_groups::{Groups, Period};
use crate::{Billing, store};
use catalog::{Component, Kind};
use db::Tx;
use kernel::clock::Day;
use kernel::error::{Detail, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{OrganizationId, ProjectId};
use kernel::money::Pico;
use keys::access::KeyScope;

use crate::store::usage::reports::{self, DayComponent, DayUsage};

pub use crate::store::usage::reports::Group;

/// Maximum number of rows that are read for a report: one year of daily rows for 270 keys. Larger reports are
/// refused, to bound the memory.
const MAX_ROWS: usize = 100_000;

/// The options of a report.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The start. If a bound is missing, the range is completed: see [`periods::range`].
    pub start: Option<DateBound>,
    pub end: Option<DateBound>,
    /// The columns to group by.
    pub groups: Groups,
    /// `true` to include the currency in the report.
    pub needs_currency: bool,
    /// `true` to include the names of projects, keys and users in the report of an organization. The report
    /// of a project always includes the names of callers.
    pub needs_names: bool,
    /// `true` to also count the components of prices.
    pub needs_components: bool,
}

impl Query {
    /// Returns the query for usage of the current month, without currency, names and components.
    pub const fn by(groups: Groups) -> Self {
        Self {
            start: None,
            end: None,
            groups,
            needs_currency: false,
            needs_names: false,
            needs_components: false,
        }
    }
}

/// A usage report.
#[derive(Clone, Debug)]
pub struct Report {
    pub range: Range,
    /// Sorted by date, then group. Days without usage are omitted.
    pub rows: Vec<Row>,
    /// The sum of all rows.
    pub total: UsageByKind,
    /// The sum of the components of all rows.
    pub total_components: ComponentsByKind,
    /// The organization's currency, an ISO 4217 code, if it was requested.
    pub currency: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Row {
    /// The first day of the row's period.
    pub date: Day,
    pub group: Group,
    pub usage: UsageByKind,
    /// Empty unless the report counts components.
    pub components: ComponentsByKind,
}

/// The components of usage of chat and of embedding models: the tokens of each part, and pieces such as
/// searches. Components with a count of zero are omitted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ComponentsByKind {
    pub chat: BTreeMap<Component, i64>,
    pub embeddings: BTreeMap<Component, i64>,
}

impl ComponentsByKind {
    fn add(&mut self, kind: Kind, component: Component, quantity: i64) -> Result<(), Error> {
        let components = match kind {
            Kind::Chat => &mut self.chat,
            Kind::Embeddings => &mut self.embeddings,
        };
        let sum = components.entry(component).or_default();
        *sum = sum.checked_add(quantity).ok_or_else(too_large)?;
        Ok(())
    }
}

/// Usage of chat and of embedding models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageByKind {
    pub chat: KindUsage,
    pub embeddings: KindUsage,
}

/// Usage of one kind of models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindUsage {
    /// The number of events.
    pub requests: i64,
    /// Input tokens.
    pub prompt_tokens: i64,
    /// Output tokens; 0 for embeddings.
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
}

impl Report {
    /// Keeps only the rows of these groups, and their sum.
    ///
    /// # Errors
    /// A sum overflows, which is impossible, because the sum of all rows was already calculated.
    pub fn retain(&mut self, is_kept: impl Fn(&Group) -> bool) -> Result<(), Error> {
        self.rows.retain(|row| is_kept(&row.group));
        (self.total, self.total_components) = (UsageByKind::default(), ComponentsByKind::default());
        for row in &self.rows {
            self.total.chat.add(row.usage.chat)?;
            self.total.embeddings.add(row.usage.embeddings)?;
            for (kind, components) in
                [(Kind::Chat, &row.components.chat), (Kind::Embeddings, &row.components.embeddings)]
            {
                for (component, quantity) in components {
                    self.total_components.add(kind, *component, *quantity)?;
                }
            }
        }
        Ok(())
    }
}

impl KindUsage {
    /// Returns the sum; `None` if it overflows 64 bits.
    fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(other.requests)?,
            prompt_tokens: self.prompt_tokens.checked_add(other.prompt_tokens)?,
            completion_tokens: self.completion_tokens.checked_add(other.completion_tokens)?,
            amount: self.amount.checked_add(other.amount)?,
        })
    }

    fn add(&mut self, other: Self) -> Result<(), Error> {
        *self = self.plus(other).ok_or_else(too_large)?;
        Ok(())
    }
}

fn too_large() -> Error {
    Error::internal("a sum of usage exceeded 64 bits")
}

impl From<&DayUsage> for KindUsage {
    fn from(day: &DayUsage) -> Self {
        Self {
            requests: day.requests,
            prompt_tokens: day.prompt_tokens,
            completion_tokens: day.completion_tokens,
            amount: day.amount,
        }
    }
}

impl UsageByKind {
    /// Returns the number of events of both kinds.
    pub fn requests(&self) -> i128 {
        i128::from(self.chat.requests) + i128::from(self.embeddings.requests)
    }

    /// Returns the input tokens of both kinds.
    pub fn prompt_tokens(&self) -> i128 {
        i128::from(self.chat.prompt_tokens) + i128::from(self.embeddings.prompt_tokens)
    }

    /// Returns the output tokens of both kinds.
    pub fn completion_tokens(&self) -> i128 {
        i128::from(self.chat.completion_tokens) + i128::from(self.embeddings.completion_tokens)
    }

    /// Returns the list price of both kinds.
    pub fn amount(&self) -> Pico {
        Pico::from_units(self.chat.amount.units() + self.embeddings.amount.units())
    }

    /// Adds the usage of one day and kind.
    fn add(&mut self, day: &DayUsage) -> Result<(), Error> {
        match day.kind {
            Kind::Chat => self.chat.add(day.into()),
            Kind::Embeddings => self.embeddings.add(day.into()),
        }
    }
}

/// Reports the usage of an organization.
///
/// # Errors
/// 400 if the range ends before it begins or is too long, or if the report has too many rows; the database
/// fails.
pub fn of_organization(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
) -> BoxFuture<'_, Result<Report, Error>> {
    Box::pin(async move {
        let range = range(billing, query)?;
        let mut tx = billing.db().reports().await?;
        let Query { groups, needs_names, .. } = query;
        let days =
            reports::of_organization(&mut tx, organization_id, range, (groups, needs_names), row_limit())
                .await?;
        let components = components(&mut tx, (organization_id, None), range, query).await?;
        drop(tx);
        report(billing, organization_id, query, range, (days, components)).await
    })
}

/// Returns the usage of some projects of an organization in the current calendar month. Projects without
/// usage are omitted.
///
/// # Errors
/// The database fails.
pub async fn of_projects_this_month(
    billing: &Billing,
    organization_id: OrganizationId,
    projects: &[ProjectId],
) -> Result<BTreeMap<ProjectId, UsageByKind>, Error> {
    let groups = Groups { period: Period::Month, model: false, project: true, api_key: false };
    let report = of_organization(billing, organization_id, Query::by(groups)).await?;
    let of_row = |row: Row| {
        let id = ProjectId::parse(row.group.project_id.as_deref()?)?;
        projects.contains(&id).then_some((id, row.usage))
    };
    Ok(report.rows.into_iter().filter_map(of_row).collect())
}

/// Reports the usage of a project, by key and user.
///
/// # Errors
/// The errors of [`of_organization`].
pub fn of_project(
    billing: &Billing,
    organization_id: OrganizationId,
    project_id: ProjectId,
    query: Query,
) -> BoxFuture<'_, Result<Report, Error>> {
    Box::pin(async move {
        let range = range(billing, query)?;
        let mut tx = billing.db().reports().await?;
        let days =
            reports::of_project(&mut tx, organization_id, project_id, range, query.groups, row_limit())
                .await?;
        let components = components(&mut tx, (organization_id, Some(project_id)), range, query).await?;
        drop(tx);
        report(billing, organization_id, query, range, (days, components)).await
    })
}

/// Reports the usage of an API key by day, week or month. The report has no other groups and no components.
///
/// # Errors
/// The errors of [`of_organization`].
pub async fn of_api_key(billing: &Billing, scope: &KeyScope, query: Query) -> Result<Report, Error> {
    let range = range(billing, query)?;
    let mut tx = billing.db().reports().await?;
    let days = reports::of_api_key(&mut tx, scope.api_key_id(), range).await?;
    drop(tx);
    report(billing, scope.organization_id(), query, range, (days, Vec::new())).await
}

fn range(billing: &Billing, query: Query) -> Result<Range, Error> {
    periods::range(query.start, query.end, billing.clock.now()).map_err(Error::invalid)
}

/// Returns the maximum number of rows plus one, which shows whether a report is too large.
fn row_limit() -> i64 {
    i64::try_from(MAX_ROWS).unwrap_or(i64::MAX).saturating_add(1)
}

/// Returns the components of a report, if it counts them.
async fn components(
    tx: &mut Tx,
    of: (OrganizationId, Option<ProjectId>),
    range: Range,
    query: Query,
) -> Result<Vec<DayComponent>, Error> {
    if !query.needs_components {
        return Ok(Vec::new());
    }
    Ok(reports::components(tx, of, range, query.groups, row_limit()).await?)
}

async fn report(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
    range: Range,
    (days, components): (Vec<DayUsage>, Vec<DayComponent>),
) -> Result<Report, Error> {
    if days.len() > MAX_ROWS || components.len() > MAX_ROWS {
        let message = format!("would return more than {MAX_ROWS} rows: request fewer days or groups");
        let detail = Detail {
            param: "group_by".to_owned(),
            code: "too_many",
            message: format!("`group_by` {message}."),
        };
        return Err(Error::invalid(vec![detail]));
    }
    let (mut rows, total) = group_rows(query.groups, days)?;
    let total_components = add_components(&mut rows, query.groups, components)?;
    let mut currency = None;
    if query.needs_currency {
        let wallet = store::wallets::get(&mut billing.db().read().await?, organization_id).await?;
        currency = Some(wallet.ok_or_else(|| Error::internal("an organization has no wallet"))?.currency);
    }
    Ok(Report { range, rows, total, total_components, currency })
}

/// Returns the rows by date, then group, and their sum.
fn group_rows(groups: Groups, mut days: Vec<DayUsage>) -> Result<(Vec<Row>, UsageByKind), Error> {
    for day in &mut days {
        day.day = groups.period.first_day(day.day);
    }
    days.sort_unstable_by(|a, b| (a.day, &a.group).cmp(&(b.day, &b.group)));
    let mut rows: Vec<Row> = Vec::with_capacity(days.len());
    let mut total = UsageByKind::default();
    for day in days {
        total.add(&day)?;
        match rows.last_mut() {
            Some(row) if row.date == day.day && row.group == day.group => row.usage.add(&day)?,
            _ => {
                let mut usage = UsageByKind::default();
                usage.add(&day)?;
                let components = ComponentsByKind::default();
                rows.push(Row { date: day.day, group: day.group, usage, components });
            }
        }
    }
    Ok((rows, total))
}

/// Adds components to the rows of their groups. Returns the sum of all components.
fn add_components(
    rows: &mut [Row],
    groups: Groups,
    components: Vec<DayComponent>,
) -> Result<ComponentsByKind, Error> {
    let mut total = ComponentsByKind::default();
    if components.is_empty() {
        return Ok(total);
    }
    let unnamed = |group: &Group| Group { api_key_name: None, project_name: None, ..group.clone() };
    let places = rows.iter().enumerate().map(|(place, row)| ((row.date, unnamed(&row.group)), place));
    let places: BTreeMap<_, _> = places.collect();
    for DayComponent { day, kind, group, component, quantity } in components {
        // The rows were read before the components. A group that had no usage then isn't in this report.
        let place = places.get(&(groups.period.first_day(day), group));
        if let Some(row) = place.and_then(|place| rows.get_mut(*place)) {
            row.components.add(kind, component, quantity)?;
            total.add(kind, component, quantity)?;
        }
    }
    Ok(total)
}
