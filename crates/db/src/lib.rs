//! An executor for SQLite and PostgreSQL.
//!
//! Queries have one SQL text for both: `sql("SELECT … WHERE id = $1").bind(id).optional::<Row>(tx)`. Reads go
//! through [`Db::read`], which is free and opens no transaction. Writes go through [`Db::write`], a
//! transaction that is rolled back unless it is committed, also when its future is cancelled. After an error
//! in a transaction, all further statements in it fail, on either database.
//!
//! For both databases to understand it, a text uses parameters `$1…`, the types TEXT, BIGINT (booleans as 0
//! and 1) and BLOB/BYTEA, `CAST(SUM(x) AS BIGINT)`, and `CAST($1 AS BIGINT)` where the context of a parameter
//! doesn't determine its type. It doesn't use `now()` and ILIKE.
//!
//! No other crate names the drivers.

mod change;
mod constraint;
mod error;
mod migrate;
mod page;
mod postgres;
pub mod sized;
mod sqlite;
mod statement;
mod value;
pub mod window;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use change::Change;
pub use constraint::{Constraint, Reference};
pub use error::Error;
pub use migrate::{MigrateError, MigrationReport, newest_schema};
pub use page::{Page, contains_pattern};
pub use postgres::url::trusts_by_default;
pub use statement::{Lock, Statement, sql};
pub use value::{FromRow, FromValue, Row, Value};

use kernel::clock::Time;
use postgres::{BEGIN, BEGIN_BEHIND, BEGIN_SNAPSHOT, Postgres, Standby};
use sqlite::Sqlite;
use statement::{Answer, Want};

/// A verified copy of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backup {
    /// The schema version of the copy.
    pub schema: i64,
    pub size_bytes: u64,
}

/// The connections for one purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connections {
    /// `write`, `read` or `long_read`.
    pub purpose: &'static str,
    /// Open connections.
    pub open: usize,
    /// Connections that are checked out; for shared connections, the same as `open`.
    pub in_use: usize,
    /// Maximum number of open connections.
    pub max: usize,
    /// Tasks that wait for a connection, where that is known; else 0.
    pub waiting: usize,
}

/// The location of a database.
#[derive(Clone)]
pub enum Settings {
    /// A file on this machine.
    Sqlite {
        /// The database file; its folder also gets `-wal`, `-shm` and `.migrate-lock` files.
        path: PathBuf,
    },
    /// A server.
    Postgres {
        /// `postgres://user:password@host:port/database`, several hosts with a comma between them.
        url: String,
    },
}

/// Without the URL, which contains a password.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { path } => f.debug_struct("Sqlite").field("path", path).finish(),
            Self::Postgres { .. } => f.debug_struct("Postgres").finish_non_exhaustive(),
        }
    }
}

/// A database. Cloning it is cheap and shares its connections.
#[derive(Clone)]
pub struct Db {
    driver: Driver,
    /// Serves reports while its lag is small enough.
    standby: Option<Arc<Standby>>,
    shared: Arc<Shared>,
}

/// State that a database shares with its clones and transactions.
#[derive(Default)]
struct Shared {
    /// Statements so far.
    statements: AtomicU64,
    on_commit: OnceLock<OnCommit>,
}

/// Callback for the changes that a transaction has announced.
type OnCommit = Box<dyn Fn(&[Change]) + Send + Sync>;

