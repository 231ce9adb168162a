//! The two databases behind one neutral executor.
//!
//! A store function writes one SQL text for both: `sql("SELECT … WHERE id = $1").bind(id).optional::<Row>(tx)`.
//! Reads go through [`Db::read`], which costs nothing and opens no transaction; writes go through
//! [`Db::write`], a transaction that is rolled back unless it is committed, also when its future is
//! cancelled. After an error in a transaction nothing goes on in it, on either database.
//!
//! What the text must keep to so that both understand it: parameters `$1…`, types TEXT, BIGINT (booleans
//! as 0 and 1) and BLOB/BYTEA, `CAST(SUM(x) AS BIGINT)`, `CAST($1 AS BIGINT)` where nothing around a
//! parameter tells its type, no `now()`, no ILIKE.
//!
//! The drivers are named in `crates/db` only.

mod change;
mod constraint;
mod error;
mod migrate;
mod page;
mod postgres;
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
pub use migrate::{MigrateError, Migrated, newest_schema};
pub use page::{Page, contains_pattern};
pub use postgres::url::trusts_by_default;
pub use statement::{Lock, Statement, sql};
pub use value::{FromRow, FromValue, Row, Value};

use kernel::clock::Time;
use postgres::{BEGIN, BEGIN_BEHIND, BEGIN_SNAPSHOT, Postgres, Replica};
use sqlite::Sqlite;
use statement::{Answer, Want};

/// A copy that was checked and found whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backup {
    /// The schema version that it has.
    pub schema: i64,
    /// How large the file is.
    pub size_bytes: u64,
}

/// Connections that are for the same purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connections {
    /// `write`, `read` or `long_read`.
    pub purpose: &'static str,
    /// How many are open.
    pub open: usize,
    /// How many somebody has for himself now; where they are shared, how many are open.
    pub in_use: usize,
    /// The most that may be open.
    pub most: usize,
    /// Who waits for one, as far as that is known.
    pub waiting: usize,
}

/// Which database, and where.
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

/// The URL holds a password, so it is never shown.
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
    /// Where reports are read from while it will do.
    replica: Option<Arc<Replica>>,
    shared: Arc<Shared>,
}

/// What a database shares with its clones and its transactions.
#[derive(Default)]
struct Shared {
    /// How many statements have run.
    statements: AtomicU64,
    on_commit: OnceLock<OnCommit>,
}

/// What is called with the changes that a transaction announced.
type OnCommit = Box<dyn Fn(&[Change]) + Send + Sync>;

