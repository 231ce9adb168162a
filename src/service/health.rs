//! `GET /healthz` and `GET /readyz`, for load balancers and supervisors.

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::error::{Code, Error};
use crate::input::Nothing;
use crate::reply::Bare;

/// How the server is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    status: &'static str,
    version: &'static str,
}

/// The process runs and answers.
pub async fn healthz(_: App, (): (), _: Nothing) -> Result<Bare<Health>, Error> {
    Ok(Bare(Health { status: "ok", version: env!("CARGO_PKG_VERSION") }))
}

/// The database answers and has this version's schema: requests can be sent here. Otherwise 503, and why.
pub async fn readyz(app: App, (): (), _: Nothing) -> Result<Bare<Health>, Error> {
    app.require_ready()?;
    app.db.ping().await.map_err(|error| {
        let error = Error::from(error);
        let code = if error.code == Code::Internal { Code::DatabaseUnavailable } else { error.code };
        Error { code, ..error }
    })?;
    Ok(Bare(Health { status: "ready", version: env!("CARGO_PKG_VERSION") }))
}
