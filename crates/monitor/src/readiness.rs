//! Readiness: whether this replica can handle requests.

use std::time::Duration;

use billing::health;
use kernel::error::{Code, Error};

use crate::Monitor;

/// Timeout of the database.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The message for an outdated catalog file.
const OUTDATED_CATALOG: &str = "This server's catalog isn't the one in force: update its file, or put its \
                                catalog in force again with `tollkeeper catalog reload`.";

/// The result of a readiness check.
#[derive(Debug)]
pub struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// The result, as a sentence.
    pub message: String,
    /// The error code if the check failed.
    pub code: Code,
    /// Details for the log only.
    pub internal: Option<String>,
}

pub(super) async fn checks(monitor: &Monitor) -> Vec<Check> {
    if !monitor.frame.is_ready() {
        let waiting = "The server is starting and waits for its database.";
        return vec![failed("database", Code::DatabaseUnavailable, waiting)];
    }
    let (database, schema) = database(monitor).await;
    let feed = if monitor.feed.is_trusted(monitor.clock.now()) {
        passed("feed", "The feed of changes is read.")
    } else {
        failed("feed", Code::NotReady, "The feed of changes was not read for a while.")
    };
    let clock = match monitor.clock_guard.now() {
        Ok(_) => passed("clock", "The clock is trusted."),
        Err(distrust) => {
            failed("clock", Code::ClockNotTrusted, format!("The clock is not trusted: {distrust}."))
        }
    };
    let catalog = if monitor.catalog.is_outdated() {
        failed("catalog", Code::NotReady, OUTDATED_CATALOG)
    } else if monitor.catalog.is_refused() {
        passed(
            "catalog",
            "The catalog file is refused, and the previous catalog stays in force: see the log for the \
             reason.",
        )
    } else {
        passed("catalog", "The catalog is in force.")
    };
    let currency = if database.ok && schema.ok { check_currency(monitor).await } else { None };
    let signing_key = if monitor.accounts.signing_keys.is_loaded() {
        passed("signing_key", "A key for signing tokens is loaded.")
    } else {
        failed("signing_key", Code::NotReady, "No key for signing tokens is loaded.")
    };
    let running = if monitor.frame.is_stopping() {
        failed("running", Code::NotReady, "The server is stopping: send requests elsewhere.")
    } else {
        passed("running", "The server is not stopping.")
    };
    let mut checks = vec![database, schema, feed, clock, catalog];
    checks.extend(currency);
    checks.extend([signing_key, running]);
    checks
}

/// Checks that every organization has this server's currency. Returns `None` if the database doesn't respond
/// in time.
async fn check_currency(monitor: &Monitor) -> Option<Check> {
    Some(match health::check_currency(&monitor.billing).await? {
        Ok(message) => passed("currency", message),
        Err(message) => failed("currency", Code::NotReady, message),
    })
}

/// Checks that the database responds, and that its schema is recent enough.
async fn database(monitor: &Monitor) -> (Check, Check) {
    let asked = tokio::time::timeout(DATABASE_TIMEOUT, async {
        monitor.db.ping().await?;
        match monitor.db.schema().await {
            // The database responds, so the query was refused because of the schema.
            Err(db::Error::Internal(what)) => Ok(Err(what)),
            found => found.map(Ok),
        }
    });
    match asked.await {
        Ok(Ok(found)) => (passed("database", "The database answers."), schema(found)),
        Ok(Err(error)) => {
            let error = Error::from(error);
            // The error's own message reveals too much for a public path.
            let code = if error.code == Code::Internal { Code::DatabaseUnavailable } else { error.code };
            let database = Check { internal: error.internal, ..failed("database", code, code.message()) };
            (database, unknown_schema())
        }
        Err(_) => {
            let message = "The database did not answer within 3 seconds.";
            (failed("database", Code::DatabaseUnavailable, message), unknown_schema())
        }
    }
}

/// Checks the schema's version. A newer version is fine, because an upgrade migrates the schema while older
/// servers run.
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

fn unknown_schema() -> Check {
    failed("schema", Code::DatabaseUnavailable, "Unknown while the database doesn't answer.")
}

fn passed(name: &'static str, message: impl Into<String>) -> Check {
    Check { name, ok: true, message: message.into(), code: Code::NotReady, internal: None }
}

fn failed(name: &'static str, code: Code, message: impl Into<String>) -> Check {
    Check { ok: false, code, ..passed(name, message) }
}
