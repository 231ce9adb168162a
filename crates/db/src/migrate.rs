//! Migration of the schema to this binary's version.
//!
//! Each step is one file, named by its number and its name, or one file per database. All pending steps run
//! in one transaction, and in one process at a time: on PostgreSQL with an advisory lock of that transaction,
//! on SQLite with a lock on a file next to the database. A newer schema is refused.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use deadpool_postgres::ClientWrapper;
use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Report, Runner};
use rusqlite::TransactionBehavior;
use time::OffsetDateTime;
use tokio_postgres::types::{ToSql, Type};

use crate::Error;
use crate::postgres::{self, Postgres};
use crate::sqlite::{self, Access, Connection, Sqlite};

struct Step {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// All steps, in order: the files of `migrations/`, listed by `build.rs`. Released steps never change.
const STEPS: &[Step] = include!(concat!(env!("OUT_DIR"), "/steps.rs"));

/// Updates the name of step 1 in the history of a database that an earlier build migrated. Parameters: the
/// new checksum, which covers the name, and the old one.
const RENAME_FIRST_STEP: &str = "UPDATE refinery_schema_history SET name = 'initial_schema', checksum = $1
     WHERE version = 1 AND name = 'first_light' AND checksum = $2";

/// Returns the parameters of [`RENAME_FIRST_STEP`].
fn first_step_checksums(text: fn(&Step) -> &'static str) -> Result<(String, String), MigrateError> {
    let checksum = |step: &Step, name: &str| {
        let migration = Migration::unapplied(name, text(step));
        migration.map(|migration| migration.checksum().to_string())
    };
    let [first, ..] = STEPS else { return Ok(Default::default()) };
    let both = checksum(first, first.name).and_then(|new| Ok((new, checksum(first, "V1__first_light")?)));
    both.map_err(|error| MigrateError::Other(error.to_string()))
}

/// Returns the schema version of this binary.
pub fn newest_schema() -> i64 {
    STEPS.last().map_or(0, |step| step.version)
}

/// The key of the advisory lock: arbitrary, but the same in all versions.
const ADVISORY_LOCK: i64 = 0x746f_6c6c_6b65_6570;

/// The result of a migration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationReport {
    /// The schema version before; 0 for an empty database.
    pub from: i64,
    /// The schema version after.
    pub to: i64,
    /// Names of the steps that ran, in order.
    pub applied: Vec<String>,
}

/// The error of a migration. The migration has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MigrateError {
    /// A newer version of the program has migrated the database.
    Newer {
        /// The version of the database.
        found: i64,
        /// The latest version of this binary.
        known: i64,
    },
    /// The database failed.
    Database(Error),
    /// The migration history belongs to another program; a sentence for the operator.
    Other(String),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { found, known } => write!(
                f,
                "the database has schema {found}, but this version of tollkeeper supports schemas only up to \
                 {known}. Start the newer version that created it; nothing was changed"
            ),
            Self::Database(error) => error.fmt(f),
            Self::Other(what) => write!(f, "migration: {what}; nothing was changed"),
        }
    }
}

impl std::error::Error for MigrateError {}

impl From<Error> for MigrateError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl Sqlite {
    /// Creates the file if it is missing and runs the pending steps up to `version`, on a blocking thread.
    pub(super) async fn migrate(&self, version: i64) -> Result<MigrationReport, MigrateError> {
        let path = self.path().to_owned();
        let work = tokio::task::spawn_blocking(move || migrate_sqlite(&path, version));
        work.await.map_err(|error| Error::from_join(&error))?
    }
}

fn migrate_sqlite(path: &Path, version: i64) -> Result<MigrationReport, MigrateError> {
    sqlite::create(path)?;
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".migrate-lock");
    let lock = OpenOptions::new().append(true).create(true).mode(0o600).open(&lock_path);
    // The lock is held until the file is closed.
    let _lock = lock
        .and_then(|file| restrict_to_owner(&file).map(|()| file))
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|e| Error::from_io(&format!("lock {}", lock_path.display()), &e))?;

    let mut connection = Connection::open(path, Access::Write)?;
    let driver = connection.driver();
    driver.set_transaction_behavior(TransactionBehavior::Immediate);
    let map = |error: rusqlite::Error| sqlite::map_error(&error, path);
    let history = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    let found: i64 = if driver.query_row(history, [], |row| row.get::<_, i64>(0)).map_err(map)? == 0 {
        0
    } else {
        let version = "SELECT COALESCE(MAX(version), 0) FROM refinery_schema_history";
        driver.query_row(version, [], |row| row.get(0)).map_err(map)?
    };
    let runner = runner(found, version, |step| step.sqlite)?;
    if found > 0 {
        driver.execute(RENAME_FIRST_STEP, first_step_checksums(|step| step.sqlite)?).map_err(map)?;
    }
    let done = runner.run(driver).map_err(|error| map_refinery_error(&error, path))?;
    Ok(report(found, &done))
}

