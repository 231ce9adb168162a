//! A transaction: as few waits for the server as its caller needs answers.
//!
//! `BEGIN` goes out with the first statement, and statements whose answers nobody needs go out with the one after them or
//! with the commit. The server runs what it is sent one after the other, as if each had been waited for; after an error it
//! refuses the rest, and then even a commit that has been sent already undoes everything.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use futures_util::future::maybe_done;
use tokio::time::timeout;
use tokio_postgres::Statement as Prepared;

use super::announcer::Announcer;
use super::{ANSWER_PATIENCE, Failure, PATIENCE, POOL_SIZE, gone, map_pool_error, types, within};
use crate::Error;
use crate::statement::{Answer, Statement, Want};

/// Statements that wait to be sent; one more sends them.
const MOST_WAITING: usize = 16;

/// A write transaction.
pub(crate) struct Transaction {
    pool: Pool,
    announcer: Arc<Announcer>,
    /// Away once the connection is known to be lost.
    client: Option<Object>,
    begun_by: &'static str,
    /// Nothing was sent yet, not even what begins it.
    untouched: bool,
    /// Begun, and neither committed nor known to have ended.
    open: bool,
    /// To be sent with the next statement.
    waiting: Vec<Statement>,
}

impl Transaction {
    /// Takes a connection for it.
    pub(super) async fn on(
        pool: &Pool,
        announcer: &Arc<Announcer>,
        begun_by: &'static str,
    ) -> Result<Self, Failure> {
        let client = Some(connection(pool).await?);
        let (pool, announcer) = (pool.clone(), Arc::clone(announcer));
        Ok(Self { pool, announcer, client, begun_by, untouched: true, open: false, waiting: Vec::new() })
    }

    /// Has a statement run with the next one, or with the commit, which report its error.
    pub(crate) async fn defer(&mut self, statement: Statement) -> Result<(), Error> {
        if self.waiting.len() >= MOST_WAITING {
            self.run(statement, Want::Count).await?;
            return Ok(());
        }
        self.waiting.push(statement);
        Ok(())
    }

    /// Runs what waits, and a statement after it.
    pub(crate) async fn run(&mut self, statement: Statement, want: Want) -> Result<Answer, Error> {
        let mut batch = std::mem::take(&mut self.waiting);
        batch.push(statement);
        self.send(&batch, want, Commit::No).await.map_err(Failure::into_error)
    }

    /// Commits; with `announces`, whoever listens is woken by it or soon after.
    pub(crate) async fn commit(mut self, announces: bool) -> Result<(), Error> {
        let mut batch = std::mem::take(&mut self.waiting);
        if self.untouched && !batch.is_empty() {
            // It has to be known by then whether the connection is alive: a commit is never sent twice.
            self.send(&batch, Want::Count, Commit::No).await.map_err(Failure::into_error)?;
            batch.clear();
        }
        let announces_itself = announces && self.announcer.has_turn();
        let _owing = (announces && !announces_itself).then(|| self.announcer.owe());
        let commit = if announces_itself { Commit::Announcing } else { Commit::Quiet };
        self.send(&batch, Want::Count, commit).await.map_err(Failure::into_error)?;
        self.open = false;
        Ok(())
    }

    /// Sends statements in one go: what the last one answered.
    async fn send(&mut self, batch: &[Statement], want: Want, commit: Commit) -> Result<Answer, Failure> {
        let untouched = std::mem::replace(&mut self.untouched, false);
        if !untouched {
            let answer = self.send_once(None, batch, want, commit).await;
            if matches!(answer, Err(Failure::Stale(_))) {
                self.forget_prepared();
            }
            return answer;
        }
        let mut answer = self.begin_and_send(batch, want, commit).await;
        if matches!(answer, Err(Failure::Stale(_))) {
            self.forget_prepared();
            // The error has ended the transaction, but nothing was in it: another one does as well.
            self.roll_back().await?;
            answer = self.begin_and_send(batch, want, commit).await;
        }
        answer
    }

    /// The same, and begins. A connection that died while idle may not know it yet. Nothing has happened by then that lasts, so
    /// the next one may be tried; after a restart of the server all of them may be like that. A server that is silent would be
    /// so on the next one as well.
    async fn begin_and_send(
        &mut self,
        batch: &[Statement],
        want: Want,
        commit: Commit,
    ) -> Result<Answer, Failure> {
        for _ in 0..POOL_SIZE {
            match self.send_once(Some(self.begun_by), batch, want, commit).await {
                Err(Failure::Gone(_)) if commit == Commit::No => {
                    self.client = Some(connection(&self.pool).await?);
                }
                answer => return answer,
            }
        }
        self.send_once(Some(self.begun_by), batch, want, commit).await
    }

