//! Reads of usage for reports, from daily rows or from their sums, never from events.

use std::sync::LazyLock;

use crate::rules::periods::Range;
use crate::rules::usage_groups::{Groups, Period};
use crate::store::amounts::whole_and_rest;
use crate::store::usage::day_parts;
use crate::store::usage::sums;
use catalog::{Component, Kind};
use db::{FromRow, Row, Statement, Tx, sql};
use kernel::clock::Day;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};
use kernel::money::Pico;

/// The usage of one period, kind and group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DayUsage {
    /// In UTC; the first day of the period that has usage.
    pub day: Day,
    pub kind: Kind,
    /// Columns by which usage isn't grouped are empty.
    pub group: Group,
    pub requests: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
}

/// The group of a row of a report, in the order of the rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Group {
    pub model: Option<String>,
    pub project_id: Option<String>,
    /// The id of the API key; `None` for calls of users.
    pub api_key_id: Option<String>,
    /// The name of the API key or the user, in reports with names; a deleted key keeps its name.
    pub api_key_name: Option<String>,
    /// The id of a user who called without an API key.
    pub user_id: Option<String>,
    /// The name of the project, in reports of an organization with names; `None` if it was deleted.
    pub project_name: Option<String>,
}

/// The quantity of a component in one period, kind and group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DayComponent {
    /// In UTC; the first day of the period that has the component.
    pub day: Day,
    pub kind: Kind,
    /// Without names.
    pub group: Group,
    pub component: Component,
    pub quantity: i64,
}

/// The prefix of the ids of users, which are stored in the same column as those of API keys.
const USER_PREFIX: &str = "user_";

/// Returns `true` if the id of a caller is that of a user.
pub(in crate::store) fn is_user(caller_id: &str) -> bool {
    caller_id.starts_with(USER_PREFIX)
}

/// Reads a sum of amounts.
pub(in crate::store) fn amount(row: &Row) -> Result<Pico, db::Error> {
    Ok(whole_and_rest(row.get("amount_whole")?, row.get("amount_rest_pico")?))
}

/// Reads a group without its names.
fn unnamed_group(row: &Row) -> Result<Group, db::Error> {
    let (model, project_id) = (row.get("model")?, row.get("project_id")?);
    let caller: Option<String> = row.get("api_key_id")?;
    let is_user = caller.as_deref().is_some_and(is_user);
    let (api_key_id, user_id) = if is_user { (None, caller) } else { (caller, None) };
    Ok(Group { model, project_id, api_key_id, user_id, ..Group::default() })
}

impl FromRow for DayComponent {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            day: row.get("day")?,
            kind: row.get("kind")?,
            group: unnamed_group(row)?,
            component: day_parts::component(row)?,
            quantity: row.get("quantity")?,
        })
    }
}

impl FromRow for DayUsage {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        // The columns are read in the order of the query, so that each is found without a search.
        let (day, kind) = (row.get("day")?, row.get("kind")?);
        let group = unnamed_group(row)?;
        let group =
            Group { api_key_name: row.get("api_key_name")?, project_name: row.get("project_name")?, ..group };
        Ok(Self {
            day,
            kind,
            group,
            requests: row.get("requests")?,
            prompt_tokens: row.get("prompt_tokens")?,
            completion_tokens: row.get("completion_tokens")?,
            amount: amount(row)?,
        })
    }
}