#[derive(Clone)]
enum Driver {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

impl Db {
    /// Takes the settings in. Nothing is opened yet: the first statement does, and when it can't, the next
    /// one tries again, so that a database that comes up later needs no restart.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let driver = match settings {
            Settings::Sqlite { path } => Driver::Sqlite(Arc::new(Sqlite::new(path.clone()))),
            Settings::Postgres { url } => Driver::Postgres(Arc::new(Postgres::new(url)?)),
        };
        Ok(Self { driver, replica: None, shared: Arc::default() })
    }

    /// Adds a standby of this PostgreSQL, which reports are read from while it is at most `most_lag` behind, as far as
    /// [`Db::watch_replica`] sees it. Nothing is opened yet.
    ///
    /// # Errors
    /// The URL, or a file that it names, can't be used.
    pub fn with_replica(mut self, url: &str, most_lag: Duration) -> Result<Self, Error> {
        if !self.is_postgres() {
            return Err(Error::Internal("only a PostgreSQL has a replica".to_owned()));
        }
        self.replica = Some(Arc::new(Replica::new(url, most_lag)?));
        Ok(self)
    }

    /// Looks at the replica until it is dropped; without one it has nothing to do.
    pub async fn watch_replica(&self) {
        if let (Some(replica), Driver::Postgres(primary)) = (&self.replica, &self.driver) {
            replica.watch(Arc::clone(primary)).await;
        }
    }

    /// Sets what is called with the announced changes of each transaction, once it has ended and before its caller
    /// goes on; only the first call of this counts.
    pub fn on_commit(&self, call: impl Fn(&[Change]) + Send + Sync + 'static) {
        // Whoever comes later is told nothing: there is one memory a process.
        drop(self.shared.on_commit.set(Box::new(call)));
    }

    /// Hears of announced changes, as far as the database can tell of them.
    pub fn wakeups(&self) -> Wakeups {
        let woken = Arc::new(Notify::new());
        let listener = match &self.driver {
            // Another process can't call out through a file.
            Driver::Sqlite(_) => None,
            Driver::Postgres(postgres) => Some(tokio::spawn(postgres.listen(Arc::clone(&woken)))),
        };
        Wakeups { woken, listener }
    }

    /// Brings the schema to this binary's version; many processes may do it at once. A SQLite file is
    /// created here and nowhere else, so that a lost file is noticed instead of replaced by an empty one.
    pub async fn migrate(&self) -> Result<Migrated, MigrateError> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.migrate().await,
            Driver::Postgres(postgres) => postgres.migrate().await,
        }
    }

    /// Copies an SQLite database to `file`, which must not exist, beside whoever uses it, and checks the copy. Meanwhile it
    /// is called `partial`, a name in the same folder. On PostgreSQL the server's own programs do that.
    ///
    /// # Errors
    /// Nothing is left at `file` then.
    pub async fn back_up(&self, file: &Path, partial: &Path) -> Result<Backup, Error> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.back_up(file, partial).await,
            Driver::Postgres(_) => Err(Error::Internal("a PostgreSQL is backed up by pg_dump".to_owned())),
        }
    }

    /// A handle to read with. It holds no connection and no transaction: each statement sees what is
    /// committed when it runs.
    pub async fn read(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteRead(Arc::clone(sqlite)),
            Driver::Postgres(postgres) => Inner::PostgresRead(Arc::clone(postgres)),
        };
        Ok(self.tx(inner))
    }

    /// A handle to read reports with: what it shows may be as old as the replica, so nothing may be decided by it. Without a
    /// replica that will do, it is the same as [`Db::read`].
    pub async fn reports(&self) -> Result<Tx, Error> {
        match (&self.replica, &self.driver) {
            (Some(replica), Driver::Postgres(primary)) if replica.is_good() => {
                Ok(self.tx(Inner::PostgresReports(Arc::clone(primary), Some(Arc::clone(replica)))))
            }
            _ => self.read().await,
        }
    }

    /// A write transaction. On SQLite there is one at a time, so hold it briefly.
    pub async fn write(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteWrite(sqlite.begin().await?),
            Driver::Postgres(postgres) => Inner::PostgresWrite(Box::new(postgres.begin(BEGIN).await?)),
        };
        Ok(self.tx(inner))
    }

    /// A write transaction for what can wait, and what a crash may lose: it gives way where somebody else holds a row for
    /// long, and its commit doesn't wait for the disk where that can be had.
    pub async fn write_behind(&self) -> Result<Tx, Error> {
        match &self.driver {
            Driver::Sqlite(_) => self.write().await,
            Driver::Postgres(postgres) => {
                Ok(self.tx(Inner::PostgresWrite(Box::new(postgres.begin(BEGIN_BEHIND).await?))))
            }
        }
    }

    /// A handle to read with, all of whose statements see the database as it is at the first of them; writers go on meanwhile.
    /// Each statement counts as a heavy one. Not for long: what is written meanwhile can't be tidied away.
    pub async fn snapshot(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteSnapshot(sqlite.snapshot().await?),
            Driver::Postgres(postgres) => {
                Inner::PostgresWrite(Box::new(postgres.begin(BEGIN_SNAPSHOT).await?))
            }
        };
        Ok(self.tx(inner))
    }

    /// Whether the database answers now.
    pub async fn ping(&self) -> Result<(), Error> {
        let text = match &self.driver {
            // A statement that has to look into the file; `SELECT 1` doesn't.
            Driver::Sqlite(sqlite) => {
                sqlite.notice_replaced_file();
                "SELECT COUNT(*) AS n FROM sqlite_schema"
            }
            Driver::Postgres(_) => "SELECT CAST(1 AS BIGINT) AS n",
        };
        let (_answer,): (i64,) = sql(text).one(&mut self.read().await?).await?;
        Ok(())
    }

    /// The time by the database server's clock; none where the database has no clock of its own.
    ///
    /// # Errors
    /// It doesn't answer.
    pub async fn clock(&self) -> Result<Option<Time>, Error> {
        match &self.driver {
            Driver::Sqlite(_) => Ok(None),
            Driver::Postgres(_) => {
                let (now,): (Time,) = sql(postgres::CLOCK).one(&mut self.read().await?).await?;
                Ok(Some(now))
            }
        }
    }

    /// Returns `true` if a commit is on disk when it returns: not on a PostgreSQL with `fsync = off`.
    ///
    /// # Errors
    /// It doesn't answer.
    pub async fn syncs_to_disk(&self) -> Result<bool, Error> {
        match &self.driver {
            Driver::Sqlite(_) => Ok(true),
            Driver::Postgres(postgres) => postgres.syncs_to_disk().await,
        }
    }

    /// The schema version that the database has.
    ///
    /// # Errors
    /// It doesn't answer, or has none.
    pub async fn schema(&self) -> Result<i64, Error> {
        let text = "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM refinery_schema_history";
        let (version,): (i64,) = sql(text).one(&mut self.read().await?).await?;
        Ok(version)
    }

    /// The connections, by what they are for.
    pub fn connections(&self) -> Vec<Connections> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.connections(),
            Driver::Postgres(postgres) => postgres.connections(),
        }
    }

    /// How many reads were answered by a statement that they shared with others; on SQLite none are.
    pub fn batched_reads(&self) -> u64 {
        match &self.driver {
            Driver::Sqlite(_) => 0,
            Driver::Postgres(postgres) => postgres.batched(),
        }
    }

    /// How many statements were asked for so far through this database and its clones; tests count the queries of
    /// a request with it.
    pub fn statement_count(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }

    /// Whether this is PostgreSQL: for the few places that need another text on each, such as the schema's
    /// comparison.
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

