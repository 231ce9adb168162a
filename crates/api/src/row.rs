//! A row of the table of routes.

use http::Method;

use crate::Api;
pub use crate::state::Route;
use kernel::error::Error;
use web::input::Input;
use web::reply::Reply;
use web::route::{Access, Operation};

/// Returns a row of the table, on the public listener.
pub fn route<H, A, I, O, F, R>(
    method: Method,
    path: &'static str,
    access: A,
    handler: F,
    operation: &Operation,
) -> Route
where
    H: From<Api> + Send + 'static,
    A: Access<Api>,
    I: Input<Api>,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send + 'static,
{
    web::route::route(method, path, access, handler).described_by(operation)
}
