//! The error codes of each operation: those of its access, of its input and of its handler.
//!
//! Some errors can answer any request and aren't listed: `malformed_request`, `unknown_path`,
//! `method_not_allowed` and `websocket_not_supported`.

use super::path_parameters;
use crate::creation::IDEMPOTENCY_KEY;
use crate::refusals::BODY;
use crate::routes::Route;
use kernel::error::Code;
use web::entity_tags::IF_MATCH;

/// The codes that no operation lists, because they are returned before an operation is found.
pub const CODES_OF_ANY_REQUEST: [Code; 4] =
    [Code::MalformedRequest, Code::UnknownPath, Code::MethodNotAllowed, Code::WebsocketNotSupported];

/// The codes that are returned while the database is unavailable.
const DATABASE: &[Code] =
    &[Code::DatabaseUnavailable, Code::StorageFull, Code::StorageReadOnly, Code::NotReady];

/// Returns the error codes of an operation, in the order of the table of codes.
pub fn codes(route: &Route) -> Vec<Code> {
    let input = (route.input)();
    let mut codes = route.access.codes.clone();
    codes.push(Code::Internal);
    if !route.access.before_ready {
        codes.extend(DATABASE);
    }
    let parameters = path_parameters::of(route.path).filter_map(path_parameters::find);
    codes.extend(parameters.map(|parameter| parameter.unknown));
    if input.body.is_some() || input.form.is_some() {
        codes.extend(BODY);
    }
    if input.query.is_some() || !input.headers.is_empty() {
        codes.push(Code::InvalidRequest);
    }
    if input.headers.iter().any(|(name, _)| *name == IF_MATCH) {
        codes.push(Code::PreconditionFailed);
    }
    if input.headers.iter().any(|(name, _)| *name == IDEMPOTENCY_KEY) {
        codes.extend([Code::IdempotencyInProgress, Code::IdempotencyKeyReused]);
    }
    codes.extend(route.operation.errors);
    codes.extend(route.operation.error_groups.concat());
    Code::ALL.iter().copied().filter(|code| codes.contains(code)).collect()
}
