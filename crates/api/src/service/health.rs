//! `GET /healthz` and `GET /readyz`, for load balancers and supervisors.

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use kernel::error::{Code, Detail, Error};
use monitor::Monitor;
use web::input::NoInput;
use web::reply::Bare;
use web::route::Operation;

/// The state of a running process.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    /// Always `ok`.
    status: &'static str,
    /// The version of the server.
    version: &'static str,
}

/// The readiness of a replica, and the checks behind it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Readiness {
    /// Always `ready`; otherwise the response is 503.
    status: &'static str,
    /// The version of the server.
    version: &'static str,
    /// Each check by its name.
    checks: Vec<Check>,
}

/// A readiness check.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReadinessCheck")]
pub struct Check {
    /// The name of the check.
    name: &'static str,
    /// `true` if the check passed.
    ok: bool,
    /// The result, as a sentence.
    message: String,
}

impl From<monitor::Check> for Check {
    fn from(check: monitor::Check) -> Self {
        Self { name: check.name, ok: check.ok, message: check.message }
    }
}

pub const HEALTHZ: Operation = Operation::new("get_health");

/// Check that the process runs.
///
/// This checks nothing else, so that a supervisor doesn't stop a server whose database is unavailable.
pub async fn healthz(_: Api, _: Visitor, _: NoInput) -> Result<Bare<Health>, Error> {
    Ok(Bare(Health { status: "ok", version: env!("CARGO_PKG_VERSION") }))
}

pub const READYZ: Operation = Operation {
    errors: &[
        Code::ClockNotTrusted,
        Code::DatabaseUnavailable,
        Code::NotReady,
        Code::StorageFull,
        Code::StorageReadOnly,
    ],
    ..Operation::new("get_readiness")
};

/// Check whether requests can be sent to this replica.
///
/// Returns all checks if they passed; otherwise 503, with the failed checks in `details`.
pub async fn readyz(monitor: Monitor, _: Visitor, _: NoInput) -> Result<Bare<Readiness>, Error> {
    let checks = monitor.checks().await;
    if checks.iter().all(|check| check.ok) {
        let checks = checks.into_iter().map(Check::from).collect();
        return Ok(Bare(Readiness { status: "ready", version: env!("CARGO_PKG_VERSION"), checks }));
    }
    Err(not_ready(&checks))
}

fn not_ready(checks: &[monitor::Check]) -> Error {
    let failed: Vec<_> = checks.iter().filter(|check| !check.ok).collect();
    let words: Vec<_> = failed.iter().map(|check| format!("{}: {}", check.name, check.message)).collect();
    let internal: Vec<_> = failed.iter().filter_map(|check| check.internal.clone()).collect();
    Error {
        internal: Some(internal.join("; ")).filter(|text| !text.is_empty()),
        details: failed
            .iter()
            .map(|check| Detail {
                param: check.name.to_owned(),
                code: check.code.as_str(),
                message: check.message.clone(),
            })
            .collect(),
        // The database comes first, because other checks depend on it.
        ..Error::new(failed.first().map_or(Code::NotReady, |check| check.code)).message(words.join(" "))
    }
}
