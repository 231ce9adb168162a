//! Reads of calls. A page reads a limited number of rows with any filters.

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, CallerId, ModelCallId, ProjectId, RequestId, UserId};
use kernel::money::Pico;

use super::calls::StoredId;
use crate::entries::{Ended, Operation};
use crate::rules::clients::UserAgent;

/// Maximum number of rows that a page reads.
pub const MAX_SCANNED: i64 = 10_000;

/// A logged call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub id: ModelCallId,
    pub project_id: ProjectId,
    pub api_key_id: Option<ApiKeyId>,
    /// The user who called without a key.
    pub user_id: Option<UserId>,
    pub request_id: Option<RequestId>,
    pub operation: Operation,
    pub model: Option<String>,
    pub is_stream: bool,
    /// The number of upstreams that were called.
    pub attempts: i64,
    pub status: Option<i64>,
    pub code: Option<String>,
    pub ended: Ended,
    pub prompt_tokens: i64,
    pub cached_prompt_tokens: Option<i64>,
    pub completion_tokens: i64,
    pub reasoning_tokens: Option<i64>,
    pub is_estimated: bool,
    pub first_event_ms: Option<i64>,
    pub duration_ms: Option<i64>,
    pub amount: Pico,
    pub end_user: Option<String>,
    pub user_agent: Option<UserAgent>,
    /// The source and the id of the event of a call that another server has made.
    pub source: Option<String>,
    pub event_id: Option<String>,
    /// The number of further refused calls that this row counts.
    pub repeated: i64,
}

impl Call {
    pub fn time(&self) -> Time {
        self.id.created_at()
    }
}

impl FromRow for Call {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let id = stored_id(row)?;
        let request = StoredId {
            second: row.get("request_second")?,
            part: row.get("request_part")?,
            low: row.get("request_low")?,
        };
        let caller = row.get::<CallerId>("caller_id")?;
        let known = |count: i64| Some(count).filter(|count| *count >= 0);
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let (operation, ended): (i64, i64) = (row.get("operation")?, row.get("ended")?);
        let (flags, user_agent): (i64, i64) = (row.get("flags")?, row.get("user_agent")?);
        let unknown = |what: &str| db::Error::Internal(format!("the {what} of a call is unknown"));
        Ok(Self {
            id: id.id(),
            project_id: row.get("project_id")?,
            api_key_id: match caller {
                CallerId::ApiKey(id) => Some(id),
                CallerId::User(_) => None,
            },
            user_id: match caller {
                CallerId::ApiKey(_) => None,
                CallerId::User(id) => Some(id),
            },
            request_id: (request != StoredId::default()).then(|| request.id()),
            operation: Operation::of_number(operation).ok_or_else(|| unknown("operation"))?,
            model: row.get("model_id")?,
            is_stream: flags & 1 != 0,
            attempts: row.get("attempts")?,
            status: Some(row.get("status")?).filter(|status| *status != 0),
            code: row.get("code_name")?,
            ended: Ended::of_number(ended).ok_or_else(|| unknown("end"))?,
            prompt_tokens: row.get("prompt_tokens")?,
            cached_prompt_tokens: known(row.get("cached_prompt_tokens")?),
            completion_tokens: row.get("completion_tokens")?,
            reasoning_tokens: known(row.get("reasoning_tokens")?),
            is_estimated: flags & 2 != 0,
            first_event_ms: known(row.get("first_event_ms")?),
            duration_ms: known(row.get("duration_ms")?),
            amount: row.get("amount_pico")?,
            end_user: text(row.get("end_user")?),
            user_agent: UserAgent::of_number(user_agent),
            source: row.get("source_name")?,
            event_id: text(row.get("event_id")?),
            repeated: row.get("repeated")?,
        })
    }
}

fn stored_id(row: &Row) -> Result<StoredId, db::Error> {
    Ok(StoredId { second: row.get("second")?, part: row.get("part")?, low: row.get("low")? })
}

/// The rows that a list reads: those of an organization, a project or a caller, by their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Organization(i64),
    Project(i64),
    Caller(i64),
}

impl Subject {
    fn column(self) -> (&'static str, i64) {
        match self {
            Self::Organization(number) => ("organization", number),
            Self::Project(number) => ("project", number),
            Self::Caller(number) => ("caller", number),
        }
    }
}

/// The range of a list, and its filters by number. `None` doesn't filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    pub subject: Subject,
    pub organization: i64,
    pub project: Option<i64>,
    pub caller: Option<i64>,
    pub model: Option<i64>,
    pub code: Option<i64>,
    pub operation: Option<i64>,
    pub ended: Option<i64>,
    pub min_duration_ms: Option<i64>,
    pub request: Option<StoredId>,
    pub end_user: String,
    /// The first position, inclusive.
    pub from: StoredId,
    /// The position before which rows are read.
    pub before: StoredId,
}

const NAMES: [(&str, &str); 5] = [
    ("project", "project_id"),
    ("caller", "caller_id"),
    ("model", "model_id"),
    ("code", "code_name"),
    ("source", "source_name"),
];

