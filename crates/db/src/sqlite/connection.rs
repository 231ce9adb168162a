//! A connection to a SQLite file: setup, execution of statements, mapping of errors.
#![allow(clippy::disallowed_types, reason = "the driver of SQLite")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::{self, ErrorCode};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{OpenFlags, StatementStatus, ToSql};

use crate::constraint::Constraint;
use crate::statement::{Answer, Statement, Want, for_sqlite};
use crate::value::Columns;
use crate::{Error, Row, Value};

/// Maximum number of prepared statements per connection: larger than the number of different statements,
/// including the sizes of multi-row inserts.
const MAX_PREPARED: usize = 512;
/// The size that the WAL file is truncated to after a burst, in bytes.
const MAX_IDLE_JOURNAL_BYTES: i64 = 64 << 20;
/// The time that a reader waits for recovery or restart of the WAL, which take milliseconds.
const READER_BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that the setup of a connection waits for other processes.
const OPEN_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The allowed kinds of statements on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read-only statements.
    Read,
    /// All statements.
    Write,
}

/// An open connection.
pub(crate) struct Connection {
    driver: rusqlite::Connection,
    access: Access,
    file: Option<FileId>,
    path: Box<Path>,
    /// For readers: the generation of the file, see [`super::Sqlite`].
    pub(super) generation: u64,
    /// Cached data of statements, by their static SQL.
    cached: HashMap<&'static str, CachedText>,
    /// Set by an error after which only a new connection sees the current file.
    pub(super) broken: bool,
}

impl Connection {
    /// Opens the file, which must exist. Takes about a millisecond.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = FileId::of(path);
        let driver = rusqlite::Connection::open_with_flags(path, flags);
        let driver = driver.and_then(|driver| set_up(driver, access)).map_err(|e| map_error(&e, path))?;
        let (path, cached) = (path.into(), HashMap::new());
        Ok(Self { driver, access, file, path, generation: 0, cached, broken: false })
    }

    /// Opens the file for reading, in a transaction that sees the current data until the connection is
    /// closed.
    pub(super) fn open_snapshot(path: &Path) -> Result<Self, Error> {
        let mut reader = Self::open(path, Access::Read)?;
        // The snapshot is taken by the first statement that reads the file.
        let begun = reader.driver.execute_batch("BEGIN; SELECT COUNT(*) FROM sqlite_schema;");
        begun.map_err(|error| reader.failed(&error))?;
        Ok(reader)
    }

    /// Returns the driver itself, for migrations.
    pub(crate) fn driver(&mut self) -> &mut rusqlite::Connection {
        &mut self.driver
    }

    /// Returns `true` if the path of the open file now belongs to another file, or to none.
    pub(super) fn was_replaced(&self, path: &Path) -> bool {
        self.file.is_some() && FileId::of(path) != self.file
    }

    /// Begins a write transaction. Returns `false` if another connection has one during the whole `wait`.
    pub(super) fn begin(&mut self, wait: Duration) -> Result<bool, Error> {
        let begun = self.driver.busy_timeout(wait);
        let begun = begun.and_then(|()| self.execute_cached("BEGIN IMMEDIATE"));
        match begun {
            Ok(()) => Ok(true),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Commits the transaction and syncs it to disk.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        if self.driver.is_autocommit() {
            // SQLite has already rolled back, for instance because the disk is full.
            return Err(Error::Internal("the transaction had ended before its commit".to_owned()));
        }
        self.execute_cached("COMMIT").map_err(|error| self.failed(&error))
    }

    /// Runs a statement that every transaction uses and that stays prepared.
    fn execute_cached(&self, text: &'static str) -> rusqlite::Result<()> {
        self.driver.prepare_cached(text)?.execute([]).map(drop)
    }

    /// Rolls back the transaction, if any; `false` if that failed.
    pub(super) fn rollback(&mut self) -> bool {
        self.driver.is_autocommit() || self.driver.execute_batch("ROLLBACK").is_ok()
    }

    pub(super) fn run(&mut self, statement: &Statement, want: Want) -> Result<Answer, Error> {
        let done = match &statement.text {
            Cow::Borrowed(text) => {
                let cached = self.cached.entry(text).or_insert_with(|| CachedText::new(text));
                run(&self.driver, self.access, cached, statement, want)
            }
            Cow::Owned(text) => run(&self.driver, self.access, &mut CachedText::new(text), statement, want),
        };
        match done {
            Ok(answer) => Ok(answer),
            Err(Failure::Driver(error)) => Err(self.failed(&error)),
            Err(Failure::Internal(what)) => Err(Error::Internal(what)),
        }
    }

    fn failed(&mut self, error: &rusqlite::Error) -> Error {
        self.broken |= matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen
                    | ErrorCode::PermissionDenied
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
            )
        );
        map_error(error, &self.path)
    }
}