/// Ends a wait early when somebody has announced a change. It may miss some: whoever has to know also looks by itself.
pub struct Wakeups {
    woken: Arc<Notify>,
    listener: Option<JoinHandle<()>>,
}

impl Wakeups {
    /// Returns when a change was announced since the last call; on SQLite never.
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

/// What statements run on: a write transaction or a read handle.
///
/// Dropped without [`Tx::commit`], a transaction is rolled back.
pub struct Tx {
    inner: Inner,
    /// A statement failed or was cancelled half way: nothing goes on.
    failed: bool,
    /// Run right before the commit.
    at_commit: Vec<Statement>,
    /// What is told when it ends with a commit.
    announced: Vec<Change>,
    /// Of statements that wait for the next one.
    spans: Vec<telemetry::Open>,
    shared: Arc<Shared>,
}

enum Inner {
    SqliteRead(Arc<Sqlite>),
    SqliteWrite(sqlite::Transaction),
    SqliteSnapshot(sqlite::Snapshot),
    PostgresRead(Arc<Postgres>),
    /// The primary, and the replica until it is given up on.
    PostgresReports(Arc<Postgres>, Option<Arc<Replica>>),
    PostgresWrite(Box<postgres::Transaction>),
}

impl Tx {
    /// Makes the transaction's writes durable. An error means that they aren't, except when the database
    /// went away during the commit itself: then nobody knows.
    ///
    /// What was announced has reached [`Db::on_commit`] when this returns, also with an error: a commit that the
    /// database doesn't confirm may have been made.
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
        let _waiting = self.spans;
        let _told = Told { announced: self.announced, shared: self.shared };
        match self.inner {
            Inner::SqliteRead(_)
            | Inner::SqliteSnapshot(_)
            | Inner::PostgresRead(_)
            | Inner::PostgresReports(..) => Ok(()),
            Inner::SqliteWrite(transaction) => transaction.commit().await,
            Inner::PostgresWrite(transaction) => transaction.commit(announces).await,
        }
    }

    /// Notes what this transaction changes of what replicas hold in memory. This process is told of it at the commit,
    /// others are woken.
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

    /// Counts it, and traces it if somebody wants that.
    fn begin_statement(&self, statement: &Statement) -> Option<Box<telemetry::Open>> {
        self.shared.statements.fetch_add(1, Ordering::Relaxed);
        let mut span = telemetry::span("db.statement")?;
        // Values are bound, so the text has none.
        span.say("db.query.text", &statement.text);
        Some(span)
    }

    async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        if self.failed {
            return Err(already_failed());
        }
        let _span = self.begin_statement(&statement);
        let _waiting = std::mem::take(&mut self.spans);
        match &mut self.inner {
            Inner::SqliteRead(sqlite) => sqlite::read(sqlite, statement, want).await,
            Inner::SqliteSnapshot(snapshot) => snapshot.run(statement, want).await,
            Inner::PostgresRead(postgres) => postgres.read(statement, want).await,
            Inner::PostgresReports(primary, replica) => {
                if let Some(standby) = replica {
                    if let Some(answer) = standby.read(&statement, want).await {
                        return answer;
                    }
                    // One report doesn't go back and forth between two ages.
                    *replica = None;
                }
                primary.read(statement, want).await
            }
            Inner::SqliteWrite(transaction) => {
                // Set before and cleared after: a statement that is cancelled half way counts as failed too.
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

/// Tells at its end, however that comes: a caller that is cancelled within a commit doesn't undo it.
struct Told {
    announced: Vec<Change>,
    shared: Arc<Shared>,
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(call) = self.shared.on_commit.get().filter(|_| !self.announced.is_empty()) {
            call(&self.announced);
        }
    }
}

fn already_failed() -> Error {
    Error::Internal("a statement of this transaction failed before; it can only be dropped".to_owned())
}
