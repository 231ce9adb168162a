//! `/v1/organizations/{organization_id}/calls` (docs/contract/calls.md).

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::Api;
use crate::accept::Negotiated;
use crate::csv::{Cell, CsvFile, CsvQuery, JsonOrCsv};
use crate::dates::DateField;
use crate::gate::Call;
use billing::Billing;
use call_log::calls::{self, Filter, Page};
use call_log::entries::{Ended, Operation as CallOperation};
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::{Integer, Text, string};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, CallerId, ModelCallId, OrganizationId, ProjectId, RequestId, UserId};
use kernel::money::Pico;
use tenants::access::OrgScope;
use web::input::{Description, Input};
use web::reply::{Enveloped, private};
use web::route::Operation;

/// A word out of a list, as a filter.
struct Word<T>(T);

impl Field for Word<CallOperation> {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        word(value, at, problems, CallOperation::ALL, CallOperation::as_str).map(Self)
    }
    fn schema() -> serde_json::Value {
        let words: Vec<_> = CallOperation::ALL.iter().map(|operation| operation.as_str()).collect();
        json!({"type": "string", "title": "CallOperation", "enum": words, "examples": ["chat_completions"]})
    }
}

impl Field for Word<Ended> {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        word(value, at, problems, Ended::ALL, Ended::as_str).map(Self)
    }
    fn schema() -> serde_json::Value {
        let words: Vec<_> = Ended::ALL.iter().map(|ended| ended.as_str()).collect();
        json!({"type": "string", "title": "CallEnd", "enum": words, "examples": ["completed"]})
    }
}

fn word<T: Copy>(
    value: Json<'_>,
    at: &Location<'_>,
    problems: &mut Problems,
    all: &[T],
    as_str: fn(T) -> &'static str,
) -> Option<T> {
    let text = string(value, at, problems)?;
    if let Some(found) = all.iter().copied().find(|one| as_str(*one) == text) {
        return Some(found);
    }
    let words: Vec<_> = all.iter().map(|one| as_str(*one)).collect();
    problems.add(at, "unknown_value", format!("`{}` must be one of {}.", at.path, words.join(", ")))
}

/// An error code, as a filter.
struct CodeText(String);

impl Field for CodeText {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        Text::<64>::read(value, at, problems).map(|text| Self(text.0))
    }
    fn schema() -> serde_json::Value {
        json!({"type": "string", "maxLength": 64, "examples": ["rate_limited"]})
    }
}

/// The filters and the position of a list of calls.
#[derive(Debug)]
pub struct CallQuery {
    filter: Filter,
    /// `true` if the filters exclude every call: a call has either an API key or a user.
    excludes_all: bool,
    after: Option<ModelCallId>,
    limit: i64,
}

impl Record<Api> for CallQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let after = fields.described("The id of the last call of the page before.").optional("after");
        let limit = fields
            .described("The maximum number of calls; 50 by default.")
            .or("limit", Integer::<1, 100>(50));
        let from: Option<Option<DateField>> = fields.described("The beginning, inclusive.").optional("from");
        let to: Option<Option<DateField>> = fields.described("The end, exclusive.").optional("to");
        let key: Option<Option<ApiKeyId>> = fields.described("The id of the API key.").optional("api_key_id");
        let user: Option<Option<UserId>> =
            fields.described("The id of the user who called without a key.").optional("user_id");
        let model: Option<Option<Text<128>>> = fields.described("The id of the model.").optional("model");
        let operation: Option<Option<Word<CallOperation>>> =
            fields.described("The operation.").optional("operation");
        let code: Option<Option<CodeText>> = fields.described("The error code.").optional("code");
        let ended: Option<Option<Word<Ended>>> =
            fields.described("The way the call ended.").optional("ended");
        let min_duration_ms: Option<Option<Integer<0, 2_000_000_000>>> =
            fields.described("The minimum duration in milliseconds.").optional("min_duration_ms");
        let request_id: Option<Option<RequestId>> =
            fields.described("The id of the request, from its header `x-request-id`.").optional("request_id");
        let end_user: Option<Option<Text<128>>> =
            fields.described("The end user that the call names.").optional("end_user");
        let (key, user) = (key?, user?);
        let excludes_all = key.is_some() && user.is_some();
        let instant = |bound: Option<DateField>| bound.map(|DateField(bound)| bound.instant());
        let (from, to) = (instant(from?), instant(to?));
        if from.zip(to).is_some_and(|(from, to)| to < from) {
            return fields.problem("to", "end_before_start", "`to` must not be before `from`.");
        }
        let filter = Filter {
            from,
            to,
            caller: key.map(CallerId::ApiKey).or(user.map(CallerId::User)),
            project_id: None,
            model: model?.map(|text| text.0),
            operation: operation?.map(|word| word.0),
            code: code?.map(|text| text.0),
            ended: ended?.map(|word| word.0),
            min_duration_ms: min_duration_ms?.map(|number| number.0),
            request_id: request_id?,
            end_user: end_user?.map(|text| text.0),
        };
        Some(Self { filter, excludes_all, after: after?, limit: limit?.0 })
    }
}