const SUMS: &str = "CAST(SUM(requests) AS BIGINT) AS requests,
     CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
     CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
     CAST(SUM(u.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
     CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_rest_pico";

/// Maximum number of months that begin within a report, after its first month.
const LATER_MONTHS: usize = 12;

/// Maximum number of projects of an organization whose usage is read project by project.
const MAX_LISTED_PROJECTS: usize = 16;

/// The statement of `projects`: one search in the index for each project, however many rows it has.
pub const PROJECTS: &str = "WITH RECURSIVE p(id) AS (
         SELECT MIN(project_id) FROM usage_daily WHERE organization_id = $1
         UNION ALL
         SELECT (SELECT MIN(project_id) FROM usage_daily WHERE organization_id = $1 AND project_id > p.id)
         FROM p WHERE p.id IS NOT NULL
     )
     SELECT id FROM p WHERE id IS NOT NULL LIMIT $2";

/// Returns the projects of an organization that have usage, including deleted ones, as parameters of a
/// report. The last one is repeated until their number is a power of two, which limits the number of
/// different statements. Returns an empty list if the organization has more than [`MAX_LISTED_PROJECTS`].
async fn listed_projects(tx: &mut Tx, organization_id: OrganizationId) -> Result<Vec<String>, db::Error> {
    let limit = i64::try_from(MAX_LISTED_PROJECTS).unwrap_or(i64::MAX).saturating_add(1);
    let rows: Vec<(String,)> = sql(PROJECTS).bind(organization_id).bind(limit).all(tx).await?;
    let mut projects: Vec<String> = rows.into_iter().map(|(id,)| id).collect();
    let Some(last) = projects.last().filter(|_| projects.len() <= MAX_LISTED_PROJECTS).cloned() else {
        return Ok(Vec::new());
    };
    projects.resize(projects.len().next_power_of_two(), last);
    Ok(projects)
}

/// The table that has the usage of a report in the fewest rows.
struct Source {
    table: &'static str,
    /// The condition for its rows.
    filter: String,
    /// The columns of the model and the caller, if usage is grouped by them.
    model: Option<&'static str>,
    caller: Option<&'static str>,
}

impl Source {
    fn of(groups: Groups) -> Self {
        let sums = |grouped_by| format!(" AND grouped_by = '{grouped_by}'");
        let (table, filter, model, caller) = match (groups.model, groups.api_key) {
            (true, true) => ("usage_daily", String::new(), Some("model"), Some("api_key_id")),
            (false, true) => ("usage_daily_sums", sums(sums::CALLER), None, Some("group_id")),
            (true, false) => ("usage_daily_sums", sums(sums::MODEL), Some("group_id"), None),
            // An organization has fewer models than callers.
            (false, false) => ("usage_daily_sums", sums(sums::MODEL), None, None),
        };
        Self { table, filter, model, caller }
    }

    /// Returns the columns of the day and of the groups, NULL where usage isn't grouped by them; and the
    /// expressions to group by. Days that are billed in several months are added up, and so are the days of
    /// a week or a month. The first days of the months after the first one are the parameters from `$months`
    /// on.
    fn grouped(&self, groups: Groups, months: usize) -> (String, String) {
        let (day, period) = match groups.period {
            // The sign prevents SQLite from reading the rows in the order of an index by day, each with a
            // search.
            Period::Day => ("+u.day AS day", "+u.day".to_owned()),
            // 1970-01-01 was a Thursday, and a week begins on Monday.
            Period::Week => ("MIN(u.day) AS day", "(u.day + 3) / 7".to_owned()),
            Period::Month => ("MIN(u.day) AS day", month_number(months, 0, LATER_MONTHS)),
        };
        let project = groups.project.then_some("project_id");
        let columns = [("model", self.model), ("project_id", project), ("api_key_id", self.caller)];
        let shown = columns.map(|(name, column)| format!("{} AS {name}", column.unwrap_or("NULL")));
        let by = columns.iter().filter_map(|(_, column)| column.map(|column| format!(", {column}")));
        (format!("{day}, kind, {}", shown.join(", ")), format!("{period}, kind{}", by.collect::<String>()))
    }
}

/// Returns the expression for the number of a day's month, which is between `low` and `high`; the first month
/// of the report has number 0. It is a binary search: at most four comparisons per row.
fn month_number(months: usize, low: usize, high: usize) -> String {
    if low >= high {
        return low.to_string();
    }
    let middle = usize::midpoint(low, high);
    let (before, after) = (month_number(months, low, middle), month_number(months, middle + 1, high));
    format!("CASE WHEN u.day < ${} THEN {before} ELSE {after} END", months + middle)
}

/// Binds the days of a report, and the limit of its rows.
fn bind_range(statement: Statement, range: Range, limit: i64) -> Statement {
    statement.bind(range.start).bind(range.end_exclusive).bind(limit)
}

/// Binds the months that [`Source::grouped`] needs.
fn bind_months(statement: Statement, range: Range, period: Period) -> Statement {
    if period != Period::Month {
        return statement;
    }
    let next = |day: &Day| Some(day.next_month_start());
    let months = std::iter::successors(Some(range.start.next_month_start()), next).take(LATER_MONTHS);
    months.fold(statement, Statement::bind)
}

/// The names that a report includes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Names {
    /// The names of API keys and users.
    callers: bool,
    projects: bool,
}

