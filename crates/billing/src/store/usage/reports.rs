//! Reading usage back: everything is made from daily rows, nothing looks at events.

use crate::rules::periods::Range;
use crate::rules::usage_groups::Groups;
use crate::store::usage::days::whole_and_rest;
use catalog::Kind;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Day;
use kernel::ids::{OrganizationId, ProjectId};
use kernel::money::Pico;

/// The usage of one day, kind and group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DayUsage {
    /// UTC.
    pub day: Day,
    /// Chat or embeddings.
    pub kind: Kind,
    /// Whose use it was; what it isn't grouped by is empty.
    pub group: Group,
    /// Events.
    pub requests: i64,
    /// Tokens in.
    pub prompt_tokens: i64,
    /// Tokens out.
    pub completion_tokens: i64,
    /// At list price.
    pub amount: Pico,
}

/// What rows of a report are told apart by, besides the time; in the order of the rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Group {
    /// The model.
    pub model: Option<String>,
    /// The project's id.
    pub project_id: Option<String>,
    /// The key's id; none of a person's calls.
    pub api_key_id: Option<String>,
    /// The key's name, or the person's, in reports of one project; a deleted key keeps its name.
    pub api_key_name: Option<String>,
    /// The id of the person who called without a key.
    pub user_id: Option<String>,
}

/// The beginning of a person's id where those of callers stand.
const PERSON: &str = "user_";

impl FromRow for DayUsage {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let kind: String = row.get("kind")?;
        let whole: i64 = row.get("amount_whole")?;
        let rest_pico: i64 = row.get("amount_rest_pico")?;
        let caller: Option<String> = row.get("api_key_id")?;
        let is_person = caller.as_deref().is_some_and(|id| id.starts_with(PERSON));
        let (api_key_id, user_id) = if is_person { (None, caller) } else { (caller, None) };
        Ok(Self {
            day: row.get("day")?,
            kind: Kind::parse(&kind).ok_or_else(|| db::Error::Internal(format!("kind is {kind:?}")))?,
            group: Group {
                model: row.get("model")?,
                project_id: row.get("project_id")?,
                api_key_id,
                api_key_name: row.get("api_key_name")?,
                user_id,
            },
            requests: row.get("requests")?,
            prompt_tokens: row.get("prompt_tokens")?,
            completion_tokens: row.get("completion_tokens")?,
            amount: whole_and_rest(whole, rest_pico),
        })
    }
}

const SUMS: &str = "CAST(SUM(requests) AS BIGINT) AS requests,
     CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
     CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
     CAST(SUM(usage_daily.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
     CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_rest_pico";

/// The columns of the groups, empty where usage isn't grouped by them; and what to group by. Days billed in different months
/// come together.
fn grouped(groups: Groups) -> (String, String) {
    let columns = [("model", groups.model), ("project_id", groups.project), ("api_key_id", groups.api_key)];
    let shown = columns.map(|(column, on)| if on { column.to_owned() } else { format!("NULL AS {column}") });
    let by = columns.iter().filter(|(_, on)| *on).map(|(column, _)| format!(", {column}"));
    (shown.join(", "), format!("day, kind{}", by.collect::<String>()))
}

/// The statement of [`of_organization`].
pub fn organization_text(groups: Groups) -> String {
    let (shown, by) = grouped(groups);
    format!(
        "SELECT day, kind, {shown}, NULL AS api_key_name, {SUMS} FROM usage_daily
         WHERE organization_id = $1 AND day >= $2 AND day < $3 GROUP BY {by} LIMIT $4"
    )
}

/// What an organization used on each of these days, at most so many rows, in no order.
pub async fn of_organization(
    tx: &mut Tx,
    organization_id: OrganizationId,
    range: Range,
    groups: Groups,
    most: i64,
) -> Result<Vec<DayUsage>, db::Error> {
    sql(organization_text(groups))
        .bind(organization_id)
        .bind(range.start)
        .bind(range.end_exclusive)
        .bind(most)
        .heavy()
        .all(tx)
        .await
}

/// The statement of [`of_project`].
pub fn project_text(groups: Groups) -> String {
    let (shown, by) = grouped(groups);
    format!(
        "SELECT d.day AS day, d.kind AS kind, d.model AS model, d.project_id AS project_id,
                d.api_key_id AS api_key_id, COALESCE(k.name, f.name, u.username, d.api_key_id) AS api_key_name,
                requests, prompt_tokens, completion_tokens, amount_whole, amount_rest_pico
         FROM (SELECT day, kind, {shown}, {SUMS} FROM usage_daily
               WHERE organization_id = $1 AND project_id = $2 AND day >= $3 AND day < $4
               GROUP BY {by} LIMIT $5) d
         LEFT JOIN api_keys k ON k.id = d.api_key_id
         LEFT JOIN former_api_keys f ON f.id = d.api_key_id
         LEFT JOIN users u ON u.id = d.api_key_id"
    )
}

/// The usage of a project on each of these days, with the names of its keys and people, at most so many rows, in no order.
pub async fn of_project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    range: Range,
    groups: Groups,
    most: i64,
) -> Result<Vec<DayUsage>, db::Error> {
    sql(project_text(groups))
        .bind(organization_id)
        .bind(project_id)
        .bind(range.start)
        .bind(range.end_exclusive)
        .bind(most)
        .heavy()
        .all(tx)
        .await
}