/// A page of the call log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CallPage {
    /// The calls of this page, the newest first.
    calls: Vec<LoggedCall>,
    /// The value of `after` for the next page; null at the end. A page may have fewer calls than `limit`
    /// although it isn't the last one.
    next: Option<ModelCallId>,
}

/// A model call.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoggedCall {
    /// The id of the call, from its header `x-tollkeeper-call-id`.
    id: ModelCallId,
    /// The time at which the call was admitted, or refused.
    time: Time,
    /// The id of the project.
    project_id: ProjectId,
    /// The id of the API key; null for calls of a user without a key.
    api_key_id: Option<ApiKeyId>,
    /// The id of the user who called without a key; otherwise null.
    user_id: Option<UserId>,
    /// The id of the request, from its header `x-request-id`; null if another server made the call.
    request_id: Option<RequestId>,
    /// The operation.
    #[schemars(extend("examples" = ["chat_completions"]))]
    operation: &'static str,
    /// The id of the model; null for a refused call of an unknown model.
    model: Option<String>,
    /// `true` for a stream.
    stream: bool,
    /// The number of servers behind the model that were called.
    attempts: i64,
    /// The HTTP status; null if the client left before it, or if another server made the call.
    status: Option<i64>,
    /// The error code; null without an error.
    code: Option<String>,
    /// The way the call ended: `completed`, `cut`, `client_left`, `failed` or `refused`.
    #[schemars(extend("examples" = ["completed"]))]
    ended: &'static str,
    /// The number of prompt tokens.
    prompt_tokens: i64,
    /// The part of `prompt_tokens` that came from a cache; null if unknown.
    cached_prompt_tokens: Option<i64>,
    /// The number of completion tokens.
    completion_tokens: i64,
    /// The part of `completion_tokens` that is hidden reasoning; null if unknown.
    reasoning_tokens: Option<i64>,
    /// `true` if the counts are estimates.
    estimated: bool,
    /// The time to the first event of a stream, in milliseconds.
    first_event_ms: Option<i64>,
    /// The duration in milliseconds; null if unknown.
    duration_ms: Option<i64>,
    /// The list price, after corrections.
    amount: Pico,
    /// The end user that the call names.
    end_user: Option<String>,
    /// The family of the client program.
    #[schemars(extend("examples" = ["openai-python"]))]
    user_agent: Option<&'static str>,
    /// The source of the usage event of a call that another server made.
    source: Option<String>,
    /// The id of that event.
    event_id: Option<String>,
    /// The number of further refused calls of this caller and code, which have no rows.
    repeated: i64,
}

impl From<calls::Call> for LoggedCall {
    fn from(call: calls::Call) -> Self {
        Self {
            id: call.id,
            time: call.time(),
            project_id: call.project_id,
            api_key_id: call.api_key_id,
            user_id: call.user_id,
            request_id: call.request_id,
            operation: call.operation.as_str(),
            model: call.model,
            stream: call.is_stream,
            attempts: call.attempts,
            status: call.status,
            code: call.code,
            ended: call.ended.as_str(),
            prompt_tokens: call.prompt_tokens,
            cached_prompt_tokens: call.cached_prompt_tokens,
            completion_tokens: call.completion_tokens,
            reasoning_tokens: call.reasoning_tokens,
            estimated: call.is_estimated,
            first_event_ms: call.first_event_ms,
            duration_ms: call.duration_ms,
            amount: call.amount,
            end_user: call.end_user,
            user_agent: call.user_agent.map(|family| family.as_str()),
            source: call.source,
            event_id: call.event_id,
            repeated: call.repeated,
        }
    }
}

pub const LIST: Operation = Operation { query: &[("limit", "50")], ..Operation::new("list_calls") };