/// Returns the statement for usage `rows` with the names of its callers and projects, at most `limit` rows.
/// Each id is looked up once, not for each day, and in a subquery: with joins, PostgreSQL would read all
/// users for a few rows.
///
/// The limit isn't in `rows`, because PostgreSQL would then expect to read only a part of them, and would
/// sort all days to group them, which takes longer than hashing.
fn limited(rows: &str, limit: &str, names: Names) -> String {
    let (mut lookups, mut joins) = (String::new(), String::new());
    if names.callers {
        lookups.push_str(
            ", callers AS MATERIALIZED (
                 SELECT i.api_key_id,
                        COALESCE((SELECT k.name FROM api_keys k WHERE k.id = i.api_key_id),
                                 (SELECT f.name FROM former_api_keys f WHERE f.id = i.api_key_id),
                                 (SELECT u.username FROM users u WHERE u.id = i.api_key_id),
                                 i.api_key_id) AS name
                 FROM (SELECT DISTINCT api_key_id FROM d) i)",
        );
        joins.push_str(" LEFT JOIN callers ON callers.api_key_id = d.api_key_id");
    }
    if names.projects {
        lookups.push_str(
            ", named_projects AS MATERIALIZED (
                 SELECT i.project_id, (SELECT p.name FROM projects p WHERE p.id = i.project_id) AS name
                 FROM (SELECT DISTINCT project_id FROM d) i)",
        );
        joins.push_str(" LEFT JOIN named_projects ON named_projects.project_id = d.project_id");
    }
    let name = |wanted, column: &'static str| if wanted { column } else { "NULL" };
    let caller = name(names.callers, "callers.name");
    let project = name(names.projects, "named_projects.name");
    // The rows that are looked up have the limit, too.
    let (usage, limit) = if lookups.is_empty() {
        (format!("d AS MATERIALIZED ({rows})"), format!(" LIMIT {limit}"))
    } else {
        let columns = "day, kind, model, project_id, api_key_id, requests, prompt_tokens, completion_tokens,
                       amount_whole, amount_rest_pico";
        let limited = format!("d AS MATERIALIZED (SELECT {columns} FROM summed LIMIT {limit})");
        (format!("summed AS MATERIALIZED ({rows}), {limited}"), String::new())
    };
    format!(
        "WITH {usage}{lookups}
         SELECT d.day AS day, d.kind AS kind, d.model AS model, d.project_id AS project_id,
                d.api_key_id AS api_key_id, {caller} AS api_key_name, {project} AS project_name,
                d.requests AS requests, d.prompt_tokens AS prompt_tokens,
                d.completion_tokens AS completion_tokens, d.amount_whole AS amount_whole,
                d.amount_rest_pico AS amount_rest_pico
         FROM d{joins}{limit}"
    )
}

/// Returns the statement of [`of_organization`], with names or without, for `projects` listed ids, or for all
/// projects if it is 0. SQLite stores the rows of a listed project next to each other, but finds those of all
/// projects one by one.
pub fn organization_text(groups: Groups, named: bool, projects: usize) -> String {
    let source = Source::of(groups);
    let (shown, by) = source.grouped(groups, FIRST_PROJECT + projects);
    let Source { table, filter, .. } = source;
    let listed: Vec<String> = (FIRST_PROJECT..FIRST_PROJECT + projects).map(|at| format!("${at}")).collect();
    let of_projects = match &*listed {
        [] => String::new(),
        listed => format!(" AND project_id IN ({})", listed.join(", ")),
    };
    let rows = format!(
        "SELECT {shown}, {SUMS} FROM {table} u
         WHERE organization_id = $1{filter} AND day >= $2 AND day < $3{of_projects} GROUP BY {by}"
    );
    limited(&rows, "$4", Names { callers: named && groups.api_key, projects: named && groups.project })
}

/// The number of the first parameter of [`organization_text`] that is a project.
const FIRST_PROJECT: usize = 5;

