//! The handle of a database: begins transactions, and reads outside of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::connections::Connections;
use crate::migrate::{MigrateError, MigrationReport, newest_schema};
use crate::postgres::{Begin, Postgres, Standby};
use crate::sqlite::{Backup, Sqlite};
use crate::statement::sql;
use crate::tx::{Inner, Shared, Tx};
use crate::{Change, Error};
use kernel::futures::BoxFuture;

/// The location of a database.
#[derive(Clone)]
pub enum Settings {
    /// A file on this machine.
    Sqlite {
        /// The database file. Its folder also contains `-wal`, `-shm` and `.migrate-lock` files.
        path: PathBuf,
    },
    /// A server.
    Postgres {
        /// `postgres://user:password@host:port/database`, with commas between several hosts, and with
        /// `?pool_mode=transaction` for a pooler in transaction mode.
        url: String,
    },
}

/// Leaves out the URL, which contains a password.
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
    /// The standby that serves reports while its lag is small enough.
    standby: Option<Arc<Standby>>,
    shared: Arc<Shared>,
}

#[derive(Clone)]
enum Driver {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

impl Db {
    /// Prepares a database without connecting. Statements open connections as needed, so a database that
    /// starts after this process needs no restart.
    ///
    /// # Errors
    /// The URL, or a file that it refers to, is invalid.
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
    /// The URL, or a file that it refers to, is invalid.
    pub fn with_standby(mut self, url: &str, max_lag: Duration) -> Result<Self, Error> {
        if !self.is_postgres() {
            return Err(Error::Internal("only PostgreSQL has standbys".to_owned()));
        }
        self.standby = Some(Arc::new(Standby::new(url, max_lag)?));
        Ok(self)
    }

    /// Measures the lag of the standby until the future is dropped. Returns immediately without a standby.
    pub async fn watch_standby(&self) {
        if let (Some(standby), Driver::Postgres(primary)) = (&self.standby, &self.driver) {
            standby.watch(Arc::clone(primary)).await;
        }
    }

    /// Looks for a newer primary among the hosts of the URL until the future is dropped. Returns immediately
    /// with only one host, and on SQLite.
    pub async fn watch_primary(&self) {
        if let Driver::Postgres(postgres) = &self.driver {
            postgres.watch_primary().await;
        }
    }

    /// Stops using all open connections. New connections look for the primary. Has no effect on SQLite.
    pub fn look_again(&self) {
        if let Driver::Postgres(postgres) = &self.driver {
            postgres.look_again();
        }
    }

    /// Returns once everything that could be read before the call is durable, including on a synchronous
    /// standby.
    ///
    /// An operator, or a restart of the server, can cut short a commit's wait for its standby. Such a commit
    /// can be read, although a failover may lose it. A repeated change therefore counts as done only after
    /// this call, not because its effect can be read.
    ///
    /// # Errors
    /// The standby doesn't confirm the data, or the database fails.
    pub async fn confirm(&self) -> Result<(), Error> {
        let Driver::Postgres(_) = &self.driver else { return Ok(()) };
        let mut tx = self.write().await?;
        // The commit of this message waits until the standby has it, along with all earlier commits.
        sql("SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
                         THEN pg_logical_emit_message(true, 'tollkeeper', '') END")
        .execute(&mut tx)
        .await?;
        tx.commit().await
    }

    /// Returns the highest known timeline of a primary; `None` on SQLite, and if servers don't report it.
    pub fn timeline(&self) -> Option<u32> {
        match &self.driver {
            Driver::Sqlite(_) => None,
            Driver::Postgres(postgres) => postgres.timeline(),
        }
    }

    /// Notes a timeline that another replica writes to. From now on, a primary with a lower timeline isn't
    /// used.
    pub fn note_timeline(&self, timeline: u32) {
        if let Driver::Postgres(postgres) = &self.driver {
            postgres.note_timeline(timeline);
        }
    }

    /// Sets the callback for announced changes. It is called after the end of each transaction and before
    /// [`Tx::commit`] returns. Later calls have no effect.
    pub fn on_commit(&self, call: impl Fn(&[Change]) + Send + Sync + 'static) {
        drop(self.shared.on_commit.set(Box::new(call)));
    }

    /// Migrates the schema to this binary's version. Several processes may call this at the same time.
    ///
    /// Only this function creates an SQLite file, so that a lost file is noticed and not replaced by an empty
    /// one.
    pub fn migrate(&self) -> BoxFuture<'_, Result<MigrationReport, MigrateError>> {
        self.migrate_to(newest_schema())
    }

