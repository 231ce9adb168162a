//! The common part of both usage reports: query, rows, and the reply as JSON or CSV (docs/contract/usage.md).

pub mod csv;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use crate::Api;
use crate::csv::JsonOrCsv;
use crate::dates::DateField;
use billing::rules::usage_groups::{self, Groups, Subject};
use billing::usage_reports::{self, ComponentsByKind, Group, Query, UsageByKind};
use catalog::Component;
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::{items, one_of, string};
use kernel::clock::Day;
use kernel::money::Pico;
use web::reply::private;

/// The query and the format of a usage report.
#[derive(Debug)]
pub struct UsageQuery {
    query: Query,
    subject: Subject,
    format: Format,
}

/// The query of an organization's report.
#[derive(Debug)]
pub struct OrganizationQuery(pub UsageQuery);

/// The query of a project's report.
#[derive(Debug)]
pub struct ProjectQuery(pub UsageQuery);

impl Record<Api> for OrganizationQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let groups = |fields: &mut Fields<'_, Api>| {
            fields.optional("group_by").map(|g| g.map(|OrganizationGroups(g)| g))
        };
        UsageQuery::read(fields, Subject::Organization, groups).map(Self)
    }
}

impl Record<Api> for ProjectQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let groups =
            |fields: &mut Fields<'_, Api>| fields.optional("group_by").map(|g| g.map(|ProjectGroups(g)| g));
        UsageQuery::read(fields, Subject::Project, groups).map(Self)
    }
}

impl UsageQuery {
    fn read(
        fields: &mut Fields<'_, Api>,
        subject: Subject,
        groups: impl FnOnce(&mut Fields<'_, Api>) -> Option<Option<Groups>>,
    ) -> Option<Self> {
        let start: Option<Option<DateField>> =
            fields.described("The beginning, inclusive.").optional("start_date");
        let end: Option<Option<DateField>> = fields.described("The end, exclusive.").optional("end_date");
        let groups = groups(fields);
        let format = fields.described("The format of the response.").or("format", Format::Json);
        let needs_components =
            fields.described("`true` to add the quantities of each component.").or("components", false);
        let bound = |bound: Option<DateField>| bound.map(|DateField(bound)| bound);
        let (start, end, format) = (bound(start?), bound(end?), format?);
        let groups = groups?.unwrap_or(subject.by_day());
        let needs_currency = format == Format::Csv;
        let query =
            Query { start, end, needs_currency, needs_components: needs_components?, ..Query::by(groups) };
        Some(Self { query, subject, format })
    }

    /// Returns the query for the billing crate.
    pub fn query(&self) -> Query {
        self.query
    }

    /// Returns a report in the requested format; `name` is part of the file's name.
    pub fn answer<T>(
        &self,
        report: usage_reports::Report,
        name: &str,
        json: impl FnOnce(Vec<(Day, Group, Cells)>, Cells) -> T,
    ) -> JsonOrCsv<T>
    where
        T: Serialize,
    {
        match self.format {
            Format::Json => {
                let cells = |usage, components| self.cells(usage, components);
                let total = cells(report.total, report.total_components);
                let rows = report
                    .rows
                    .into_iter()
                    .map(|row| (row.date, row.group, cells(row.usage, row.components)));
                JsonOrCsv::Json(private(json(rows.collect(), total)))
            }
            Format::Csv => {
                let (name, groups) = (csv::file_name(name, report.range), self.query.groups);
                let currency = report.currency.as_deref().unwrap_or_default();
                // Only the report of a project has names.
                let named = self.subject == Subject::Project;
                JsonOrCsv::Csv(csv::file(name, named, groups, &report, currency))
            }
        }
    }

    fn cells(&self, usage: UsageByKind, components: ComponentsByKind) -> Cells {
        let UsageByKind { chat, embeddings } = usage;
        let named = |components: BTreeMap<Component, i64>| {
            let named = components.into_iter().map(|(component, quantity)| (component.as_str(), quantity));
            self.query.needs_components.then(|| named.collect())
        };
        Cells {
            chat: ChatUsage {
                requests: chat.requests,
                tokens: ChatTokens { prompt: chat.prompt_tokens, completion: chat.completion_tokens },
                amount: chat.amount,
                components: named(components.chat),
            },
            embeddings: EmbeddingsUsage {
                requests: embeddings.requests,
                tokens: embeddings.prompt_tokens,
                amount: embeddings.amount,
                components: named(components.embeddings),
            },
        }
    }
}

/// The used quantity of each component.
type Components = BTreeMap<&'static str, i64>;

/// Usage of chat models and of embedding models.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "UsageCells")]
pub struct Cells {
    /// The usage of chat models.
    chat: ChatUsage,
    /// The usage of embedding models.
    embeddings: EmbeddingsUsage,
}

/// Usage of chat models.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct ChatUsage {
    /// The number of calls.
    requests: i64,
    /// The number of tokens.
    tokens: ChatTokens,
    /// The list price of the usage.
    amount: Pico,
    /// The quantity of each component, in tokens or pieces, by the component's name; only with
    /// `components=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<Components>,
}

/// Prompt and completion tokens.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct ChatTokens {
    /// The number of prompt tokens.
    prompt: i64,
    /// The number of completion tokens.
    completion: i64,
}

/// Usage of embedding models.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct EmbeddingsUsage {
    /// The number of calls.
    requests: i64,
    /// The number of tokens.
    tokens: i64,
    /// The list price of the usage.
    amount: Pico,
    /// The quantity of each component, in tokens or pieces, by the component's name; only with
    /// `components=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<Components>,
}

#[derive(Debug)]
struct OrganizationGroups(Groups);

impl Field for OrganizationGroups {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        read_groups(value, at, problems, Subject::Organization).map(Self)
    }
    fn schema() -> Value {
        groups_schema(Subject::Organization)
    }
}

#[derive(Debug)]
struct ProjectGroups(Groups);

impl Field for ProjectGroups {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        read_groups(value, at, problems, Subject::Project).map(Self)
    }
    fn schema() -> Value {
        groups_schema(Subject::Project)
    }
}

/// Reads groups from comma-separated words, or from an array of words.
fn read_groups(
    value: Json<'_>,
    at: &Location<'_>,
    problems: &mut Problems,
    subject: Subject,
) -> Option<Groups> {
    let (words, listed) = match value {
        Json::Array(_) => (items(value, at, problems, string)?, true),
        Json::Text(text) => (text.split(',').map(|word| word.trim().to_owned().into()).collect(), false),
        other => {
            return problems.wrong_type(at, "comma-separated words, or an array of words", &other);
        }
    };
    if words.is_empty() {
        let message = format!("`{}` can't be empty. Omit it to group by day.", at.path);
        return problems.add(at, "empty", message);
    }
    let texts: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    match usage_groups::parse(&texts, subject) {
        Ok(groups) => Some(groups),
        Err(refusal) => {
            let item = format!("{}[{}]", at.path, refusal.index);
            let path = if listed { item.as_str() } else { at.path };
            let message = format!("`{}` {}.", at.path, refusal.message);
            problems.add(&Location { path, origin: at.origin }, refusal.code, message)
        }
    }
}

fn groups_schema(subject: Subject) -> Value {
    json!({"type": "string", "examples": ["day,model"],
           "description": format!("Comma-separated words out of {}, at most one of day, week and month; or \
                                   an array", subject.words().join(", "))})
}

/// The format of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Format {
    Json,
    Csv,
}

impl Field for Format {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "ReportFormat", "enum": ["json", "csv"], "examples": ["json"]})
    }
}
