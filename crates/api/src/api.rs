//! `/api/…`: paths that third-party programs request from the server that they were written for.

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use kernel::error::Error;
use web::input::NoInput;
use web::reply::Bare;
use web::route::Operation;

/// The reply to a check that the server can be reached.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Hello {
    /// Always `hello`.
    message: &'static str,
}

pub const HELLO: Operation = Operation::new("get_hello");

/// Check that the server can be reached.
///
/// Claude Code calls this when it starts.
pub async fn hello(_: Api, _: Visitor, _: NoInput) -> Result<Bare<Hello>, Error> {
    Ok(Bare(Hello { message: "hello" }))
}