/// Removes other users' access to a file, which earlier versions created with the process's umask.
fn restrict_to_owner(file: &File) -> std::io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 == 0 { Ok(()) } else { file.set_permissions(Permissions::from_mode(0o600)) }
}

impl Postgres {
    /// Runs the pending steps up to `version` on a separate connection, without a statement timeout.
    pub(super) async fn migrate(&self, version: i64) -> Result<MigrationReport, MigrateError> {
        let map = |error: tokio_postgres::Error| postgres::map_error(&error);
        // Dropping the client, including by cancellation, closes the connection, which rolls back.
        let client = self.connect_for_migration().await?;
        client.batch_execute(postgres::BEGIN_MIGRATION).await.map_err(map)?;
        let lock = "SELECT pg_advisory_xact_lock($1)";
        client.execute_typed(lock, &[(&ADVISORY_LOCK, Type::INT8)]).await.map_err(map)?;
        let history = "SELECT to_regclass('refinery_schema_history') IS NOT NULL";
        let found = if client.query_typed_one(history, &[]).await.map_err(map)?.get::<_, bool>(0) {
            let version = "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM refinery_schema_history";
            client.query_typed_one(version, &[]).await.map_err(map)?.get(0)
        } else {
            0
        };
        let runner = runner(found, version, |step| step.postgres)?;
        if found > 0 {
            let (new, former) = first_step_checksums(|step| step.postgres)?;
            let checksums: [(&(dyn ToSql + Sync), Type); 2] = [(&new, Type::TEXT), (&former, Type::TEXT)];
            client.execute_typed(RENAME_FIRST_STEP, &checksums).await.map_err(map)?;
        }
        let done = runner.run_async(&mut InTransaction(&client)).await;
        let done = done.map_err(|error| map_refinery_error(&error, Path::new("")))?;
        client.batch_execute("COMMIT").await.map_err(map)?;
        Ok(report(found, &done))
    }
}

/// A connection on which the transaction of a migration has begun. The runner's own driver would begin
/// several transactions and prepare statements. Behind a pooler, these could reach different sessions of the
/// server.
struct InTransaction<'a>(&'a ClientWrapper);

impl AsyncTransaction for InTransaction<'_> {
    type Error = Error;

    async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
        &'a mut self,
        texts: T,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for text in texts {
            self.0.batch_execute(text).await.map_err(|error| postgres::map_error(&error))?;
            count += 1;
        }
        Ok(count)
    }
}

impl AsyncQuery<Vec<Migration>> for InTransaction<'_> {
    async fn query<'a>(&'a mut self, text: &'a str) -> Result<Vec<Migration>, Error> {
        let rows = self.0.query_typed(text, &[]).await.map_err(|error| postgres::map_error(&error))?;
        let applied = rows.iter().map(|row| {
            let checksum: String = row.try_get("checksum").map_err(|error| postgres::map_error(&error))?;
            let checksum = checksum.parse();
            let checksum =
                checksum.map_err(|_| Error::Internal("a step's checksum isn't a number".to_owned()))?;
            let (version, name) = (row.get("version"), row.get("name"));
            // Steps are compared without the time at which they ran.
            Ok(Migration::applied(version, name, OffsetDateTime::UNIX_EPOCH, checksum))
        });
        applied.collect()
    }
}

impl AsyncMigrate for InTransaction<'_> {}

/// Returns a runner for the steps after version `found`, up to `version`.
fn runner(found: i64, version: i64, text: fn(&Step) -> &'static str) -> Result<Runner, MigrateError> {
    if found > version {
        return Err(MigrateError::Newer { found, known: version });
    }
    let steps = STEPS.iter().filter(|step| step.version <= version);
    let steps = steps.map(|step| Migration::unapplied(step.name, text(step)));
    let steps =
        steps.collect::<Result<Vec<_>, _>>().map_err(|error| MigrateError::Other(error.to_string()))?;
    Ok(Runner::new(&steps).set_grouped(true))
}

fn report(from: i64, done: &Report) -> MigrationReport {
    let applied = done.applied_migrations();
    let to = applied.iter().map(|step| i64::from(step.version())).max().unwrap_or(from);
    MigrationReport { from, to, applied: applied.iter().map(ToString::to_string).collect() }
}

/// Converts an error of the runner, using the driver's error in it, if any.
fn map_refinery_error(error: &refinery_core::Error, path: &Path) -> MigrateError {
    let refinery_core::error::Kind::Connection(_, cause) = error.kind() else {
        return MigrateError::Other(error.to_string());
    };
    if let Some(cause) = cause.downcast_ref::<rusqlite::Error>() {
        return MigrateError::Database(sqlite::map_error(cause, path));
    }
    match cause.downcast_ref::<Error>() {
        Some(cause) => MigrateError::Database(cause.clone()),
        None => MigrateError::Other(error.to_string()),
    }
}
