//! `GET /healthz` and `GET /readyz`, for load balancers and supervisors.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::gate::Visitor;
use crate::input::Nothing;
use crate::reply::Bare;
use billing::health;
use kernel::error::{Code, Detail, Error};

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The way out where the catalog file is an old one.
const OUTDATED: &str = "Another catalog is in force than the one of this server: bring its file up to date, or put it in force again \
                        with `tollkeeper catalog reload`.";

/// That the process answers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    status: &'static str,
    version: &'static str,
}

/// That requests can be sent here, and what was looked at.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Readiness {
    status: &'static str,
    version: &'static str,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Check {
    /// What.
    name: &'static str,
    /// Whether it is as it must be.
    ok: bool,
    /// What was found.
    message: String,
    /// The error that says it best, when it isn't.
    #[serde(skip)]
    code: Code,
    /// For the log only.
    #[serde(skip)]
    internal: Option<String>,
}

/// The process runs and answers. It asks nobody, so that no supervisor ends a server whose database is away.
pub async fn healthz(_: App, _: Visitor, _: Nothing) -> Result<Bare<Health>, Error> {
    Ok(Bare(Health { status: "ok", version: env!("CARGO_PKG_VERSION") }))
}

/// Requests can be sent here: each check by its name. Otherwise 503, and `details` has the ones that fail.
pub async fn readyz(app: App, _: Visitor, _: Nothing) -> Result<Bare<Readiness>, Error> {
    let checks = checks(&app).await;
    if checks.iter().all(|check| check.ok) {
        return Ok(Bare(Readiness { status: "ready", version: env!("CARGO_PKG_VERSION"), checks }));
    }
    Err(not_ready(&checks))
}

fn not_ready(checks: &[Check]) -> Error {
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
        // The database stands before what hangs on it.
        ..Error::new(failed.first().map_or(Code::NotReady, |check| check.code)).message(words.join(" "))
    }
}

async fn checks(app: &App) -> Vec<Check> {
    if !app.is_ready() {
        let waiting = "The server is starting and waits for its database.";
        return vec![failed("database", Code::DatabaseUnavailable, waiting)];
    }
    let (database, schema) = database(app).await;
    let feed = if app.feed.is_trusted(app.clock.now()) {
        passed("feed", "What replicas change is followed.")
    } else {
        failed("feed", Code::NotReady, "What replicas change was not read for a while.")
    };
    let clock = match app.clock_guard.now() {
        Ok(_) => passed("clock", "The clock is trusted."),
        Err(distrust) => {
            failed("clock", Code::ClockNotTrusted, format!("The clock is not trusted: {distrust}."))
        }
    };
    let catalog = if app.catalog.is_outdated() {
        failed("catalog", Code::NotReady, OUTDATED)
    } else if app.catalog.is_refused() {
        passed("catalog", "The catalog file is refused, and the catalog before goes on: the log says why.")
    } else {
        passed("catalog", "The catalog is in force.")
    };
    let currency = if database.ok && schema.ok { currency(app).await } else { None };
    let signing_key = if app.accounts.signing_keys.is_loaded() {
        passed("signing_key", "There is a key to sign tokens with.")
    } else {
        failed("signing_key", Code::NotReady, "There is no key to sign tokens with.")
    };
    let running = if app.is_stopping() {
        failed("running", Code::NotReady, "The server is stopping: send requests elsewhere.")
    } else {
        passed("running", "The server is not stopping.")
    };
    let mut checks = vec![database, schema, feed, clock, catalog];
    checks.extend(currency);
    checks.extend([signing_key, running]);
    checks
}

/// The check that every organization has the currency of this server; none when the database doesn't say in time.
async fn currency(app: &App) -> Option<Check> {
    Some(match health::check_currency(&app.billing).await? {
        Ok(message) => passed("currency", message),
        Err(message) => failed("currency", Code::NotReady, message),
    })
}

/// Whether it answers, and whether it has what this version needs.
async fn database(app: &App) -> (Check, Check) {
    let asked = tokio::time::timeout(PATIENCE, async {
        app.db.ping().await?;
        match app.db.schema().await {
            // It answers, so what it refuses is the question.
            Err(db::Error::Internal(what)) => Ok(Err(what)),
            found => found.map(Ok),
        }
    });
    match asked.await {
        Ok(Ok(found)) => (passed("database", "The database answers."), schema(found)),
        Ok(Err(error)) => {
            let error = Error::from(error);
            // What it says to a client is too much for the public.
            let code = if error.code == Code::Internal { Code::DatabaseUnavailable } else { error.code };
            let database = Check { internal: error.internal, ..failed("database", code, code.message()) };
            (database, unknown())
        }
        Err(_) => {
            let message = "The database did not answer within 3 seconds.";
            (failed("database", Code::DatabaseUnavailable, message), unknown())
        }
    }
}

/// A newer one than this version makes will do: upgrades are rolled out beside it.
fn schema(found: Result<i64, String>) -> Check {
    let known = db::newest_schema();
    match found {
        Ok(found) if found >= known => passed("schema", format!("The database has schema {found}.")),
        Ok(found) => {
            let message = format!(
                "The database has schema {found}, this version needs {known}: run `tollkeeper migrate`."
            );
            failed("schema", Code::NotReady, message)
        }
        Err(what) => {
            let message = "The database has no schema of this program: run `tollkeeper migrate`.";
            Check { internal: Some(what), ..failed("schema", Code::NotReady, message) }
        }
    }
}

fn unknown() -> Check {
    failed("schema", Code::DatabaseUnavailable, "Nobody can tell while the database doesn't answer.")
}

fn passed(name: &'static str, message: impl Into<String>) -> Check {
    Check { name, ok: true, message: message.into(), code: Code::NotReady, internal: None }
}

fn failed(name: &'static str, code: Code, message: impl Into<String>) -> Check {
    Check { ok: false, code, ..passed(name, message) }
}
