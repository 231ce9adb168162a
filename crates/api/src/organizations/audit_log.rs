//! `/v1/organizations/{organization_id}/audit-log` (docs/contract/organizations.md#audit-log).

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::Api;
use crate::accept::Negotiated;
use crate::csv::{Cell, CsvFile, CsvQuery, JsonOrCsv};
use crate::dates::DateField;
use crate::paging::{PageInfo, PageQuery};
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::{Text, one_of};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::AuditId;
use kernel::page::Page;
use tenants::Tenants;
use tenants::access::OrgScope;
use tenants::audit_log::{self, Entry, Filter};
use trail::Action;
use web::reply::private;
use web::route::Operation;

/// The id of an actor or a target, as a filter.
struct EntryId(String);

impl Field for EntryId {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = Text::<128>::read(value, at, problems)?.0;
        if text.is_empty() {
            let message = format!("`{}` can't be empty. Omit it to list all entries.", at.path);
            return problems.add(at, "empty", message);
        }
        Some(Self(text))
    }
    fn schema() -> serde_json::Value {
        json!({"type": "string", "minLength": 1, "maxLength": 128, "examples": ["user_01kfz3v9xee8tb2m6h0q5w7r4n"]})
    }
}

/// An action, as a filter.
struct EntryAction(Action);

impl Field for EntryAction {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Action::ALL).map(Self)
    }
    fn schema() -> serde_json::Value {
        let words: Vec<_> = Action::ALL.iter().map(|action| action.as_str()).collect();
        json!({"type": "string", "title": "AuditAction", "enum": words, "examples": ["api_key.created"]})
    }
}

/// The filters of an audit log, except its time range.
#[derive(Debug)]
pub struct EntryQuery {
    pub page: Page,
    pub filter: Filter,
}

impl Record<Api> for EntryQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let actor: Option<Option<EntryId>> =
            fields.described("The actor: the id of a user or an API key.").optional("actor");
        let action: Option<Option<EntryAction>> =
            fields.described("The action, for example `api_key.created`.").optional("action");
        let target: Option<Option<EntryId>> =
            fields.described("The id of the changed object.").optional("target");
        let filter = Filter {
            actor: actor?.map(|EntryId(id)| id),
            action: action?.map(|EntryAction(action)| action),
            target: target?.map(|EntryId(id)| id),
            since: None,
            until: None,
        };
        Some(Self { page: page?.0, filter })
    }
}

/// The filters of an audit log, including its time range.
#[derive(Debug)]
pub struct AuditLogQuery {
    page: Page,
    filter: Filter,
}

impl Record<Api> for AuditLogQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let entries = EntryQuery::read(fields);
        let start: Option<Option<DateField>> =
            fields.described("The beginning, inclusive.").optional("start_date");
        let end: Option<Option<DateField>> = fields.described("The end, exclusive.").optional("end_date");
        let instant = |bound: Option<DateField>| bound.map(|DateField(bound)| bound.instant());
        let (since, until) = (start.map(instant), end.map(instant));
        if let (Some(Some(since)), Some(Some(until))) = (since, until)
            && until < since
        {
            let message = "`end_date` must not be before `start_date`.";
            return fields.problem("end_date", "end_before_start", message);
        }
        let EntryQuery { page, filter } = entries?;
        Some(Self { page, filter: Filter { since: since?, until: until?, ..filter } })
    }
}

/// A page of an audit log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditLogPage {
    /// The entries of this page.
    entries: Vec<AuditEntry>,
    #[serde(flatten)]
    page: PageInfo,
}

/// An action, with its actor and the client's address.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditEntry {
    /// The entry's id.
    id: AuditId,
    /// The time of the action.
    time: Time,
    /// The user, API key or part of the service that performed the action.
    actor: AuditActor,
    /// The action, for example `api_key.created`.
    action: String,
    /// The id of the changed object.
    target: String,
    /// The client's address, if known.
    address: Option<String>,
    #[schemars(
        description = "The id of the request, from the response's header `x-request-id`; in a request for a \
        decision, the call's own id."
    )]
    request_id: Option<String>,
}

/// The user, API key or part of the service that performed an action.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditActor {
    /// The id of a user or an API key; `operator` for the operator's command line, `system` for the service
    /// itself.
    id: String,
    /// The user's e-mail address; null unless the actor is a user.
    email: Option<String>,
    /// The username; null unless the actor is a user.
    username: Option<String>,
}

impl From<Entry> for AuditEntry {
    fn from(entry: Entry) -> Self {
        let actor = AuditActor { id: entry.actor, email: entry.actor_email, username: entry.actor_username };
        Self {
            id: entry.id,
            time: entry.happened_at,
            actor,
            action: entry.action,
            target: entry.target,
            address: entry.address,
            request_id: entry.request_id,
        }
    }
}

pub const LIST: Operation = Operation {
    query: &[("action", "api_key.created"), ("page_size", "50")],
    ..Operation::new("list_audit_log")
};

/// List the actions in an organization.
///
/// The newest come first. With `Accept: text/csv`, all matching entries are returned as a file, regardless of
/// the page.
pub async fn list(
    tenants: Tenants,
    scope: OrgScope,
    CsvQuery { query, is_csv }: CsvQuery<AuditLogQuery>,
) -> Result<Negotiated<JsonOrCsv<AuditLogPage>>, Error> {
    let AuditLogQuery { page, filter } = query;
    if is_csv {
        return Ok(Negotiated(JsonOrCsv::Csv(export(&tenants, &scope, &filter).await?)));
    }
    let listed = audit_log::list(&tenants, &scope, &filter, page).await?;
    Ok(Negotiated(JsonOrCsv::Json(private(AuditLogPage {
        entries: listed.rows.into_iter().map(AuditEntry::from).collect(),
        page: PageInfo::new(listed.total, page),
    }))))
}

/// Returns a file with all matching entries.
///
/// # Errors
/// 400 if the number of entries exceeds the maximum for an export.
pub async fn export(tenants: &Tenants, scope: &OrgScope, filter: &Filter) -> Result<CsvFile, Error> {
    let entries = audit_log::export(tenants, scope, filter).await?;
    Ok(file(format!("audit_log_{}.csv", scope.organization_id()), &entries))
}

/// Returns a file with a line for each entry.
fn file(name: String, entries: &[Entry]) -> CsvFile {
    let columns = [
        "id",
        "time",
        "actor_id",
        "actor_email",
        "actor_username",
        "action",
        "target",
        "address",
        "request_id",
    ];
    let mut file = CsvFile::new(name, &columns);
    for entry in entries {
        let shown = |value: &Option<String>| Cell::text(value.as_deref().unwrap_or_default());
        file.add([
            Cell::value(entry.id),
            Cell::value(entry.happened_at),
            Cell::text(&entry.actor),
            shown(&entry.actor_email),
            shown(&entry.actor_username),
            Cell::text(&entry.action),
            Cell::text(&entry.target),
            shown(&entry.address),
            shown(&entry.request_id),
        ]);
    }
    file
}