    async fn send_once(
        &mut self,
        begin: Option<&'static str>,
        batch: &[Statement],
        want: Want,
        commit: Commit,
    ) -> Result<Answer, Failure> {
        let client = self.client.as_ref().ok_or_else(|| Failure::Gone(gone()))?;
        // Set first: a caller that is cancelled from here on leaves no open transaction behind.
        self.open = true;
        let answer = pipeline(client, begin, batch, want, commit.text(&self.announcer)).await;
        // Throws the connection away when it is lost, or leads to a server that takes no writes: it may have become a
        // standby, and the next connection finds the one that isn't.
        if matches!(answer, Err(Failure::Gone(_) | Failure::Silent(_) | Failure::Refused(Error::ReadOnly(_))))
        {
            self.client.take().map(Object::take);
        }
        answer
    }

    async fn roll_back(&mut self) -> Result<(), Failure> {
        let client = self.client.as_ref().ok_or_else(|| Failure::Gone(gone()))?;
        let done = within(ANSWER_PATIENCE, client.batch_execute("ROLLBACK")).await;
        if done.is_err() {
            self.client.take().map(Object::take);
        }
        done
    }

    /// What one connection had prepared too early, the others have as well: all of the pool prepare anew.
    fn forget_prepared(&self) {
        self.pool.manager().statement_caches.clear();
    }
}

async fn connection(pool: &Pool) -> Result<Object, Failure> {
    pool.get().await.map_err(|error| Failure::Refused(map_pool_error(&error)))
}

/// Whether a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    No,
    Quiet,
    /// Whoever listens is woken.
    Announcing,
}

impl Commit {
    fn text(self, announcer: &Announcer) -> Option<&str> {
        match self {
            Self::No => None,
            Self::Quiet => Some("COMMIT"),
            Self::Announcing => Some(announcer.commit()),
        }
    }
}

/// Something that is sent.
#[derive(Clone, Copy)]
enum Message<'a> {
    /// A text without parameters or an answer.
    Plain(&'a str),
    Statement(&'a Prepared, &'a Statement, Want),
}

impl Message<'_> {
    fn patience(self) -> Duration {
        // What begins a transaction waits for nobody.
        if matches!(self, Self::Plain(text) if text.starts_with("BEGIN")) {
            PATIENCE
        } else {
            ANSWER_PATIENCE
        }
    }

    /// It leaves when this is polled for the first time.
    async fn send(self, client: &Object) -> Result<Option<Answer>, tokio_postgres::Error> {
        match self {
            Self::Plain(text) => client.batch_execute(text).await.map(|()| None),
            Self::Statement(prepared, statement, want) => {
                types::run_prepared(client, prepared, statement, want).await.map(Some)
            }
        }
    }
}

/// Sends all of it at once and takes the answers in their order: the last statement's, or the first failure.
async fn pipeline(
    client: &Object,
    begin: Option<&str>,
    batch: &[Statement],
    want: Want,
    commit: Option<&str>,
) -> Result<Answer, Failure> {
    // Before anything is sent: to prepare one may take an answer, and what comes after it would overtake it.
    let mut prepared = Vec::with_capacity(batch.len());
    for statement in batch {
        prepared.push(within(ANSWER_PATIENCE, types::prepare(client, statement)).await?);
    }
    let mut messages = Vec::with_capacity(batch.len() + 2);
    messages.extend(begin.map(Message::Plain));
    for (place, (statement, prepared)) in batch.iter().zip(&prepared).enumerate() {
        let want = if place + 1 == batch.len() { want } else { Want::Count };
        messages.push(Message::Statement(prepared, statement, want));
    }
    messages.extend(commit.map(Message::Plain));
    if let [only] = messages[..] {
        return Ok(within(only.patience(), only.send(client)).await?.unwrap_or_default());
    }
    let mut sent: Vec<_> =
        messages.iter().map(|message| Box::pin(maybe_done(message.send(client)))).collect();
    // Once each, which sends it; the answers are waited for below.
    poll_fn(|context| {
        for one in &mut sent {
            let _answered = one.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    let mut answer = None;
    for (message, mut one) in messages.iter().zip(sent) {
        let done = async {
            one.as_mut().await;
            one.as_mut().take_output().unwrap_or(Ok(None))
        };
        answer = within(message.patience(), done).await?.or(answer);
    }
    Ok(answer.unwrap_or_default())
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if !self.open {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Nobody is left to roll it back; closing the connection makes the server do it.
            drop(Object::take(client));
            return;
        };
        runtime.spawn(async move {
            // Until the task is done, the connection isn't back in the pool. A task that dies with its
            // runtime drops the guard, and with it the connection.
            let mut unclean = Unclean(Some(client));
            if let Some(client) = &unclean.0
                && matches!(timeout(PATIENCE, client.batch_execute("ROLLBACK")).await, Ok(Ok(())))
            {
                unclean.0.take();
            }
        });
    }
}

/// A connection in an unknown state: dropped like this, it is closed instead of going back to the pool.
struct Unclean(Option<Object>);

impl Drop for Unclean {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}