/// Returns the columns of a call: of the row `c`, with the names that it refers to.
fn columns() -> String {
    let names = NAMES.map(|(column, name)| {
        format!("(SELECT n.name FROM call_names n WHERE n.number = c.{column}) AS {name}")
    });
    format!(
        "c.second AS second, c.part AS part, c.low AS low, c.request_second AS request_second,
         c.request_part AS request_part, c.request_low AS request_low, c.operation AS operation,
         c.flags AS flags, c.attempts AS attempts, c.status AS status, c.ended AS ended,
         c.prompt_tokens AS prompt_tokens, c.cached_prompt_tokens AS cached_prompt_tokens,
         c.completion_tokens AS completion_tokens, c.reasoning_tokens AS reasoning_tokens,
         c.first_event_ms AS first_event_ms, c.duration_ms AS duration_ms, c.amount_pico AS amount_pico,
         c.end_user AS end_user, c.user_agent AS user_agent, c.event_id AS event_id, c.repeated AS repeated,
         {}",
        names.join(", ")
    )
}

fn range(column: &str) -> String {
    format!(
        "FROM calls WHERE {column} = $1 AND second >= $2 AND second <= $3
             AND (second < $3 OR part < $4 OR (part = $4 AND low < $5))
         ORDER BY second DESC, part DESC, low DESC"
    )
}

/// Returns the statement of [`list`].
pub fn list_text(subject: Subject) -> String {
    format!(
        "SELECT {} FROM (
             SELECT low, request_low, amount_pico, organization, project, caller, second, part, request_second,
                 request_part, model, code, source, prompt_tokens, cached_prompt_tokens, completion_tokens,
                 reasoning_tokens, first_event_ms, duration_ms, repeated, operation, ended, flags, attempts,
                 status, user_agent, event_id, end_user
             {} LIMIT {MAX_SCANNED}
         ) c
         WHERE c.organization = $6 AND ($7 < 0 OR c.project = $7) AND ($8 < 0 OR c.caller = $8)
             AND ($9 < 0 OR c.model = $9) AND ($10 < 0 OR c.code = $10) AND ($11 < 0 OR c.operation = $11)
             AND ($12 < 0 OR c.ended = $12) AND c.duration_ms >= $13
             AND ($14 = 0 OR (c.request_second = $14 AND c.request_part = $15 AND c.request_low = $16))
             AND ($17 = '' OR c.end_user = $17) AND (c.second > $2 OR c.part >= $18)
         ORDER BY c.second DESC, c.part DESC, c.low DESC LIMIT $19",
        columns(),
        range(subject.column().0)
    )
}

/// Returns at most `limit` calls that match, the newest first.
pub async fn list(tx: &mut Tx, scan: &Scan, limit: i64) -> Result<Vec<Call>, db::Error> {
    let number = |number: Option<i64>| number.unwrap_or(-1);
    let request = scan.request.unwrap_or_default();
    sql(list_text(scan.subject))
        .bind(scan.subject.column().1)
        .bind(scan.from.second)
        .bind(scan.before.second)
        .bind(scan.before.part)
        .bind(scan.before.low)
        .bind(scan.organization)
        .bind(number(scan.project))
        .bind(number(scan.caller))
        .bind(number(scan.model))
        .bind(number(scan.code))
        .bind(number(scan.operation))
        .bind(number(scan.ended))
        .bind(scan.min_duration_ms.unwrap_or(-1))
        .bind(request.second)
        .bind(request.part)
        .bind(request.low)
        .bind(scan.end_user.as_str())
        .bind(scan.from.part)
        .bind(limit)
        .all(tx)
        .await
}

/// Returns the statement of [`scan_end`].
pub fn scan_end_text(subject: Subject) -> String {
    format!("SELECT second, part, low {} LIMIT 1 OFFSET {}", range(subject.column().0), MAX_SCANNED - 1)
}

struct Position(StoredId);

impl FromRow for Position {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        stored_id(row).map(Self)
    }
}

/// Returns the last row that a list may read; `None` if it reads all rows of its range.
pub async fn scan_end(tx: &mut Tx, scan: &Scan) -> Result<Option<StoredId>, db::Error> {
    let found: Option<Position> = sql(scan_end_text(scan.subject))
        .bind(scan.subject.column().1)
        .bind(scan.from.second)
        .bind(scan.before.second)
        .bind(scan.before.part)
        .bind(scan.before.low)
        .optional(tx)
        .await?;
    Ok(found.map(|Position(id)| id))
}

/// Returns the statement of [`get`].
pub fn get_text() -> String {
    format!(
        "SELECT {} FROM calls c
         WHERE c.organization = $1 AND c.second = $2 AND c.part = $3 AND c.low = $4 AND ($5 < 0 OR c.project = $5)",
        columns()
    )
}

/// Returns a call of an organization, or of one of its projects.
pub async fn get(
    tx: &mut Tx,
    organization: i64,
    project: Option<i64>,
    id: ModelCallId,
) -> Result<Option<Call>, db::Error> {
    let id = StoredId::of(id);
    sql(get_text())
        .bind(organization)
        .bind(id.second)
        .bind(id.part)
        .bind(id.low)
        .bind(project.unwrap_or(-1))
        .optional(tx)
        .await
}
