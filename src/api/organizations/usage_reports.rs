//! What both usage reports share: the question, the rows, and the answer as JSON or CSV (section 4.5).

mod csv;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::catalog::Kind;
use crate::clock::{Day, Time};
use crate::db::Tx;
use crate::error::{Detail, Error};
use crate::ids::OrganizationId;
use crate::input::fields::{At, Field, Problems};
use crate::input::json::Json;
use crate::input::types::{items, one_of, string};
use crate::input::{Fields, Record};
use crate::money::Pico;
use crate::reply::private;
use crate::rules::periods::{self, DateBound, Range};
use crate::rules::usage_groups::{self, Groups, Subject};
use crate::store;
use crate::store::usage::reports::{DayUsage, Group};

pub use csv::{Report, usage_file};

/// The most rows that are read for one report: a year of days of 270 keys. What is more is refused, so that no question
/// fills the memory.
const MOST_ROWS: usize = 100_000;

/// How many rows to read in order to notice too many.
pub fn too_many() -> i64 {
    i64::try_from(MOST_ROWS).unwrap_or(i64::MAX).saturating_add(1)
}

/// Which usage is asked for, and how it is to be told.
#[derive(Debug)]
pub struct UsageQuery {
    start_date: Option<DateBound>,
    end_date: Option<DateBound>,
    /// What rows are told apart by.
    pub groups: Groups,
    subject: Subject,
    format: Format,
}

/// The question about an organization.
#[derive(Debug)]
pub struct OrganizationQuery(pub UsageQuery);

/// The question about a project.
#[derive(Debug)]
pub struct ProjectQuery(pub UsageQuery);

impl Record for OrganizationQuery {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let groups =
            |fields: &mut Fields<'_>| fields.optional("group_by").map(|g| g.map(|OrganizationGroups(g)| g));
        UsageQuery::read(fields, Subject::Organization, groups).map(Self)
    }
}

impl Record for ProjectQuery {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let groups =
            |fields: &mut Fields<'_>| fields.optional("group_by").map(|g| g.map(|ProjectGroups(g)| g));
        UsageQuery::read(fields, Subject::Project, groups).map(Self)
    }
}

impl UsageQuery {
    fn read(
        fields: &mut Fields<'_>,
        subject: Subject,
        groups: impl FnOnce(&mut Fields<'_>) -> Option<Option<Groups>>,
    ) -> Option<Self> {
        let (start_date, end_date) = (fields.optional("start_date"), fields.optional("end_date"));
        let (groups, format) = (groups(fields), fields.or("format", Format::Json));
        Some(Self {
            start_date: start_date?,
            end_date: end_date?,
            groups: groups?.unwrap_or(subject.by_day()),
            subject,
            format: format?,
        })
    }

    /// The UTC days that are meant (decisions, section 5).
    ///
    /// # Errors
    /// They end before they begin, or are too many.
    pub fn range(&self, now: Time) -> Result<Range, Error> {
        periods::range(self.start_date, self.end_date, now).map_err(Error::invalid)
    }

    /// The report of these days, in the format that was asked for.
    ///
    /// # Errors
    /// There are too many rows.
    pub async fn report<T>(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        days: Vec<DayUsage>,
        file: impl FnOnce() -> String,
        json: impl FnOnce(Vec<Row>, Cells) -> T,
    ) -> Result<Report<T>, Error>
    where
        T: Serialize,
    {
        if days.len() > MOST_ROWS {
            let message = format!(
                "would give more than {MOST_ROWS} rows a day and group: ask for fewer days or groups"
            );
            let detail = Detail {
                param: "group_by".to_owned(),
                code: "too_many",
                message: format!("`group_by` {message}."),
            };
            return Err(Error::invalid(vec![detail]));
        }
        let (rows, total) = put_together(self.groups, days)?;
        match self.format {
            Format::Json => Ok(Report::Json(private(json(rows, total)))),
            Format::Csv => {
                let wallet = store::wallets::get(tx, organization_id).await?;
                let currency =
                    wallet.ok_or_else(|| Error::internal("an organization has no wallet"))?.currency;
                Ok(Report::Csv { file: file(), text: csv::text(self.subject, self.groups, &rows, &currency) })
            }
        }
    }
}

/// One row of a report.
#[derive(Debug)]
pub struct Row {
    /// The first day of its period.
    pub date: Day,
    /// What it is about.
    pub group: Group,
    /// What was used.
    pub cells: Cells,
}

/// The rows by date, then group; and what all of them come to.
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

/// Chat and embeddings, side by side.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "UsageCells")]
pub struct Cells {
    chat: ChatUsage,
    embeddings: EmbeddingsUsage,
}

/// Usage of chat models.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct ChatUsage {
    requests: i64,
    tokens: ChatTokens,
    /// At list price.
    amount: Pico,
}

