//! `/v1/organizations/{organization_id}/billing/…` (section 4.5).

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::OrgScope;
use crate::app::App;
use crate::catalog::Kind;
use crate::clock::{Day, Time};
use crate::error::Error;
use crate::input::fields::{At, Field, Problems};
use crate::input::json::Json;
use crate::input::types::one_of;
use crate::input::{Fields, QueryOrBody, Record};
use crate::money::Pico;
use crate::reply::{Enveloped, private};
use crate::rules::periods::{self, DateBound, Range};
use crate::store;
use crate::store::usage::DayUsage;

/// Which usage is asked for.
#[derive(Debug)]
pub struct UsageQuery {
    start_date: Option<DateBound>,
    end_date: Option<DateBound>,
}

impl Record for UsageQuery {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let start_date = fields.optional("start_date");
        let end_date = fields.optional("end_date");
        let group_by = fields.or("group_by", GroupBy::Day);
        match group_by? {
            GroupBy::Day => Some(Self { start_date: start_date?, end_date: end_date? }),
        }
    }
}

impl UsageQuery {
    /// The UTC days that are meant (decisions, section 5).
    pub fn range(&self, now: Time) -> Result<Range, Error> {
        periods::range(self.start_date, self.end_date, now).map_err(Error::invalid)
    }
}

/// How usage is put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupBy {
    /// A row a UTC day.
    Day,
}

impl Field for GroupBy {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        // Several groupings may come as an array; one alone may, too.
        let value = match value {
            Json::Array(mut items) if items.len() == 1 => items.pop().unwrap_or(Json::Null),
            other => other,
        };
        one_of(value, at, problems, &[Self::Day], |_| "day")
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "enum": ["day"], "examples": ["day"]})
    }
}

/// Chat and embeddings, side by side.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct UsageCells {
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

impl UsageCells {
    /// Adds what a day saw of one kind.
    pub fn add(&mut self, day: &DayUsage) -> Result<(), Error> {
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

/// What an organization used, day by day.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationUsage {
    usage: Vec<UsageRow>,
    total: UsageCells,
}

/// One day.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageRow {
    date: Day,
    #[serde(flatten)]
    cells: UsageCells,
}

/// GET /v1/organizations/{organization_id}/billing/usage. Days without usage are left out.
pub async fn usage(
    app: App,
    scope: OrgScope,
    QueryOrBody(query): QueryOrBody<UsageQuery>,
) -> Result<Enveloped<OrganizationUsage>, Error> {
    let range = query.range(app.clock.now())?;
    let mut tx = app.db.read().await?;
    let days = store::usage::by_day(&mut tx, scope.organization_id(), range).await?;
    let mut usage: Vec<UsageRow> = Vec::new();
    let mut total = UsageCells::default();
    for day in days {
        total.add(&day)?;
        match usage.last_mut().filter(|last| last.date == day.day) {
            Some(last) => last.cells.add(&day)?,
            None => {
                let mut cells = UsageCells::default();
                cells.add(&day)?;
                usage.push(UsageRow { date: day.day, cells });
            }
        }
    }
    Ok(private(OrganizationUsage { usage, total }))
}
