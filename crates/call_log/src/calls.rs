//! Lists of logged calls.

use std::collections::HashMap;

use db::Tx;
use kernel::clock::{HOUR_MS, MINUTE_MS, Time};
use kernel::error::Error;
use kernel::ids::{CallerId, ModelCallId, OrganizationId, ProjectId, RequestId};

use crate::CallLog;
use crate::entries::{Ended, Operation};
use crate::store::calls::StoredId;
use crate::store::names;
use crate::store::reading::{self, Scan, Subject};

pub use crate::store::reading::{Call, MAX_SCANNED};

/// The longest time from a request to its call, in milliseconds.
const MAX_REQUEST_MS: i64 = HOUR_MS;

/// The filters of a list. Each `None` doesn't filter.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Filter {
    /// The first time, inclusive.
    pub from: Option<Time>,
    /// The last time, exclusive.
    pub to: Option<Time>,
    pub caller: Option<CallerId>,
    pub project_id: Option<ProjectId>,
    pub model: Option<String>,
    pub operation: Option<Operation>,
    pub code: Option<String>,
    pub ended: Option<Ended>,
    pub min_duration_ms: Option<i64>,
    pub request_id: Option<RequestId>,
    pub end_user: Option<String>,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Page {
    pub calls: Vec<Call>,
    /// The position from which the list goes on; `None` at its end.
    pub next: Option<ModelCallId>,
}

/// Lists the calls of an organization, or of one of its projects: the newest first, those after `after`. The
/// caller has checked the access.
///
/// A page reads at most [`MAX_SCANNED`] rows. If that isn't enough for `limit` calls that match, it has
/// fewer.
///
/// # Errors
/// The database fails.
pub async fn list(
    log: &CallLog,
    (organization_id, project_id): (OrganizationId, Option<ProjectId>),
    filter: &Filter,
    after: Option<ModelCallId>,
    limit: i64,
) -> Result<Page, Error> {
    let mut tx = log.db.reports().await?;
    let project_id = project_id.or(filter.project_id);
    let filter = Filter { project_id, ..filter.clone() };
    let Some(scan) = scan(&mut tx, organization_id, &filter, after).await? else {
        return Ok(Page::default());
    };
    let mut calls = reading::list(&mut tx, &scan, limit + 1).await?;
    if calls.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
        calls.pop();
        let next = calls.last().map(|call| call.id);
        return Ok(Page { calls, next });
    }
    let next = reading::scan_end(&mut tx, &scan).await?.map(StoredId::id);
    Ok(Page { calls, next })
}

/// Returns a call of an organization, or of one of its projects. The caller has checked the access.
///
/// # Errors
/// The database fails.
pub async fn read(
    log: &CallLog,
    (organization_id, project_id): (OrganizationId, Option<ProjectId>),
    id: ModelCallId,
) -> Result<Option<Call>, Error> {
    let mut tx = log.db.read().await?;
    let texts = [Some(organization_id.text()), project_id.map(|id| id.text())];
    let Some(numbers) = numbers(&mut tx, texts.into_iter().flatten()).await? else { return Ok(None) };
    let organization = numbers.get(&*organization_id.text()).copied().unwrap_or(-1);
    let project = project_id.and_then(|id| numbers.get(&*id.text()).copied());
    let call = reading::get(&mut tx, organization, project, id).await?;
    Ok(call.filter(|call| call.id == id))
}

/// Returns the numbers of these names; `None` if one of them has none, so that no row has it.
async fn numbers(
    tx: &mut Tx,
    texts: impl Iterator<Item = String>,
) -> Result<Option<HashMap<Box<str>, i64>>, db::Error> {
    let mut texts: Vec<Box<str>> = texts.map(String::into_boxed_str).collect();
    texts.sort_unstable();
    texts.dedup();
    let found: HashMap<_, _> = names::find(tx, &texts).await?.into_iter().collect();
    Ok((found.len() == texts.len()).then_some(found))
}

/// Returns the rows to read; `None` if none can match.
async fn scan(
    tx: &mut Tx,
    organization_id: OrganizationId,
    filter: &Filter,
    after: Option<ModelCallId>,
) -> Result<Option<Scan>, db::Error> {
    let organization = organization_id.text();
    let project = filter.project_id.map(|id| id.text());
    let caller = filter.caller.map(|id| id.short_text().as_str().to_owned());
    let texts = [Some(organization.clone()), project.clone(), caller.clone()];
    let texts = texts.into_iter().chain([filter.model.clone(), filter.code.clone()]).flatten();
    let Some(numbers) = numbers(tx, texts).await? else { return Ok(None) };
    let number = |name: &Option<String>| name.as_deref().and_then(|name| numbers.get(name).copied());
    let organization = numbers.get(&*organization).copied().unwrap_or(-1);
    let (project, caller) = (number(&project), number(&caller));
    let subject = match (caller, project) {
        (Some(caller), _) => Subject::Caller(caller),
        (None, Some(project)) => Subject::Project(project),
        (None, None) => Subject::Organization(organization),
    };
    let (mut from, mut before) = (StoredId { second: i64::from(i32::MIN), ..StoredId::default() }, LAST);
    if let Some(time) = filter.from {
        from = StoredId::first_of(time);
    }
    if let Some(time) = filter.to {
        before = before.min(StoredId::first_of(time));
    }
    if let Some(id) = after {
        before = before.min(StoredId::of(id));
    }
    if let Some(request) = filter.request_id {
        // The id of a request has its time, which bounds the time of its call.
        let time = request.created_at();
        from = from.max(StoredId::first_of(time.plus_ms(-MINUTE_MS)));
        before = before.min(StoredId::first_of(time.plus_ms(MAX_REQUEST_MS)));
    }
    Ok(Some(Scan {
        subject,
        organization,
        project,
        caller,
        model: number(&filter.model),
        code: number(&filter.code),
        operation: filter.operation.map(Operation::number),
        ended: filter.ended.map(Ended::number),
        min_duration_ms: filter.min_duration_ms,
        request: filter.request_id.map(StoredId::of),
        end_user: filter.end_user.clone().unwrap_or_default(),
        from,
        before,
    }))
}

/// A position after every id.
const LAST: StoredId = StoredId { second: i32::MAX as i64, part: i32::MAX as i64, low: i64::MAX };