#[derive(Clone)]
enum Driver {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

impl Db {
    /// Prepares a database without opening it: each statement opens a connection if there is none, so that a
    /// database that comes up later needs no restart.
    ///
    /// # Errors
    /// The URL, or a file that it names, can't be used.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let driver = match settings {
            Settings::Sqlite { path } => Driver::Sqlite(Arc::new(Sqlite::new(path.clone()))),
            Settings::Postgres { url } => Driver::Postgres(Arc::new(Postgres::new(url)?)),
        };
        Ok(Self { driver, standby: None, shared: Arc::default() })
    }

    /// Adds a PostgreSQL standby, without connecting. [`Db::reports`] uses it while its lag, as measured by
    /// [`Db::watch_standby`], is at most `max_lag`.
    ///
    /// # Errors
    /// The URL, or a file that it names, can't be used.
    pub fn with_standby(mut self, url: &str, max_lag: Duration) -> Result<Self, Error> {
        if !self.is_postgres() {
            return Err(Error::Internal("only PostgreSQL has standbys".to_owned()));
        }
        self.standby = Some(Arc::new(Standby::new(url, max_lag)?));
        Ok(self)
    }

    /// Measures the lag of the standby until the future is dropped. Returns at once without a standby.
    pub async fn watch_standby(&self) {
        if let (Some(standby), Driver::Postgres(primary)) = (&self.standby, &self.driver) {
            standby.watch(Arc::clone(primary)).await;
        }
    }

    /// Sets the callback for announced changes. It is called after the end of each transaction and before
    /// [`Tx::commit`] returns. Further calls have no effect.
    pub fn on_commit(&self, call: impl Fn(&[Change]) + Send + Sync + 'static) {
        drop(self.shared.on_commit.set(Box::new(call)));
    }

    /// Subscribes to changes that other processes announce.
    pub fn wakeups(&self) -> Wakeups {
        let woken = Arc::new(Notify::new());
        let listener = match &self.driver {
            // SQLite can't notify other processes.
            Driver::Sqlite(_) => None,
            Driver::Postgres(postgres) => Some(tokio::spawn(postgres.listen(Arc::clone(&woken)))),
        };
        Wakeups { woken, listener }
    }

    /// Migrates the schema to this binary's version. Processes may do so at the same time.
    ///
    /// A SQLite file is created by this function only, so that a lost file is noticed instead of replaced by
    /// an empty one.
    pub async fn migrate(&self) -> Result<MigrationReport, MigrateError> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.migrate().await,
            Driver::Postgres(postgres) => postgres.migrate().await,
        }
    }

    /// Copies an SQLite database to `file`, which must not exist, while it is in use, and verifies the copy.
    /// Until then the copy is called `partial`, a path in the same folder.
    ///
    /// # Errors
    /// The copy failed, and `file` doesn't exist; or this is PostgreSQL, which has `pg_dump`.
    pub async fn back_up(&self, file: &Path, partial: &Path) -> Result<Backup, Error> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.back_up(file, partial).await,
            Driver::Postgres(_) => Err(Error::Internal("PostgreSQL is backed up by pg_dump".to_owned())),
        }
    }

    /// Returns a handle for reads, without connection and transaction: each statement sees what is committed
    /// when it runs.
    pub async fn read(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteRead(Arc::clone(sqlite)),
            Driver::Postgres(postgres) => Inner::PostgresRead(Arc::clone(postgres)),
        };
        Ok(self.tx(inner))
    }

    /// Returns a handle for reports. Its data may be as old as that of the standby, so don't base decisions
    /// on it. Without a usable standby, this is [`Db::read`].
    pub async fn reports(&self) -> Result<Tx, Error> {
        match (&self.standby, &self.driver) {
            (Some(standby), Driver::Postgres(primary)) if standby.is_usable() => {
                Ok(self.tx(Inner::PostgresReports(Arc::clone(primary), Some(Arc::clone(standby)))))
            }
            _ => self.read().await,
        }
    }

    /// Begins a write transaction. On SQLite there is one at a time, so keep it short.
    pub async fn write(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteWrite(sqlite.begin().await?),
            Driver::Postgres(postgres) => Inner::PostgresWrite(Box::new(postgres.begin(BEGIN).await?)),
        };
        Ok(self.tx(inner))
    }

    /// Begins a write transaction for data that can wait and that a crash may lose. On PostgreSQL it fails
    /// after waiting 200 ms for a lock, and its commit doesn't wait for the disk. On SQLite it is the same as
    /// [`Db::write`].
    pub async fn write_behind(&self) -> Result<Tx, Error> {
        match &self.driver {
            Driver::Sqlite(_) => self.write().await,
            Driver::Postgres(postgres) => {
                Ok(self.tx(Inner::PostgresWrite(Box::new(postgres.begin(BEGIN_BEHIND).await?))))
            }
        }
    }

    /// Returns a read handle on a snapshot, taken by its first statement; each statement counts as heavy.
    /// Writers aren't blocked, but space can't be reclaimed meanwhile, so keep it short.
    pub async fn snapshot(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteSnapshot(sqlite.snapshot().await?),
            Driver::Postgres(postgres) => {
                Inner::PostgresWrite(Box::new(postgres.begin(BEGIN_SNAPSHOT).await?))
            }
        };
        Ok(self.tx(inner))
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> Result<(), Error> {
        let text = match &self.driver {
            // `SELECT 1` wouldn't read the file.
            Driver::Sqlite(sqlite) => {
                sqlite.notice_replaced_file();
                "SELECT COUNT(*) AS n FROM sqlite_schema"
            }
            Driver::Postgres(_) => "SELECT CAST(1 AS BIGINT) AS n",
        };
        let (_answer,): (i64,) = sql(text).one(&mut self.read().await?).await?;
        Ok(())
    }

    /// Returns the time of the database server's clock; `None` on SQLite.
    ///
    /// # Errors
    /// The database doesn't answer.
    pub async fn clock(&self) -> Result<Option<Time>, Error> {
        match &self.driver {
            Driver::Sqlite(_) => Ok(None),
            Driver::Postgres(_) => {
                let (now,): (Time,) = sql(postgres::CLOCK).one(&mut self.read().await?).await?;
                Ok(Some(now))
            }
        }
    }

    /// Returns `false` if a commit may not be on disk when it returns: on PostgreSQL with `fsync = off`.
    ///
    /// # Errors
    /// The database doesn't answer.
    pub async fn syncs_to_disk(&self) -> Result<bool, Error> {
        match &self.driver {
            Driver::Sqlite(_) => Ok(true),
            Driver::Postgres(postgres) => postgres.syncs_to_disk().await,
        }
    }

    /// Returns the schema version of the database.
    ///
    /// # Errors
    /// The database doesn't answer, or has no schema.
    pub async fn schema(&self) -> Result<i64, Error> {
        let text = "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM refinery_schema_history";
        let (version,): (i64,) = sql(text).one(&mut self.read().await?).await?;
        Ok(version)
    }

    /// The connections, per purpose.
    pub fn connections(&self) -> Vec<Connections> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.connections(),
            Driver::Postgres(postgres) => postgres.connections(),
        }
    }

    /// The number of reads that were answered together with others by one statement; always 0 on SQLite.
    pub fn batched_reads(&self) -> u64 {
        match &self.driver {
            Driver::Sqlite(_) => 0,
            Driver::Postgres(postgres) => postgres.batched(),
        }
    }

    /// The number of statements so far, including those of clones: for tests that count the queries of a
    /// request.
    pub fn statement_count(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }

    /// Returns `true` on PostgreSQL: for the few statements that need a different text.
    pub fn is_postgres(&self) -> bool {
        matches!(self.driver, Driver::Postgres(_))
    }

    fn tx(&self, inner: Inner) -> Tx {
        Tx {
            inner,
            failed: false,
            at_commit: Vec::new(),
            announced: Vec::new(),
            spans: Vec::new(),
            shared: Arc::clone(&self.shared),
        }
    }
}

