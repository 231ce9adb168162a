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
//! The drivers are named in `src/db/` only.

mod constraint;
mod error;
mod migrate;
mod postgres;
mod sqlite;
mod statement;
mod value;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use constraint::{Constraint, Reference};
pub use error::Error;
pub use migrate::{MigrateError, Migrated};
pub use statement::{Statement, sql};
pub use value::{FromRow, FromValue, Row, Value};

use postgres::Postgres;
use sqlite::Sqlite;
use statement::{Answer, Want};

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
        /// `postgres://user:password@host:port/database`.
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
    statements: Arc<AtomicU64>,
}

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
        Ok(Self { driver, statements: Arc::default() })
    }

    /// Brings the schema to this binary's version; many processes may do it at once. A SQLite file is
    /// created here and nowhere else, so that a lost file is noticed instead of replaced by an empty one.
    pub async fn migrate(&self) -> Result<Migrated, MigrateError> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.migrate().await,
            Driver::Postgres(postgres) => postgres.migrate().await,
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

    /// A write transaction. On SQLite there is one at a time, so hold it briefly.
    pub async fn write(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteWrite(sqlite.begin().await?),
            Driver::Postgres(postgres) => Inner::PostgresWrite(Box::new(postgres.begin().await?)),
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

    /// How many statements have run so far through this database and its clones; tests count the queries of
    /// a request with it.
    pub fn statement_count(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Whether this is PostgreSQL: for the few places that need another text on each, such as the schema's
    /// comparison.
    pub fn is_postgres(&self) -> bool {
        matches!(self.driver, Driver::Postgres(_))
    }

    fn tx(&self, inner: Inner) -> Tx {
        Tx { inner, failed: false, statements: Arc::clone(&self.statements) }
    }
}

/// What statements run on: a write transaction or a read handle.
///
/// Dropped without [`Tx::commit`], a transaction is rolled back.
pub struct Tx {
    inner: Inner,
    /// A statement failed or was cancelled half way: nothing goes on.
    failed: bool,
    statements: Arc<AtomicU64>,
}

enum Inner {
    SqliteRead(Arc<Sqlite>),
    SqliteWrite(sqlite::Transaction),
    PostgresRead(Arc<Postgres>),
    PostgresWrite(Box<postgres::Transaction>),
}

impl Tx {
    /// Makes the transaction's writes durable. An error means that they aren't, except when the database
    /// went away during the commit itself: then nobody knows.
    pub async fn commit(self) -> Result<(), Error> {
        if self.failed {
            return Err(already_failed());
        }
        match self.inner {
            Inner::SqliteRead(_) | Inner::PostgresRead(_) => Ok(()),
            Inner::SqliteWrite(transaction) => transaction.commit().await,
            Inner::PostgresWrite(transaction) => transaction.commit().await,
        }
    }

    async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        if self.failed {
            return Err(already_failed());
        }
        self.statements.fetch_add(1, Ordering::Relaxed);
        match &mut self.inner {
            Inner::SqliteRead(sqlite) => sqlite::read(sqlite, statement, want).await,
            Inner::PostgresRead(postgres) => postgres.read(&statement, want).await,
            Inner::SqliteWrite(transaction) => {
                // Set before and cleared after: a statement that is cancelled half way counts as failed too.
                self.failed = true;
                let answer = transaction.run(statement, want).await?;
                self.failed = false;
                Ok(answer)
            }
            Inner::PostgresWrite(transaction) => {
                self.failed = true;
                let answer = transaction.run(&statement, want).await?;
                self.failed = false;
                Ok(answer)
            }
        }
    }
}

fn already_failed() -> Error {
    Error::Internal("a statement of this transaction failed before; it can only be dropped".to_owned())
}
