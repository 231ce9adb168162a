//! Refused calls, for the log.

use super::CallRequest;
use crate::Billing;
use crate::books::Lifetime;
use call_log::entries::{Client, Course, Ended, NewCall, Operation, Usage};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{CallerId, ModelCallId};
use keys::model_callers::ModelCaller;
use keys::rules::permissions::Permission;

/// The facts of a call that its log needs, in addition to the request for permission.
#[derive(Clone, Copy)]
pub struct LoggedRequest<'a> {
    pub operation: Operation,
    pub is_stream: bool,
    pub client: &'a Client,
}

/// Notes a refused call of a known caller for the log. Failures of the service aren't refusals.
pub(super) fn note(
    billing: &Billing,
    request: &CallRequest<'_>,
    caller: &ModelCaller,
    error: &Error,
    now: Time,
) {
    let status = error.code.status();
    if !billing.call_log.is_on() || status.is_server_error() && error.code != Code::BooksQueueFull {
        return;
    }
    let operation = match (request.logged, request.operation) {
        (Some(logged), _) => logged.operation,
        (None, Permission::Chat) => Operation::Chat,
        (None, Permission::Embeddings) => Operation::Embeddings,
        // These aren't calls of models.
        (None, Permission::Models | Permission::Files) => return,
    };
    let own_id = request.request_id.filter(|_| request.lifetime == Lifetime::Gateway);
    let catalog = billing.catalog.now();
    let model = request.model.and_then(|model| catalog.find_any(model));
    let course = Course {
        request_id: telemetry::request_id(),
        is_stream: request.logged.is_some_and(|logged| logged.is_stream),
        status: Some(status.as_u16()),
        code: Some(error.code.as_str()),
        client: request.logged.map(|logged| logged.client.clone()).unwrap_or_default(),
        ..Course::reported(operation, Ended::Refused)
    };
    billing.call_log.note_refusal(NewCall {
        id: own_id.and_then(ModelCallId::parse).unwrap_or_else(|| ModelCallId::new(now, &billing.random)),
        organization_id: caller.organization_id(),
        project_id: caller.project_id(),
        caller: caller.key().map_or(CallerId::User(caller.user_id()), |key| CallerId::ApiKey(key.id)),
        model: model.map(|model| model.id.as_str().into()),
        course,
        usage: Usage::default(),
        origin: None,
    });
}
