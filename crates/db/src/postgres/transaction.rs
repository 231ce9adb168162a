//! Transactions with as few round trips as possible.
//!
//! `BEGIN` is sent with the first statement, and deferred statements are sent with the next one or with the
//! commit. The server runs them in order, as if each had been awaited. After an error it refuses the rest,
//! and a commit that was sent with them rolls back.

use std::sync::Arc;

use deadpool_postgres::{Object, Pool};
use tokio::time::timeout;

use super::pipeline::{Commit, Pipeline};
use super::primary::Primary;
use super::session::{Begin, PoolMode};
use super::{
    CONNECT_TIMEOUT, Failure, POOL_SIZE, RESPONSE_TIMEOUT, disconnected, map_pool_error, with_timeout,
};
use crate::Error;
use crate::statement::{Answer, Statement, Want};

/// Maximum number of deferred statements. One more statement sends all of them.
const MAX_DEFERRED: usize = 16;

/// A write transaction.
pub(crate) struct Transaction {
    pool: Pool,
    /// `None` once the connection is known to be lost.
    client: Option<Object>,
    pool_mode: PoolMode,
    begin: Begin,
    /// `true` until something is sent; `BEGIN` is sent with the first statement.
    unsent: bool,
    /// `true` from the beginning of the transaction until it is known to have ended.
    open: bool,
    deferred: Vec<Statement>,
    primary: Arc<Primary>,
}

impl Transaction {
    /// Takes a connection from the pool.
    pub(super) async fn new(
        pool: &Pool,
        pool_mode: PoolMode,
        begin: Begin,
        primary: &Arc<Primary>,
    ) -> Result<Self, Failure> {
        let client = Some(connection(pool).await?);
        let (pool, deferred, primary) = (pool.clone(), Vec::new(), Arc::clone(primary));
        Ok(Self { pool, client, pool_mode, begin, unsent: true, open: false, deferred, primary })
    }

    /// Defers a statement to the next one or to the commit, which then returns its error.
    pub(crate) async fn defer(&mut self, statement: Statement) -> Result<(), Error> {
        if self.deferred.len() >= MAX_DEFERRED {
            self.run(statement, Want::Count).await?;
            return Ok(());
        }
        self.deferred.push(statement);
        Ok(())
    }

    /// Runs the deferred statements and then `statement`.
    pub(crate) async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        let mut batch = std::mem::take(&mut self.deferred);
        batch.push(statement);
        self.send(&batch, want, Commit::No).await.map_err(Failure::into_error)
    }

    /// Commits.
    ///
    /// An operator can cancel a commit's wait for a standby. Such a commit succeeds with a warning, but isn't
    /// durable, so an error is returned. The warning doesn't identify the commit. For this reason, a warning
    /// on any connection fails all commits in progress.
    pub(crate) async fn commit(mut self) -> Result<(), Error> {
        let unconfirmed = self.primary.unconfirmed_commits();
        let mut batch = std::mem::take(&mut self.deferred);
        if self.unsent && !batch.is_empty() {
            // Sent before the commit, to detect a dead connection: a commit is never sent twice.
            self.send(&batch, Want::Count, Commit::No).await.map_err(Failure::into_error)?;
            batch.clear();
        }
        self.send(&batch, Want::Count, Commit::Yes).await.map_err(Failure::into_error)?;
        self.open = false;
        if self.primary.unconfirmed_commits() != unconfirmed {
            let why = "a commit was canceled while it waited for its standby";
            return Err(Error::Unavailable(why.to_owned()));
        }
        Ok(())
    }

    /// Sends statements at once, and returns the result of the last one.
    async fn send(&mut self, batch: &[Statement], want: Want, commit: Commit) -> Result<Answer, Failure> {
        let unsent = std::mem::replace(&mut self.unsent, false);
        if !unsent {
            let answer = self.send_once(None, batch, want, commit).await;
            if matches!(answer, Err(Failure::Stale(_))) {
                self.forget_prepared();
            }
            return answer;
        }
        let mut answer = self.begin_and_send(batch, want, commit).await;
        if matches!(answer, Err(Failure::Stale(_))) {
            self.forget_prepared();
            // The error has aborted the transaction, which was empty, so a new one can replace it.
            self.roll_back().await?;
            answer = self.begin_and_send(batch, want, commit).await;
        }
        answer
    }

    /// Sends `BEGIN` with the first statements. If an idle connection turns out to be closed, nothing has run
    /// yet, so the next connection is tried. After a restart of the server, all of them may be closed. An
    /// unresponsive server isn't tried again, because it wouldn't respond on another connection either.
    async fn begin_and_send(
        &mut self,
        batch: &[Statement],
        want: Want,
        commit: Commit,
    ) -> Result<Answer, Failure> {
        for _ in 0..POOL_SIZE {
            match self.send_once(Some(self.begin), batch, want, commit).await {
                Err(Failure::Disconnected(_)) if commit == Commit::No => {
                    self.client = Some(connection(&self.pool).await?);
                }
                answer => return answer,
            }
        }
        self.send_once(Some(self.begin), batch, want, commit).await
    }

    async fn send_once(
        &mut self,
        begin: Option<Begin>,
        batch: &[Statement],
        want: Want,
        commit: Commit,
    ) -> Result<Answer, Failure> {
        let client = self.client.as_ref().ok_or_else(|| Failure::Disconnected(disconnected()))?;
        // Set first, so that the transaction is rolled back if the caller is canceled.
        self.open = true;
        let pipeline = Pipeline {
            begin: begin.map(|begin| (begin.text(self.pool_mode), CONNECT_TIMEOUT)),
            statements: batch,
            want,
            commit,
        };
        let answer = pipeline.send(client, self.pool_mode, None).await;
        // Close the connection if it is lost, or if the server refuses writes: it may have become a standby,
        // and the next connection finds the new primary.
        if matches!(
            answer,
            Err(Failure::Disconnected(_) | Failure::Unresponsive(_) | Failure::Refused(Error::ReadOnly(_)))
        ) {
            self.client.take().map(Object::take);
        }
        answer
    }

    async fn roll_back(&mut self) -> Result<(), Failure> {
        let client = self.client.as_ref().ok_or_else(|| Failure::Disconnected(disconnected()))?;
        let done = with_timeout(RESPONSE_TIMEOUT, client.batch_execute("ROLLBACK")).await;
        if done.is_err() {
            self.client.take().map(Object::take);
        }
        done
    }

    /// Clears the prepared statements of all connections of the pool: if one is stale, they all are.
    fn forget_prepared(&self) {
        self.pool.manager().statement_caches.clear();
    }
}

async fn connection(pool: &Pool) -> Result<Object, Failure> {
    pool.get().await.map_err(|error| Failure::Refused(map_pool_error(&error)))
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if !self.open {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime, close the connection: the server then rolls back.
            drop(Object::take(client));
            return;
        };
        runtime.spawn(async move {
            // The connection returns to the pool after the rollback. If the task is dropped with its runtime,
            // so is the guard, which closes the connection.
            let mut guard = CloseOnDrop(Some(client));
            if let Some(client) = &guard.0
                && matches!(timeout(CONNECT_TIMEOUT, client.batch_execute("ROLLBACK")).await, Ok(Ok(())))
            {
                guard.0.take();
            }
        });
    }
}

/// A connection that is closed when it is dropped, instead of returning to the pool.
struct CloseOnDrop(Option<Object>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}