/// Tokens in and out.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct ChatTokens {
    prompt: i64,
    completion: i64,
}

/// Usage of embedding models.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct EmbeddingsUsage {
    requests: i64,
    tokens: i64,
    /// At list price.
    amount: Pico,
}

impl Cells {
    /// Adds what a day saw of one kind.
    fn add(&mut self, day: &DayUsage) -> Result<(), Error> {
        let overflow = || Error::internal("a sum of usage passed 64 bits");
        let plus = |a: i64, b: i64| a.checked_add(b).ok_or_else(overflow);
        match day.kind {
            Kind::Chat => {
                self.chat.requests = plus(self.chat.requests, day.requests)?;
                self.chat.tokens.prompt = plus(self.chat.tokens.prompt, day.prompt_tokens)?;
                self.chat.tokens.completion = plus(self.chat.tokens.completion, day.completion_tokens)?;
                self.chat.amount = self.chat.amount.checked_add(day.amount).ok_or_else(overflow)?;
            }
            Kind::Embeddings => {
                self.embeddings.requests = plus(self.embeddings.requests, day.requests)?;
                self.embeddings.tokens = plus(self.embeddings.tokens, day.prompt_tokens)?;
                self.embeddings.amount =
                    self.embeddings.amount.checked_add(day.amount).ok_or_else(overflow)?;
            }
        }
        Ok(())
    }
}

/// The groups of an organization's report.
#[derive(Debug)]
struct OrganizationGroups(Groups);

impl Field for OrganizationGroups {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        read_groups(value, at, problems, Subject::Organization).map(Self)
    }
    fn schema() -> Value {
        groups_schema(Subject::Organization)
    }
}

/// The groups of a project's report.
#[derive(Debug)]
struct ProjectGroups(Groups);

impl Field for ProjectGroups {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        read_groups(value, at, problems, Subject::Project).map(Self)
    }
    fn schema() -> Value {
        groups_schema(Subject::Project)
    }
}

/// Words with commas between them, or an array of words.
fn read_groups(value: Json, at: &At<'_>, problems: &mut Problems, subject: Subject) -> Option<Groups> {
    let (words, listed) = match value {
        Json::Array(_) => (items(value, at, problems, string)?, true),
        Json::Text(text) => (text.split(',').map(|word| word.trim().to_owned()).collect(), false),
        other => {
            return problems.wrong_type(at, "words with commas between them, or an array of words", &other);
        }
    };
    if words.is_empty() {
        let message = format!("`{}` can't be empty: leave it out to group by day.", at.path);
        return problems.add(at, "empty", message);
    }
    let texts: Vec<_> = words.iter().map(String::as_str).collect();
    match usage_groups::parse(&texts, subject) {
        Ok(groups) => Some(groups),
        Err(refusal) => {
            let item = format!("{}[{}]", at.path, refusal.index);
            let path = if listed { item.as_str() } else { at.path };
            let message = format!("`{}` {}.", at.path, refusal.message);
            problems.add(&At { path, origin: at.origin }, refusal.code, message)
        }
    }
}

fn groups_schema(subject: Subject) -> Value {
    json!({"type": "string", "examples": ["day,model"],
           "description": format!("Words of {} with commas between them, at most one of day, week and month; also an array", subject.words().join(", "))})
}

/// How the answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Json,
    Csv,
}

impl Format {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }
}

impl Field for Format {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Json, Self::Csv], Self::as_str)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["json", "csv"], "examples": ["json"]})
    }
}
