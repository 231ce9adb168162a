//! Transactions and read handles: run statements, announce changes, commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::postgres::{self, Postgres, Standby};
use crate::sqlite::{self, Sqlite};
use crate::statement::{Answer, Statement, Want};
use crate::{Change, Error};
use kernel::futures::BoxFuture;

/// State that a database shares with its clones and transactions.
#[derive(Default)]
pub(super) struct Shared {
    /// The number of statements so far.
    pub(super) statements: AtomicU64,
    pub(super) on_commit: OnceLock<OnCommit>,
}

/// A callback for the changes that a transaction has announced.
pub(super) type OnCommit = Box<dyn Fn(&[Change]) + Send + Sync>;

/// A write transaction or a read handle, on which statements run.
///
/// A transaction that is dropped without [`Tx::commit`] is rolled back.
pub struct Tx {
    inner: Inner,
    /// `true` once a statement has failed or was canceled. All further statements then fail.
    failed: bool,
    /// Statements to run right before the commit.
    pub(super) at_commit: Vec<Statement>,
    /// Changes to announce at the commit.
    announced: Vec<Change>,
    /// Spans of deferred statements.
    spans: Vec<telemetry::Span>,
    shared: Arc<Shared>,
}

/// The driver or transaction that runs the statements of a [`Tx`].
pub(super) enum Inner {
    SqliteRead(Arc<Sqlite>),
    SqliteWrite(sqlite::Transaction),
    SqliteSnapshot(sqlite::Snapshot),
    PostgresRead(Arc<Postgres>),
    /// The primary, and the standby until it fails.
    PostgresReports(Arc<Postgres>, Option<Arc<Standby>>),
    PostgresWrite(Box<postgres::Transaction>),
}

impl Tx {
    pub(super) fn new(inner: Inner, shared: Arc<Shared>) -> Self {
        Self { inner, failed: false, at_commit: Vec::new(), announced: Vec::new(), spans: Vec::new(), shared }
    }

    /// Commits the transaction. Announced changes have reached the callback of [`crate::Db::on_commit`] when
    /// this returns, even with an error, because a commit that the database doesn't confirm may have
    /// happened.
    ///
    /// # Errors
    /// Nothing was written. If the connection was lost during the commit itself, the outcome is unknown.
    pub fn commit(self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(self.commit_all())
    }

    async fn commit_all(mut self) -> Result<(), Error> {
        if !self.at_commit.is_empty() {
            // Boxed, because few transactions have such statements.
            Box::pin(self.defer_last_statements()).await?;
        }
        if self.failed {
            return Err(already_failed());
        }
        let _span = telemetry::span("db.commit");
        let _deferred = self.spans;
        let _notify = NotifyOnDrop { announced: self.announced, shared: self.shared };
        match self.inner {
            Inner::SqliteRead(_)
            | Inner::SqliteSnapshot(_)
            | Inner::PostgresRead(_)
            | Inner::PostgresReports(..) => Ok(()),
            Inner::SqliteWrite(transaction) => transaction.commit().await,
            Inner::PostgresWrite(transaction) => transaction.commit().await,
        }
    }

    /// Announces a change of data that replicas cache. The commit notifies this process with the callback of
    /// [`crate::Db::on_commit`]; other replicas read it from the table `changes`.
    pub fn announce(&mut self, change: Change) {
        self.announced.push(change);
    }

    /// Returns `true` if this transaction has announced this change already.
    pub fn has_announced(&self, change: Change) -> bool {
        self.announced.contains(&change)
    }

    async fn defer_last_statements(&mut self) -> Result<(), Error> {
        for statement in std::mem::take(&mut self.at_commit) {
            self.defer(statement).await?;
        }
        Ok(())
    }

    /// Runs a statement that locks rows, deferred. Does nothing in a write transaction of SQLite.
    pub(super) async fn lock(&mut self, statement: Statement) -> Result<(), Error> {
        match &self.inner {
            Inner::SqliteWrite(_) if self.failed => Err(already_failed()),
            Inner::SqliteWrite(_) => Ok(()),
            _ => self.defer(statement).await,
        }
    }

    pub(super) fn defer(&mut self, statement: Statement) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.run_or_defer(statement))
    }

    async fn run_or_defer(&mut self, statement: Statement) -> Result<(), Error> {
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

    pub(super) fn run(&mut self, statement: Statement, want: Want) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(self.run_now(statement, want))
    }

    async fn run_now(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
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
                    // The rest of the report is also read from the primary, so that the report doesn't mix
                    // data of two ages.
                    *standby = None;
                }
                primary.read(statement, want).await
            }
            Inner::SqliteWrite(transaction) => {
                // Set before and cleared after, so that a canceled statement counts as failed.
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

/// Calls the callback for announced changes when it is dropped, even if the commit fails or is canceled,
/// because the commit may have happened.
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