    /// Like [`Db::migrate`], but to an earlier version, for tests of later steps.
    pub fn migrate_to(&self, version: i64) -> BoxFuture<'_, Result<MigrationReport, MigrateError>> {
        match &self.driver {
            Driver::Sqlite(sqlite) => Box::pin(sqlite.migrate(version)),
            Driver::Postgres(postgres) => Box::pin(postgres.migrate(version)),
        }
    }

    /// Copies an SQLite database in use to `file`, which must not exist, and verifies the copy. Until it is
    /// verified, the copy has the path `partial`, which is in the same folder.
    ///
    /// # Errors
    /// The copy failed, and `file` wasn't created; or the database is PostgreSQL, for which operators use
    /// `pg_dump`.
    pub async fn back_up(&self, file: &Path, partial: &Path) -> Result<Backup, Error> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.back_up(file, partial).await,
            Driver::Postgres(_) => Err(Error::Internal("PostgreSQL is backed up by pg_dump".to_owned())),
        }
    }

    /// Returns a handle for reads, which has neither a connection nor a transaction. Each statement sees the
    /// data committed when it runs.
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

    /// Begins a write transaction. SQLite allows only one at a time, so keep it short.
    pub fn write(&self) -> BoxFuture<'_, Result<Tx, Error>> {
        Box::pin(self.begin_write())
    }

    async fn begin_write(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteWrite(sqlite.begin().await?),
            Driver::Postgres(postgres) => Inner::PostgresWrite(Box::new(postgres.begin(Begin::Write).await?)),
        };
        Ok(self.tx(inner))
    }

    /// Begins a write transaction for data that isn't urgent and that a crash may lose. On PostgreSQL, it
    /// fails after waiting 200 ms for a lock, and its commit doesn't wait for the disk. On SQLite, it is the
    /// same as [`Db::write`].
    pub fn write_behind(&self) -> BoxFuture<'_, Result<Tx, Error>> {
        Box::pin(self.begin_write_behind())
    }

    async fn begin_write_behind(&self) -> Result<Tx, Error> {
        match &self.driver {
            Driver::Sqlite(_) => self.begin_write().await,
            Driver::Postgres(postgres) => {
                Ok(self.tx(Inner::PostgresWrite(Box::new(postgres.begin(Begin::WriteBehind).await?))))
            }
        }
    }

    /// Returns a read handle on a snapshot, taken by its first statement; each statement counts as heavy.
    /// Writers aren't blocked, but space can't be reclaimed in the meantime, so keep it short.
    pub fn snapshot(&self) -> BoxFuture<'_, Result<Tx, Error>> {
        Box::pin(self.begin_snapshot())
    }

    async fn begin_snapshot(&self) -> Result<Tx, Error> {
        let inner = match &self.driver {
            Driver::Sqlite(sqlite) => Inner::SqliteSnapshot(sqlite.snapshot().await?),
            Driver::Postgres(postgres) => {
                Inner::PostgresWrite(Box::new(postgres.begin(Begin::Snapshot).await?))
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

    /// Returns the connections, per purpose.
    pub fn connections(&self) -> Vec<Connections> {
        match &self.driver {
            Driver::Sqlite(sqlite) => sqlite.connections(),
            Driver::Postgres(postgres) => postgres.connections(),
        }
    }

    /// Returns the number of statements run so far, including those of clones, for tests that count the
    /// queries of a request.
    pub fn statement_count(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }

    /// Returns `true` on PostgreSQL: for the few statements that need a different text.
    pub fn is_postgres(&self) -> bool {
        matches!(self.driver, Driver::Postgres(_))
    }

    fn tx(&self, inner: Inner) -> Tx {
        Tx::new(inner, Arc::clone(&self.shared))
    }
}