/// List the model calls of an organization.
///
/// The newest come first. With `Accept: text/csv`, the page is returned as a file.
pub async fn list(
    billing: Billing,
    scope: OrgScope,
    query: CsvQuery<CallQuery>,
) -> Result<Negotiated<JsonOrCsv<CallPage>>, Error> {
    page(&billing, (scope.organization_id(), None), query).await
}

/// Returns a page of the calls of an organization, or of one of its projects.
pub(in crate::organizations) async fn page(
    billing: &Billing,
    place: (OrganizationId, Option<ProjectId>),
    CsvQuery { query, is_csv }: CsvQuery<CallQuery>,
) -> Result<Negotiated<JsonOrCsv<CallPage>>, Error> {
    let CallQuery { filter, excludes_all, after, limit } = query;
    let Page { calls, next } = match excludes_all {
        true => Page { calls: Vec::new(), next: None },
        false => calls::list(&billing.call_log, place, &filter, after, limit).await?,
    };
    if is_csv {
        let name = place.1.map_or_else(|| place.0.to_string(), |id| id.to_string());
        return Ok(Negotiated(JsonOrCsv::Csv(file(format!("calls_{name}.csv"), &calls))));
    }
    let calls = calls.into_iter().map(LoggedCall::from).collect();
    Ok(Negotiated(JsonOrCsv::Json(private(CallPage { calls, next }))))
}

/// The id of a call in the path.
#[derive(Debug)]
pub struct CallInPath(pub ModelCallId);

impl Input<Api> for CallInPath {
    const READS_BODY: bool = false;

    async fn read(_: &Api, call: &mut Call) -> Result<Self, Error> {
        let id = ModelCallId::parse(call.path("call_id"));
        Ok(Self(id.ok_or(Code::CallNotFound)?))
    }
    fn describe() -> Description {
        Description::default()
    }
}

pub const READ: Operation = Operation::new("get_call");

/// Get a model call of an organization.
pub async fn read(
    billing: Billing,
    scope: OrgScope,
    CallInPath(call_id): CallInPath,
) -> Result<Enveloped<LoggedCall>, Error> {
    one(&billing, (scope.organization_id(), None), call_id).await
}

/// Returns a call of an organization, or of one of its projects.
pub(in crate::organizations) async fn one(
    billing: &Billing,
    place: (OrganizationId, Option<ProjectId>),
    id: ModelCallId,
) -> Result<Enveloped<LoggedCall>, Error> {
    let call = calls::read(&billing.call_log, place, id).await?.ok_or(Code::CallNotFound)?;
    Ok(private(call.into()))
}

/// The columns of a file of calls.
const COLUMNS: [&str; 26] = [
    "id",
    "time",
    "project_id",
    "api_key_id",
    "user_id",
    "request_id",
    "operation",
    "model",
    "stream",
    "attempts",
    "status",
    "code",
    "ended",
    "prompt_tokens",
    "cached_prompt_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "estimated",
    "first_event_ms",
    "duration_ms",
    "amount",
    "end_user",
    "user_agent",
    "source",
    "event_id",
    "repeated",
];

/// Returns a file with a line for each call.
fn file(name: String, calls: &[calls::Call]) -> CsvFile {
    let mut file = CsvFile::new(name, &COLUMNS);
    for call in calls {
        let text = |value: &Option<String>| Cell::text(value.as_deref().unwrap_or_default());
        let number = |value: Option<i64>| value.map_or_else(|| Cell::value(""), Cell::value);
        file.add([
            Cell::value(call.id),
            Cell::value(call.time()),
            Cell::value(call.project_id),
            call.api_key_id.map_or_else(|| Cell::value(""), Cell::value),
            call.user_id.map_or_else(|| Cell::value(""), Cell::value),
            call.request_id.map_or_else(|| Cell::value(""), Cell::value),
            Cell::value(call.operation.as_str()),
            text(&call.model),
            Cell::value(call.is_stream),
            Cell::value(call.attempts),
            number(call.status),
            text(&call.code),
            Cell::value(call.ended.as_str()),
            Cell::value(call.prompt_tokens),
            number(call.cached_prompt_tokens),
            Cell::value(call.completion_tokens),
            number(call.reasoning_tokens),
            Cell::value(call.is_estimated),
            number(call.first_event_ms),
            number(call.duration_ms),
            Cell::value(call.amount),
            text(&call.end_user),
            Cell::value(call.user_agent.map_or("", |family| family.as_str())),
            text(&call.source),
            text(&call.event_id),
            Cell::value(call.repeated),
        ]);
    }
    file
}