/// Returns an organization's usage by period and group, with names or without, at most `limit` rows, in no
/// order.
pub async fn of_organization(
    tx: &mut Tx,
    organization_id: OrganizationId,
    range: Range,
    (groups, named): (Groups, bool),
    limit: i64,
) -> Result<Vec<DayUsage>, db::Error> {
    let projects = listed_projects(tx, organization_id).await?;
    let statement = sql(organization_text(groups, named, projects.len())).bind(organization_id);
    let statement = bind_range(statement, range, limit);
    let statement = projects.into_iter().fold(statement, Statement::bind);
    bind_months(statement, range, groups.period).heavy().all(tx).await
}

/// The statement of [`of_api_key`]. Usage of a day is billed in its month or a later one, so the index by key
/// and month finds it.
pub static API_KEY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT day, kind, NULL AS model, NULL AS project_id, NULL AS api_key_id, NULL AS api_key_name,
                NULL AS project_name,
                {SUMS}
         FROM usage_daily u WHERE api_key_id = $1 AND month >= $2 AND day >= $3 AND day < $4 GROUP BY day, kind"
    )
});

/// Returns the usage of an API key by day, in no order.
pub async fn of_api_key(tx: &mut Tx, api_key_id: ApiKeyId, range: Range) -> Result<Vec<DayUsage>, db::Error> {
    sql(API_KEY.as_str())
        .bind(api_key_id)
        .bind(range.start.month())
        .bind(range.start)
        .bind(range.end_exclusive)
        .heavy()
        .all(tx)
        .await
}

/// Returns the statement of [`of_project`].
pub fn project_text(groups: Groups) -> String {
    let source = Source::of(groups);
    let (shown, by) = source.grouped(groups, 6);
    let Source { table, filter, .. } = source;
    let rows = format!(
        "SELECT {shown}, {SUMS} FROM {table} u
         WHERE organization_id = $1 AND project_id = $2{filter} AND day >= $3 AND day < $4 GROUP BY {by}"
    );
    limited(&rows, "$5", Names { callers: groups.api_key, projects: false })
}

/// Returns a project's usage by period and group with the names of its API keys and users, at most `limit`
/// rows, in no order.
pub async fn of_project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    range: Range,
    groups: Groups,
    limit: i64,
) -> Result<Vec<DayUsage>, db::Error> {
    let statement = sql(project_text(groups)).bind(organization_id).bind(project_id);
    bind_months(bind_range(statement, range, limit), range, groups.period).heavy().all(tx).await
}

/// The number of the first parameter of [`components_text`] that not all of its statements have.
const AFTER_MONTH: usize = 6;

/// Returns the statement of [`components`], of one project or of all.
pub fn components_text(groups: Groups, of_project: bool) -> String {
    let source = Source {
        table: "usage_daily",
        filter: String::new(),
        model: groups.model.then_some("model"),
        caller: groups.api_key.then_some("api_key_id"),
    };
    let (shown, by) = source.grouped(groups, AFTER_MONTH + usize::from(of_project));
    let project = if of_project { " AND project_id = $6" } else { "" };
    // Usage of a day is billed in its month or a later one, so the indexes by month find it.
    let rows = format!("organization_id = $1{project} AND month >= $5 AND day >= $2 AND day < $3");
    format!(
        "SELECT {shown}, component, CAST(SUM(quantity) AS BIGINT) AS quantity
         FROM usage_daily_parts u WHERE {rows} GROUP BY {by}, component
         UNION ALL
         SELECT {shown}, 'cached_prompt' AS component, CAST(SUM(cached_prompt_tokens) AS BIGINT) AS quantity
         FROM usage_daily u WHERE {rows} AND cached_prompt_tokens <> 0 GROUP BY {by}
         LIMIT $4"
    )
}

/// Returns the components that usage counts in addition to all prompt and completion tokens, of an
/// organization or one of its projects, by period and group: at most `limit` rows, in no order.
pub async fn components(
    tx: &mut Tx,
    (organization_id, project_id): (OrganizationId, Option<ProjectId>),
    range: Range,
    groups: Groups,
    limit: i64,
) -> Result<Vec<DayComponent>, db::Error> {
    let statement = sql(components_text(groups, project_id.is_some())).bind(organization_id);
    let statement = bind_range(statement, range, limit).bind(range.start.month());
    let statement = project_id.into_iter().fold(statement, Statement::bind);
    bind_months(statement, range, groups.period).heavy().all(tx).await
}