/// Creates the folder and the file if they are missing, readable only by the owner: the file contains sealed
/// keys and password hashes. The WAL file inherits its permissions.
pub(crate) fn create(path: &Path) -> Result<(), Error> {
    let mut folders = DirBuilder::new();
    let mut file = OpenOptions::new();
    file.read(true).append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folders.mode(0o700);
        file.mode(0o600);
    }
    let shown = path.display();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        folders
            .recursive(true)
            .create(folder)
            .map_err(|e| Error::from_io(&format!("folder of {shown}"), &e))?;
    }
    if !path.exists() {
        file.open(path).map_err(|e| Error::from_io(&format!("cannot create {shown}"), &e))?;
    }
    Ok(())
}

fn set_up(driver: rusqlite::Connection, access: Access) -> rusqlite::Result<rusqlite::Connection> {
    driver.busy_timeout(OPEN_BUSY_TIMEOUT)?;
    driver.set_prepared_statement_cache_capacity(MAX_PREPARED);
    // Plans don't depend on values. Otherwise, SQLite would prepare a statement again whenever certain
    // parameters change, to look for a better plan. That takes longer than the statement itself, and never
    // finds a better plan without statistics.
    driver.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if access == Access::Read {
        driver.pragma_update(None, "query_only", true)?;
        driver.busy_timeout(READER_BUSY_TIMEOUT)?;
        return Ok(driver);
    }
    driver.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    driver.pragma_update(None, "synchronous", "FULL")?;
    driver.pragma_update(None, "foreign_keys", true)?;
    // Without this setting, INSERT OR REPLACE would bypass the triggers that refuse DELETE.
    driver.pragma_update(None, "recursive_triggers", true)?;
    driver.pragma_update_and_check(None, "journal_size_limit", MAX_IDLE_JOURNAL_BYTES, |_| Ok(()))?;
    Ok(driver)
}

enum Failure {
    Driver(rusqlite::Error),
    Internal(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Driver(error)
    }
}

/// Cached data of an SQL text.
struct CachedText {
    /// The text for SQLite.
    text: Box<str>,
    /// The columns of the last result, with SQLite's count of re-preparations at that time.
    columns: Option<(Arc<[String]>, i32)>,
}

impl CachedText {
    fn new(text: &str) -> Self {
        Self { text: for_sqlite(text).into(), columns: None }
    }

    /// Returns the columns of a result, once its first row was read. If another process has changed the
    /// schema, SQLite re-prepares the statement at that point. The columns should be the same even then,
    /// because statements name their columns. The check costs little and prevents reading the wrong column.
    fn columns(&mut self, row: &rusqlite::Row<'_>) -> Columns {
        let statement = row.as_ref();
        let prepared = statement.get_status(StatementStatus::RePrepare);
        let cached = self.columns.take().filter(|(_, then)| *then == prepared);
        let columns =
            cached.unwrap_or_else(|| (statement.column_names().map(str::to_owned).collect(), prepared));
        Columns::Named(Arc::clone(&self.columns.insert(columns).0))
    }
}