/// A subscription to changes of other processes. Notifications may get lost, so poll as well.
pub struct Wakeups {
    woken: Arc<Notify>,
    listener: Option<JoinHandle<()>>,
}

impl Wakeups {
    /// Waits until a change has been announced since the last call; on SQLite, forever.
    pub async fn next(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// A write transaction or a read handle, on which statements run.
///
/// A transaction that is dropped without [`Tx::commit`] is rolled back.
pub struct Tx {
    inner: Inner,
    /// A statement has failed or was cancelled; all further ones fail.
    failed: bool,
    /// Run right before the commit.
    at_commit: Vec<Statement>,
    /// Changes to notify of at the commit.
    announced: Vec<Change>,
    /// Spans of deferred statements.
    spans: Vec<telemetry::Span>,
    shared: Arc<Shared>,
}

enum Inner {
    SqliteRead(Arc<Sqlite>),
    SqliteWrite(sqlite::Transaction),
    SqliteSnapshot(sqlite::Snapshot),
    PostgresRead(Arc<Postgres>),
    /// The primary, and the standby until it fails.
    PostgresReports(Arc<Postgres>, Option<Arc<Standby>>),
    PostgresWrite(Box<postgres::Transaction>),
}

impl Tx {
    /// Commits the transaction. Announced changes have reached the callback of [`Db::on_commit`] when this
    /// returns, even with an error, as a commit that the database doesn't confirm may have happened.
    ///
    /// # Errors
    /// Nothing was written; if the connection was lost during the commit itself, it is unknown whether it
    /// was.
    pub async fn commit(mut self) -> Result<(), Error> {
        if !self.at_commit.is_empty() {
            // Boxed: few transactions have any.
            Box::pin(self.run_last()).await?;
        }
        if self.failed {
            return Err(already_failed());
        }
        let announces = !self.announced.is_empty();
        let _span = telemetry::span("db.commit");
        let _deferred = self.spans;
        let _notify = NotifyOnDrop { announced: self.announced, shared: self.shared };
        match self.inner {
            Inner::SqliteRead(_)
            | Inner::SqliteSnapshot(_)
            | Inner::PostgresRead(_)
            | Inner::PostgresReports(..) => Ok(()),
            Inner::SqliteWrite(transaction) => transaction.commit().await,
            Inner::PostgresWrite(transaction) => transaction.commit(announces).await,
        }
    }

    /// Announces a change of data that replicas hold in memory. The commit notifies this process by the
    /// callback of [`Db::on_commit`], and wakes the others.
    pub fn announce(&mut self, change: Change) {
        self.announced.push(change);
    }

    /// Returns `true` if this transaction has announced this change already.
    pub fn has_announced(&self, change: Change) -> bool {
        self.announced.contains(&change)
    }

    async fn run_last(&mut self) -> Result<(), Error> {
        for statement in std::mem::take(&mut self.at_commit) {
            self.defer(statement).await?;
        }
        Ok(())
    }

    async fn lock(&mut self, statement: Statement) -> Result<(), Error> {
        match &self.inner {
            Inner::SqliteWrite(_) if self.failed => Err(already_failed()),
            Inner::SqliteWrite(_) => Ok(()),
            _ => self.defer(statement).await,
        }
    }

    async fn defer(&mut self, statement: Statement) -> Result<(), Error> {
        if !matches!(self.inner, Inner::PostgresWrite(_)) {
            self.run(statement, Want::Count).await?;
            return Ok(());
        }
        if self.failed {
            return Err(already_failed());
        }
        self.spans.extend(self.begin_statement(&statement).map(|span| *span));
        let Inner::PostgresWrite(transaction) = &mut self.inner else { return Ok(()) };
        self.failed = true;
        transaction.defer(statement).await?;
        self.failed = false;
        Ok(())
    }

    /// Counts the statement, and begins its span if the request is traced.
    fn begin_statement(&self, statement: &Statement) -> Option<Box<telemetry::Span>> {
        self.shared.statements.fetch_add(1, Ordering::Relaxed);
        let mut span = telemetry::span("db.statement")?;
        // The text contains no values: those are bound.
        span.set_attribute("db.query.text", &statement.text);
        Some(span)
    }

    async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        if self.failed {
            return Err(already_failed());
        }
        let _span = self.begin_statement(&statement);
        let _deferred = std::mem::take(&mut self.spans);
        match &mut self.inner {
            Inner::SqliteRead(sqlite) => sqlite::read(sqlite, statement, want).await,
            Inner::SqliteSnapshot(snapshot) => snapshot.run(statement, want).await,
            Inner::PostgresRead(postgres) => postgres.read(statement, want).await,
            Inner::PostgresReports(primary, standby) => {
                if let Some(reader) = standby {
                    if let Some(answer) = reader.read(&statement, want).await {
                        return answer;
                    }
                    // The rest of the report is read from the primary too, so that it isn't of two ages.
                    *standby = None;
                }
                primary.read(statement, want).await
            }
            Inner::SqliteWrite(transaction) => {
                // Set before and cleared after, so that a cancelled statement counts as failed.
                self.failed = true;
                let answer = transaction.run(statement, want).await?;
                self.failed = false;
                Ok(answer)
            }
            Inner::PostgresWrite(transaction) => {
                self.failed = true;
                let answer = transaction.run(statement, want).await?;
                self.failed = false;
                Ok(answer)
            }
        }
    }
}

/// Calls the callback for announced changes when it is dropped: even if the commit fails or is cancelled, as
/// it may have happened.
struct NotifyOnDrop {
    announced: Vec<Change>,
    shared: Arc<Shared>,
}

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        if let Some(call) = self.shared.on_commit.get().filter(|_| !self.announced.is_empty()) {
            call(&self.announced);
        }
    }
}

fn already_failed() -> Error {
    Error::Internal("an earlier statement of this transaction has failed".to_owned())
}