fn run(
    driver: &rusqlite::Connection,
    access: Access,
    cached: &mut CachedText,
    statement: &Statement,
    want: Want,
) -> Result<Answer, Failure> {
    let mut prepared = driver.prepare_cached(&cached.text)?;
    let reads = prepared.readonly();
    if access == Access::Read && !reads {
        return Err(Failure::Internal("a statement that writes was run on a read handle".to_owned()));
    }
    if prepared.parameter_count() != statement.values.len() {
        let (due, given) = (prepared.parameter_count(), statement.values.len());
        return Err(Failure::Internal(format!("the statement has {due} parameters, but {given} values")));
    }
    for (index, value) in statement.values.iter().enumerate() {
        prepared.raw_bind_parameter(index + 1, value)?;
    }
    let before = driver.total_changes();
    let mut rows = Vec::new();
    let mut columns: Option<Columns> = None;
    let mut answer = prepared.raw_query();
    while let Some(row) = answer.next()? {
        match want {
            // Step to the end, so that all changes are made.
            Want::Count => {}
            Want::First if !rows.is_empty() => {}
            Want::First | Want::All => {
                rows.push(read_row(row, columns.get_or_insert_with(|| cached.columns(row)))?);
            }
        }
        if want == Want::First && reads {
            break;
        }
    }
    // `changes` isn't reset by a statement that changes no rows.
    let changed = if reads || driver.total_changes() == before { 0 } else { driver.changes() };
    Ok(Answer { changed, rows })
}

fn read_row(row: &rusqlite::Row<'_>, columns: &Columns) -> Result<Row, Failure> {
    let width = row.as_ref().column_count();
    let mut values = Vec::with_capacity(width);
    for index in 0..width {
        values.push(match row.get_ref(index)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Int(number),
            ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
            ValueRef::Text(bytes) => Value::Text(
                String::from_utf8(bytes.to_vec())
                    .map_err(|_| Failure::Internal(format!("column {index} isn't UTF-8")))?,
            ),
            ValueRef::Real(_) => return Err(Failure::Internal(format!("column {index} is a float"))),
        });
    }
    Ok(Row::new(columns.clone(), values))
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Blob(_) | Self::Hash(_) => ValueRef::Blob(self.as_bytes().unwrap_or_default()),
            Self::Text(_) | Self::Shared(_) | Self::Word(_) | Self::Id(_) => {
                ValueRef::Text(self.as_text().unwrap_or_default())
            }
        }))
    }
}

/// Maps an error of the driver.
pub(crate) fn map_error(error: &rusqlite::Error, path: &Path) -> Error {
    let text = format!("{}: {error}", path.display());
    let rusqlite::Error::SqliteFailure(failure, message) = error else {
        return Error::Internal(text);
    };
    match (failure.code, failure.extended_code) {
        (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
            Error::Unique(Constraint::from_sqlite(message.as_deref().unwrap_or_default()))
        }
        (ErrorCode::DiskFull, _) => Error::StorageFull(text),
        (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => Error::ReadOnly(text),
        // The file itself is readable, so the WAL file can't be created.
        (ErrorCode::CannotOpen, _) if File::open(path).is_ok() => Error::ReadOnly(text),
        (
            ErrorCode::CannotOpen
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::FileLockingProtocolFailed,
            _,
        ) => Error::Unavailable(text),
        _ => Error::Internal(text),
    }
}

/// Device and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self(metadata.dev(), metadata.ino()))
    }

    /// On other systems an open file can't be replaced.
    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql;

    #[test]
    fn new_values_do_not_reprepare() {
        let folder = std::env::temp_dir().join(format!("tollkeeper-plans-{}", std::process::id()));
        let file = folder.join("test.db");
        create(&file).unwrap();
        let mut connection = Connection::open(&file, Access::Write).unwrap();
        connection
            .driver()
            .execute_batch(
                "CREATE TABLE places (id TEXT PRIMARY KEY, name TEXT);
                 CREATE TABLE people (place TEXT, id TEXT, role TEXT, PRIMARY KEY (place, id)) WITHOUT ROWID;
                 INSERT INTO places VALUES ('1', 'one'), ('2', 'two');
                 INSERT INTO people VALUES
                     ('1', 'ada', 'owner'), ('1', 'bob', 'member'), ('2', 'ada', 'member');",
            )
            .unwrap();
        let text = "SELECT p.name, m.role FROM places p LEFT JOIN people m ON m.place = p.id AND m.id = $2
                    WHERE p.id = $1 LIMIT $3";
        for (place, person, found) in [("1", "ada", 1), ("2", "bob", 1), ("1", "bob", 1), ("3", "ada", 0)] {
            let statement = sql(text).bind(place).bind(person).bind(10);
            assert_eq!(connection.run(&statement, Want::All).unwrap().rows.len(), found);
        }
        let statement = connection.driver().prepare_cached(&for_sqlite(text)).unwrap();
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
        assert!(statement.get_status(StatementStatus::Run) >= 3, "not the statement that has run");
        drop(statement);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
